//! Corrupted image files in the layout of ImageNet-C: `root/<corruption>/<severity>/<class>/…`, with severities 1 to 5.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;

use crate::data::read::cifar_c;
use crate::data::read::class_folders::{self, ClassFolders, expect_once};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::versions::CORRUPTIONS;
use crate::data::{Dataset, Entry, Request, Resize, Split, SplitName, Version};
use crate::hub::originals::Originals;
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "image-folder-c",
    about: "corrupted image files as in ImageNet-C: one folder a corruption, severity and class",
    fetch: "ImageNet-C's archives from https://zenodo.org/records/2235448 in one folder, or images laid out so: \
            ROOT/<corruption>/<severity>/<class>/<images>",
    marks: &[],
    originals: Originals::ByHand("these are your own files, or ImageNet-C's, whose images are under ImageNet's terms"),
    hub: None,
    read: |reader| Box::new(ImageFolderC::read(reader)),
    sample: Some(|reader| Box::new(ImageFolderC::read(reader))),
};

settings! {
    struct ImageFolderC {
        root: PathBuf, because "the folder that holds <corruption>/<severity>/<class>";
        /// Corruptions to read; all folders below `root` by default.
        corruptions: Option<Vec<String>>;
        severities: Vec<i64>, by cifar_c::read_severities;
        folders: ClassFolders, part |reader| ClassFolders::read(reader, ENTRY.key);
    } then check
}

impl ImageFolderC {
    fn check(&self, reader: &Reader) {
        expect_once(reader, "corruptions", "corruption", self.corruptions.as_deref().unwrap_or_default());
    }
}

impl Dataset for ImageFolderC {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        class_folders::label(ENTRY.key, &self.root, "")
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.folders.resize())
    }

    /// Returns the classes of the first version, unless the config names them.
    fn classes(&self) -> Result<Vec<String>> {
        if let Some(given) = &self.folders.classes {
            return Ok(given.clone());
        }
        let versions = self.versions()?;
        let first = versions.first().with_context(|| format!("{}: no versions in it", self.root.display()))?;
        class_folders::folders(&self.folder(first), "<class>/<images>")
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(Vec::new())
    }

    /// Always fails. A mixture of corruptions would be a test set that nobody reports on, so there is no plain split.
    fn load(&self, split: SplitName, _request: &Request) -> Result<Split> {
        match split {
            SplitName::Test => bail!(
                "image-folder-c has no plain test split, only corrupted versions <corruption>:<severity>, evaluated one \
                 by one (bella eval --data image-folder-c=ROOT); for one of them as a test set of its own use \
                 [data.image-folder]"
            ),
            _ => bail!("image-folder-c has corrupted test images only, no split `{split}`; use [data.image-folder]"),
        }
    }

    fn versions(&self) -> Result<Vec<Version>> {
        let root = self.root.display();
        ensure!(self.root.is_dir(), "{root}: no such folder; set data.image-folder-c.root");
        let corruptions = match &self.corruptions {
            Some(given) => given.clone(),
            None => class_folders::folders(&self.root, "<corruption>/<severity>/<class>/<images>")?,
        };
        let versions = self.of(&corruptions);
        let missing: Vec<String> = versions
            .iter()
            .filter(|version| !self.folder(version).is_dir())
            .map(|version| format!("{}/{}", version.corruption, version.severity))
            .collect();
        ensure!(
            missing.is_empty(),
            "{root}: {} of {} folders <corruption>/<severity> are missing: {}; add them, or name what is there in \
             data.image-folder-c.corruptions and severities",
            missing.len(),
            versions.len(),
            missing.join(", ")
        );
        Ok(versions)
    }

    fn load_version(&self, version: &Version, request: &Request) -> Result<Split> {
        let folder = self.folder(version);
        ensure!(folder.is_dir(), "{}: no such folder, so there is no version `{version}`", folder.display());
        self.folders.load(&folder, &self.classes()?, SplitName::Test, &version.to_string(), request)
    }
}

impl ImageFolderC {
    /// Returns the versions of these corruptions at all severities that are read.
    fn of(&self, corruptions: &[String]) -> Vec<Version> {
        let of = |corruption: &String| {
            let corruption = corruption.clone();
            // The range was checked when the config was read.
            self.severities.iter().map(move |&s| Version { corruption: corruption.clone(), severity: s as u8 })
        };
        corruptions.iter().flat_map(of).collect()
    }

    fn folder(&self, version: &Version) -> PathBuf {
        self.root.join(&version.corruption).join(version.severity.to_string())
    }
}

impl SmallSet for ImageFolderC {
    fn side(&self) -> u32 {
        224
    }

    /// Names the classes and the first corruptions.
    fn overrides(&self, sizes: &Sizes) -> toml::Table {
        let all = self.corruptions.clone().unwrap_or_else(|| CORRUPTIONS.map(String::from).to_vec());
        let corruptions: Vec<String> = all.into_iter().take(sizes.corruptions).collect();
        toml::Table::from_iter([
            ("corruptions".to_string(), corruptions.into()),
            ("classes".to_string(), self.folders.names(sizes).into()),
        ])
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let names = self.folders.names(sizes);
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        for version in self.of(self.corruptions.as_deref().unwrap_or_default()) {
            let made = class_folders::Made { count: sizes.test, seed: usize::from(version.severity), sizes };
            class_folders::write(&self.folder(&version), &names, made, &mut pictures)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!((split.labels, split.corrupt.unwrap().count), (vec![0, 1], 1));
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
        let text = set(root.path(), "corruptions = [\"fog\", \"rain\"]\nseverities = [1, 5]")
            .versions()
            .unwrap_err()
            .to_string();
        assert!(text.contains("3 of 4 folders <corruption>/<severity> are missing: fog/5, rain/1, rain/5;"), "{text}");
        let gone = set(&root.path().join("gone"), "").versions().unwrap_err().to_string();
        assert!(gone.ends_with("gone: no such folder; set data.image-folder-c.root"));
        let rain = Version { corruption: "rain".into(), severity: 1 };
        let text = set(root.path(), "").load_version(&rain, &request()).unwrap_err().to_string();
        assert!(text.contains("no such folder, so there is no version `rain:1`"), "{text}");
        let text = set(root.path(), "").load(SplitName::Test, &request()).unwrap_err().to_string();
        assert!(text.contains("no plain test split"), "{text}");
    }
}
