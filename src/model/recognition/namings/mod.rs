//! The parameter names in each package, one file each. A new naming needs its file and a line in [`NAMINGS`].

pub mod clip;
mod timm;
mod torchvision;
pub mod transformers;

use super::naming::Naming;

/// Every known naming, in the order they are tried.
pub static NAMINGS: &[&Naming] = &[&clip::NAMING, &timm::NAMING, &torchvision::NAMING, &transformers::NAMING];
