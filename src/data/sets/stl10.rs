//! STL-10 (Coates, Ng and Lee 2011), binary layout: `train_X.bin` and `test_X.bin` hold 96x96 images, channel by
//! channel and column by column; `train_y.bin` and `test_y.bin` hold labels 1 to 10. See
//! <https://cs.stanford.edu/~acoates/stl10/>.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::base::files::put;
use crate::data::read::cifar;
use crate::data::read::class_folders::expect_once;
use crate::data::read::mat::row_major;
use crate::data::small::{Sizes, SmallSet, value};
use crate::data::subset::kept;
use crate::data::{Dataset, Entry, Inputs, Packed, Published, Request, Split, SplitName, Subset};
use crate::hub::originals::{Original, Originals};
use crate::schema::{Reader, settings, words};

pub static ENTRY: Entry = Entry {
    key: "stl10",
    about: "STL-10, binary layout: 96x96; the 9 classes shared with CIFAR-10, under its names, or its own 10",
    fetch: "stl10_binary.tar.gz from https://cs.stanford.edu/~acoates/stl10/, unpacked: ROOT/stl10_binary/train_X.bin, \
            train_y.bin, test_X.bin, test_y.bin",
    marks: &["stl10_binary"],
    originals: Originals::Files {
        files: &[Original::new(
            "http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
            2_640_397_119,
            "f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
        )],
        terms: "no licence is stated; its images are from ImageNet; its authors ask to cite Coates, Lee and Ng 2011",
    },
    hub: None,
    read: |reader| Box::new(Stl10::read(reader)),
    sample: Some(|reader| Box::new(Stl10::read(reader))),
};

/// The folder in the published archive.
const FOLDER: &str = "stl10_binary";
const SIDE: usize = 96;
const PIXELS: usize = 3 * SIDE * SIDE;

/// STL-10's own classes in the order of its labels, each with CIFAR-10's name if CIFAR-10 has the class.
const CLASSES: [(&str, Option<&str>); 10] = [
    ("airplane", Some("airplane")),
    ("bird", Some("bird")),
    ("car", Some("automobile")),
    ("cat", Some("cat")),
    ("deer", Some("deer")),
    ("dog", Some("dog")),
    ("horse", Some("horse")),
    ("monkey", None),
    ("ship", Some("ship")),
    ("truck", Some("truck")),
];

words! {
    /// The classes to use and their names.
    enum Labels {
        /// The nine shared with CIFAR-10, under CIFAR-10's names and in its order: the test set for a CIFAR-10 model.
        Cifar10 = "cifar10",
        /// All ten under STL-10's own names.
        Stl10 = "stl10",
    }
}

impl Labels {
    /// Returns the name of each of STL-10's ten classes. `None` if the class is not used.
    fn names(self) -> [Option<&'static str>; 10] {
        CLASSES.map(|(own, cifar)| match self {
            Labels::Cifar10 => cifar,
            Labels::Stl10 => Some(own),
        })
    }

    /// Returns all classes in the order of their labels, which is alphabetical.
    fn all(self) -> Vec<String> {
        let mut all: Vec<String> = self.names().into_iter().flatten().map(str::to_string).collect();
        all.sort();
        all
    }
}

settings! {
    struct Stl10 {
        root: PathBuf, because "the folder that holds stl10_binary";
        /// The classes shared with CIFAR-10, or STL-10's own ten.
        labels: Labels = Labels::Cifar10;
        // Images of other classes are left out. Bella (arXiv 2407.20891, appendix B) uses eight of the nine shared ones,
        // 6,400 test images, and does not say which eight. The default here is all nine.
        /// Names of the classes to use, in the order of their labels; by default all of `labels`.
        classes: Vec<String> = labels.all();
        subset: Option<Subset>, by Subset::read;
    } then check
}

impl Stl10 {
    fn check(&self, reader: &Reader) {
        let Stl10 { labels, classes, .. } = self;
        let known = labels.all();
        for name in classes.iter().filter(|name| !known.contains(name)) {
            let other = if *labels == Labels::Cifar10 { "; labels = \"stl10\" has STL-10's own ten" } else { "" };
            reader.problem("classes", format!("unknown class `{name}`; known: {}{other}", known.join(", ")));
        }
        expect_once(reader, "classes", "class", classes);
        if classes.len() < 2 {
            reader.problem("classes", "at least two classes must be named");
        }
    }
}

