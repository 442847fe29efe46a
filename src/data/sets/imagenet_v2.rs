//! ImageNet-V2 (Recht et al. 2019, "Do ImageNet Classifiers Generalize to ImageNet?"): three new test sets of 10,000 images, in
//! one folder a class, called by the place of the class among ImageNet's WordNet numbers, from 0 to 999.
//!
//! Sorted as text, as folders usually are, these numbers would be other labels (0, 1, 10, 100, …); they are read as numbers.

use std::path::PathBuf;

use anyhow::Result;
use image::ImageFormat;

use crate::data::read::class_folders::{Made, scan, write};
use crate::data::read::image_files::ImageFiles;
use crate::data::read::imagenet_part::{OTHERS, expect_test};
use crate::data::read::{cifar, wordnet};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Published, Request, Resize, Split, SplitName};
use crate::hub::originals::Originals;
use crate::schema::{Choice, Reader, settings, words};

pub static ENTRY: Entry = Entry {
    key: "imagenet-v2",
    about: "ImageNet-V2: three new test sets of 10,000 images of ImageNet's 1000 classes; test images alone",
    fetch: "imagenetv2-matched-frequency.tar.gz (or -threshold0.7, -top-images), to which \
            https://github.com/modestyachts/ImageNetV2 links, unpacked: \
            ROOT/imagenetv2-matched-frequency-format-val/<0 to 999>/<images>",
    marks: &[],
    originals: Originals::ByHand("no SHA-256 of its archives is published"),
    hub: None,
    read: |reader| Box::new(V2::read(reader)),
    sample: Some(|reader| Box::new(V2::read(reader))),
};

/// The number of images of each variant.
const IMAGES: usize = 10_000;

words! {
    /// The way in which images were chosen by how many people found the class in them.
    enum Variant {
        /// People found the class as frequently as in ImageNet's own validation images.
        Matched = "matched-frequency",
        /// At least 70 % of the people found the class.
        Threshold = "threshold0.7",
        /// The images that most people agreed on.
        Top = "top-images",
    }
}

settings! {
    #[derive(Clone)]
    struct V2 {
        root: PathBuf, because "the folder that holds imagenetv2-matched-frequency-format-val";
        /// Variants to test on, each a test set of its own.
        test: Vec<Variant> = vec![Variant::Matched];
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
    } then check
}

impl V2 {
    fn check(&self, reader: &Reader) {
        if self.test.is_empty() {
            reader.problem("test", "at least one variant must be named");
        }
    }

    /// Returns the folder of a variant, which may be the root itself if there is one variant.
    fn folder(&self, variant: Variant) -> PathBuf {
        let name = format!("imagenetv2-{variant}-format-val");
        if self.test.len() == 1 { cifar::folder(&self.root, &name) } else { self.root.join(name) }
    }
}

/// Returns the names of the folders in the order of the labels.
fn places() -> Vec<String> {
    (0..wordnet::all().len()).map(|place| place.to_string()).collect()
}

impl Dataset for V2 {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        match self.test.as_slice() {
            [variant] => format!("imagenet-v2-{variant}"),
            _ => ENTRY.key.into(),
        }
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(wordnet::all())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(vec![SplitName::Test])
    }

    fn published(&self) -> Published {
        Published::new(1_000, &[(SplitName::Test, IMAGES * self.test.len())])
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        expect_test(ENTRY.key, split)?;
        let (folders, mut all) = (places(), crate::data::read::image_files::Listing::default());
        for variant in &self.test {
            let found = scan(&self.folder(*variant), &folders, OTHERS)?;
            all.paths.extend(found.paths);
            all.labels.extend(found.labels);
        }
        self.files.load(all, split, request)
    }

    fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        if self.test.len() < 2 {
            return Vec::new();
        }
        let one = |variant: &Variant| {
            let set = V2 { root: self.folder(*variant), test: vec![*variant], ..self.clone() };
            (variant.word().to_string(), Box::new(set) as Box<dyn Dataset>)
        };
        self.test.iter().map(one).collect()
    }
}

impl SmallSet for V2 {
    fn side(&self) -> u32 {
        430
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        self.test.iter().enumerate().try_for_each(|(at, variant)| {
            let folder = self.root.join(format!("imagenetv2-{variant}-format-val"));
            write(&folder, &places(), Made { count: sizes.test, seed: at, sizes }, &mut pictures)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{error, grays, load, mistakes, put, set};

    const MATCHED: &str = "imagenetv2-matched-frequency-format-val";

    #[test]
    fn folders_are_numbers_and_not_sorted_as_text() {
        let root = tempfile::tempdir().unwrap();
        for (class, gray) in [(2, 20), (10, 100), (999, 9)] {
            put(root.path(), &format!("{MATCHED}/{class}/a.png"), gray);
        }
        for root in [root.path().to_path_buf(), root.path().join(MATCHED)] {
            let set = set(&ENTRY, &root, "");
            let test = load(&*set, SplitName::Test).unwrap();
            assert_eq!((grays(&test), &test.labels[..]), (vec![20, 100, 9], &[2, 10, 999][..]));
            assert_eq!(
                (set.classes().unwrap()[2].as_str(), &*set.label()),
                ("n01484850", "imagenet-v2-matched-frequency")
            );
        }
        put(root.path(), &format!("{MATCHED}/1000/a.png"), 1);
        let text = error(&*set(&ENTRY, root.path(), ""), SplitName::Test);
        assert!(text.contains("1000: not one of the 1000 classes; remove it"), "{text}");
    }

    #[test]
    fn each_variant_is_a_test_set() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), &format!("{MATCHED}/0/a.png"), 1);
        put(root.path(), "imagenetv2-top-images-format-val/7/a.png", 2);
        let both = set(&ENTRY, root.path(), "test = [\"matched-frequency\", \"top-images\"]");
        let sets: Vec<_> =
            both.test_sets().into_iter().map(|(name, set)| (name, set.label(), load(&*set, SplitName::Test))).collect();
        let found: Vec<_> =
            sets.iter().map(|(name, label, split)| (&**name, &**label, &split.as_ref().unwrap().labels[..])).collect();
        assert_eq!(
            found,
            [
                ("matched-frequency", "imagenet-v2-matched-frequency", &[0][..]),
                ("top-images", "imagenet-v2-top-images", &[7][..])
            ]
        );
        let text = error(&*set(&ENTRY, root.path(), "test = [\"top-images\", \"threshold0.7\"]"), SplitName::Test);
        assert!(text.contains("imagenetv2-threshold0.7-format-val: no such folder"), "{text}");
        let text = mistakes(&ENTRY, "test = [\"top-images\", \"top-images\"]");
        assert!(text.contains("\"top-images\": is in the list already"), "{text}");
        assert!(mistakes(&ENTRY, "test = [\"val\"]").contains("matched-frequency, threshold0.7, top-images"));
    }
}
