//! `[optimizer.adamw]`: Adam with decoupled weight decay (Loshchilov & Hutter 2019, arXiv 1711.05101, Algorithm 2), as
//! `torch.optim.AdamW` computes it.

use anyhow::Result;
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::base::tensor::{Tile, tiles};
use crate::optimizers::{Entry, Moments, Optimizer, OptimizerSpec, beta1, rates_of};
use crate::schema::settings;

pub static ENTRY: Entry =
    Entry { key: "adamw", about: "Adam with decoupled weight decay", read: |reader| Box::new(Spec::read(reader)) };

settings! {
    #[derive(Clone)]
    struct Spec {
        /// Learning rate, or one per particle.
        lr: Vec<f64>, in above(0.0);
        /// Weight decay, apart from the gradient.
        weight_decay: f64 = 0.01, in at_least(0.0);
        beta1: f64, by beta1;
        /// Decay of the squared gradient's running mean.
        beta2: f64 = 0.999, in from_below(0.0, 1.0);
        /// Number added to the root of the squared gradient's mean.
        eps: f64 = 1e-8, in above(0.0);
    }
}

/// Creates Adam without weight decay, with its usual settings, for methods that move more than theta. `rates` are one or n
/// learning rates for the rows of `theta: [n, k]`.
pub fn adam(rates: &[f64], theta: &Tensor) -> Box<dyn Optimizer> {
    Spec { lr: rates.to_vec(), weight_decay: 0.0, beta1: 0.9, beta2: 0.999, eps: 1e-8 }.build(theta, None)
}

impl OptimizerSpec for Spec {
    fn rates(&self) -> &[f64] {
        &self.lr
    }

    fn kept_matrices(&self) -> u64 {
        2
    }

    fn build(&self, theta: &Tensor, factors: Option<&Tensor>) -> Box<dyn Optimizer> {
        let rates = rates_of(&self.lr, theta, factors);
        Box::new(AdamW { spec: self.clone(), rates, moments: Moments::new(ENTRY.key, theta) })
    }
}

struct AdamW {
    spec: Spec,
    /// The learning rates, `[n, 1]` or `[n, P]`.
    rates: Tensor,
    moments: Moments,
}

impl Optimizer for AdamW {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        self.moments.steps += 1;
        for tile in tiles(theta) {
            let rates = tile.broadcast(&self.rates) * factor;
            self.step_tile(&mut tile.of(theta), &tile.of(gradient), &rates, &tile);
        }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.moments.keep(keeper)
    }
}

impl AdamW {
    /// Updates a part of theta with these rates, `[k, 1]` or one for each number. Temporary tensors have the size of the part.
    fn step_tile(&self, theta: &mut Tensor, gradient: &Tensor, rates: &Tensor, tile: &Tile) {
        let Spec { weight_decay, beta1, beta2, eps, .. } = self.spec;
        let [correction1, correction2] = [beta1, beta2].map(|beta| self.moments.correction(beta));
        let (mut first, mut second) = (tile.of(&self.moments.first), tile.of(&self.moments.second));
        if weight_decay > 0.0 {
            let _ = theta.g_mul_(&(1.0 - rates * weight_decay));
        }
        let _ = first.lerp_(gradient, 1.0 - beta1);
        let _ = second.g_mul_scalar_(beta2);
        let _ = second.addcmul_(&(gradient * (1.0 - beta2)), gradient);
        let mut update = second.sqrt();
        let _ = update.g_mul_scalar_(1.0 / correction2.sqrt());
        let _ = update.g_add_scalar_(eps);
        let _ = first.div_out(&update, &update);
        let _ = update.g_mul_(&(rates * (1.0 / correction1)));
        let _ = theta.g_sub_(&update);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizers::entries::testing::after_three_steps;

    /// ```python
    /// import torch
    /// p = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64, requires_grad=True)
    /// o = torch.optim.AdamW([p], lr=0.1, weight_decay=0.1, betas=(0.9, 0.999), eps=1e-8)
    /// for s in range(3):
    ///     o.zero_grad(); ((p - torch.tensor([0.3, 0.1, -0.2]).double()) ** 2 * torch.tensor([1.0, 3.0, 0.5])).sum().backward(); o.step()
    /// print(p.tolist())
    /// ```
    #[test]
    fn equals_torch() {
        let spec = Spec { lr: vec![0.1], weight_decay: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8 };
        let values = after_three_steps(&spec, 2, None);
        let expected = TORCH;
        for (index, value) in values.iter().enumerate() {
            assert!((value - expected[index % 3]).abs() < 1e-9, "{values:?}");
        }
    }

    // scripts/make_rate_goldens.py, torch 2.11.0: three groups, whose rates are 1, 4 and 0.5 times 0.05
    #[test]
    fn columns_have_rates_as_groups_in_torch() {
        let spec = Spec { lr: vec![0.05], weight_decay: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8 };
        let values = after_three_steps(&spec, 2, Some([1.0, 4.0, 0.5]));
        let expected = [0.8363850892495983, -1.2981126328311132, 0.42155617417858887];
        assert!(values.iter().zip(expected.iter().cycle()).all(|(a, b)| (a - b).abs() < 1e-9), "{values:?}");
    }

    const TORCH: [f64; 3] = [0.6764708102827385, -1.6443210669850443, 0.19108526011440002];
}
