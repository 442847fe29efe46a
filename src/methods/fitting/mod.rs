//! The settings of what is fitted around particles, trained or as the checkpoint has them. [`crate::laplace`]
//! does it.

use crate::posterior::Output;

pub mod laplace;
pub mod projections;
pub mod tfb;

/// The fit of Gaussians around trained particles.
#[derive(Clone, Copy, Debug)]
pub enum Fitting {
    /// Gaussians by the curvature of the loss.
    Laplace(laplace::Settings),
    /// Gaussians as wide as a tolerance allows.
    Tfb(tfb::Settings),
    /// A Gaussian over the projections of a zero-shot model by the curvature of its contrastive loss.
    Projections(projections::Settings),
}

/// The source of the particles, and what is fitted around them.
pub enum Course<'a> {
    /// The particles are trained.
    Train,
    /// The particles are trained, and Gaussians are fitted around them.
    TrainThenFit(Fitting),
    /// The particles are those of a finished run, and Gaussians are fitted around them.
    Fit { run: &'a str, fitting: Fitting },
    /// The particle is the checkpoint itself, and Gaussians are fitted around it.
    FitCheckpoint(Fitting),
}

impl Course<'_> {
    /// Returns what is fitted, if anything is.
    pub fn fitting(&self) -> Option<Fitting> {
        match self {
            Course::Train => None,
            Course::TrainThenFit(fitting) | Course::Fit { fitting, .. } | Course::FitCheckpoint(fitting) => {
                Some(*fitting)
            }
        }
    }

    /// Returns the settings of a Laplace approximation, if one is fitted.
    pub fn laplace(&self) -> Option<laplace::Settings> {
        match self.fitting() {
            Some(Fitting::Laplace(settings)) => Some(settings),
            Some(Fitting::Tfb(_) | Fitting::Projections(_)) | None => None,
        }
    }

    /// Returns how Gaussian logits become predictions, and by how many draws of each particle, if logits are Gaussian.
    pub fn output(&self) -> Option<(Output, usize)> {
        match self.fitting() {
            Some(Fitting::Laplace(settings)) => Some((settings.output, settings.samples)),
            Some(Fitting::Projections(settings)) => Some((settings.output, settings.samples)),
            Some(Fitting::Tfb(_)) | None => None,
        }
    }
}
