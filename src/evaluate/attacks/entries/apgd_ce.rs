//! Auto-PGD on the cross-entropy of the label (Croce and Hein 2020, arXiv 2003.01690).

use anyhow::Result;

use crate::evaluate::attacks::auto_pgd::{KEPT, STEPS, climb_from_starts, cross_entropy};
use crate::evaluate::attacks::resisting::{Breaking, Resisting};
use crate::evaluate::attacks::{Entry, Settings};

pub static ENTRY: Entry = Entry {
    key: "apgd-ce",
    about: "Auto-PGD on the cross-entropy: steps that halve where the loss stops rising",
    reads: &["steps", "from-image", "restarts", "seed"],
    ranks: true,
    classes: 2,
    kept: KEPT,
    build: |settings| Box::new(ApgdCe { settings }),
};

pub(super) struct ApgdCe {
    pub settings: Settings,
}

impl Breaking for ApgdCe {
    fn go(&self, images: &mut Resisting) -> Result<()> {
        climb_from_starts(images, &self.settings, cross_entropy)
    }

    fn words(&self) -> String {
        self.settings.words_of_steps(STEPS)
    }
}
