//! The data sets, one file each. A new data set is one file and its line in [`DATASETS`]. The list of data sets, the
//! config parser and the message for an unknown name all use that slice.

mod arc;
mod boolq;
mod camelyon17;
pub(super) mod cifar10;
pub(super) mod cifar100;
pub(super) mod cifar100_c;
pub(super) mod cifar10_c;
mod digits;
mod domainnet;
mod flowers102;
mod glue;
mod image_folder;
mod image_folder_c;
mod imagenet;
mod jsonl;
mod list;
mod ok_vqa;
mod openbookqa;
mod stl10;
mod svhn;
mod tiny_imagenet;
mod vqa_v2;
mod vtab;
mod winogrande;

use crate::data::Entry;

/// All data sets of `[data.*]` in the order in which they are listed.
pub static DATASETS: &[&Entry] = &[
    &cifar10::ENTRY,
    &cifar100::ENTRY,
    &stl10::ENTRY,
    &svhn::ENTRY,
    &flowers102::ENTRY,
    &camelyon17::ENTRY,
    &domainnet::ENTRY,
    &imagenet::ENTRY,
    &tiny_imagenet::ENTRY,
    &vtab::ENTRY,
    &list::ENTRY,
    &image_folder::ENTRY,
    &digits::ENTRY,
    &cifar10_c::ENTRY,
    &cifar100_c::ENTRY,
    &image_folder_c::ENTRY,
    &jsonl::ENTRY,
    &winogrande::ENTRY,
    &arc::ENTRY,
    &openbookqa::ENTRY,
    &boolq::ENTRY,
    &glue::ENTRY,
    &vqa_v2::ENTRY,
    &ok_vqa::ENTRY,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_unique_and_described() {
        for (i, entry) in DATASETS.iter().enumerate() {
            assert!(DATASETS[..i].iter().all(|other| other.key != entry.key));
            assert!(!entry.about.is_empty() && entry.about.is_ascii());
        }
    }
}
