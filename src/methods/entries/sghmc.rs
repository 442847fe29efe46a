//! `[method.sghmc]`: stochastic gradient Hamiltonian Monte Carlo (Chen et al. 2014, arXiv 1402.4102, equation 15 with
//! β̂ = 0). Each row is a Markov chain with a velocity v ([`crate::methods::chain`], where the symbols are explained).
//!
//! | symbol | here |
//! |---|---|
//! | α, the friction | `friction`; 1 − α is the momentum |
//! | v ← (1 − α) v − η (g + δ θ) + √(2 α η T / N) ξ | the velocity |
//! | θ ← θ + v | one step |
//!
//! In a direction of curvature h the stationary variance is T / (N h) · 1 / (1 − η h / (2 (2 − α))): the posterior's, widened by
//! the step. With α = 1 this is SGLD, step by step. Minibatch noise is not estimated (β̂ = 0), as in the paper's experiments.

use anyhow::Result;
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::methods::chain::{Dynamics, DynamicsSpec, Move, Spec};
use crate::methods::{Entry, Particles, RowsAre, Update, Variant};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "sghmc",
    about: "Hamiltonian Monte Carlo with friction: chains of noisy steps with momentum (its own optimizer)",
    paper: "SGHMC",
    update: Update::Own,
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[Variant { key: "sghmc", sets: &["lr=1e-3", "ess=1e6", "start=0", "every=1"], asks_for_mixing: false }],
    names: &[("full", "SGHMC"), ("low-rank", "Low-rank SGHMC")],
    names_of_many: &[],
    read: |reader, _| Box::new(Spec::read("sghmc", reader, Friction::read(reader))),
};

settings! {
    #[derive(Clone)]
    struct Friction {
        /// Friction; one less it is the momentum.
        friction: f64 = 0.1, in between(1e-6, 1.0);
    }
}

impl DynamicsSpec for Friction {
    fn build(&self, theta: &Tensor) -> Box<dyn Dynamics> {
        Box::new(Hamiltonian { friction: self.friction, velocity: theta.zeros_like() })
    }

    fn kept_matrices(&self) -> u64 {
        1
    }
}

struct Hamiltonian {
    friction: f64,
    /// v, `[n, P]`.
    velocity: Tensor,
}

impl Dynamics for Hamiltonian {
    fn advance(&mut self, theta: &mut Tensor, step: Move) {
        let Move { gradients, noise, rate, weight_decay } = step;
        self.velocity *= 1.0 - self.friction;
        self.velocity -= (&*theta * weight_decay + gradients) * rate;
        if let Some(noise) = noise {
            self.velocity += noise * self.friction.sqrt();
        }
        *theta += &self.velocity;
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.tensor("sghmc.velocity", &mut self.velocity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::chain::tests::{Law, check_cycles, check_law};
    use tch::{Device, Kind};

    /// v ← (1 − α) v − η a θ + s ξ, θ ← θ + v is an autoregression of order 2 with coefficients 2 − α − η a and −(1 − α), whose
    /// variance for s² = 2 α η T / N is T / (N a) / (1 − η a / (2 (2 − α))).
    #[test]
    fn the_stationary_variance_is_that_of_the_recursion() {
        check_law(&Friction { friction: 0.3 }, &Law { lr: 0.1, tolerance: 0.03 }, |a| {
            1.0 / (50.0 * a) / (1.0 - 0.1 * a / (2.0 * (2.0 - 0.3)))
        });
    }

    /// Two steps by hand: α = 0.25, η = 0.1, δ = 0.5.
    #[test]
    fn two_steps_are_those_of_the_formula() {
        let row = |values: [f64; 2]| Tensor::from_slice(&values).view([1, 2]);
        let mut theta = row([1.0, -2.0]);
        let mut dynamics = Friction { friction: 0.25 }.build(&theta);
        for (gradients, noise) in [([2.0, 1.0], [0.5, 1.0]), ([-1.0, 3.0], [1.0, -2.0])] {
            let gradients = row(gradients);
            dynamics.advance(
                &mut theta,
                Move { gradients: &gradients, noise: Some(row(noise)), rate: 0.1, weight_decay: 0.5 },
            );
        }
        // v = -0.1 (2 + 0.5) + 0.5 · 0.5 = 0, then 0.75 · 0 - 0.1 (-1 + 0.5) + 0.5 · 1 = 0.55: θ = 1 + 0 + 0.55.
        // v = -0.1 (1 - 1) + 0.5 · 1 = 0.5, then 0.375 - 0.1 (3 - 0.75) - 0.5 · 2 = -0.85: θ = -2 + 0.5 - 0.85.
        let expected = row([1.55, -2.35]);
        assert!((theta - expected).abs().max().double_value(&[]) < 1e-12);
    }

    #[test]
    fn full_friction_is_langevin_dynamics() {
        let mut theta = Tensor::ones([2, 3], (Kind::Double, Device::Cpu));
        let gradients = theta.full_like(0.7);
        let mut dynamics = Friction { friction: 1.0 }.build(&theta);
        for step in 0..3 {
            let before = theta.copy();
            let noise = theta.full_like(0.1 * f64::from(step));
            let expected = &before * (1.0 - 0.2 * 0.3) - &gradients * 0.2 + &noise;
            dynamics
                .advance(&mut theta, Move { gradients: &gradients, noise: Some(noise), rate: 0.2, weight_decay: 0.3 });
            assert!((&theta - expected).abs().max().double_value(&[]) < 1e-12);
        }
    }

    #[test]
    fn cycles_are_those_of_the_authors_code() {
        check_cycles(&Friction { friction: 0.9 }, "sghmc", 1.0);
    }
}
