//! Post-hoc methods: posteriors that are fitted around particles that are there already, be they trained, another run's or the checkpoint
//! itself. Such a method is one file below `entries`, whose settings are a [`MethodSpec`](super::MethodSpec) and a [`PostHoc`].

use anyhow::{Result, bail};
use tch::Tensor;

use crate::data::batches::Samples;
use crate::laplace::fit::Fitter;
use crate::model::Model;
use crate::posterior::{Output, Posterior};
use crate::predict::Linear;
use crate::subspace::Subspace;

/// The source of the particles that a method starts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin<'a> {
    /// Training gives the particles.
    Training,
    /// The particles are those of this finished run: its folder, the start of its id, or settings.
    Run(&'a str),
    /// The particle is the checkpoint itself.
    Checkpoint,
}

/// The model and the samples with which a post-hoc method is fitted.
pub struct Context<'a> {
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub train: Samples<'a>,
    /// The held-out samples; there may be none.
    pub validation: Samples<'a>,
    pub batch_size: usize,
    pub seed: u64,
}

impl<'a> Context<'a> {
    /// Returns the method that fits Gaussians with these settings.
    pub fn fitter<S>(&self, settings: S) -> Fitter<'a, S> {
        let Context { model, subspace, train, validation, batch_size, seed } = *self;
        Fitter { model, subspace, settings, train, held_out: validation, batch_size, seed }
    }
}

/// The particles, and how their Gaussian logits become predictions.
pub struct Predicted<'a> {
    pub subspace: &'a dyn Subspace,
    pub posterior: &'a Posterior,
    pub output: Output,
    /// The number of draws per particle.
    pub samples: usize,
    pub seed: u64,
}

/// The passes that predictions take around a particle besides its own forward pass, each of them as long as one of a training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passes {
    pub forward: i64,
    pub backward: i64,
}

/// A method that is fitted around particles.
pub trait PostHoc {
    /// Returns the mistake in the settings where images are held out, or are not; `None` if there is none.
    fn check(&self, _holds_out: bool) -> Option<&'static str> {
        None
    }

    /// Plans the fit before anything is trained, and logs the memory that it will take.
    ///
    /// # Errors
    /// Fails if the method cannot be fitted to this model, or needs more memory than allowed.
    fn plan(&self, _model: &Model, _subspace: &dyn Subspace) -> Result<()> {
        Ok(())
    }

    /// Fits the posterior around particles `theta: [n, P]`.
    ///
    /// # Errors
    /// Fails if the fit has no finite result, or if memory does not suffice.
    fn fit(&self, theta: &Tensor, context: &Context) -> Result<Posterior>;

    /// Returns how Gaussian logits become predictions, and by how many draws of each particle; `None` if weights are drawn.
    fn output(&self) -> Option<(Output, usize)> {
        None
    }

    /// Returns the passes that Gaussian logits of so many classes take around each particle, for estimates.
    fn passes(&self, _classes: i64) -> Passes {
        Passes::default()
    }

    /// Returns the members that predict by Gaussian logits.
    ///
    /// # Errors
    /// Fails if the posterior has none, or is of another model.
    fn predict<'a>(&self, _predicted: Predicted<'a>) -> Result<Box<dyn Linear + 'a>> {
        bail!(NO_GAUSSIAN_LOGITS)
    }
}

/// The error of linearised predictions of a posterior that has none.
pub const NO_GAUSSIAN_LOGITS: &str =
    "this run has no Laplace approximation: linearised predictions need [method.laplace]";
