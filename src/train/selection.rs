//! The epoch that gives the posterior, and the end of a training that no longer gains.

use super::particles::{EpochRow, Particles, Progress};
use crate::experiment::{Selection, TrainSpec};
use crate::posterior::Posterior;

/// The rules by which an epoch is selected and training ends.
#[derive(Clone, Copy)]
pub(super) struct Selector {
    select: Selection,
    early_stop: Option<usize>,
    epochs: usize,
}

impl Selector {
    pub fn new(spec: &TrainSpec) -> Selector {
        Selector { select: spec.select, early_stop: spec.early_stop, epochs: spec.epochs }
    }

    /// Returns whether the validation NLL has not fallen for so many epochs that training ends. It is a function of the
    /// epochs so far, so that a resumed run ends where an uninterrupted one does. A method that has no posterior yet goes
    /// on.
    pub fn has_stalled(&self, particles: &Particles) -> bool {
        let stalled = |patience| particles.progress.epochs_without_gain() >= patience;
        self.early_stop.is_some_and(stalled) && particles.method.has_posterior()
    }

    /// Keeps the posterior of the epoch that has just ended, if the best one is to be selected and it is the best so far.
    pub fn offer(&self, row: &EpochRow, particles: &mut Particles) {
        let Particles { theta, method, progress } = particles;
        if let Some(nll) = row.validation_nll
            && self.select == Selection::Best
            && method.has_posterior()
        {
            progress.offer(nll, || method.posterior(theta));
        }
    }

    /// Returns a sentence that says which epoch was selected and why, and why training ended.
    pub fn choice(&self, progress: &Progress) -> String {
        let Progress { epoch, best, .. } = progress;
        let selected = match (best, self.select) {
            (Some(best), Selection::Best) => {
                let nll = best.nll;
                format!(
                    "epoch {} of {epoch} gives the posterior: its validation NLL {nll:.4} is the lowest",
                    best.epoch
                )
            }
            _ => format!("epoch {epoch}, the last one, gives the posterior"),
        };
        let stale = progress.epochs_without_gain();
        match *epoch < self.epochs {
            true => {
                format!("{selected}; training ended early, after {stale} epochs without a lower one (train.early_stop)")
            }
            false => selected,
        }
    }

    /// Returns the number of the epoch whose posterior was selected.
    pub fn epoch(&self, progress: &Progress) -> usize {
        match (&progress.best, self.select) {
            (Some(best), Selection::Best) => best.epoch,
            _ => progress.epoch,
        }
    }

    /// Returns the selected posterior.
    pub fn posterior(&self, particles: Particles) -> Posterior {
        match (particles.progress.best, self.select) {
            (Some(best), Selection::Best) => best.posterior,
            _ => particles.method.posterior(&particles.theta),
        }
    }
}
