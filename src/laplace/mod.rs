//! Laplace approximations (MacKay 1992; Daxberger et al. 2021, arXiv 2106.14806; on low-rank updates: Yang et al. 2024,
//! arXiv 2308.13111). After training, each particle becomes the mean of a Gaussian; n > 1 particles become a mixture.
//!
//! | symbol | here |
//! |---|---|
//! | θ*, the mode | a row of theta, or the head's columns of it |
//! | H, the generalised Gauss-Newton matrix | [`Curvature`] |
//! | τ, the prior's precision | [`Approximation::precision`] |
//! | P = H + τ, the posterior's precision | never formed |
//! | log Z(τ), the evidence | [`Evidence::at`] |
//! | f*(x), the mode's logits; J(x), their Jacobian | [`pass::Pass`] |
//! | V(x) = J P⁻¹ Jᵀ, of the linearised logits | [`variance::Projected`] |
//!
//! τ is tuned after training while θ* stays where it is, so θ* is then no longer exactly the mode. Each particle has
//! its own tuned τ.

pub mod cosine;
pub mod evidence;
pub mod factor;
pub mod fit;
pub mod labels;
pub mod memory;
pub mod pass;
pub mod predictive;
mod prior_precision;
pub mod projections;
mod settings;
pub mod tangents;
pub mod variance;

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::random::{At, Purpose, row};
use crate::data::Fields;
use crate::machine::memory::MemoryEstimate;
use crate::model::Model;
use crate::model::network::Graph;
use crate::predict::Linear;
use crate::subspace::Subspace;

pub use crate::posterior::curvature::Curvature;
pub use crate::posterior::{Approximation, Fitted, Output};
pub use evidence::Evidence;
pub use labels::Labels;
pub use settings::{Expectation, Fisher, Parameters, Settings, Shape, Structure, Tokens, Tuning};

impl Parameters {
    /// Returns the maps that hold these parameters.
    pub fn maps(self, subspace: &dyn Subspace) -> Result<pass::Maps> {
        match self {
            Parameters::All => pass::Maps::all(subspace),
            Parameters::LastLayer => pass::Maps::last_layer(subspace),
        }
    }
}

impl Settings {
    /// Estimates the memory of fitting `particles` particles.
    ///
    /// # Errors
    /// Fails if the fit needs more than `memory_bytes`, or if the subspace does not train these parameters.
    pub fn estimate(&self, subspace: &dyn Subspace, particles: i64, classes: i64) -> Result<memory::Estimate> {
        let maps = self.parameters.maps(subspace)?;
        let estimate = memory::Estimate::new(&maps, self.shape, particles as u64, classes);
        estimate.check(self.shape, self.memory_bytes)?;
        Ok(estimate)
    }
}

/// The Gaussians, the subspace and the settings that linearised predictions need.
pub struct Linearised<'a> {
    pub subspace: &'a dyn Subspace,
    /// The particles, `[n, P]`.
    pub theta: &'a Tensor,
    pub fitted: &'a Fitted,
    pub maps: pass::Maps,
    pub output: Output,
    /// The number of draws per particle.
    pub samples: usize,
    pub seed: u64,
    /// Whether the output is that of a number, which a Gaussian predicts in closed form.
    is_number: bool,
}

impl<'a> Linearised<'a> {
    /// Checks that the Gaussians fit the model and collects what predictions need.
    ///
    /// # Errors
    /// Fails if the Gaussians were fitted to a model of another shape.
    pub fn new(
        subspace: &'a dyn Subspace,
        theta: &'a Tensor,
        fitted: &'a Fitted,
        output: Output,
        samples: usize,
        seed: u64,
    ) -> Result<Linearised<'a>> {
        let maps = maps_of(subspace, fitted)?;
        // Classes are two or more.
        let is_number = subspace.layout().outputs_of_head() == Some(1);
        Ok(Linearised { subspace, theta, fitted, maps, output, samples, seed, is_number })
    }

    /// Returns the noise ε of a particle's draws, `[S, C]`. It is the same for every image, so predictions do not
    /// depend on how images are batched.
    fn noise(&self, particle: i64, classes: i64, device: Device) -> Tensor {
        noise(self.seed, particle, self.samples, classes, device)
    }
}

