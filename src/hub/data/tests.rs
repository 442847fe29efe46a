use std::path::Path;

use super::*;
use crate::hub::tests::server::{COMMIT, Fault};
use crate::hub::tests::{Case, SNAPSHOT};

#[test]
fn the_files_of_a_data_set_that_are_chosen_have_the_layout_of_the_python_package() {
    let case = Case::new();
    case.hub.put_data(
        "org/set",
        &[
            ("data/train-00000-of-00001.parquet", b"train"),
            ("data/test-00000-of-00001.parquet", b"test"),
            ("README.md", b"# set"),
        ],
    );
    let root = Path::new("hf://datasets/org/set");
    let tables = |split: &'static str| {
        move |files: &[String]| {
            files.iter().filter(|file| file.contains(split) || *file == "README.md").cloned().collect()
        }
    };
    let folder = data_folder_by(root, &tables("test"), &case.settings).unwrap();
    assert_eq!(folder, case.path(&SNAPSHOT.replace("models--org--tiny", "datasets--org--set")));
    let test = folder.join("data/test-00000-of-00001.parquet");
    assert!(std::fs::read_link(&test).unwrap().starts_with("../../../blobs"), "{test:?}");
    assert_eq!(std::fs::read(&test).unwrap(), b"test");
    assert_eq!(std::fs::read(folder.join("README.md")).unwrap(), b"# set");
    assert!(!folder.join("data/train-00000-of-00001.parquet").exists(), "another split was downloaded");
    case.hub.seen();
    data_folder_by(Path::new("hf://org/set"), &tables("test"), &case.settings).unwrap();
    assert_eq!(case.hub.seen(), [], "what is there is asked for again");
    data_folder_by(root, &tables("train"), &case.settings).unwrap();
    assert_eq!(std::fs::read(folder.join("data/train-00000-of-00001.parquet")).unwrap(), b"train");
    let offline = Settings { offline: true, ..case.settings.clone() };
    assert_eq!(data_folder_by(root, &tables("test"), &offline).unwrap(), folder);
    let error = |root: &str, settings: &Settings| {
        format!("{:#}", data_folder_by(Path::new(root), &tables("test"), settings).unwrap_err())
    };
    assert!(error("hf://datasets/org/other", &offline).contains("hf://datasets/org/other: is not in"));
    assert!(error("hf://datasets/org/other", &case.settings).contains("hf://datasets/org/other: "));
    assert!(error("hf://datasets/a/b/c", &case.settings).contains("must be hf://datasets/ORG/NAME"));
    case.hub.fail("GET", "/api/datasets/", 1, Fault::Status(403, "x-error-code: GatedRepo"));
    case.hub.put_data("org/gated", &[("a.parquet", b"x")]);
    let gated = error("hf://datasets/org/gated", &case.settings);
    assert!(gated.contains("is gated") && gated.contains("/datasets/org/gated, and set HF_TOKEN"), "{gated}");
    assert_eq!(data_folder_by(Path::new("/plain"), &tables("test"), &case.settings).unwrap(), Path::new("/plain"));
}

#[test]
fn a_part_of_a_data_set_in_the_cache_is_not_taken_for_all_of_it() {
    let mut case = Case::new();
    case.hub.put_data("org/set", &[("train/0.tar", b"one"), ("train/1.tar", b"two")]);
    let root = Path::new("hf://datasets/org/set");
    let get = |settings: &Settings| {
        let folder = data_folder_by(root, &|files| files.to_vec(), settings);
        folder.map_err(|error| format!("{error:#}"))
    };
    case.hub.fail("GET", "train/1.tar", 9, Fault::Status(403, ""));
    get(&case.settings).unwrap_err();
    let offline = Settings { offline: true, ..case.settings.clone() };
    let first = case.path(&SNAPSHOT.replace("models--org--tiny", "datasets--org--set")).join("train/0.tar");
    assert!(first.is_file());
    // The branch is known as it is after a download that was whole.
    DataRoot::of(root, &case.settings).unwrap();
    let error = get(&offline).unwrap_err();
    for part in ["1 of the 2 files", "train/1.tar", "--offline"] {
        assert!(error.contains(part), "{error}");
    }
    // Another process, whose Hub does not answer.
    case.settings.endpoint = "http://127.0.0.1:1".into();
    case.settings.patience = std::time::Duration::from_millis(50);
    let error = get(&case.settings).unwrap_err();
    assert!(error.contains("1 of the 2 files"), "{error}");
}

#[test]
fn a_root_has_the_commit_that_its_name_means() {
    let case = Case::new();
    case.hub.put_data("org/set", &[("a.parquet", b"x")]);
    let root = |name: &str, settings: &Settings| {
        DataRoot::of(Path::new(name), settings)
            .map(|root| root.display().to_string())
            .map_err(|error| format!("{error:#}"))
    };
    let offline = Settings { offline: true, ..case.settings.clone() };
    assert!(root("hf://org/set", &offline).unwrap_err().contains("hf://datasets/org/set: is not in"));
    let pinned = format!("hf://datasets/org/set@{COMMIT}");
    assert_eq!(root("hf://org/set", &case.settings), Ok(pinned.clone()));
    // The branch means that commit from now on, here and elsewhere, without a request.
    case.hub.set_commit("fedcba9876543210fedcba9876543210fedcba98");
    case.hub.seen();
    for settings in [&case.settings, &offline] {
        assert_eq!(root("hf://datasets/org/set", settings), Ok(pinned.clone()));
        assert_eq!(root(&pinned, settings), Ok(pinned.clone()));
        assert_eq!(root("/plain", settings), Ok("/plain".to_string()));
    }
    assert_eq!(case.hub.seen(), []);
    assert_eq!(crate::hub::commit_in(&pinned).as_deref(), Some(COMMIT));
    assert_eq!(crate::hub::last_part(Path::new(&pinned)), "set");
}

#[test]
fn a_folder_of_the_cache_is_known_as_its_repository() {
    for (root, repository) in [
        ("hf://datasets/org/set@v1", Some("org/set")),
        ("hf://org/set", Some("org/set")),
        ("/home/me/hub/datasets--org--set/snapshots/0123", Some("org/set")),
        ("/home/me/data", None),
    ] {
        assert_eq!(repository_of(Path::new(root)).as_deref(), repository, "{root}");
    }
}
