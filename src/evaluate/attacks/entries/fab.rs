//! FAB, the fast adaptive boundary attack, towards the nearest class (Croce and Hein 2020, arXiv 1907.02044).

use anyhow::Result;

use crate::evaluate::attacks::boundary::{Aim, KEPT, STEPS, search, start};
use crate::evaluate::attacks::resisting::{Breaking, Resisting};
use crate::evaluate::attacks::{Entry, SEED_OF_RESTARTS, Settings};

pub static ENTRY: Entry = Entry {
    key: "fab",
    about: "steps onto the linearised border of the nearest class, for the smallest change",
    reads: &["steps", "from-image", "restarts", SEED_OF_RESTARTS],
    ranks: true,
    classes: 2,
    kept: KEPT,
    build: |settings| Box::new(Fab { settings }),
};

pub(super) struct Fab {
    pub settings: Settings,
}

impl Breaking for Fab {
    fn go(&self, images: &mut Resisting) -> Result<()> {
        let steps = self.settings.steps.unwrap_or(STEPS);
        (0..self.settings.starts()).try_for_each(|number| {
            images.attack(&|on| search(on, steps, start(on, &self.settings, &[number]), &Aim::Nearest))
        })
    }

    fn words(&self) -> String {
        self.settings.words_of_steps(STEPS)
    }
}