impl Linear for Linearised<'_> {
    /// Returns the number of members: one per draw for `mc`, otherwise one per particle, as for numbers.
    fn count(&self) -> usize {
        let each = if self.output == Output::Mc && !self.is_number { self.samples } else { 1 };
        self.fitted.particles.len() * each
    }

    /// Returns the memory of the graph from the logits down to the trained layers, for one particle at a time, and of the
    /// Jacobians.
    fn need(&self, model: &Model) -> MemoryEstimate {
        let pass = model.need(jacobian_graph(self.subspace));
        let jacobians = memory::per_image(&self.maps, model.head.classes(), model.kind) as u64;
        let image = pass.image + pass.pair + jacobians;
        MemoryEstimate { fixed: pass.fixed, image, ..MemoryEstimate::default() }
    }

    fn images_at_once(&self, model: &Model) -> usize {
        memory::images_at_once(&self.maps, model.head.classes(), model.kind) as usize
    }

    fn outputs(&self, model: &Model) -> usize {
        if self.is_number { 2 } else { model.head.classes() as usize }
    }

    /// Returns the logits of all members. The members of one particle are adjacent. Of a number, these are its mean and the mean's
    /// variance.
    fn logits(&self, model: &Model, images: &Fields, _: usize) -> Result<Tensor> {
        let classes = model.head.classes();
        let mut members = Vec::new();
        for (particle, Approximation { curvature, precision }) in self.fitted.particles.iter().enumerate() {
            let theta = self.theta.narrow(0, particle as i64, 1);
            let epsilon = self.noise(particle as i64, classes, theta.device());
            let pass = pass::Pass::new(model, self.subspace, &self.maps, &theta, images)?;
            let variance = variance::Projected::new(curvature, &self.maps, &pass)?.variance(*precision)?;
            let mean = pass.logits.detach();
            members.push(match self.is_number {
                true => Tensor::cat(&[mean.to_kind(Kind::Double), variance.squeeze_dim(2)], 1).unsqueeze(0),
                false => outputs(self.output, &mean, &variance, &epsilon)?,
            });
        }
        Ok(Tensor::cat(&members, 0))
    }
}

/// Returns the maps of Gaussians, which must fit the model.
fn maps_of(subspace: &dyn Subspace, fitted: &Fitted) -> Result<pass::Maps> {
    let whole = fitted.columns == (0..subspace.layout().parameters());
    let parameters = if whole { Parameters::All } else { Parameters::LastLayer };
    let maps = parameters.maps(subspace)?;
    let fits = maps.columns == fitted.columns && fitted.particles.iter().all(|p| p.curvature.fits(&maps));
    ensure!(fits, "the Laplace approximation is of another model than the run's");
    Ok(maps)
}

/// Returns the graph of one particle's forward pass, from which Jacobians or gradients are taken.
pub fn jacobian_graph(subspace: &dyn Subspace) -> Graph<'_> {
    Graph::Weights { trained: subspace.layout(), recompute: false, own_samples: false, twice: false }
}

/// Returns the noise ε `[S, C]` of a particle's draws, a pure function of (seed, draw, particle).
pub(crate) fn noise(seed: u64, particle: i64, samples: usize, classes: i64, device: Device) -> Tensor {
    let like = Tensor::zeros([1, classes], (Kind::Double, device));
    let draw = |sample| row(seed, Purpose::Posterior, At { step: 0, sample, part: 0 }, particle, &like);
    Tensor::stack(&(0..samples as i64).map(draw).collect::<Vec<_>>(), 0)
}

/// Returns the members' outputs `[k, B, C]` for Gaussian logits: k draws, or the log-probabilities of one
/// approximation.
pub(crate) fn outputs(output: Output, mean: &Tensor, variance: &Tensor, epsilon: &Tensor) -> Result<Tensor> {
    Ok(match output {
        Output::Mc => predictive::draws(mean, variance, epsilon),
        Output::Probit => predictive::probit(mean, &variance.diagonal(0, 1, 2)).unsqueeze(0),
        Output::Bridge => predictive::bridge(mean, variance).unsqueeze(0),
        Output::Sampled | Output::Tangent => return None.context("draws of weights have no Gaussian logits"),
    })
}
