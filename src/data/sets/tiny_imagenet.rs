//! Tiny ImageNet (Le and Yang 2015): 200 classes, 64x64. The published test split has no labels, so `val` is the test
//! split, as in the papers. Its labels are in `val_annotations.txt`, or given by class folders if a user has sorted it.
//! Labels are positions among the sorted wnids.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;

use crate::base::files::put;
use crate::data::read::class_folders::{folders, is_image, scan};
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::read::tables::Numbers;
use crate::data::read::{cifar, wordnet};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Published, Request, Resize, Split, SplitName};
use crate::hub::DataRoot;
use crate::hub::originals::Originals;
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "tiny-imagenet",
    about: "Tiny ImageNet: 200 classes, 64x64; its val is the test split",
    fetch: "tiny-imagenet-200.zip from http://cs231n.stanford.edu/tiny-imagenet-200.zip, unpacked: \
            ROOT/tiny-imagenet-200/train/<wnid>/images/…, ROOT/tiny-imagenet-200/val/val_annotations.txt, val/images/…",
    marks: &["tiny-imagenet-200", "wnids.txt"],
    originals: Originals::ByHand("no hash of its archive is published, and its images are under ImageNet's terms"),
    hub: Some(Hub {
        repository: "zh-plus/tiny-imagenet",
        config: "default",
        splits: &[(SplitName::Test, "valid")],
        image: "image",
        label: "label",
    }),
    read: |reader| Box::new(TinyImageNet::read(reader)),
    sample: Some(|reader| Box::new(TinyImageNet::read(reader))),
};

/// The folder in the published archive, and places in it.
const FOLDER: &str = "tiny-imagenet-200";
const WNIDS: &str = "wnids.txt";
const ANNOTATIONS: &str = "val/val_annotations.txt";
const VAL_IMAGES: &str = "val/images";

settings! {
    struct TinyImageNet {
        root: DataRoot, because "the folder that holds tiny-imagenet-200";
        /// File with the name of each WordNet number.
        words: Option<String>;
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
    }
}

impl Dataset for TinyImageNet {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        match &self.words {
            Some(file) => wordnet::names(&self.folder().join(file), &self.wnids()?),
            None => self.wnids(),
        }
    }

    fn published(&self) -> Published {
        Published::new(200, &[(SplitName::Train, 100_000), (SplitName::Test, 10_000)])
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        if split != SplitName::Val
            && let Some(listing) = ENTRY.hub()?.listing(&self.root, split, Numbers::Named(&self.wnids()?))?
        {
            return self.files.load(listing, split, request);
        }
        let folder = self.folder();
        let annotations = folder.join(ANNOTATIONS);
        let listing = match split {
            SplitName::Train => scan(&folder.join("train"), &self.wnids()?, "remove it, or add it to wnids.txt")?,
            SplitName::Test if annotations.is_file() => self.annotated(&annotations)?,
            SplitName::Test if folder.join(VAL_IMAGES).is_dir() => {
                bail!("{}: is missing; it gives the class of each image", annotations.display())
            }
            SplitName::Test => scan(&folder.join("val"), &self.wnids()?, "remove it, or add it to wnids.txt")?,
            SplitName::Val => bail!(
                "tiny-imagenet's val is the test split, since its test has no labels; set data.tiny-imagenet.validation, \
                 say to 0.1"
            ),
        };
        self.files.load(listing, split, request)
    }
}

impl TinyImageNet {
    fn folder(&self) -> PathBuf {
        cifar::folder(&self.root, FOLDER)
    }

    /// Returns the classes in wnids.txt, sorted. If there is no such file, those of the training folders.
    fn wnids(&self) -> Result<Vec<String>> {
        let file = self.folder().join(WNIDS);
        if !file.is_file()
            && let Some(mut wnids) = self.hub_names()?
        {
            wnids.sort();
            return Ok(wnids);
        }
        if !file.is_file() {
            return folders(&self.folder().join("train"), "<wnid>/images/<images>")
                .context("`bella data check tiny-imagenet=ROOT` says what to fetch");
        }
        let text = crate::base::files::read_text(&file).with_context(|| format!("{}: cannot read", file.display()))?;
        let mut wnids: Vec<String> = text.split_whitespace().map(str::to_string).collect();
        wnids.sort();
        if let Some(pair) = wnids.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("{}: {} comes twice", file.display(), pair[0]);
        }
        ensure!(!wnids.is_empty(), "{}: names no class", file.display());
        Ok(wnids)
    }

    /// Returns the classes that the Hub's tables name; `None` if there are no tables.
    fn hub_names(&self) -> Result<Option<Vec<String>>> {
        let hub = ENTRY.hub()?;
        let any =
            [SplitName::Train, SplitName::Test].into_iter().find_map(|split| hub.open(&self.root, split).transpose());
        any.transpose()?.map_or(Ok(None), |tables| tables.names(hub.label))
    }

    /// Reads lines of `<file> <wnid> <box>`, separated by tabs.
    fn annotated(&self, file: &std::path::Path) -> Result<Listing> {
        let at = file.display();
        let text = crate::base::files::read_text(file).with_context(|| format!("{at}: cannot read"))?;
        let wnids = self.wnids()?;
        let mut listing = Listing::default();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let mut cells = line.split_whitespace();
            let (image, wnid) = cells.next().zip(cells.next()).with_context(|| format!("{at}:{}: no wnid", i + 1))?;
            ensure!(is_image(image.as_ref()), "{at}:{}: `{image}` is no image file", i + 1);
            let label = wnids.binary_search_by(|known| known.as_str().cmp(wnid)).ok();
            let label =
                label.with_context(|| format!("{at}:{}: `{wnid}` is none of the {} classes", i + 1, wnids.len()))?;
            listing.paths.push(self.folder().join(VAL_IMAGES).join(image));
            listing.labels.push(label as u32);
        }
        Ok(listing)
    }
}

