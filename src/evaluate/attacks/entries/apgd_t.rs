//! Targeted Auto-PGD: the difference of logits ratio towards one wrong class after the other, the most probable ones first (Croce
//! and Hein 2020, arXiv 2003.01690, section 4.2).

use anyhow::Result;

use crate::evaluate::attacks::auto_pgd::{KEPT, STEPS, dlr_targeted, start, walk};
use crate::evaluate::attacks::resisting::{Breaking, Resisting};
use crate::evaluate::attacks::{Entry, Settings};

pub static ENTRY: Entry = Entry {
    key: "apgd-t",
    about: "Auto-PGD towards the most probable wrong classes in turn",
    reads: &["steps", "from-image", "restarts", "targets", "seed"],
    ranks: true,
    classes: 4,
    kept: KEPT,
    build: |settings| Box::new(ApgdT { settings }),
};

pub(super) struct ApgdT {
    pub settings: Settings,
}

impl Breaking for ApgdT {
    fn go(&self, images: &mut Resisting) -> Result<()> {
        let steps = self.settings.steps.unwrap_or(STEPS);
        images.attack_towards(&self.settings, &|on, towards| {
            let goal = |scores: &tch::Tensor| dlr_targeted(scores, on.clean.labels, &towards.classes);
            Ok(walk(on, steps, &start(on, &self.settings, &towards.number), &goal)?.wrong)
        })
    }

    fn words(&self) -> String {
        self.settings.words_of_steps(STEPS) + &self.settings.words_of_targets()
    }
}
