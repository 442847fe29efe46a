//! ImageNet-R (Hendrycks et al. 2021, "The Many Faces of Robustness"): renditions (art, toys, …) of 200 of ImageNet's classes.

use crate::data::Entry;
use crate::data::read::imagenet_part::{ImageNetPart, Part};
use crate::hub::originals::Originals;

pub static ENTRY: Entry = Entry {
    key: "imagenet-r",
    about: "ImageNet-R: 30,000 renditions (art, toys, ...) of 200 classes; test images alone",
    fetch: "imagenet-r.tar from https://people.eecs.berkeley.edu/~hendrycks/imagenet-r.tar, unpacked: \
            ROOT/imagenet-r/<wnid>/<images>",
    marks: &[],
    originals: Originals::ByHand("its terms are ImageNet's, and no SHA-256 of its archive is published"),
    hub: None,
    read: |reader| Box::new(ImageNetPart::read(reader, &PART)),
    sample: Some(|reader| Box::new(ImageNetPart::read(reader, &PART))),
};

static PART: Part = Part {
    key: "imagenet-r",
    folder: "imagenet-r",
    classes: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/imagenet_r.txt")),
    images: 30_000,
};