impl SmallSet for TinyImageNet {
    fn side(&self) -> u32 {
        64
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let (folder, wnids) = (self.root.join(FOLDER), wordnet::first(sizes.classes));
        let mut pictures = Pictures::new(self.side(), ImageFormat::Jpeg);
        for i in 0..sizes.train {
            let wnid = &wnids[sizes.label(i)];
            put(&folder.join(format!("train/{wnid}/images/{wnid}_{i}.JPEG")), pictures.file(i)?)?;
        }
        let mut annotations = String::new();
        for i in 0..sizes.test {
            put(&folder.join(VAL_IMAGES).join(format!("val_{i}.JPEG")), pictures.file(i)?)?;
            annotations += &format!("val_{i}.JPEG\t{}\t0\t0\t63\t63\n", wnids[sizes.label(i)]);
        }
        put(&folder.join(ANNOTATIONS), annotations)?;
        put(&folder.join(WNIDS), wnids.join("\n") + "\n")?;
        self.words.as_ref().map_or(Ok(()), |file| wordnet::write(&folder.join(file), &wnids))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{error, grays, load, put, set, write};

    fn tiny() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let at = |file: &str| format!("tiny-imagenet-200/{file}");
        for (file, gray) in [("n02/images/n02_0.JPEG", 1), ("n01/images/n01_1.JPEG", 2), ("n01/images/n01_0.JPEG", 3)] {
            put(root.path(), &at(&format!("train/{file}")), gray);
        }
        write(root.path(), &at("train/n01/n01_boxes.txt"), "n01_0.JPEG\t0\t0\t62\t62\n");
        put(root.path(), &at("val/images/val_0.JPEG"), 4);
        put(root.path(), &at("val/images/val_1.JPEG"), 5);
        write(
            root.path(),
            &at("val/val_annotations.txt"),
            "val_0.JPEG\tn02\t0\t32\t44\t62\nval_1.JPEG\tn01\t52\t55\t57\t59\n",
        );
        write(root.path(), &at("wnids.txt"), "n02\nn01\n");
        write(
            root.path(),
            &at("words.txt"),
            "n01\tgoldfish, Carassius auratus\nn02\ttailed frog, bell toad\nn03\tfox\n",
        );
        root
    }

    #[test]
    fn val_is_the_test_split() {
        let root = tiny();
        let set = set(&ENTRY, root.path(), "");
        assert_eq!(set.classes().unwrap(), ["n01", "n02"]);
        let of = |split| load(&*set, split).map(|split| (grays(&split), split.labels)).unwrap();
        assert_eq!(of(SplitName::Train), (vec![3, 2, 1], vec![0, 0, 1]));
        assert_eq!(of(SplitName::Test), (vec![4, 5], vec![1, 0]));
        assert!(error(&*set, SplitName::Val).contains("val is the test split"));
        let named = crate::data::testing::set(&ENTRY, root.path(), "words = \"words.txt\"");
        assert_eq!(named.classes().unwrap(), ["goldfish", "tailed frog"]);
    }

    #[test]
    fn images_without_annotations_are_no_classes() {
        let root = tiny();
        std::fs::remove_file(root.path().join("tiny-imagenet-200/val/val_annotations.txt")).unwrap();
        assert!(error(&*set(&ENTRY, root.path(), ""), SplitName::Test).contains("val_annotations.txt: is missing"));
    }

    #[test]
    fn a_val_sorted_into_class_folders_works_too() {
        let root = tiny();
        let folder = root.path().join("tiny-imagenet-200");
        std::fs::remove_dir_all(folder.join("val")).unwrap();
        put(&folder, "val/n02/a.JPEG", 7);
        let set = set(&ENTRY, root.path(), "");
        assert_eq!(load(&*set, SplitName::Test).unwrap().labels, [1]);
        write(&folder, "val/val_annotations.txt", "a.JPEG\tn09\t0\t0\t1\t1\n");
        assert!(error(&*set, SplitName::Test).contains("val_annotations.txt:1: `n09` is none of the 2 classes"));
        write(&folder, "wnids.txt", "n01\nn01\n");
        assert!(set.classes().unwrap_err().to_string().contains("wnids.txt: n01 comes twice"));
    }
}
