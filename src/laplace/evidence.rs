//! The evidence of a Laplace approximation and the prior precision τ that maximises it (MacKay 1992).
//!
//! log Z(τ) = log p(D | θ*) − ½ [log det(H + τ) − P log τ + τ ‖θ*‖²], where log det(H + τ) − P log τ =
//! Σ_i log(1 + λ_i / τ) over the eigenvalues λ_i of H. The prior is N(0, τ⁻¹) on the fitted columns of theta.

use anyhow::{Result, ensure};
use tch::Tensor;

use crate::base::tensor::host_f64;
use crate::posterior::curvature::Curvature;

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
