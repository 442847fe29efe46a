//! How the families of archives name their parameters, one file each: a new one is its file and its line in [`NAMINGS`].

pub mod clip;
mod timm;
mod torchvision;
mod transformers;

use crate::model::vit::Naming;

/// Every known naming, in the order they are tried.
pub static NAMINGS: &[&Naming] = &[&clip::NAMING, &timm::NAMING, &torchvision::NAMING, &transformers::NAMING];
