//! The settings of what is fitted around particles once they are trained. [`crate::laplace`] and `train/tfb.rs` do it.

pub mod laplace;
pub mod tfb;

/// The fit of Gaussians around trained particles.
#[derive(Clone, Copy, Debug)]
pub enum Fitting {
    /// Gaussians by the curvature of the loss.
    Laplace(laplace::Settings),
    /// Gaussians as wide as a tolerance allows.
    Tfb(tfb::Settings),
}

/// The source of the particles, and what is fitted around them.
pub enum Course<'a> {
    /// The particles are trained.
    Train,
    /// The particles are trained, and Gaussians are fitted around them.
    TrainThenFit(Fitting),
    /// The particles are those of a finished run, and Gaussians are fitted around them.
    Fit { run: &'a str, fitting: Fitting },
}

impl Course<'_> {
    /// Returns what is fitted, if anything is.
    pub fn fitting(&self) -> Option<Fitting> {
        match self {
            Course::Train => None,
            Course::TrainThenFit(fitting) | Course::Fit { fitting, .. } => Some(*fitting),
        }
    }

    /// Returns the settings of a Laplace approximation, if one is fitted.
    pub fn laplace(&self) -> Option<laplace::Settings> {
        match self.fitting() {
            Some(Fitting::Laplace(settings)) => Some(settings),
            Some(Fitting::Tfb(_)) | None => None,
        }
    }
}
