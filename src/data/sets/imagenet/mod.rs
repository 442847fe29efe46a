//! ImageNet (ILSVRC 2012): `train/<wnid>/…` and `val/<wnid>/…`, or `val/ILSVRC2012_val_00000001.JPEG` with a file of
//! labels. Labels are positions among the sorted wnids. The published test split has no labels, so `val` is the test
//! split, as in the papers.

mod ground_truth;

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;

use crate::base::files::put;
use crate::data::read::class_folders::{folders, is_image, read_classes, scan};
use crate::data::read::image_files::ImageFiles;
use crate::data::read::splits::{Wanted, splits};
use crate::data::read::tables::Numbers;
use crate::data::read::wordnet;
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Published, Request, Resize, Split, SplitName};
use crate::hub::DataRoot;
use crate::hub::originals::Originals;
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "imagenet",
    about: "ImageNet (ILSVRC 2012): 1000 classes in train and val folders; its val is the test split",
    fetch: "ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar from https://image-net.org, unpacked: \
            ROOT/train/<wnid>/<images>, and ROOT/val/<wnid>/<images>, or ROOT/val/<images> with ground_truth = FILE",
    marks: &[],
    originals: Originals::ByHand("its terms must be accepted with an account at https://image-net.org"),
    hub: Some(Hub {
        repository: "ILSVRC/imagenet-1k",
        config: "default",
        splits: &[(SplitName::Test, "validation")],
        image: "image",
        label: "label",
    }),
    read: |reader| Box::new(ImageNet::read(reader)),
    sample: Some(|reader| Box::new(ImageNet::read(reader))),
};

/// The way out that a message names where a folder is of another class.
const OTHERS: &str = "remove it, or add it to data.imagenet.classes";

settings! {
    struct ImageNet {
        root: DataRoot, because "the folder that holds train and val";
        /// File with the labels of validation images that lie in one folder.
        ground_truth: Option<String>;
        /// File with the name of each WordNet number.
        words: Option<String>;
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
        classes: Option<Vec<String>>, by read_classes;
    }
}

impl Dataset for ImageNet {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        match &self.words {
            Some(file) => wordnet::names(&self.root.join(file), &self.wnids()?),
            None => self.wnids(),
        }
    }

    fn published(&self) -> Published {
        Published::new(1_000, &[(SplitName::Train, 1_281_167), (SplitName::Test, 50_000)])
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        if split != SplitName::Val
            && let Some(listing) = ENTRY.hub()?.listing(&self.root, split, Numbers::Ordered(&self.wnids()?))?
        {
            return self.files.load(listing, split, request);
        }
        let wnids = self.wnids()?;
        let (train, val) = (self.root.join("train"), self.root.join("val"));
        let listing = match (split, &self.ground_truth) {
            (SplitName::Train, _) => scan(&train, &wnids, OTHERS)?,
            (SplitName::Test, Some(file)) => ground_truth::listing(&self.root.join(file), &val, &wnids)?,
            (SplitName::Test, None) => {
                ensure!(
                    !self.val_is_flat()?,
                    "{}: no class folders, so data.imagenet.ground_truth has to name a file of \
                     labels: {}",
                    val.display(),
                    ground_truth::FORMS
                );
                scan(&val, &wnids, OTHERS)?
            }
            (SplitName::Val, _) => bail!(
                "imagenet's val is the test split, since its test has no labels; set data.imagenet.validation, say to 0.01"
            ),
        };
        self.files.load(listing, split, request)
    }
}

impl ImageNet {
    /// Returns the wnids in the order of their labels, taken from the training folders, else from the file of labels,
    /// else from the val folders.
    fn wnids(&self) -> Result<Vec<String>> {
        if let Some(given) = &self.classes {
            return Ok(given.clone());
        }
        let (train, val) = (self.root.join("train"), self.root.join("val"));
        if train.is_dir() {
            return folders(&train, "<wnid>/<images>");
        }
        if let Some(file) = &self.ground_truth {
            return ground_truth::wnids(&self.root.join(file));
        }
        if !val.is_dir() && splits(&self.root, Wanted::Published(ENTRY.hub()?.config))?.is_some() {
            return Ok(wordnet::all());
        }
        ensure!(
            val.is_dir(),
            "{}: neither train nor val is in it; `bella data check imagenet=ROOT` says what to fetch",
            self.root.display()
        );
        folders(&val, "<wnid>/<images>").with_context(|| format!("data.imagenet.ground_truth: {}", ground_truth::FORMS))
    }

    fn val_is_flat(&self) -> Result<bool> {
        let entries = crate::data::read::class_folders::entries(&self.root.join("val"))
            .context("`bella data check imagenet=ROOT` says what to fetch")?;
        Ok(entries.iter().any(|entry| is_image(entry) && entry.is_file()))
    }
}

impl SmallSet for ImageNet {
    fn side(&self) -> u32 {
        430
    }

    /// Names the classes, since few images do not show all of them.
    fn overrides(&self, sizes: &Sizes) -> toml::Table {
        let classes = self.classes.clone().unwrap_or_else(|| wordnet::first(sizes.classes));
        toml::Table::from_iter([("classes".to_string(), classes.into())])
    }