impl Dataset for Stl10 {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(self.classes.clone())
    }

    fn published(&self) -> Published {
        let count = self.classes.len();
        Published::new(count, &[(SplitName::Train, 500 * count), (SplitName::Test, 800 * count)])
    }

    fn load(&self, split: SplitName, _request: &Request) -> Result<Split> {
        if split == SplitName::Val {
            bail!("stl10 has no split `val`; set data.stl10.validation, say to 0.2");
        }
        let folder = cifar::folder(&self.root, FOLDER);
        check_names(&folder.join("class_names.txt"))?;
        let [images, labels] = files(&folder, split);
        let (pixels, published) = (bytes(&images)?, bytes(&labels)?);
        check_sizes(&images, pixels.len(), &labels, published.len())?;
        let all = self.split(split, &pixels, &published, &labels)?;
        ensure!(!all.is_empty(), "{}: no image of the classes {}", labels.display(), self.classes.join(", "));
        kept(all, self.subset, split).context("data.stl10")
    }
}

impl Stl10 {
    /// Returns the images of the classes to use. `pixels: [N, 3, W, H]`, and `published: [N]` with labels from 1 to 10.
    fn split(&self, split: SplitName, pixels: &[u8], published: &[u8], file: &Path) -> Result<Split> {
        let place = |name: &str| self.classes.iter().position(|class| class == name).map(|place| place as u32);
        let label_of = self.labels.names().map(|name| name.and_then(place));
        let (mut kept, mut labels) = (Vec::new(), Vec::new());
        for (i, (image, &label)) in pixels.chunks_exact(PIXELS).zip(published).enumerate() {
            let known = usize::from(label).checked_sub(1).and_then(|at| label_of.get(at));
            let label = known.with_context(|| {
                format!("{}: image {i} has label {label}, but labels are 1 to 10: the file is damaged", file.display())
            })?;
            if let Some(label) = label {
                labels.push(*label);
                kept.extend(image.chunks_exact(SIDE * SIDE).flat_map(|channel| row_major(channel, SIDE)));
            }
        }
        let images = Inputs::Packed(Packed { pixels: kept, height: SIDE, width: SIDE });
        Ok(Split::new(format!("stl10/{split}"), images, labels))
    }
}

/// Returns the files with the images and with the labels of a split.
fn files(folder: &Path, split: SplitName) -> [PathBuf; 2] {
    ["X", "y"].map(|kind| folder.join(format!("{split}_{kind}.bin")))
}

fn bytes(file: &Path) -> Result<Vec<u8>> {
    crate::base::files::read_file(file)
        .with_context(|| format!("{}: cannot read; set data.stl10.root to the folder of stl10_binary", file.display()))
}

/// Checks that the file `images` of `image_bytes` bytes has the images of the `count` labels in the file `labels`.
fn check_sizes(images: &Path, image_bytes: usize, labels: &Path, count: usize) -> Result<()> {
    ensure!(count > 0, "{}: is empty; fetch it again", labels.display());
    let (at, needed) = (images.display(), count * PIXELS);
    let labels = labels.display();
    ensure!(
        image_bytes == needed,
        "{at}: {image_bytes} bytes, but the {count} labels of {labels} need {needed} ({PIXELS} an image): one of the two \
         files is cut off, fetch it again"
    );
    Ok(())
}

/// Checks that the published list of classes, if present, agrees with the order in which labels are read.
fn check_names(file: &Path) -> Result<()> {
    if !file.exists() {
        return Ok(());
    }
    let text = crate::base::files::read_text(file).with_context(|| format!("{}: cannot read", file.display()))?;
    let own = CLASSES.map(|(own, _)| own);
    ensure!(
        text.split_whitespace().eq(own),
        "{}: not STL-10's classes, which are {}; put the published file back",
        file.display(),
        own.join(", ")
    );
    Ok(())
}

impl SmallSet for Stl10 {
    fn side(&self) -> u32 {
        SIDE as u32
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let names = self.labels.names();
        // The published label of each class that is used, in the order of the set's own labels.
        let published: Vec<u8> = self
            .classes
            .iter()
            .filter_map(|class| names.iter().position(|name| *name == Some(class.as_str())))
            .map(|place| place as u8 + 1)
            .collect();
        for split in [SplitName::Train, SplitName::Test] {
            let [images, labels] = files(&self.root.join(FOLDER), split);
            let count = sizes.of(split);
            put(&images, (0..count).flat_map(column_by_column).collect::<Vec<u8>>())?;
            put(&labels, (0..count).map(|i| published[sizes.label(i) % published.len()]).collect::<Vec<u8>>())?;
        }
        Ok(())
    }
}

