//! ImageNet-Sketch (Wang et al. 2019, "Learning Robust Global Representations by Penalizing Local Predictive Power"): about 50
//! black and white sketches of each of ImageNet's classes, in one folder a class, called by its WordNet number.

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
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "imagenet-sketch",
    about: "ImageNet-Sketch: 50,889 sketches of ImageNet's 1000 classes; test images alone",
    fetch: "ImageNet-Sketch.zip, to which https://github.com/HaohanWang/ImageNet-Sketch links, unpacked: \
            ROOT/sketch/<wnid>/<images>",
    marks: &[],
    originals: Originals::ByHand("its archive is offered by file services alone, without a published hash"),
    hub: None,
    read: |reader| Box::new(Sketch::read(reader)),
    sample: Some(|reader| Box::new(Sketch::read(reader))),
};

/// The folder in the published archive.
const FOLDER: &str = "sketch";

settings! {
    struct Sketch {
        root: PathBuf, because "the folder that holds sketch";
        files: ImageFiles, part |reader| ImageFiles::read(reader, ENTRY.key, Resize::ShorterSideCrop);
    }
}

impl Dataset for Sketch {
    fn key(&self) -> &'static str {
        ENTRY.key
    }

    fn classes(&self) -> Result<Vec<String>> {
        Ok(wordnet::all())
    }

    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(vec![SplitName::Test])
    }

    fn published(&self) -> Published {
        Published::new(1_000, &[(SplitName::Test, 50_889)])
    }

    fn resize(&self) -> Option<Resize> {
        Some(self.files.resize())
    }

    fn load(&self, split: SplitName, request: &Request) -> Result<Split> {
        expect_test(ENTRY.key, split)?;
        let folder = cifar::folder(&self.root, FOLDER);
        self.files.load(scan(&folder, &wordnet::all(), OTHERS)?, split, request)
    }
}

impl SmallSet for Sketch {
    fn side(&self) -> u32 {
        600
    }

    fn write(&self, sizes: &Sizes) -> Result<()> {
        let mut pictures = Pictures::new(sizes.side, ImageFormat::Jpeg);
        write(&self.root.join(FOLDER), &wordnet::all(), Made { count: sizes.test, seed: 0, sizes }, &mut pictures)
    }
}
