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

use std::ops::Range;

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::random::Purpose;
use crate::base::tensor_file::State;
use crate::machine::memory::Need;
use crate::methods::noise::{At, row};
use crate::model::Model;
use crate::model::vit::footprint::Graph;
use crate::predict::Linear;
use crate::subspace::Subspace;

pub use crate::methods::laplace::{Output, Parameters, Settings, Shape, Structure, Tokens, Tuning};
pub use curvature::Curvature;
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

/// The Gaussian around one particle.
#[derive(Debug)]
pub struct Approximation {
    pub curvature: Curvature,
    /// τ.
    pub precision: f64,
}

/// Gaussians around all particles.
#[derive(Debug)]
pub struct Fitted {
    /// Of theta, that are random.
    pub columns: Range<i64>,
    pub particles: Vec<Approximation>,
}

impl Fitted {
    /// A draw of particle `particle`, `[P]`, around `theta: [P]` with `epsilon: [P]`.
    pub fn draw(&self, particle: usize, theta: &Tensor, epsilon: &Tensor) -> Tensor {
        let Approximation { curvature, precision } = &self.particles[particle];
        draw_around(curvature, *precision, &self.columns, theta, epsilon)
    }

    pub fn save(&self, state: &mut State) {
        let precisions: Vec<f64> = self.particles.iter().map(|particle| particle.precision).collect();
        state.put("laplace.precision", &Tensor::from_slice(&precisions));
        state.put("laplace.columns", &Tensor::from_slice(&[self.columns.start, self.columns.end]));
        for (particle, approximation) in self.particles.iter().enumerate() {
            approximation.curvature.save(&format!("laplace.{particle}"), state);
        }
    }

    /// What [`save`](Self::save) stored, where there is any.
    pub fn load(state: &State, theta: &Tensor, device: Device) -> Result<Option<Fitted>> {
        if !state.has("laplace.precision") {
            return Ok(None);
        }
        let columns = state.get("laplace.columns")?;
        ensure!(columns.size() == [2], "`laplace.columns` is damaged");
        let columns = columns.int64_value(&[0])..columns.int64_value(&[1]);
        let precisions = crate::base::tensor::host_f64(&state.get("laplace.precision")?)?;
        let (particles, parameters) = theta.size2()?;
        let fits = precisions.len() as i64 == particles && columns.start >= 0 && columns.end <= parameters;
        ensure!(fits, "the Laplace approximation is of other particles than theta");
        let one = |(particle, precision): (usize, f64)| {
            let curvature = Curvature::load(&format!("laplace.{particle}"), state, device)?;
            Ok(Approximation { curvature, precision })
        };
        let particles = precisions.into_iter().enumerate().map(one).collect::<Result<_>>()?;
        Ok(Some(Fitted { columns, particles }))
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

    /// The graph from the logits down to the trained layers, of one particle at a time, and the Jacobians.
    fn need(&self, model: &Model) -> Need {
        let pass = model.need(jacobian_graph(self.subspace));
        let jacobians = memory::per_image(&self.maps, model.head.classes(), model.kind) as u64;
        Need { image: pass.image + pass.pair + jacobians, ..Need::default() }
    }

    fn images_at_once(&self, model: &Model) -> usize {
        memory::images_at_once(&self.maps, model.head.classes(), model.kind) as usize
    }

    /// A particle's members are next to each other.
    fn logits(&self, model: &Model, images: &Tensor) -> Result<Tensor> {
        let classes = model.head.classes();
        let (chunk, count) = (self.images_at_once(model), images.size()[1]);
        let mut members = Vec::new();
        for (particle, Approximation { curvature, precision }) in self.fitted.particles.iter().enumerate() {
            let theta = self.theta.narrow(0, particle as i64, 1);
            let epsilon = self.noise(particle as i64, classes, theta.device());
            let mut parts = Vec::new();
            for start in (0..count).step_by(chunk) {
                let images = images.narrow(1, start, (chunk as i64).min(count - start));
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
    Graph::Weights { trained: subspace.layout(), recompute: false, own_images: false }
}

/// `theta: [P]` with its `columns` drawn from the Gaussian with precision H + τ around them.
fn draw_around(
    curvature: &Curvature,
    precision: f64,
    columns: &Range<i64>,
    theta: &Tensor,
    epsilon: &Tensor,
) -> Tensor {
    let (start, length) = (columns.start, columns.end - columns.start);
    let deviation = curvature.deviation(precision, &epsilon.narrow(0, start, length));
    let drawn = theta.copy();
    let mut random = drawn.narrow(0, start, length);
    random += deviation.to_kind(theta.kind());
    drawn
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
