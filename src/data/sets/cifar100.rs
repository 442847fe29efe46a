//! CIFAR-100 (Krizhevsky 2009), binary or Python version: 50,000 training images and 10,000 test images, each with a
//! fine and a coarse label.

use std::path::PathBuf;

use anyhow::Result;

use crate::data::read::cifar::{self, Layout};
use crate::data::read::tables::{Numbers, PackedSplit};
use crate::data::small::{Sizes, SmallSet};
use crate::data::{Dataset, Entry, Hub, Published, Request, Split, SplitName, Subset};
use crate::hub::DataRoot;
use crate::hub::originals::{Original, Originals};
use crate::schema::{settings, words};

pub static ENTRY: Entry = Entry {
    key: "cifar100",
    about: "CIFAR-100, binary or Python version: 100 classes (or 20 coarse), 32x32, official train and test",
    fetch: "cifar-100-binary.tar.gz or cifar-100-python.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked: \
            ROOT/cifar-100-binary/train.bin, test.bin or ROOT/cifar-100-python/train, test",
    marks: &["cifar-100-binary", "cifar-100-python"],
    originals: Originals::Files {
        files: &[Original::new(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            168_513_733,
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        )],
        terms: "no licence is stated; its author asks to cite his report of 2009, Learning Multiple Layers of Features from Tiny Images",
    },
    hub: Some(Hub {
        repository: "uoft-cs/cifar100",
        config: "cifar100",
        splits: &[],
        image: "img",
        label: "fine_label",
    }),
    read: |reader| Box::new(Cifar100::read(reader)),
    sample: Some(|reader| Box::new(Cifar100::read(reader))),
};

/// The folders of the binary and the Python version.
const FOLDERS: [&str; 2] = ["cifar-100-binary", "cifar-100-python"];

/// A class that the Hub's tables call otherwise.
const SPELLINGS: [(&str, &str); 1] = [("cra", "crab")];

words! {
    /// The kind of label that is used.
    enum Labels { Fine = "fine", Coarse = "coarse" }
}

settings! {
    struct Cifar100 {
        root: DataRoot, because "the folder that holds cifar-100-binary";
        /// The 100 fine classes or the 20 coarse ones.
        labels: Labels = Labels::Fine;
        subset: Option<Subset>, by Subset::read;
    }
}

impl Cifar100 {
    fn folder(&self) -> PathBuf {
        cifar::folder(&self.root, FOLDERS[0])
    }

    fn layout(&self) -> Layout {
        match self.labels {
            Labels::Coarse => Layout { label_bytes: 2, label_at: 0, label_key: "coarse_labels", classes: COARSE.len() },
            Labels::Fine => Layout { label_bytes: 2, label_at: 1, label_key: "fine_labels", classes: FINE.len() },
        }
    }
}

impl Dataset for Cifar100 {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        match self.labels {
            Labels::Fine => cifar::class_names(&self.folder().join("fine_label_names.txt"), &FINE),
            Labels::Coarse => cifar::class_names(&self.folder().join("coarse_label_names.txt"), &COARSE),
        }
    }

    fn published(&self) -> Published {
        Published::new(self.layout().classes, &[(SplitName::Train, 50_000), (SplitName::Test, 10_000)])
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        let file = match split {
            SplitName::Train => "train",
            SplitName::Test => "test",
            SplitName::Val => anyhow::bail!("cifar100 has no split `val`; set data.cifar100.validation, say to 0.2"),
        };
        let hub = ENTRY.hub()?;
        let (label, classes) = match self.labels {
            Labels::Fine => (hub.label, FINE.map(String::from).to_vec()),
            Labels::Coarse => ("coarse_label", COARSE.map(String::from).to_vec()),
        };
        let (root, subset) = (&*self.root, self.subset);
        let classes = Numbers::Respelled(&classes, &SPELLINGS);
        let asked = PackedSplit { key: ENTRY.key, root, split, subset, classes, side: 32 };
        if let Some(split) = (Hub { label, ..*hub }).packed(asked, request)? {
            return Ok(split);
        }
        cifar::load(self.key(), &[cifar::file(&self.root, FOLDERS, file)], &self.layout(), split, self.subset)
    }
}

impl SmallSet for Cifar100 {
    fn side(&self) -> u32 {
        32
    }

    /// Writes the binary version.
    fn write(&self, sizes: &Sizes) -> Result<()> {
        for split in [SplitName::Train, SplitName::Test] {
            let file = self.root.join(FOLDERS[0]).join(format!("{split}.bin"));
            let labels = |i: usize| vec![(sizes.label(i) % COARSE.len()) as u8, (sizes.label(i) % FINE.len()) as u8];
            cifar::write_made_up(&file, 0..sizes.of(split), labels)?;
        }
        Ok(())
    }
}

#[rustfmt::skip]
const COARSE: [&str; 20] = [
    "aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables", "household_electrical_devices",
    "household_furniture", "insects", "large_carnivores", "large_man-made_outdoor_things",
    "large_natural_outdoor_scenes", "large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates",
    "people", "reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2",
];

#[rustfmt::skip]
pub static FINE: [&str; 100] = [
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl", "boy",
    "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee", "clock",
    "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish",
    "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom", "oak_tree", "orange",
    "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate", "poppy", "porcupine",
    "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk",
    "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank",
    "telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
];
