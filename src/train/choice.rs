//! The epoch that gives the posterior, and the end of a training that no longer gains.

use super::progress::Progress;
use super::trainer::Trainer;
use crate::experiment::Selection;
use crate::posterior::Posterior;

impl Trainer<'_> {
    /// Returns whether the validation NLL has not fallen for so many epochs that training ends. It is a function of the
    /// epochs so far, so that a resumed run ends where an uninterrupted one does. A method that has no posterior yet goes
    /// on.
    pub(super) fn has_stalled(&self) -> bool {
        let stalled = |patience| self.progress.epochs_without_gain() >= patience;
        self.spec.early_stop.is_some_and(stalled) && self.method.has_posterior()
    }

    /// Returns a sentence that says which epoch was selected and why, and why training ended.
    pub(super) fn choice(&self) -> String {
        let Progress { epoch, best, .. } = &self.progress;
        let selected = match (best, self.spec.select) {
            (Some(best), Selection::Best) => {
                let nll = best.nll;
                format!(
                    "epoch {} of {epoch} gives the posterior: its validation NLL {nll:.4} is the lowest",
                    best.epoch
                )
            }
            _ => format!("epoch {epoch}, the last one, gives the posterior"),
        };
        let stale = self.progress.epochs_without_gain();
        match *epoch < self.spec.epochs {
            true => {
                format!("{selected}; training ended early, after {stale} epochs without a lower one (train.early_stop)")
            }
            false => selected,
        }
    }

    /// Returns the number of the epoch whose posterior was selected.
    pub(super) fn selected_epoch(&self) -> usize {
        match (&self.progress.best, self.spec.select) {
            (Some(best), Selection::Best) => best.epoch,
            _ => self.progress.epoch,
        }
    }

    /// Returns the selected posterior. Afterwards the best one is no longer kept.
    pub(super) fn posterior(&mut self) -> Posterior {
        match (self.progress.best.take(), self.spec.select) {
            (Some(best), Selection::Best) => best.posterior,
            _ => self.method.posterior(&self.theta),
        }
    }
}
