use std::path::Path;

use image::RgbImage;

use super::*;
use crate::data::testing::{self, REQUEST};

/// Returns two classes under fog and snow at severities 1 and 2. The gray of each image encodes its folder.
fn corrupted() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (c, corruption) in ["fog", "snow"].into_iter().enumerate() {
        for severity in [1, 2] {
            for (k, class) in ["ant", "cat"].into_iter().enumerate() {
                let folder = root.path().join(corruption).join(severity.to_string()).join(class);
                std::fs::create_dir_all(&folder).unwrap();
                let gray = (100 * c + 10 * severity + k) as u8;
                RgbImage::from_pixel(4, 4, image::Rgb([gray; 3])).save(folder.join("a.png")).unwrap();
            }
        }
    }
    root
}

fn set(root: &Path, extra: &str) -> Box<dyn Dataset> {
    testing::set(&ENTRY, root, extra)
}

fn request() -> Request<'static> {
    Request { memory_bytes: usize::MAX, workers: 1, ..REQUEST }
}

#[test]
fn each_version_is_a_test_set() {
    let root = corrupted();
    let set = set(root.path(), "severities = [1, 2]");
    let versions = set.versions().unwrap();
    let names: Vec<String> = versions.iter().map(Version::to_string).collect();
    assert_eq!(names, ["fog:1", "fog:2", "snow:1", "snow:2"]);
    assert_eq!(set.classes().unwrap(), ["ant", "cat"]);
    for (version, grays) in versions.iter().zip([[10, 11], [20, 21], [110, 111], [120, 121]]) {
        let split = set.load_version(version, &request()).unwrap();
        assert_eq!((split.name, split.labels), (format!("image-folder-c/{version}"), vec![0, 1]));
        let pixels = split.inputs.gather(&[0, 1]).unwrap();
        assert_eq!([pixels[0], pixels[48]], grays);
    }
    assert_eq!(set.label(), root.path().file_name().unwrap().to_str().unwrap());
}

#[test]
fn options_are_those_of_image_folder() {
    let root = corrupted();
    let set = set(
        root.path(),
        "corruptions = [\"snow\"]\nseverities = [2]\nclasses = [\"cat\", \"ant\"]\nskip_corrupt = true",
    );
    std::fs::write(root.path().join("snow/2/ant/b.png"), "damaged").unwrap();
    let split = set.load_version(&set.versions().unwrap()[0], &request()).unwrap();
    assert_eq!((split.labels, split.corrupt_skipped), (vec![0, 1], 1));
    let resolved = set.resolved();
    assert_eq!(
        resolved.keys().collect::<Vec<_>>(),
        ["classes", "corruptions", "resize", "root", "severities", "skip_corrupt"]
    );
    let strict = self::set(root.path(), "severities = [2]");
    let snow = Version { corruption: "snow".into(), severity: 2 };
    let text = strict.load_version(&snow, &request()).unwrap_err().to_string();
    assert!(
        text.contains("1 of 3 images cannot be decoded") && text.contains("data.image-folder-c.skip_corrupt"),
        "{text}"
    );
}

#[test]
fn missing_folders_are_named_at_once() {
    let root = corrupted();
    let text =
        set(root.path(), "corruptions = [\"fog\", \"rain\"]\nseverities = [1, 5]").versions().unwrap_err().to_string();
    assert!(text.contains("3 of 4 folders <corruption>/<severity> are missing: fog/5, rain/1, rain/5;"), "{text}");
    let gone = set(&root.path().join("gone"), "").versions().unwrap_err().to_string();
    assert!(gone.ends_with("gone: no such folder; set data.image-folder-c.root"));
    let rain = Version { corruption: "rain".into(), severity: 1 };
    let text = set(root.path(), "").load_version(&rain, &request()).unwrap_err().to_string();
    assert!(text.contains("no such folder, so there is no version `rain:1`"), "{text}");
    let text = set(root.path(), "").load(SplitName::Test, &request()).unwrap_err().to_string();
    assert!(text.contains("no plain test split"), "{text}");
}
