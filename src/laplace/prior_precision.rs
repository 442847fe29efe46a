//! The choice of a prior precision τ for one particle: the given one, the maximum of the evidence, or the best of a grid on
//! validation images.

use std::ops::Range;

use anyhow::Result;
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use super::fit::{Fitter, ROOM_TO_FIT};
use super::pass::{Maps, Pass};
use super::tangents;
use super::variance::Projected;
use super::{Evidence, Fitted, Output, Settings, Tuning};
use crate::base::random::posterior_row;
use crate::base::tensor::{guarded, host_f64, mixture_log_probabilities};
use crate::data::batches::{Batch, Samples};
use crate::machine::Chunk;
use crate::predict::{Members, Predictor, Rows};

/// The number of prior precisions tried by `tuning = "validation"`, spaced logarithmically from 10⁻⁴ to 10⁴.
const GRID: usize = 41;

impl Fitter<'_, Settings> {
    /// Returns the prior precision τ of one particle.
    pub fn tune(&self, maps: &Maps, particle: i64, theta: &Tensor, one: &Fitted, evidence: &Evidence) -> Result<f64> {
        match self.settings.tuning {
            Tuning::Fixed => Ok(self.settings.prior_precision),
            Tuning::Evidence => {
                let precision = evidence.maximum();
                let (low, high) = super::evidence::RANGE;
                if precision < 1.01 * low || precision > 0.99 * high {
                    tracing::warn!(
                        "laplace: the evidence has no maximum in {low:e} to {high:e}: prior precision {precision:e}"
                    );
                }
                Ok(precision)
            }
            Tuning::Validation => {
                let grid: Vec<f64> = (0..GRID).map(|i| 10f64.powf(-4.0 + 8.0 * i as f64 / (GRID - 1) as f64)).collect();
                let losses = match self.settings.output {
                    Output::Sampled => self.losses_of(&grid, |tau| self.sampled(tau, theta, one))?,
                    Output::Tangent => self.losses_of(&grid, |tau| self.tangent(tau, theta, one))?,
                    _ => self.linearised_losses(&grid, maps, particle, theta, one)?,
                };
                let best = grid.iter().zip(&losses).filter(|(_, loss)| loss.is_finite());
                let best = best.min_by(|a, b| a.1.total_cmp(b.1));
                let (precision, _) = best.ok_or_else(|| {
                    anyhow::anyhow!(
                        "laplace: no prior precision of the grid has a finite validation NLL: lower optimizer.*.lr"
                    )
                })?;
                Ok(*precision)
            }
        }
    }

    /// Returns the validation NLL of linearised predictions at each τ. One Jacobian per batch serves every τ.
    fn linearised_losses(
        &self,
        grid: &[f64],
        maps: &Maps,
        particle: i64,
        theta: &Tensor,
        one: &Fitted,
    ) -> Result<Vec<f64>> {
        let classes = self.model.head.classes();
        let epsilon = super::noise(self.seed, particle, self.settings.samples, classes, theta.device());
        let mut sums = Tensor::zeros([grid.len() as i64], (Kind::Double, theta.device()));
        for batch in self.batches(maps, self.held_out, self.model.head.classes())? {
            let Batch { samples, labels } = batch?;
            guarded("laplace", ROOM_TO_FIT, || {
                let images = self.model.preparation.prepare(&samples.for_all());
                let pass = Pass::new(self.model, self.subspace, maps, theta, &images)?;
                let projected = Projected::new(&one.particles[0].curvature, maps, &pass)?;
                let mean = pass.logits.detach();
                let losses: Vec<Tensor> = grid
                    .iter()
                    .map(|tau| {
                        let members =
                            super::outputs(self.settings.output, &mean, &projected.variance(*tau)?, &epsilon)?;
                        Ok(-mixture_log_probabilities(&members, &labels, Kind::Double).sum(Kind::Double))
                    })
                    .collect::<Result<_>>()?;
                sums += Tensor::stack(&losses, 0);
                Ok(())
            })?;
        }
        host_f64(&(sums / self.held_out.indices.len() as f64))
    }

    /// Returns the validation NLL at each τ, from the logits of draws of weights. Every τ uses the same noise.
    fn losses_of(&self, grid: &[f64], logits: impl Fn(f64) -> Result<Vec<f32>>) -> Result<Vec<f64>> {
        let Samples { set: images, indices } = self.held_out;
        let labels = indices.iter().map(|i| i64::from(images.split.labels[*i as usize]));
        let labels = Tensor::from_slice(&labels.collect::<Vec<_>>());
        let shape = [self.settings.samples as i64, indices.len() as i64, self.model.head.classes()];
        let loss = |tau: &f64| {
            let values = Tensor::from_slice(&logits(*tau)?).view(shape);
            Ok(-mixture_log_probabilities(&values, &labels, Kind::Double).mean(Kind::Double).double_value(&[]))
        };
        grid.iter().map(loss).collect()
    }

    /// Returns the logits of the held-out images by networks with weights drawn at τ.
    fn sampled(&self, tau: f64, theta: &Tensor, one: &Fitted) -> Result<Vec<f32>> {
        let rows = Drawn { one, tau, theta, seed: self.seed, samples: self.settings.samples };
        self.held_out_logits(Members::Rows { subspace: self.subspace, rows: &rows })
    }

    /// Returns the logits of the held-out images by the linearised network with the same weights.
    fn tangent(&self, tau: f64, theta: &Tensor, one: &Fitted) -> Result<Vec<f32>> {
        let drawn = tangents::Drawn::new(self.subspace, theta, one, self.settings.samples, self.seed)?;
        self.held_out_logits(Members::Linear(&drawn.with_precision(tau)))
    }

    fn held_out_logits(&self, members: Members) -> Result<Vec<f32>> {
        let Samples { set: images, indices } = self.held_out;
        Predictor::new(self.model, members, Chunk::Auto).all_logits(
            images,
            indices,
            self.batch_size,
            &ProgressBar::hidden(),
        )
    }
}

/// Sampled weights around one particle at a given prior precision.
struct Drawn<'a> {
    one: &'a Fitted,
    tau: f64,
    /// The particle, `[1, P]`.
    theta: &'a Tensor,
    seed: u64,
    samples: usize,
}

impl Rows for Drawn<'_> {
    fn count(&self) -> usize {
        self.samples
    }

    fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        let curvature = &self.one.particles[0].curvature;
        let row = |sample: usize| {
            let epsilon = posterior_row(self.seed, sample as i64, 0, self.theta);
            curvature.draw(self.tau, &self.one.columns, &self.theta.get(0), &epsilon)
        };
        Ok(Tensor::stack(&members.map(row).collect::<Vec<_>>(), 0))
    }

    fn are_made(&self) -> bool {
        true
    }
}
