//! Test sets of a part of ImageNet's classes (ImageNet-A, ImageNet-R): one folder of images for each class, called by its
//! WordNet number, and no training images.
//!
//! The authors of both evaluate a model of a thousand classes among those of the set alone: the logits of the others are left
//! out before the softmax (`eval.py` of both repositories).

use std::path::PathBuf;

use anyhow::{Result, bail};
use image::ImageFormat;

use crate::data::read::cifar;
use crate::data::read::class_folders::{Made, scan, write};
use crate::data::read::image_files::ImageFiles;
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Published, Request, Resize, Split, SplitName};
use crate::schema::settings;

/// The way out that a message names where a folder is none of the set's classes.
pub const OTHERS: &str = "remove it, since the set has these classes alone";

/// The properties in which the sets differ.
pub struct Part {
    /// The registry key.
    pub key: &'static str,
    /// The folder in the published archive.
    pub folder: &'static str,
    /// The WordNet numbers of the classes in the order of their labels, one a line.
    pub classes: &'static str,
    /// The number of images.
    pub images: usize,
}

settings! {
    /// One of the sets as configured.
    pub struct ImageNetPart(part: &'static Part) {
        root: PathBuf, because &format!("the folder that holds {}", part.folder);
        /// Whether a model of more classes predicts among the set's own alone, as its authors evaluate.
        narrow: bool = true;
        files: ImageFiles, part |reader| ImageFiles::read(reader, part.key, Resize::ShorterSideCrop);
        part: &'static Part, given part;
    }
}

impl ImageNetPart {
    fn folder(&self) -> PathBuf {
        cifar::folder(&self.root, self.part.folder)
    }

    fn wnids(&self) -> Vec<String> {
        self.part.classes.lines().map(str::to_string).collect()
    }
}

impl Dataset for ImageNetPart {
    fn key(&self) -> &'static str {
        self.part.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.wnids())
    }

    /// Returns another name for predictions among all classes, whose results are not those of the papers.
    fn label(&self) -> String {
        let key = self.part.key;
        if self.narrow { key.to_string() } else { format!("{key}-among-all") }
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(vec![SplitName::Test])
    }

    fn published(&self) -> Published {
        Published::new(self.wnids().len(), &[(SplitName::Test, self.part.images)])
    }

    fn narrows(&self) -> bool {
        self.narrow
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        expect_test(self.part.key, split)?;
        self.files.load(scan(&self.folder(), &self.wnids(), OTHERS)?, split, request)
    }
}

impl SmallSet for ImageNetPart {
    fn side(&self) -> u32 {
        430
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let folder = self.root.join(self.part.folder);
        write(
            &folder,
            &self.wnids(),
            Made { count: sizes.test, seed: 0, sizes },
            &mut Pictures::new(sizes.side, ImageFormat::Jpeg),
        )
    }
}

/// Fails for a split of a set of ImageNet's classes that has test images alone.
pub fn expect_test(key: &str, split: SplitName) -> Result<()> {
    if split != SplitName::Test {
        bail!(
            "{key} has test images alone, no split `{split}`: train on [data.imagenet], and evaluate by --data {key}=ROOT"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::data::testing::{REQUEST, error, grays, load, mistakes, put, set};
    use crate::data::{Entry, SplitName, check, entry};

    fn of(key: &str) -> (&'static Entry, tempfile::TempDir) {
        (entry(key).unwrap(), tempfile::tempdir().unwrap())
    }

    /// The places of the first classes among the thousand, as the authors' code lists them.
    #[test]
    fn classes_are_the_published_ones() {
        for (key, first, last, places) in [
            ("imagenet-a", "n01498041", "n12267677", [6, 11, 13, 15, 17]),
            ("imagenet-r", "n01443537", "n12267677", [1, 2, 4, 6, 8]),
        ] {
            let (entry, root) = of(key);
            let classes = set(entry, root.path(), "").classes().unwrap();
            assert_eq!((classes.len(), &*classes[0], &*classes[199]), (200, first, last));
            let all = crate::data::read::wordnet::all();
            let found: Vec<usize> =
                classes[..5].iter().map(|wnid| all.iter().position(|one| one == wnid).unwrap()).collect();
            assert_eq!(found, places, "{key}");
        }
    }

    #[test]
    fn folders_are_classes_and_there_is_no_training_split() {
        let (entry, root) = of("imagenet-a");
        put(root.path(), "imagenet-a/n01531178/0.000_a.png", 5);
        put(root.path(), "imagenet-a/n01498041/0.002_b.png", 6);
        std::fs::write(root.path().join("imagenet-a/README.txt"), "").unwrap();
        let narrowed = set(entry, root.path(), "");
        let test = load(&*narrowed, SplitName::Test).unwrap();
        assert_eq!((grays(&test), &test.labels[..]), (vec![6, 5], &[0, 1][..]));
        assert_eq!((narrowed.label(), narrowed.narrows()), ("imagenet-a".into(), true));
        let among_all = set(entry, &root.path().join("imagenet-a"), "narrow = false");
        assert_eq!((among_all.label(), among_all.narrows()), ("imagenet-a-among-all".into(), false));
        assert_eq!(load(&*among_all, SplitName::Test).unwrap().labels, [0, 1]);
        let text = error(&*narrowed, SplitName::Train);
        assert!(
            text.starts_with("imagenet-a has test images alone, no split `train`: train on [data.imagenet]"),
            "{text}"
        );
        std::fs::create_dir(root.path().join("imagenet-a/n01440764")).unwrap();
        let text = error(&*narrowed, SplitName::Test);
        assert!(text.contains("n01440764: not one of the 200 classes; remove it, since the set has these"), "{text}");
        assert!(
            mistakes(entry, "classes = [\"a\"]").contains("unknown key"),
            "{}",
            mistakes(entry, "classes = [\"a\"]")
        );
    }

    #[test]
    fn a_part_of_the_images_is_found() {
        let (entry, root) = of("imagenet-r");
        put(root.path(), "imagenet-r/n01443537/art_0.png", 5);
        let scope = check::Scope { split: None, decoding: check::Decoding::All, extent: check::Extent::Whole };
        let found = check::check(&*set(entry, root.path(), ""), &scope, &REQUEST);
        assert_eq!(found.faults, ["test: 1 images, but 30000 are published"]);
    }
}
