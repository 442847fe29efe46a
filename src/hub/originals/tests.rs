use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};

use super::*;
use crate::base::hash::hex;
use crate::base::tar::{header, packed};
use crate::hub::settings::Token;
use crate::hub::tests::Case;
use crate::hub::tests::server::Fault;

const HOST: &str = "files.example/set";

/// A server with one file of a set, and its entry.
fn published(name: &str, bytes: &[u8]) -> (Case, Original) {
    let mut case = Case::of(&[(&format!("{HOST}/{name}"), bytes)]);
    case.settings.data_mirror = Some(format!("{}/direct", case.hub.address));
    // It is the Hub's, and for no other server.
    case.settings.token = Some(Token("hf_secret".into()));
    let leaked = |text: String| &*text.leak();
    let (url, sha256) = (leaked(format!("https://{HOST}/{name}")), leaked(hex(Sha256::digest(bytes))));
    (case, Original::new(url, bytes.len() as u64, sha256))
}

fn get(case: &Case, file: &Original) -> Result<PathBuf, String> {
    let root = case.folder.path().join("data");
    fetch("pets", &[file], &root, &case.settings).map(|()| root).map_err(|error| format!("{error:#}"))
}

fn zipped(files: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, content) in files {
        zip.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// Returns the names below a folder.
fn names(root: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn archives_of_every_kind_are_unpacked_and_removed() {
    let files: [(&str, &[u8]); 3] = [("top/a.txt", b"one"), ("top/in/b.bin", &[3; 70_000]), ("__MACOSX/x", b"junk")];
    let tar = packed(files);
    for (name, bytes) in [
        ("set.tar", tar.clone()),
        ("set.tar.gz", gzipped(&tar)),
        ("set.tgz", gzipped(&tar)),
        ("set.zip", zipped(&files)),
    ] {
        let (case, file) = published(name, &bytes);
        let root = get(&case, &file).unwrap();
        assert_eq!(names(&root), ["top"], "{name}");
        assert_eq!(fs::read(root.join("top/in/b.bin")).unwrap(), [3; 70_000]);
        assert_eq!(fs::read(get(&case, &file.stripped()).unwrap().join("a.txt")).unwrap(), b"one");
    }
}

#[test]
fn a_plain_file_is_downloaded_once_and_a_cut_download_goes_on() {
    let bytes: Vec<u8> = (0..2_000_000u32).map(|at| (at % 251) as u8).collect();
    let (case, file) = published("set.mat", &bytes);
    case.hub.fail("GET", HOST, 9, Fault::Cut(300_000));
    let error = get(&case, &file).unwrap_err();
    assert!(error.contains("5 times") && error.contains("BELLA_DATA_MIRROR") && !error.contains("HF_"), "{error}");
    let root = case.folder.path().join("data");
    assert_eq!(names(&root), ["set.mat.incomplete"]);
    case.hub.heal();
    assert!(case.hub.seen().iter().all(|request| request.authorization.is_none()));
    assert_eq!(fs::read(get(&case, &file).unwrap().join("set.mat")).unwrap(), bytes);
    let from = case.hub.seen()[0].from;
    assert!(from.is_some_and(|from| from >= 1_500_000), "{from:?}");
    get(&case, &file).unwrap();
    assert_eq!(case.hub.seen(), [], "what is there is asked for again");
    assert_eq!(names(&root), ["set.mat"]);
}

/// An archive that has been unpacked and removed is not asked for again because a later file could not be had.
#[test]
fn an_unpacked_archive_is_not_downloaded_again() {
    let (name, other) = ("first.tar", "second.mat");
    let (tar, content) = (packed([("images/a.txt", &b"one"[..])]), b"content");
    let mut case = Case::of(&[(&format!("{HOST}/{name}"), &tar[..]), (&format!("{HOST}/{other}"), &content[..])]);
    case.settings.data_mirror = Some(format!("{}/direct", case.hub.address));
    let leaked = |text: String| &*text.leak();
    let of = |name: &str, bytes: &[u8]| {
        Original::new(leaked(format!("https://{HOST}/{name}")), bytes.len() as u64, leaked(hex(Sha256::digest(bytes))))
    };
    let (first, second) = (of(name, &tar), of(other, content));
    let root = case.folder.path().join("data");
    let get = || fetch("pets", &[&first, &second], &root, &case.settings).map_err(|error| format!("{error:#}"));
    case.hub.fail("GET", other, 1, Fault::Status(403, ""));
    assert!(get().unwrap_err().contains("answers 403"));
    assert_eq!(names(&root), [".fetch.unpacked", "images"]);
    case.hub.heal();
    case.hub.seen();
    get().unwrap();
    assert_eq!(case.hub.seen().len(), 1, "the archive is asked for again");
    assert_eq!(names(&root), ["images", "second.mat"]);
}

#[test]
fn what_cannot_be_had_is_one_line_with_the_way_out_and_leaves_nothing_half() {
    let (case, file) = published("set.mat", b"content");
    let refused = |case: &Case, file: &Original, contains: &[&str]| {
        let error = get(case, file).unwrap_err();
        assert!(!error.contains('\n') && contains.iter().all(|text| error.contains(text)), "{contains:?}: {error}");
        assert!(!case.folder.path().join("data/set.mat").exists(), "{error}");
    };
    refused(
        &case,
        &Original { sha256: "00", ..Original::new(file.url, 7, "") },
        &["it is not the published file and was removed"],
    );
    refused(&case, &Original::new(file.url, 8, file.sha256), &["has 7 bytes, not the 8", "BELLA_DATA_MIRROR"]);
    case.hub.fail("GET", HOST, 1, Fault::Status(403, ""));
    refused(&case, &file, &["pets: 127.0.0.1 answers 403", "bella data check pets", "BELLA_DATA_MIRROR"]);
    refused(&case, &Original::new(file.url, u64::MAX / 2, file.sha256), &["make room, or name a folder by --root"]);
    let offline = Case { settings: Settings { offline: true, ..case.settings.clone() }, ..case };
    refused(&offline, &file, &["pets: is to be downloaded", "--offline"]);
    offline.hub.stop();
    let none = Case {
        settings: Settings {
            offline: false,
            data_mirror: Some("http://nowhere.invalid".into()),
            ..offline.settings.clone()
        },
        ..offline
    };
    refused(&none, &file, &["pets: ", "nowhere.invalid"]);
}

#[test]
fn nothing_is_unpacked_outside_the_root() {
    let outside = "leads out of the folder";
    let of_zip = zipped(&[("../evil.txt", b"x")]);
    for (name, bytes) in [
        ("a.tar", packed([("../evil.txt", &b"x"[..])])),
        ("b.tar", packed([("/evil.txt", &b"x"[..])])),
        ("c.zip", of_zip),
    ] {
        let (case, file) = published(name, &bytes);
        let error = get(&case, &file).unwrap_err();
        assert!(error.contains(outside), "{name}: {error}");
        assert!(!case.folder.path().join("evil.txt").exists());
    }
    // A link in an archive is not made, so that a file behind it cannot lead out.
    let link = [header("top", 0, b'2'), packed([("top/a.txt", &b"x"[..])])].concat();
    let (case, file) = published("d.tar", &link);
    let root = get(&case, &file).unwrap();
    assert!(root.join("top").symlink_metadata().unwrap().is_dir());
    let (case, file) = published("e.tar", &packed([("top/a.txt", &b"x"[..])]));
    let root = case.folder.path().join("data");
    fs::create_dir_all(&root).unwrap();
    std::os::unix::fs::symlink(case.folder.path(), root.join("top")).unwrap();
    let error = get(&case, &file).unwrap_err();
    assert!(error.contains("leads out of"), "{error}");
    assert!(!case.folder.path().join("a.txt").exists());
}

#[test]
fn a_cut_archive_leaves_no_file_of_it() {
    let tar = packed([("a.txt", &b"one"[..]), ("b.txt", &[1; 4000])]);
    let (case, file) = published("set.tar", &tar[..2000]);
    let error = get(&case, &file).unwrap_err();
    assert!(error.contains("set.tar: cannot be unpacked: the tar archive is cut off"), "{error}");
    assert!(!case.folder.path().join("data/a.txt").exists());
}
