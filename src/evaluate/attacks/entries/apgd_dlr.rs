//! Auto-PGD on the difference of logits ratio, which does not change with the scale of the logits (Croce and Hein 2020, arXiv 2003.01690).

use anyhow::Result;

use crate::evaluate::attacks::auto_pgd::{KEPT, STEPS, climb_from_starts, dlr};
use crate::evaluate::attacks::resisting::{Breaking, Resisting};
use crate::evaluate::attacks::{Entry, Settings};

pub static ENTRY: Entry = Entry {
    key: "apgd-dlr",
    about: "Auto-PGD on the ratio of differences of logits",
    reads: &["steps", "from-image", "restarts", "seed"],
    ranks: true,
    classes: 3,
    kept: KEPT,
    build: |settings| Box::new(ApgdDlr { settings }),
};

pub(super) struct ApgdDlr {
    pub settings: Settings,
}

impl Breaking for ApgdDlr {
    fn go(&self, images: &mut Resisting) -> Result<()> {
        climb_from_starts(images, &self.settings, dlr)
    }

    fn words(&self) -> String {
        self.settings.words_of_steps(STEPS)
    }
}
