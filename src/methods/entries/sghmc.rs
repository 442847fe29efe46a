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

use crate::base::tensor_file::State;
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

    fn save(&self, state: &mut State) {
        state.put("sghmc.velocity", &self.velocity);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        state.copy_into("sghmc.velocity", &mut self.velocity)
    }
}

#[cfg(test)]
mod tests;
