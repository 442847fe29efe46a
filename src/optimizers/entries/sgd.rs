//! `[optimizer.sgd]`: gradient descent with momentum and coupled weight decay, as `torch.optim.SGD` computes it.

use anyhow::Result;
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::base::tensor::{Tile, tiles};
use crate::optimizers::{Entry, Optimizer, OptimizerSpec, rates_of};
use crate::schema::{Reader, settings};

pub static ENTRY: Entry =
    Entry { key: "sgd", about: "gradient descent with momentum", read: |reader| Box::new(Spec::read(reader)) };

settings! {
    #[derive(Clone)]
    struct Spec {
        /// Learning rate, or one per particle.
        lr: Vec<f64>, in above(0.0);
        /// Momentum.
        momentum: f64 = 0.9, in from_below(0.0, 1.0);
        /// Weight decay, added to the gradient.
        weight_decay: f64 = 0.0, in at_least(0.0);
        /// Whether the momentum is Nesterov's.
        nesterov: bool = false;
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader) {
        if self.nesterov && self.momentum == 0.0 {
            reader.problem("nesterov", "needs a momentum above 0, as in torch: leave it out, or raise momentum");
        }
    }
}

impl OptimizerSpec for Spec {
    fn rates(&self) -> &[f64] {
        &self.lr
    }

    fn kept_matrices(&self) -> u64 {
        1
    }

    fn build(&self, theta: &Tensor, factors: Option<&Tensor>) -> Box<dyn Optimizer> {
        Box::new(Sgd { spec: self.clone(), rates: rates_of(&self.lr, theta, factors), velocity: theta.zeros_like() })
    }
}

struct Sgd {
    spec: Spec,
    /// The learning rates, `[n, 1]` or `[n, P]`.
    rates: Tensor,
    /// The momentum buffer, `[n, P]`.
    velocity: Tensor,
}

impl Optimizer for Sgd {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        for tile in tiles(theta) {
            let rates = tile.broadcast(&self.rates) * factor;
            self.step_tile(&mut tile.of(theta), &tile.of(gradient), &rates, &tile);
        }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.tensor("sgd.velocity", &mut self.velocity)
    }
}

impl Sgd {
    /// Moves a part of theta with these rates, `[k, 1]` or one for each number. Temporary tensors have the size of the part.
    fn step_tile(&self, theta: &mut Tensor, gradient: &Tensor, rates: &Tensor, tile: &Tile) {
        let Spec { momentum, weight_decay, nesterov, .. } = self.spec;
        let mut velocity = tile.of(&self.velocity);
        let mut gradient = gradient + &*theta * weight_decay;
        let _ = velocity.g_mul_scalar_(momentum);
        let _ = velocity.g_add_(&gradient);
        let direction = if nesterov { gradient.g_add_(&(&velocity * momentum)) } else { velocity };
        let _ = theta.g_sub_(&(direction * rates));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optimizers::entries::testing::after_three_steps;
    /// ```python
    /// import torch
    /// p = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
    /// o = torch.optim.SGD([p], lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=NESTEROV)
    /// for s in range(3):
    ///     o.zero_grad(); (p ** 2 * torch.tensor([1.0, 0.5])).sum().backward(); o.step()
    /// print(p.tolist())
    /// ```
    #[test]
    fn equals_torch() {
        for (nesterov, expected) in
            [(false, [0.05819419899999998, -0.9626489979999998]), (true, [-0.11165109425900013, -0.6437193468819999])]
        {
            let spec = Spec { lr: vec![0.1], momentum: 0.9, weight_decay: 0.01, nesterov };
            let mut theta = Tensor::from_slice(&[1.0f64, -2.0]).view([1, 2]);
            let mut optimizer = spec.build(&theta, None);
            for _ in 0..3 {
                let gradient = &theta * Tensor::from_slice(&[2.0f64, 1.0]);
                optimizer.step(&mut theta, &gradient, 1.0);
            }
            let values = Vec::<f64>::try_from(theta.view(-1)).unwrap();
            assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{nesterov}: {values:?}");
        }
    }

    // scripts/make_rate_goldens.py, torch 2.11.0: three groups, whose rates are 1, 4 and 0.5 times 0.05
    #[test]
    fn columns_have_rates_as_groups_in_torch() {
        let spec = Spec { lr: vec![0.05], momentum: 0.9, weight_decay: 0.1, nesterov: false };
        let values = after_three_steps(&spec, 1, Some([1.0, 4.0, 0.5]));
        let expected = [0.6162231250000001, 1.180544, 0.3972733203125];
        assert!(values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{values:?}");
    }
}
