//! The energy of a batch, whose density a chain samples.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::methods::{Evaluation, Objective};

/// The parts of the energy E(θ) = (N / T) (L̄(θ) + δ ‖θ‖² / 2).
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// N / T.
    pub scale: f64,
    /// δ.
    pub weight_decay: f64,
}

/// The energy of a batch.
pub struct Energy {
    /// The mean losses, `[n]`.
    pub losses: Tensor,
    /// E, `[n, 1]` in f64.
    pub value: Tensor,
    /// ∇E, `[n, P]`.
    pub gradient: Tensor,
}

impl Scale {
    pub fn energy(self, theta: &Tensor, objective: &mut dyn Objective) -> Result<Energy> {
        let Scale { scale, weight_decay } = self;
        let Evaluation { losses, gradients } = objective.losses(theta)?;
        let prior = theta.to_kind(Kind::Double).square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
        let value = (losses.to_kind(Kind::Double).unsqueeze(1) + prior * (weight_decay / 2.0)) * scale;
        Ok(Energy { losses, value, gradient: (gradients + theta * weight_decay) * scale })
    }
}
