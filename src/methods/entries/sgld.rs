//! `[method.sgld]`: stochastic gradient Langevin dynamics (Welling and Teh 2011). Each row is a Markov chain whose states,
//! thinned, are the posterior ([`crate::methods::chain`], where the symbols are explained).
//!
//! A step is θ ← θ − η (g + δ θ) + √(2 η T / N) ξ, with the gradient g of the mean loss and ξ ~ N(0, 1).
//!
//! With T = 1 and small steps the chain has the posterior of N images as its stationary distribution; larger steps widen it by
//! 1 / (1 − η h / 2) in a direction of curvature h. Minibatch noise comes on top and is not corrected for, as in the paper.

use anyhow::Result;
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::methods::chain::{Dynamics, DynamicsSpec, Move, Spec};
use crate::methods::{Entry, Particles, RowsAre, Update, Variant};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "sgld",
    about: "Langevin dynamics: chains of noisy gradient steps whose thinned states are the posterior (its own optimizer)",
    paper: "SGLD",
    update: Update::Own,
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[Variant { key: "sgld", sets: &["lr=0.01", "ess=1e6", "start=0", "every=1"], asks_for_mixing: false }],
    names: &[("full", "SGLD"), ("low-rank", "Low-rank SGLD")],
    names_of_many: &[],
    read: |reader, _| Box::new(Spec::read("sgld", reader, Langevin)),
};

settings! {
    /// The dynamics, which have neither settings nor a state.
    struct Langevin;
}

impl DynamicsSpec for Langevin {
    fn build(&self, _: &Tensor) -> Box<dyn Dynamics> {
        Box::new(Langevin)
    }
}

impl Dynamics for Langevin {
    fn advance(&mut self, theta: &mut Tensor, step: Move) {
        let Move { gradients, noise, rate, weight_decay } = step;
        *theta *= 1.0 - rate * weight_decay;
        *theta -= gradients * rate;
        if let Some(noise) = noise {
            *theta += noise;
        }
    }

    fn keep(&mut self, _: &mut Keeper) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::chain::tests::{Law, check_cycles, check_law};

    /// θ ← (1 − η a) θ + √(2 η T / N) ξ has variance T / (N a (1 − η a / 2)): the posterior's T / (N a), widened by the step.
    #[test]
    fn the_stationary_variance_is_that_of_the_recursion() {
        check_law(&Langevin, &Law { lr: 0.2, tolerance: 0.03 }, |a| 1.0 / (50.0 * a * (1.0 - 0.2 * a / 2.0)));
    }

    /// Their noise is a term of the loss, which is subtracted.
    #[test]
    fn cycles_are_those_of_the_authors_code() {
        check_cycles(&Langevin, "sgld", -1.0);
    }
}