    /// Writes class folders; where the config has a file of labels, the validation images lie in one folder.
    fn write(&self, sizes: &Sizes) -> Result<()> {
        let wnids = self.wnids()?;
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        for i in 0..sizes.train {
            let wnid = &wnids[sizes.label(i)];
            put(&self.root.join(format!("train/{wnid}/{wnid}_{i}.JPEG")), pictures.file(i)?)?;
        }
        let mut truth = String::new();
        for i in 0..sizes.test {
            let (wnid, image) = (&wnids[sizes.label(i)], format!("ILSVRC2012_val_{:08}.JPEG", i + 1));
            let folder = if self.ground_truth.is_some() { String::new() } else { format!("{wnid}/") };
            put(&self.root.join(format!("val/{folder}{image}")), pictures.file(i)?)?;
            truth += &format!("{image} {wnid}\n");
        }
        self.ground_truth.as_ref().map_or(Ok(()), |file| put(&self.root.join(file), truth))?;
        self.words.as_ref().map_or(Ok(()), |file| wordnet::write(&self.root.join(file), &wnids))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::data::testing::{error, fixture, grays, load, put, set, write};

    const WNIDS: [&str; 3] = ["n01440764", "n02100735", "n02119789"];

    fn train(root: &Path) {
        for (i, wnid) in WNIDS.iter().enumerate() {
            put(root, &format!("train/{wnid}/{wnid}_1.JPEG"), i as u8);
        }
    }

    /// Returns three images in val without class folders.
    fn flat() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        (1..=3).for_each(|i| put(root.path(), &format!("val/ILSVRC2012_val_{i:08}.JPEG"), 10 + i));
        root
    }

    fn of(root: &Path, extra: &str) -> Box<dyn Dataset> {
        set(&ENTRY, root, extra)
    }

    #[test]
    fn class_folders() {
        let root = tempfile::tempdir().unwrap();
        train(root.path());
        put(root.path(), "val/n02119789/v.JPEG", 9);
        write(root.path(), "names.txt", "n01440764 tench, Tinca tinca\nn02100735 English setter\nn02119789 kit fox\n");
        let set = of(root.path(), "words = \"names.txt\"");
        assert_eq!(set.classes().unwrap(), ["tench", "English setter", "kit fox"]);
        assert_eq!(load(&*set, SplitName::Train).unwrap().labels, [0, 1, 2]);
        let test = load(&*set, SplitName::Test).unwrap();
        assert_eq!((grays(&test), &test.labels[..]), (vec![9], &[2][..]));
        assert!(error(&*set, SplitName::Val).contains("val is the test split"));
        std::fs::create_dir(root.path().join("val/n09999999")).unwrap();
        assert!(error(&*set, SplitName::Test).contains("n09999999: not one of the 3 classes"));
    }

    #[test]
    fn labels_of_a_flat_val_in_all_forms() {
        let root = flat();
        let [a, b, c] = [1, 2, 3].map(|i| format!("ILSVRC2012_val_{i:08}"));
        write(root.path(), "devkit/truth.txt", "3\n1\n2\n");
        std::fs::copy(fixture("meta.mat"), root.path().join("devkit/meta.mat")).unwrap();
        let boxes = format!(
            "ImageId,PredictionString\n{c},n02100735 1 2 3 4 \n{a},n01440764 1 2 3 4 n01440764 5 6 7 8\n{b},n02119789 0 0 1 1\n"
        );
        write(root.path(), "solution.csv", &boxes);
        write(root.path(), "val.txt", &format!("{a}.JPEG 0\n{b}.JPEG 2\n{c}.JPEG 1\n"));
        write(root.path(), "wnids.txt", &format!("{a}.JPEG n01440764\n{b}.JPEG n02119789\n{c}.JPEG n02100735\n"));
        let found = |file: &str| {
            let set = of(root.path(), &format!("ground_truth = {file:?}"));
            let split = load(&*set, SplitName::Test).unwrap();
            let mut pairs: Vec<_> = grays(&split).into_iter().zip(split.labels).collect();
            pairs.sort_unstable();
            (set.classes().unwrap(), pairs)
        };
        let expected = (WNIDS.map(str::to_string).to_vec(), vec![(11, 0), (12, 2), (13, 1)]);
        for file in ["devkit/truth.txt", "solution.csv", "wnids.txt"] {
            assert_eq!(found(file), expected, "{file}");
        }
        let text = error(&*of(root.path(), "ground_truth = \"val.txt\""), SplitName::Test);
        assert!(text.contains("labels without wnids, and there is no training folder"), "{text}");
        train(root.path());
        assert_eq!(found("val.txt"), expected);
    }

    #[test]
    fn a_flat_val_needs_labels_that_fit() {
        let root = flat();
        train(root.path());
        let text = error(&*of(root.path(), ""), SplitName::Test);
        assert!(text.contains("no class folders, so data.imagenet.ground_truth has to name a file"), "{text}");
        let refused = |text: &str| {
            write(root.path(), "t.txt", text);
            error(&*of(root.path(), "ground_truth = \"t.txt\""), SplitName::Test)
        };
        assert!(refused("a.JPEG 3\n").contains("t.txt: a.JPEG is of the class 3, which is none of the 3 classes"));
        assert!(refused("a.JPEG 1\n").contains("a.JPEG: No such file"));
        assert!(refused("3\n1\n").contains("meta.mat of the devkit explains"));
        assert!(refused("nothing\n").contains("t.txt:1: `nothing`: expected ILSVRC2012_validation_ground_truth.txt"));
        assert!(
            refused("ImageId,PredictionString\nval_1\n").contains("t.txt:2: `val_1` is not `<image>,<wnid> <box>`")
        );
        assert!(refused("").contains("t.txt: is empty"));
    }
}
