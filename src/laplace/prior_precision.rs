//! The choice of a prior precision τ for one particle: the given one, the maximum of the evidence, or the best of a grid on
//! validation images.
//!
//! The evidence of a Laplace approximation (MacKay 1992) is
//! log Z(τ) = log p(D | θ*) − ½ [log det(H + τ) − P log τ + τ ‖θ*‖²], where log det(H + τ) − P log τ =
//! Σ_i log(1 + λ_i / τ) over the eigenvalues λ_i of H. The prior is N(0, τ⁻¹) on the fitted columns of theta.

use std::ops::Range;

use anyhow::{Result, ensure};
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use super::fit::{Fitter, ROOM_TO_FIT};
use super::pass::{Maps, Pass};
use super::variance::Projected;
use super::{Fitted, Output, Settings, Tuning};
use crate::base::random::posterior_row;
use crate::base::tensor::{guarded, host_f64, mixture_log_probabilities};
use crate::data::batches::Batch;
use crate::machine::Chunk;
use crate::posterior::curvature::Curvature;
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
                let (low, high) = super::prior_precision::RANGE;
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
                    Output::Sampled => self.sampled_losses(&grid, theta, one)?,
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
        host_f64(&(sums / self.held_out.1.len() as f64))
    }

    /// Returns the validation NLL of networks with sampled weights at each τ. Every τ uses the same noise.
    fn sampled_losses(&self, grid: &[f64], theta: &Tensor, one: &Fitted) -> Result<Vec<f64>> {
        let loss = |tau: &f64| {
            let rows = Drawn { one, tau: *tau, theta, seed: self.seed, samples: self.settings.samples };
            let members = Members::Rows { subspace: self.subspace, rows: &rows };
            let predictor = Predictor::new(self.model, members, Chunk::Auto);
            let (images, indices) = self.held_out;
            let values = predictor.all_logits(images, indices, self.batch_size, &ProgressBar::hidden())?;
            let shape = [rows.count() as i64, indices.len() as i64, self.model.head.classes()];
            let labels = indices.iter().map(|i| i64::from(images.split.labels[*i as usize]));
            let labels = Tensor::from_slice(&labels.collect::<Vec<_>>());
            let found = mixture_log_probabilities(&Tensor::from_slice(&values).view(shape), &labels, Kind::Double);
            Ok(-found.mean(Kind::Double).double_value(&[]))
        };
        grid.iter().map(loss).collect()
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

/// The terms of log Z that do not depend on τ.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// log p(D | θ*), summed over the training images.
    pub log_likelihood: f64,
    /// ‖θ*‖², summed over the fitted columns.
    pub squared_norm: f64,
    /// The eigenvalues λ_i of H.
    pub eigenvalues: Vec<f64>,
}

/// The range in which τ is searched.
pub const RANGE: (f64, f64) = (1e-8, 1e8);

impl Evidence {
    /// Collects the terms from the curvature at the mode and the fitted columns `theta: [P]`.
    pub fn new(curvature: &Curvature, theta: &Tensor, log_likelihood: f64) -> Result<Evidence> {
        ensure!(
            log_likelihood.is_finite(),
            "laplace: the log-likelihood of the training images is {log_likelihood}: lower optimizer.*.lr"
        );
        let squared_norm = host_f64(theta)?.iter().map(|value| value * value).sum();
        Ok(Evidence { log_likelihood, squared_norm, eigenvalues: host_f64(&curvature.eigenvalues())? })
    }

    /// Returns log Z(τ).
    pub fn at(&self, precision: f64) -> f64 {
        let log_det_ratio: f64 = self.eigenvalues.iter().map(|value| (value / precision).ln_1p()).sum();
        self.log_likelihood - 0.5 * (log_det_ratio + precision * self.squared_norm)
    }

    /// Returns the τ with the largest log Z. It takes the best point of a grid over [`RANGE`], then runs a
    /// golden-section search on log τ around it until the interval is 1e-10 wide.
    pub fn maximum(&self) -> f64 {
        const STEPS: usize = 160;
        let (low, high) = (RANGE.0.ln(), RANGE.1.ln());
        let step = (high - low) / STEPS as f64;
        let value = |log: f64| self.at(log.exp());
        let grid = (0..=STEPS).map(|i| low + step * i as f64);
        let best = grid.max_by(|a, b| value(*a).total_cmp(&value(*b))).unwrap_or(low);
        let shrink = (5f64.sqrt() - 1.0) / 2.0;
        let (mut from, mut to) = ((best - step).max(low), (best + step).min(high));
        while to - from > 1e-10 {
            let (left, right) = (to - shrink * (to - from), from + shrink * (to - from));
            if value(left) < value(right) {
                from = left;
            } else {
                to = right;
            }
        }
        (0.5 * (from + to)).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_is_a_fixed_point() {
        // At the maximum d log Z / d log τ = 0, so τ ‖θ‖² = Σ λ / (λ + τ), MacKay's effective number of parameters.
        let evidence = Evidence { log_likelihood: -3.0, squared_norm: 0.7, eigenvalues: vec![0.1, 2.0, 30.0] };
        let tau = evidence.maximum();
        let effective: f64 = evidence.eigenvalues.iter().map(|value| value / (value + tau)).sum();
        assert!((tau * 0.7 / effective - 1.0).abs() < 1e-5, "{tau}");
        for other in [0.5 * tau, 2.0 * tau] {
            assert!(evidence.at(other) < evidence.at(tau));
        }
    }
}
