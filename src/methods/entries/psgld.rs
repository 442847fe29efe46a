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
//!
//! Differs from the authors' code: there V begins at the first g² and is not divided, g² has the gradient of the prior in it, λ is 0.1
//! unless set (1e-5 in the paper), and the noise is that of the temperature T = 1 / N.

use anyhow::Result;
use tch::Tensor;

use crate::base::keeper::Keeper;
use crate::methods::chain::{Dynamics, DynamicsSpec, Move, Spec};
use crate::methods::{Entry, Particles, RowsAre, Update, Variant};
use crate::optimizers::correction;
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
        let correction = correction(decay, self.steps);
        let preconditioner = ((&self.squares / correction).sqrt() + eps).reciprocal();
        let drift = (&*theta * weight_decay + gradients) * &preconditioner;
        *theta -= drift * rate;
        if let Some(noise) = noise {
            *theta += noise * preconditioner.sqrt();
        }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.tensor("psgld.squares", &mut self.squares)?;
        keeper.count("psgld.preconditioned", &mut self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::methods::chain::tests::{Law, check_law};

    /// Where G hardly varies, G = √(N / a), and the variance is that of Langevin dynamics with the step η G. G does vary, as the
    /// running squares do, and the term Γ is left out: that widens by 3 % and 1 % here (the same recursion in numpy, 8000 chains).
    #[test]
    fn the_stationary_variance_is_that_of_the_recursion() {
        let dynamics = Preconditioner { decay: 0.99, eps: 1e-5 };
        check_law(&dynamics, &Law { lr: 0.02, tolerance: 0.06 }, |a| {
            1.0 / (50.0 * a) / (1.0 - 0.02 * (50.0 / a).sqrt() * a / 2.0)
        });
    }

    /// `SGLD_RMSprop` of the authors on a regression (tests/fixtures/authors/psgld.json), from their start of V on, after so many steps
    /// that nothing is left of the correction.
    #[test]
    fn steps_are_those_of_the_authors_code() {
        let golden = Golden::of_authors("psgld");
        let (x, y, noise) = (golden.tensor("x"), golden.tensor("y"), golden.tensor("noise"));
        let (rate, ess) = (golden.number("lr"), golden.number("ess"));
        let gradient = |theta: &Tensor| (theta.matmul(&x.tr()) - &y).matmul(&x) * (2.0 / y.numel() as f64);
        let mut theta = golden.tensor("start").view([1, -1]);
        let spec = Preconditioner { decay: golden.number("decay"), eps: golden.number("eps") };
        let mut dynamics = Preconditioned { spec, squares: gradient(&theta).square(), steps: 1 << 20 };
        for (step, after) in golden.tensor("after").unbind(0).iter().enumerate() {
            let gradients = gradient(&theta);
            // √(2 η T / N) at their temperature 1 / N; they subtract it.
            let noise = Some(noise.get(step as i64).view([1, -1]) * -((2.0 * rate).sqrt() / ess));
            dynamics.advance(&mut theta, Move { gradients: &gradients, noise, rate, weight_decay: 0.0 });
            near(&theta, &after.view([1, -1]), 1e-13);
        }
    }

    /// ```python
    /// import numpy as np
    /// th = np.array([1.0, -2.0]); V = np.zeros(2)
    /// for t, (g, x) in enumerate([([2.0, 1.0], [.5, 1.0]), ([-1.0, 3.0], [1.0, -2.0]), ([.5, -.5], [.2, .1])], 1):
    ///     g = np.array(g); V = .9 * V + .1 * g * g
    ///     G = 1 / (1e-2 + np.sqrt(V / (1 - .9 ** t)))
    ///     th = th - .1 * G * (g + .5 * th) + np.sqrt(G) * np.array(x)
    /// print(th.tolist())
    /// ```
    #[test]
    fn three_steps_are_those_of_the_formula() {
        let row = |values: [f64; 2]| Tensor::from_slice(&values).view([1, 2]);
        let mut theta = row([1.0, -2.0]);
        let mut dynamics = Preconditioner { decay: 0.9, eps: 1e-2 }.build(&theta);
        for (gradients, noise) in [([2.0, 1.0], [0.5, 1.0]), ([-1.0, 3.0], [1.0, -2.0]), ([0.5, -0.5], [0.2, 0.1])] {
            let gradients = row(gradients);
            let step = Move { gradients: &gradients, noise: Some(row(noise)), rate: 0.1, weight_decay: 0.5 };
            dynamics.advance(&mut theta, step);
        }
        let expected = row([2.109669264345072, -2.2683108837120005]);
        assert!((theta - expected).abs().max().double_value(&[]) < 1e-12);
    }
}
