//! VTAB-1K (Zhai et al. 2019) as image lists, the form in which papers on parameter-efficient fine-tuning share it.
//! Each task has a folder with the lists `train800.txt`, `val200.txt`, `train800val200.txt` and `test.txt`, whose lines
//! are `<image> <label>`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use image::ImageFormat;

use crate::base::files::put;
use crate::data::read::class_folders::read_classes;
use crate::data::read::image_files::{ImageFiles, Listing};
use crate::data::small::{Pictures, Sizes, SmallSet};
use crate::data::{Dataset, Entry, Published, Request, Resize, Split, SplitName};
use crate::hub::originals::Originals;
use crate::schema::{Reader, settings, words};

pub static ENTRY: Entry = Entry {
    key: "vtab",
    about: "VTAB-1K, one of its 19 tasks, as image lists: 800 train, 200 val (or all 1000 train), the full test set",
    fetch: "VTAB-1K as image lists (the vtab-1k archive that NOAH, SSF and others link to), unpacked: \
            ROOT/cifar/train800val200.txt, ROOT/cifar/test.txt, ROOT/cifar/images/…, one folder per task",
    marks: &[],
    originals: Originals::ByHand("its copies lie where a browser must confirm the download"),
    hub: None,
    read: |reader| Box::new(Vtab::read(reader)),
    sample: Some(|reader| Box::new(Vtab::read(reader))),
};

/// The lists in the folder of a task: the training images, the validation images, both, and the test images.
const TRAIN: &str = "train800.txt";
const VAL: &str = "val200.txt";
const ALL: &str = "train800val200.txt";
const TEST: &str = "test.txt";

/// The folder, the number of classes and the number of test images of each task, in the order of the benchmark's
/// tables.
#[rustfmt::skip]
static TASKS: [(&str, usize, usize); 19] = [
    ("cifar", 100, 10_000), ("caltech101", 102, 6_084), ("dtd", 47, 1_880), ("oxford_flowers102", 102, 6_149),
    ("oxford_iiit_pet", 37, 3_669), ("svhn", 10, 26_032), ("sun397", 397, 21_750),
    ("patch_camelyon", 2, 32_768), ("eurosat", 10, 5_400), ("resisc45", 45, 6_300),
    ("diabetic_retinopathy", 5, 42_670),
    ("clevr_count", 8, 15_000), ("clevr_dist", 6, 15_000), ("dmlab", 6, 22_735), ("kitti", 4, 711),
    ("dsprites_loc", 16, 73_728), ("dsprites_ori", 16, 73_728), ("smallnorb_azi", 18, 12_150),
    ("smallnorb_ele", 9, 12_150),
];

words! {
    /// The images that are used for training.
    enum Train {
        /// All 1,000 images; nothing is left to validate on.
        Train800Val200 = "train800val200",
        /// 800 images; the other 200 are the validation split.
        Train800 = "train800",
    }
}

/// Returns the number of classes of a task, 0 for one that there is not.
fn classes_of(task: &str) -> usize {
    TASKS.iter().find(|(name, ..)| *name == task).map_or(0, |(_, classes, _)| *classes)
}

settings! {
    struct Vtab {
        root: PathBuf, because "the folder that holds one folder a task";
        /// Name of the task, one of 19, such as `cifar`.
        task: String, because "one of the 19 tasks, say \"cifar\"";
        classes: Vec<String>, by |reader| {
            read_classes(reader).unwrap_or_else(|| (0..classes_of(&task)).map(|class| class.to_string()).collect())
        };
        /// List of training images: the 800 or all 1,000.
        train: Train = Train::Train800Val200;
        // The benchmark resizes to 224 x 224 whatever the aspect ratio.
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::Stretch);
    } then check
}

impl Vtab {
    fn check(&self, reader: &Reader) {
        let (task, count) = (&self.task, classes_of(&self.task));
        if count == 0 && !task.is_empty() {
            let all: Vec<&str> = TASKS.iter().map(|(name, ..)| *name).collect();
            reader.problem("task", format!("unknown task; known: {}", all.join(", ")));
        }
        if count > 0 && self.classes.len() != count {
            reader.problem("classes", format!("must be {count} names for the task {task}"));
        }
    }
}

impl Dataset for Vtab {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn label(&self) -> String {
        format!("vtab-{}", self.task)
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.classes.clone())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(match self.train {
            Train::Train800 => SplitName::ALL.to_vec(),
            Train::Train800Val200 => vec![SplitName::Train, SplitName::Test],
        })
    }

    fn published(&self) -> Published {
        let Some(&(_, classes, test)) = TASKS.iter().find(|(name, ..)| *name == self.task) else {
            return Published::default();
        };
        match self.train {
            Train::Train800Val200 => Published::new(classes, &[(SplitName::Train, 1_000), (SplitName::Test, test)]),
            Train::Train800 => {
                Published::new(classes, &[(SplitName::Train, 800), (SplitName::Val, 200), (SplitName::Test, test)])
            }
        }
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let list = match (split, self.train) {
            (SplitName::Train, Train::Train800Val200) => ALL,
            (SplitName::Train, Train::Train800) => TRAIN,
            (SplitName::Val, Train::Train800) => VAL,
            (SplitName::Test, _) => TEST,
            (SplitName::Val, Train::Train800Val200) => {
                bail!("vtab: its 200 validation images are trained on; set data.vtab.train = \"train800\"")
            }
        };
        self.files.load(self.listing(list)?, split, request)
    }
}

