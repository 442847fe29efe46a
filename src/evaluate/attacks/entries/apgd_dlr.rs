//! Auto-PGD on the difference of logits ratio, which does not change with the scale of the logits (Croce and Hein 2020, arXiv 2003.01690).

use anyhow::Result;

use crate::evaluate::attacks::auto_pgd::{KEPT, STEPS, dlr, start, walk};
use crate::evaluate::attacks::resisting::{Breaking, Resisting};
use crate::evaluate::attacks::{Entry, Settings};

pub static ENTRY: Entry = Entry {
    key: "apgd-dlr",
    about: "Auto-PGD on the ratio of differences of logits",
    reads: &["steps", "from-image", "restarts"],
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
        let steps = self.settings.steps.unwrap_or(STEPS);
        (0..self.settings.starts()).try_for_each(|number| {
            images.attack(&|on| {
                let goal = |scores: &tch::Tensor| dlr(scores, on.clean.labels);
                Ok(walk(on, steps, &start(on, &self.settings, &[number]), &goal)?.wrong)
            })
        })
    }

    fn words(&self) -> String {
        self.settings.words_of_steps(STEPS)
    }
}
