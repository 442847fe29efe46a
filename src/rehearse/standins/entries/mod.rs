//! The stand-ins, one file per layout. A new stand-in needs its file and a line in [`STAND_INS`].

mod camelyon17;
mod cifar;
mod cifar_c;
mod digits;
mod domainnet;
mod flowers102;
mod image_folder;
mod image_folder_c;
mod imagenet;
mod list;
mod stl10;
mod svhn;
mod texts;
mod tiny_imagenet;
mod vqa;
mod vtab;

use crate::rehearse::standins::contract::StandIn;

/// Every known stand-in, in the order of the data sets.
pub static STAND_INS: &[&StandIn] = &[
    &cifar::CIFAR10,
    &cifar::CIFAR100,
    &stl10::STAND_IN,
    &svhn::STAND_IN,
    &flowers102::STAND_IN,
    &camelyon17::STAND_IN,
    &domainnet::STAND_IN,
    &imagenet::STAND_IN,
    &tiny_imagenet::STAND_IN,
    &vtab::STAND_IN,
    &list::STAND_IN,
    &image_folder::STAND_IN,
    &digits::STAND_IN,
    &cifar_c::CIFAR10_C,
    &cifar_c::CIFAR100_C,
    &image_folder_c::STAND_IN,
    &texts::JSONL,
    &texts::WINOGRANDE,
    &texts::ARC,
    &texts::OPENBOOKQA,
    &texts::BOOLQ,
    &texts::GLUE,
    &vqa::VQA_V2,
    &vqa::OK_VQA,
];
