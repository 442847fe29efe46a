//! Published file formats that several data sets share: their readers, and beside each the writer for small sets.

pub mod cifar;
pub mod cifar_c;
pub mod class_folders;
pub mod columns;
pub mod image_files;
pub mod imagenet_part;
pub mod json_lines;
pub mod known;
pub mod mat;
pub mod npy;
pub mod npz;
pub mod questions;
pub mod shards;
pub mod splits;
pub mod tables;
pub mod vqa;
pub mod wordnet;
