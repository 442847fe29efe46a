//! The attacks, one file each. A new attack needs its file and a line in [`ATTACKS`].

mod fgsm;
mod pgd;

use crate::evaluate::attacks::Entry;

/// Every known attack.
pub static ATTACKS: &[&Entry] = &[&fgsm::ENTRY, &pgd::ENTRY];
