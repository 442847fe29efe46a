//! Optimizers that update the whole matrix `theta: [n, P]`. Each has a file of its own and is registered in
//! [`OPTIMIZERS`].

pub mod curvature;
mod entries;
pub mod moments;
use anyhow::Result;
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::schema::{Reader, Resolved};

pub use entries::{OPTIMIZERS, adam};

/// An optimizer that moves `theta` along a given direction, which it receives as the gradient.
pub trait Optimizer {
    /// Makes one step. `factor` is the schedule's factor for the learning rate. `theta` and `gradient` have shape
    /// `[n, P]`.
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64);

    /// Returns the number of the next step if the optimizer wants to [`observe`](Self::observe) the curvature before it; `None` if
    /// gradients are enough.
    fn probe(&self) -> Option<i64> {
        None
    }

    /// Takes an estimate of the diagonal of the Hessian, `[n, P]`, before the step that it is for.
    fn observe(&mut self, curvature: &Tensor) {
        let _ = curvature;
    }

    /// Stores everything that a resumed run needs.
    fn save(&self, state: &mut State);

    /// Restores what [`save`](Self::save) stored.
    fn load(&mut self, state: &State) -> Result<()>;
}

/// The settings of an optimizer, as read from `[optimizer.*]`.
pub trait OptimizerSpec: Resolved {
    /// Returns the learning rates: a single one, or one per particle.
    fn rates(&self) -> &[f64];

    /// Returns the number of matrices `[n, P]` that the optimizer keeps from step to step.
    fn kept_matrices(&self) -> u64;

    /// Returns the number of matrices `[n, P]` that the estimate of the curvature before a step creates and drops.
    fn matrices_of_a_step(&self) -> u64 {
        0
    }

    /// Returns the number of gradients that the estimate of the curvature takes before a step, besides the step's own.
    fn gradients_of_a_step(&self) -> u64 {
        0
    }

    /// Returns whether the optimizer takes differences of gradients at nearby places, which the rounding of bf16 would swallow.
    fn needs_f32(&self) -> bool {
        false
    }

    /// Creates the optimizer with zero moments for `theta: [n, P]`.
    fn build(&self, theta: &Tensor) -> Box<dyn Optimizer>;
}

/// A registered optimizer.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub read: fn(&Reader) -> Box<dyn OptimizerSpec>,
}

/// Returns the learning rates (one or n) as a column `[n, 1]`, which is multiplied with the rows of `theta: [n, P]`.
pub(crate) fn rate_column(rates: &[f64], theta: &Tensor) -> Tensor {
    let rates = Tensor::from_slice(rates).to_kind(theta.kind()).to_device(theta.device());
    rates.view([-1, 1]).expand([theta.size()[0], 1], false)
}

/// Scales each row (particle) of `gradient: [n, P]` to an L2 norm of at most `max_norm`.
pub fn clip_rows(gradient: &Tensor, max_norm: f64) -> Tensor {
    let norms = gradient.norm_scalaropt_dim(2.0, [1], true);
    let scale = (max_norm / (norms + 1e-12)).clamp_max(1.0);
    gradient * scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_clipped_alone() {
        let gradient = Tensor::from_slice(&[3.0f64, 4.0, 0.3, 0.4]).view([2, 2]);
        let clipped = Vec::<f64>::try_from(clip_rows(&gradient, 1.0).view(-1)).unwrap();
        let expected = [0.6, 0.8, 0.3, 0.4];
        assert!(clipped.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{clipped:?}");
    }
}
