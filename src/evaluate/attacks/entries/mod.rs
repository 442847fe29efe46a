//! The attacks, one file each. A new attack needs its file and a line in [`ATTACKS`].

mod apgd_ce;
mod apgd_dlr;
mod apgd_t;
mod autoattack;
mod fab;
mod fab_t;
mod fgsm;
mod pgd;
mod square;

use crate::evaluate::attacks::Entry;

/// Every known attack.
pub static ATTACKS: &[&Entry] = &[
    &fgsm::ENTRY,
    &pgd::ENTRY,
    &apgd_ce::ENTRY,
    &apgd_dlr::ENTRY,
    &apgd_t::ENTRY,
    &fab::ENTRY,
    &fab_t::ENTRY,
    &square::ENTRY,
    &autoattack::ENTRY,
];
