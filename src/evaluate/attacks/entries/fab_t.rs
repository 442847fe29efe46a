//! Targeted FAB: towards one wrong class after the other, the most probable ones first, with one pass a step however many classes
//! there are (Croce and Hein 2020, arXiv 2003.01690, section 5).

use anyhow::Result;

use crate::evaluate::attacks::boundary::{Aim, KEPT, STEPS, search, start};
use crate::evaluate::attacks::resisting::{Breaking, Resisting};
use crate::evaluate::attacks::{Entry, SEED_OF_RESTARTS, Settings};

pub static ENTRY: Entry = Entry {
    key: "fab-t",
    about: "FAB towards the most probable wrong classes in turn",
    reads: &["steps", "from-image", "restarts", "targets", SEED_OF_RESTARTS],
    ranks: true,
    classes: 2,
    kept: KEPT,
    build: |settings| Box::new(FabT { settings }),
};

pub(super) struct FabT {
    pub settings: Settings,
}

impl Breaking for FabT {
    fn go(&self, images: &mut Resisting) -> Result<()> {
        let steps = self.settings.steps.unwrap_or(STEPS);
        images.attack_towards(&self.settings, &|on, towards| {
            search(on, steps, start(on, &self.settings, &towards.number), &Aim::Class(towards.classes.shallow_clone()))
        })
    }

    fn words(&self) -> String {
        self.settings.words_of_steps(STEPS) + &self.settings.words_of_targets()
    }
}
