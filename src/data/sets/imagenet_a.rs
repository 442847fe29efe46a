//! ImageNet-A (Hendrycks et al. 2021, "Natural Adversarial Examples"): photos of 200 of ImageNet's classes that ResNet-50 takes for others.

use crate::data::Entry;
use crate::data::read::imagenet_part::{ImageNetPart, Part};
use crate::hub::originals::Originals;

pub static ENTRY: Entry = Entry {
    key: "imagenet-a",
    about: "ImageNet-A: 7,500 photos of 200 classes that ResNet-50 got wrong; test images alone",
    fetch: "imagenet-a.tar from https://people.eecs.berkeley.edu/~hendrycks/imagenet-a.tar, unpacked: \
            ROOT/imagenet-a/<wnid>/<images>",
    marks: &[],
    originals: Originals::ByHand("its terms are ImageNet's, and no SHA-256 of its archive is published"),
    hub: None,
    read: |reader| Box::new(ImageNetPart::read(reader, &PART)),
    sample: Some(|reader| Box::new(ImageNetPart::read(reader, &PART))),
};

static PART: Part = Part {
    key: "imagenet-a",
    folder: "imagenet-a",
    classes: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/imagenet_a.txt")),
    images: 7_500,
};
