//! The parameter names of the families of archives, one file each. A new naming needs its file and a line in
//! [`NAMINGS`].

pub mod clip;
mod timm;
mod torchvision;
pub mod transformers;

use crate::model::vit::Naming;

/// Every known naming, in the order they are tried.
pub static NAMINGS: &[&Naming] = &[&clip::NAMING, &timm::NAMING, &torchvision::NAMING, &transformers::NAMING];
