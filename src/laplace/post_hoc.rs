//! What is fitted around particles after training, or around the checkpoint: the door to the fits of this folder.

use anyhow::{Result, ensure};

use super::fit::Fitter;
use super::tfb;
use crate::base::random::some_of;
use crate::data::batches::SampleSet;
use crate::methods::laplace::Parameters;
use crate::methods::{Course, Fitting};
use crate::model::Model;
use crate::posterior::Posterior;
use crate::subspace::Subspace;

/// Some samples of a set.
#[derive(Clone, Copy)]
pub struct Samples<'a> {
    pub set: &'a SampleSet,
    pub indices: &'a [u32],
}

/// The model and the samples that a fit is given.
pub struct PostHoc<'a> {
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub train: Samples<'a>,
    /// The held-out samples; there may be none.
    pub validation: Samples<'a>,
    pub batch_size: usize,
    pub seed: u64,
}

/// Logs the memory of a Laplace fit, if there is one.
///
/// # Errors
/// Fails if the fit cannot be done or needs more memory than allowed, before anything is trained.
pub fn check(plan: &Course, model: &Model, subspace: &dyn Subspace, particles: i64) -> Result<()> {
    let Some(settings) = plan.laplace() else { return Ok(()) };
    ensure!(
        settings.parameters == Parameters::LastLayer || model.network.records_layers(),
        "method.laplace.parameters = \"all\" needs what enters and leaves the layers, which a module (checkpoint.kind = \
         \"module\") does not show: set method.laplace.parameters = \"last-layer\", with a head \
         that is trained ([head.linear], or [subspace.full] or [subspace.last-layer])"
    );
    let estimate = settings.estimate(subspace, particles, model.head.classes())?;
    tracing::info!("laplace: {estimate}");
    Ok(())
}

impl PostHoc<'_> {
    /// Fits Gaussians around the particles of a posterior.
    ///
    /// # Errors
    /// Fails if the fit needs more memory than there is, or if its numbers are not finite.
    pub fn fit(&self, posterior: Posterior, fitting: Fitting) -> Result<Posterior> {
        let PostHoc { model, subspace, batch_size, seed, .. } = *self;
        let Samples { set: images, indices: train } = self.train;
        let held_out = (self.validation.set, self.validation.indices);
        let mode = posterior.theta().shallow_clone();
        match fitting {
            Fitting::Laplace(settings) => {
                let fitter = Fitter { model, subspace, settings, images, train, held_out, batch_size, seed };
                let fitted = fitter.fit(&mode)?;
                Ok(Posterior::Laplace { mode, fitted })
            }
            Fitting::Projections(settings) => {
                let fitter = Fitter { model, subspace, settings, images, train, held_out, batch_size, seed };
                let fitted = fitter.fit(&mode)?;
                Ok(Posterior::Laplace { mode, fitted })
            }
            Fitting::Tfb(settings) => {
                let Samples { set: images, indices } = if held_out.1.is_empty() { self.train } else { self.validation };
                let anchors = &some_of(indices, settings.anchors, seed);
                tfb::Anchored { model, subspace, settings, images, anchors, batch_size, seed }.fit(&mode)
            }
        }
    }
}
