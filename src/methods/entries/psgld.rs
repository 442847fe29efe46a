//! `[method.psgld]`: Langevin dynamics preconditioned by the squared gradients, as in RMSprop (Li et al. 2016, arXiv
//! 1512.07666, Algorithm 1). Each row is a Markov chain ([`crate::methods::chain`], where the symbols are explained).
//!
//! | symbol | here |
//! |---|---|
//! | α, the decay of the squared gradients | `decay` |
//! | λ, added to their root | `eps` |
//! | V ← α V + (1 − α) g², V̂ = V / (1 − αᵗ) | `squares` |
//! | G = 1 / (λ + √V̂) | the preconditioner, column by column |
//! | θ ← θ − η G (g + δ θ) + √(2 η T G / N) ξ | one step |
//!
//! As in the paper's experiments, the term Γ (the divergence of G) is left out, which biases the chain by O(1 − α). Differs
//! from the paper: V is divided by 1 − αᵗ, since the first steps would otherwise be 1 / √(1 − α) times too long.

use anyhow::Result;
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::methods::chain::{Dynamics, DynamicsSpec, Move, Spec};
use crate::methods::{Entry, Particles, RowsAre, Update, Variant};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "psgld",
    about: "Langevin dynamics preconditioned by running squared gradients, as in RMSprop (its own optimizer)",
    paper: "pSGLD",
    update: Update::Own,
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[Variant { key: "psgld", sets: &["lr=1e-4", "ess=1e6", "start=0", "every=1"], asks_for_mixing: false }],
    names: &[("full", "pSGLD"), ("low-rank", "Low-rank pSGLD")],
    names_of_many: &[],
    read: |reader, _| Box::new(Spec::read("psgld", reader, Preconditioner::read(reader))),
};

settings! {
    #[derive(Clone)]
    struct Preconditioner {
        /// Decay of the squared gradient's running mean.
        decay: f64 = 0.99, in from_below(0.0, 1.0);
        /// Number added to the root of the squared gradient's mean.
        eps: f64 = 1e-5, in above(0.0);
    }
}

impl DynamicsSpec for Preconditioner {
    fn build(&self, theta: &Tensor) -> Box<dyn Dynamics> {
        Box::new(Preconditioned { spec: self.clone(), squares: theta.zeros_like(), steps: 0 })
    }

    fn kept_matrices(&self) -> u64 {
        1
    }
}

struct Preconditioned {
    spec: Preconditioner,
    /// V, `[n, P]`.
    squares: Tensor,
    steps: i64,
}

impl Dynamics for Preconditioned {
    fn advance(&mut self, theta: &mut Tensor, step: Move) {
        let Preconditioner { decay, eps } = self.spec;
        let Move { gradients, noise, rate, weight_decay } = step;
        self.steps += 1;
        self.squares *= decay;
        self.squares += gradients.square() * (1.0 - decay);
        let correction = 1.0 - decay.powi(self.steps.min(i64::from(i32::MAX)) as i32);
        let preconditioner = ((&self.squares / correction).sqrt() + eps).reciprocal();
        let drift = (&*theta * weight_decay + gradients) * &preconditioner;
        *theta -= drift * rate;
        if let Some(noise) = noise {
            *theta += noise * preconditioner.sqrt();
        }
    }

    fn save(&self, state: &mut State) {
        state.put("psgld.squares", &self.squares);
        state.put_count("psgld.preconditioned", self.steps);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        state.copy_into("psgld.squares", &mut self.squares)?;
        self.steps = state.count("psgld.preconditioned")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