/// Returns the pixels of a made-up picture, channel by channel and column by column.
fn column_by_column(seed: usize) -> impl Iterator<Item = u8> {
    let place = |at: usize| (at / (SIDE * SIDE), at / SIDE % SIDE, at % SIDE);
    (0..PIXELS).map(place).map(move |(channel, column, row)| value(seed, channel, row, column))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::testing::{self, REQUEST};
    use crate::schema::Tree;

    /// Returns five images with `pixels[i] = 7 i mod 251`, labelled airplane, car, monkey, truck, bird.
    fn binary() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let pixels: Vec<u8> = (0..5 * PIXELS).map(|i| (i * 7 % 251) as u8).collect();
        std::fs::write(root.path().join("test_X.bin"), pixels).unwrap();
        std::fs::write(root.path().join("test_y.bin"), [1, 3, 8, 10, 2]).unwrap();
        root
    }

    fn set(root: &Path, extra: &str) -> Box<dyn Dataset> {
        testing::set(&ENTRY, root, extra)
    }

    fn load(set: &dyn Dataset, split: SplitName) -> Result<Split> {
        set.load(split, &Request { image_size: 224, workers: 1, ..REQUEST })
    }

    fn error(root: &Path, extra: &str) -> String {
        load(&*set(root, extra), SplitName::Test).unwrap_err().to_string()
    }

    #[test]
    fn columns_become_rows() {
        // x = (np.arange(27648 * 5) * 7 % 251).astype(np.uint8).reshape(-1, 3, 96, 96).transpose(0, 1, 3, 2), as torchvision
        // x[0, 0, 0, 1], x[0, 1, 2, 3], x[4, 2, 95, 0]
        let root = binary();
        let split = load(&*set(root.path(), "labels = \"stl10\""), SplitName::Test).unwrap();
        assert_eq!((split.labels.as_slice(), split.inputs.size()), ([0, 2, 7, 9, 1].as_slice(), (96, 96)));
        let x = split.inputs.gather(&[0, 1, 2, 3, 4]).unwrap();
        let at = |[n, c, h, w]: [usize; 4]| x[((n * 3 + c) * SIDE + h) * SIDE + w];
        assert_eq!([at([0, 0, 0, 1]), at([0, 1, 2, 3]), at([4, 2, 95, 0])], [170, 27, 233]);
    }

    #[test]
    fn the_nine_shared_classes_under_their_cifar_names() {
        let root = binary();
        let nine = set(root.path(), "");
        assert_eq!(
            nine.classes().unwrap(),
            ["airplane", "automobile", "bird", "cat", "deer", "dog", "horse", "ship", "truck"]
        );
        let split = load(&*nine, SplitName::Test).unwrap();
        assert_eq!((split.name.as_str(), split.labels.as_slice()), ("stl10/test", [0, 1, 8, 2].as_slice()));
        // The monkey is left out, so image 2 is now the truck, whose first pixel is 7 * 3 * 27648 mod 251.
        assert_eq!(split.inputs.gather(&[2]).unwrap()[0], (7 * 3 * PIXELS % 251) as u8);
        let two = load(&*set(root.path(), "classes = [\"truck\", \"airplane\"]\nsubset = 1"), SplitName::Test).unwrap();
        assert_eq!((two.labels, two.inputs.len()), (vec![0], 1));
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let root = binary();
        std::fs::write(root.path().join("test_y.bin"), [1, 3, 8, 10, 11]).unwrap();
        assert!(error(root.path(), "").contains("test_y.bin: image 4 has label 11, but labels are 1 to 10"));
        std::fs::write(root.path().join("test_y.bin"), [1, 3]).unwrap();
        let text = error(root.path(), "");
        assert!(
            text.contains("test_X.bin: 138240 bytes, but the 2 labels of ") && text.contains("need 55296"),
            "{text}"
        );
        std::fs::write(root.path().join("test_y.bin"), []).unwrap();
        assert!(error(root.path(), "").contains("test_y.bin: is empty"));
        std::fs::write(root.path().join("class_names.txt"), "a\nb\n").unwrap();
        assert!(error(root.path(), "").contains("class_names.txt: not STL-10's classes"));
        let set = set(root.path(), "");
        assert!(load(&*set, SplitName::Val).unwrap_err().to_string().contains("no split `val`"));
        std::fs::remove_file(root.path().join("class_names.txt")).unwrap();
        assert!(
            load(&*set, SplitName::Train).unwrap_err().to_string().contains("train_X.bin: cannot read; set data.stl10")
        );
    }

    #[test]
    fn config_mistakes_are_reported() {
        for (text, part) in [
            ("classes = [\"monkey\", \"cat\"]", "unknown class `monkey`"),
            ("classes = [\"cat\", \"cat\"]", "`cat` comes twice"),
            ("classes = [\"cat\"]", "at least two classes"),
            (
                "labels = \"stl10\"\nclasses = [\"automobile\", \"cat\"]",
                "unknown class `automobile`; known: airplane, bird, car,",
            ),
            ("", "root is required"),
        ] {
            let tree = Tree::parse("test.toml", text).unwrap();
            let reader = Reader::root(&tree);
            let set = (ENTRY.read)(&reader);
            let problems = reader.close(set).err().unwrap().to_string();
            assert!(problems.contains(part), "{part} not in: {problems}");
        }
    }
}
