//! Laplace approximations (MacKay 1992; Daxberger et al. 2021, arXiv 2106.14806; on low-rank updates: Yang et al. 2024,
//! arXiv 2308.13111): after training, each particle becomes a Gaussian around itself, and n > 1 particles a mixture.
//!
//! | symbol | here |
//! |---|---|
//! | θ*, the mode | a row of theta, or its head's columns |
//! | H, the generalised Gauss-Newton matrix | [`Curvature`] |
//! | τ, the prior's precision | [`Approximation::precision`] |
//! | P = H + τ, the posterior's precision | never formed |
//! | log Z(τ), the evidence | [`Evidence::at`] |
//! | f*(x), the mode's logits; J(x), their Jacobian | [`pass::Pass`] |
//! | V(x) = J P⁻¹ Jᵀ, of the linearised logits | [`variance::Projected`] |
//!
//! τ is tuned after training, which leaves θ* where it is: it is then no longer exactly the mode. A tuned τ is each
//! particle's own.

pub mod curvature;
pub mod evidence;
pub mod factor;
pub mod fit;
pub mod memory;
pub mod pass;
pub mod predictive;
pub mod variance;

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::noise::{At, row};
use crate::base::random::Purpose;
use crate::machine::memory::Need;
use crate::model::Model;
use crate::model::network::Graph;
use crate::predict::Linear;
use crate::subspace::Subspace;

pub use crate::methods::laplace::{Parameters, Settings, Shape, Structure, Tokens, Tuning};
pub use crate::posterior::curvature::Curvature;
pub use crate::posterior::{Approximation, Fitted, Output};
pub use evidence::Evidence;

impl Parameters {
    /// The maps that they are.
    pub fn maps(self, subspace: &dyn Subspace) -> Result<pass::Maps> {
        match self {
            Parameters::All => pass::Maps::all(subspace),
            Parameters::LastLayer => pass::Maps::last_layer(subspace),
        }
    }
}

impl Settings {
    /// What the fit of `particles` particles will hold.
    ///
    /// # Errors
    /// More than `memory_bytes`, or a subspace without the parameters asked for.
    pub fn estimate(&self, subspace: &dyn Subspace, particles: i64, classes: i64) -> Result<memory::Estimate> {
        let maps = self.parameters.maps(subspace)?;
        let estimate = memory::Estimate::new(&maps, self.shape, particles as u64, classes);
        estimate.check(self.shape, self.memory_bytes)?;
        Ok(estimate)
    }
}

/// Everything that linearised predictions need.
pub struct Linearised<'a> {
    pub subspace: &'a dyn Subspace,
    /// `[n, P]`.
    pub theta: &'a Tensor,
    pub fitted: &'a Fitted,
    pub maps: pass::Maps,
    pub output: Output,
    /// Draws a particle.
    pub samples: usize,
    pub seed: u64,
}

impl<'a> Linearised<'a> {
    /// # Errors
    /// A posterior of another model.
    pub fn new(
        subspace: &'a dyn Subspace,
        theta: &'a Tensor,
        fitted: &'a Fitted,
        (output, samples): (Output, usize),
        seed: u64,
    ) -> Result<Linearised<'a>> {
        let whole = fitted.columns == (0..subspace.layout().parameters());
        let parameters = if whole { Parameters::All } else { Parameters::LastLayer };
        let maps = parameters.maps(subspace)?;
        let fits = maps.columns == fitted.columns && fitted.particles.iter().all(|p| p.curvature.fits(&maps));
        ensure!(fits, "the Laplace approximation is of another model than the run's");
        Ok(Linearised { subspace, theta, fitted, maps, output, samples, seed })
    }

    /// ε of a particle's draws, `[S, C]`: the same for every image, so that nothing depends on how they are batched.
    fn noise(&self, particle: i64, classes: i64, device: Device) -> Tensor {
        noise(self.seed, particle, self.samples, classes, device)
    }
}

impl Linear for Linearised<'_> {
    /// A draw each, or a particle each.
    fn count(&self) -> usize {
        let each = if self.output == Output::Mc { self.samples } else { 1 };
        self.fitted.particles.len() * each
    }

    /// The graph from the logits down to the trained layers, of one particle at a time.
    fn need(&self, model: &Model) -> Need {
        jacobian_need(model, self.subspace)
    }

    /// A particle's members are next to each other.
    fn logits(&self, model: &Model, images: &Tensor) -> Result<Tensor> {
        let classes = model.head.classes();
        let chunk = memory::images_at_once(&self.maps, classes, model.kind);
        let count = images.size()[1];
        let mut members = Vec::new();
        for (particle, Approximation { curvature, precision }) in self.fitted.particles.iter().enumerate() {
            let theta = self.theta.narrow(0, particle as i64, 1);
            let epsilon = self.noise(particle as i64, classes, theta.device());
            let mut parts = Vec::new();
            for start in (0..count).step_by(chunk as usize) {
                let images = images.narrow(1, start, chunk.min(count - start));
                let pass = pass::Pass::new(model, self.subspace, &self.maps, &theta, &images)?;
                let variance = variance::Projected::new(curvature, &self.maps, &pass)?.variance(*precision)?;
                parts.push(outputs(self.output, &pass.logits.detach(), &variance, &epsilon)?);
            }
            members.push(Tensor::cat(&parts, 1));
        }
        Ok(Tensor::cat(&members, 0))
    }
}

/// The graph of one particle's pass that Jacobians or gradients are taken from.
pub fn jacobian_graph(subspace: &dyn Subspace) -> Graph<'_> {
    Graph::Weights { trained: subspace.layout(), recompute: false, own_samples: false }
}

/// The memory of one particle's pass that Jacobians or gradients are taken from, besides those themselves.
pub fn jacobian_need(model: &Model, subspace: &dyn Subspace) -> Need {
    let need = model.need(jacobian_graph(subspace));
    Need { fixed: 2 * memory::BATCH_BYTES as u64, member: 0, image: need.image + need.pair, pair: 0 }
}

/// ε `[S, C]` of a particle's draws: pure functions of (seed, draw, particle).
pub(crate) fn noise(seed: u64, particle: i64, samples: usize, classes: i64, device: Device) -> Tensor {
    let like = Tensor::zeros([1, classes], (Kind::Double, device));
    let draw = |sample| row(seed, Purpose::Posterior, At { step: 0, sample, part: 0 }, particle, &like);
    Tensor::stack(&(0..samples as i64).map(draw).collect::<Vec<_>>(), 0)
}

/// Logits `[k, B, C]` of Gaussian logits.
pub(crate) fn outputs(output: Output, mean: &Tensor, variance: &Tensor, epsilon: &Tensor) -> Result<Tensor> {
    Ok(match output {
        Output::Mc => predictive::draws(mean, variance, epsilon),
        Output::Probit => predictive::probit(mean, variance).unsqueeze(0),
        Output::Bridge => predictive::bridge(mean, variance).unsqueeze(0),
        Output::Sampled => return None.context("draws of weights are no linearised predictions"),
    })
}
