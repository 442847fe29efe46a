//! The attacks, one file each: a new one is its file and its line in [`ATTACKS`].

mod fgsm;
mod pgd;

use crate::evaluate::attacks::Entry;

/// Every known attack.
pub static ATTACKS: &[&Entry] = &[&fgsm::ENTRY, &pgd::ENTRY];