impl Vtab {
    fn listing(&self, list: &str) -> Result<Listing> {
        let folder = self.root.join(&self.task);
        let file = folder.join(list);
        let at = file.display();
        let text = crate::base::files::read_text(&file)
            .with_context(|| format!("{at}: cannot read; `bella data check vtab=ROOT` says what to fetch"))?;
        let mut listing = Listing::default();
        for (i, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let number = i + 1;
            let cells = line.trim().rsplit_once(char::is_whitespace);
            let cells = cells.and_then(|(path, label)| Some((path.trim(), label.parse::<u32>().ok()?)));
            let (path, label) = cells.with_context(|| format!("{at}:{number}: `{line}` is not `<image> <label>`"))?;
            let classes = self.classes.len();
            ensure!(
                (label as usize) < classes,
                "{at}:{number}: label {label}, but {} has {classes} classes",
                self.task
            );
            listing.paths.push(folder.join(path));
            listing.labels.push(label);
        }
        ensure!(!listing.paths.is_empty(), "{at}: lists no image");
        Ok(listing)
    }
}

impl SmallSet for Vtab {
    fn side(&self) -> u32 {
        224
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let folder = self.root.join(&self.task);
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        let mut part = |split: SplitName| -> Result<String> {
            let mut list = String::new();
            for i in 0..sizes.of(split) {
                let image = format!("images/{split}/{i:06}.jpg");
                put(&folder.join(&image), pictures.file(i)?)?;
                list += &format!("{image} {}\n", sizes.label(i));
            }
            Ok(list)
        };
        let (train, val, test) = (part(SplitName::Train)?, part(SplitName::Val)?, part(SplitName::Test)?);
        let all = format!("{train}{val}");
        [(TRAIN, train), (VAL, val), (ALL, all), (TEST, test)]
            .into_iter()
            .try_for_each(|(list, lines)| put(&folder.join(list), lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{error, grays, load, mistakes, put, set, write};

    fn kitti() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let lists = [
            ("train800.txt", vec![(0, 3)]),
            ("val200.txt", vec![(1, 0)]),
            ("train800val200.txt", vec![(0, 3), (1, 0)]),
            ("test.txt", vec![(2, 1), (3, 2)]),
        ];
        for (list, images) in lists {
            let line = |(image, label): &(u8, u8)| format!("images/{image}.png {label}\n");
            write(root.path(), &format!("kitti/{list}"), &images.iter().map(line).collect::<String>());
            images.iter().for_each(|(image, _)| put(root.path(), &format!("kitti/images/{image}.png"), *image));
        }
        root
    }

    #[test]
    fn all_thousand_images_or_eight_hundred() {
        let root = kitti();
        let all = set(&ENTRY, root.path(), "task = \"kitti\"");
        let part = set(&ENTRY, root.path(), "task = \"kitti\"\ntrain = \"train800\"");
        assert_eq!(
            (all.label(), all.classes().unwrap()),
            ("vtab-kitti".into(), ["0", "1", "2", "3"].map(String::from).to_vec())
        );
        let train = load(&*all, SplitName::Train).unwrap();
        assert_eq!((grays(&train), &train.labels[..]), (vec![0, 1], &[3, 0][..]));
        assert_eq!(load(&*part, SplitName::Train).unwrap().labels, [3]);
        assert_eq!(load(&*part, SplitName::Val).unwrap().labels, [0]);
        assert_eq!(load(&*part, SplitName::Test).unwrap().labels, [1, 2]);
        assert!(error(&*all, SplitName::Val).contains("set data.vtab.train = \"train800\""));
        assert_eq!(part.published().images.iter().map(|(_, count)| count).sum::<usize>(), 800 + 200 + 711);
        assert_eq!(all.resolved()["train"].as_str(), Some("train800val200"));
    }

    #[test]
    fn mistakes_are_named() {
        let root = kitti();
        let set = set(&ENTRY, root.path(), "task = \"kitti\"");
        write(root.path(), "kitti/test.txt", "images/2.png 4\n");
        assert!(error(&*set, SplitName::Test).contains("test.txt:1: label 4, but kitti has 4 classes"));
        write(root.path(), "kitti/test.txt", "images/2.png 1\nimages/9.png 1\n");
        assert!(error(&*set, SplitName::Test).contains("images/9.png: No such file"));
        write(root.path(), "kitti/test.txt", "images/2.png\n");
        assert!(error(&*set, SplitName::Test).contains("test.txt:1: `images/2.png` is not `<image> <label>`"));
        assert!(mistakes(&ENTRY, "task = \"imagenet\"").contains("unknown task; known: cifar, caltech101, dtd"));
        assert!(mistakes(&ENTRY, "").contains("task is required"));
        assert!(mistakes(&ENTRY, "task = \"kitti\"\nclasses = [\"a\"]").contains("must be 4 names for the task kitti"));
    }
}
