//! `[method.vbll]`: variational Bayesian last layers (Harrison, Willes and Snoek, ICLR 2024, arXiv 2404.11599; discriminative
//! classification): the head's weights are Gaussian, and their bound on the likelihood is in closed form, so that training
//! draws nothing. All other trained columns are points.
//!
//! | symbol | here |
//! |---|---|
//! | z = W φ + b + ε, y ~ softmax(z) | φ is what enters the head; b is a point |
//! | q(W) = N(W̄, S), S = diag(s²) + Uᵀ U | W̄ in theta, ln s and U (`rank` rows over all of W) in [`Spread`] |
//! | with `covariance = "dense"`: S_k = L_k L_kᵀ for each class k | L lower triangular with the diagonal s |
//! | ε ~ N(0, diag(σ²)), one variance a class | ln σ in `Spread` |
//! | p(W) = N(0, `prior_std`² I); p(σ²) inverse Wishart with `noise_dof` ν and `noise_scale` ψ | [`Spec::regulariser`] |
//! | E ln p(y \| φ) ≥ m_y − ln Σ_k exp(m_k + v_k / 2) | m = W̄ φ + b, v_k = φᵀ S_k φ + σ_k² ([`Spread::bound`]) |
//! | −bound + (KL(q(W) ‖ p(W)) − ln p(σ²)) / N | what is minimised; N is `ess` |
//!
//! The optimizer of the config moves W̄, b and all other columns, Adam (`std_lr`) the spread. A member is a draw of W and of ε as
//! part of the bias, so ε is one draw for all images of a member: each image's averaged probabilities have the same mean as
//! with a draw for each image.
//!
//! Priors and starts are those of the authors' code (vbll 0.4.9). Differences from it: there is a bias, which has no prior; S is
//! `diagonal` by default, theirs `dense`; the low-rank part U is shared by the classes, whose weights it correlates (the bound has
//! each class's own variance, KL all of it), where theirs are independent; ln s, ln σ and L below its diagonal start at the mean of
//! their random starts; W̄ starts as the head does; KL has its constants.

use anyhow::{Context, Result};
use tch::{Kind, Tensor, with_grad};

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::methods::{
    Entry, HeadNumbers, Method, MethodSpec, Objective, Output, Outputs, Particles, Parts, RowsAre, Step, Update, spec,
};
use crate::optimizers::{Optimizer, adam};
use crate::posterior::{Posterior, Predictive};
use crate::schema::{Reader, settings};
use crate::subspace::geometry::Inputs;

use spread::{Covariance, Size, Spread};

mod spread;

pub static ENTRY: Entry = Entry {
    key: "vbll",
    about: "a variational Gaussian over the trained head's weights, by a bound in closed form (VBLL)",
    paper: "VBLL",
    update: Update::Optimizer,
    rows: RowsAre::Gaussians,
    particles: Particles::Any,
    bench: &[],
    names: &[("last-layer", "VBLL"), ("low-rank", "Low-rank VBLL"), ("full", "VBLL, full")],
    names_of_many: &[("last-layer", "Multi-VBLL"), ("low-rank", "Low-rank Multi-VBLL"), ("full", "Multi-VBLL, full")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

/// The starting value of ln σ, as the mean of the authors' starting values.
const LOG_NOISE_INIT: f64 = -1.0;

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec {
        pub particles: i64, by spec::particles;
        pub ess: f64, by spec::ess;
        /// Learning rate of Adam for the spread.
        pub std_lr: f64 = 1e-3, in above(0.0);
        /// Standard deviation of the prior on the head's weights; by default √(2 / d) for d features.
        pub prior_std: Option<f64>, in above(0.0);
        /// Initial standard deviation of the head's weights; by default 1 / d for d features.
        pub std_init: Option<f64>, in above(0.0);
        /// Which entries of the covariance of the head's weights are learnt: the diagonal, or all within a class (d²
        /// numbers for each class and d features).
        pub covariance: Covariance = Covariance::Diagonal;
        /// Rank of the covariance beside its diagonal, over all weights of the head; 0 for none.
        pub rank: i64 = 0, in 0..=1000;
        /// Degrees of freedom of the inverse Wishart prior on the variances of the logits' noise.
        pub noise_dof: f64 = 1.0, in above(0.0);
        /// Scale of the inverse Wishart prior on the variances of the logits' noise.
        pub noise_scale: f64 = 1.0, in above(0.0);
        pub samples: usize, by |reader| spec::samples(reader, 10);
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader) {
        if self.covariance == Covariance::Dense && self.rank > 0 {
            reader.problem("rank", "is for a diagonal covariance: leave it out, or set covariance = \"diagonal\"");
        }
    }

    /// Returns KL(q(W) ‖ p(W)) and −ln p(σ²) without its constant, `[n]` each, for means `[n, C, d]`.
    fn regulariser(&self, mean: &Tensor, spread: &Spread) -> (Tensor, Tensor) {
        let over = |t: &Tensor| t.flatten(1, -1).sum_dim_intlist([1i64].as_slice(), false, t.kind());
        let (classes, width) = (mean.size()[1] as f64, mean.size()[2] as f64);
        let weights = classes * width;
        let prior_std = self.prior_std.unwrap_or_else(|| (2.0 / width).sqrt());
        let Size { trace, log_det } = spread.size();
        let squares = over(&mean.square()) + trace;
        let kl = (squares / prior_std.powi(2) - weights + 2.0 * weights * prior_std.ln() - log_det) / 2.0;
        let log_noise = &spread.log_noise;
        let noise = over(log_noise) * (self.noise_dof + classes + 1.0)
            + over(&(log_noise * -2.0).exp()) * (self.noise_scale / 2.0);
        (kl, noise)
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn has_independent_columns(&self) -> bool {
        self.covariance == Covariance::Diagonal && self.rank == 0
    }

    fn needs_classes(&self) -> bool {
        true
    }

    fn has_own_loss(&self) -> bool {
        true
    }

    fn needs_linear_logits(&self) -> bool {
        true
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Vbll::new(self.clone(), parts))
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn narrowed_by(&self) -> &'static str {
        "lower method.vbll.std_init"
    }

    /// Training draws nothing, but U starts at random.
    fn noise_left_out(&self) -> Option<&'static str> {
        (self.rank == 0).then_some(match self.covariance {
            Covariance::Diagonal => "method.vbll.rank above 0",
            Covariance::Dense => "method.vbll.covariance = \"diagonal\" with method.vbll.rank above 0",
        })
    }

    /// The spread and the two moments of Adam.
    fn kept_matrices(&self) -> u64 {
        3 * (1 + self.rank as u64)
    }

    /// The direction, what it is pulled back from, and the spread in its graph with its gradients.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        2 + 3 * (1 + self.rank as u64)
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        if self.rank == 0 { 2 } else { 3 + self.rank as u64 }
    }

    /// L with the two moments of Adam; in a step its parts below and on the diagonal, their sum and the gradients of these, and
    /// L φ, its square and its gradient.
    fn head_numbers(&self, head: Inputs, images: usize) -> HeadNumbers {
        if self.covariance == Covariance::Diagonal {
            return HeadNumbers::default();
        }
        let factors = Spread::others(self.covariance, self.rank, head) as u64;
        let along = (head.outputs * head.inputs) as u64 * images as u64;
        HeadNumbers { kept: 3 * factors, step: 6 * factors + 3 * along, posterior: factors }
    }
}

struct Vbll {
    spec: Spec,
    parts: Parts,
    /// The numbers of [`Spread`], `[n, K]`, and Adam for them; `None` if the head is frozen, which the first step refuses.
    spread: Option<(Tensor, Box<dyn Optimizer>)>,
}

/// The losses `[n]` and gradients on the batch of a step.
struct Look {
    losses: Tensor,
    kl: Tensor,
    /// For the weight and the bias of the head, `[n, C d + C]`.
    by_head: Tensor,
    /// For the numbers of the spread, `[n, K]`.
    by_spread: Tensor,
    /// For what enters the head, `[n, B, d]`.
    by_features: Tensor,
}

impl Vbll {
    fn new(spec: Spec, parts: Parts) -> Vbll {
        let start = |head: Inputs| {
            let Inputs { outputs, inputs, .. } = head;
            let (n, weights) = (parts.theta.size()[0], outputs * inputs);
            let width = inputs as f64;
            let std = spec.std_init.unwrap_or(1.0 / width);
            let options = (parts.theta.kind(), parts.theta.device());
            let mut others = Tensor::zeros([n, Spread::others(spec.covariance, spec.rank, head)], options);
            if spec.covariance == Covariance::Diagonal {
                // Steps count from 0. Where U is 0, so is its gradient; L has one.
                let noise = Noise::new(parts.seed, Purpose::Noise).draw(At { step: -1, sample: 0, part: 0 }, &others);
                others = noise * (std / width.sqrt());
            }
            let log_std = Tensor::full([n, weights], std.ln(), options);
            let log_noise = Tensor::full([n, outputs], LOG_NOISE_INIT, options);
            let numbers = Tensor::cat(&[log_std, log_noise, others], 1);
            let adam = adam(&[spec.std_lr], &numbers);
            (numbers, adam)
        };
        let spread = parts.geometry.head().map(start);
        Vbll { spec, parts, spread }
    }

    /// Returns the trained head and the numbers of its spread.
    fn head(&self) -> Result<(Inputs, &Tensor)> {
        let head = self.parts.geometry.head().zip(self.spread.as_ref().map(|(numbers, _)| numbers));
        head.context(
            "method.vbll: the head is frozen, and its weights are what is Gaussian: use [head.linear], or \
             [head.checkpoint] in [subspace.full] or [subspace.last-layer]",
        )
    }

    fn look(&self, theta: &Tensor, inputs: &Outputs) -> Result<Look> {
        let (head, numbers) = self.head()?;
        let kind = inputs.values.kind();
        let leaf = |t: &Tensor| t.detach().to_kind(kind).set_requires_grad(true);
        let (weights, classes) = (head.outputs * head.inputs, head.outputs);
        let columns = leaf(&theta.narrow(1, head.start, weights + classes));
        let (numbers, features) = (leaf(numbers), leaf(&inputs.values));
        with_grad(|| {
            let mean = columns.narrow(1, 0, weights).reshape([-1, classes, head.inputs]);
            let spread = Spread::of(&numbers, head, self.spec.covariance);
            let inputs = Outputs { values: features.shallow_clone(), labels: inputs.labels.shallow_clone() };
            let losses = spread.bound(&inputs, &mean, &columns.narrow(1, weights, classes));
            let (kl, noise) = self.spec.regulariser(&mean, &spread);
            let root = (&losses + (&kl + noise) / self.spec.ess).sum(kind);
            let leaves = [&columns, &numbers, &features];
            let mut found = Tensor::f_run_backward(&[root], &leaves, false, false)?.into_iter();
            let mut next = || found.next().context("a gradient is missing");
            let (by_head, by_spread, by_features) = (next()?, next()?, next()?);
            Ok(Look { losses: losses.detach(), kl: kl.detach(), by_head, by_spread, by_features })
        })
    }

    /// Returns the gradient of all columns, `[n, P]`.
    fn direction(&self, theta: &Tensor, objective: &mut dyn Objective, look: &Look) -> Result<Tensor> {
        let (head, _) = self.head()?;
        let count = look.by_head.size()[1];
        let direction = if theta.size()[1] > count {
            objective.pull_back(theta, Output::Features, &look.by_features)?
        } else {
            theta.zeros_like()
        };
        direction.narrow(1, head.start, count).copy_(&look.by_head);
        Ok(direction)
    }
}

impl Method for Vbll {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        self.head()?;
        let look = self.look(theta, &objective.outputs(theta, Output::Features)?)?;
        let direction = self.direction(theta, objective, &look)?;
        self.parts.apply(theta, &direction, objective, factor)?;
        let mut diagnostics = vec![look.kl.mean(Kind::Double) / self.spec.ess];
        let head = self.parts.geometry.head();
        if let (Some((numbers, adam)), Some(head)) = (&mut self.spread, head) {
            adam.step(numbers, &look.by_spread.to_kind(numbers.kind()), factor);
            let spread = Spread::of(numbers, head, self.spec.covariance);
            diagnostics.push(spread.std().mean(Kind::Double));
            diagnostics.push(spread.log_noise.exp().mean(Kind::Double));
        }
        Ok(Step { losses: look.losses, diagnostics: Some(Tensor::stack(&diagnostics, 0)) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        &["kl_per_image", "mean_posterior_std", "mean_noise_std"]
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        let mean = theta.shallow_clone();
        let Ok((head, numbers)) = self.head() else { return Posterior::Points { theta: mean } };
        let spread = Spread::of(numbers, head, self.spec.covariance);
        let marginal = spread.std();
        let Spread { log_noise, columns, factors, .. } = spread;
        let (n, rank, weights) = (theta.size()[0], columns.size()[1], head.outputs * head.inputs);
        let std = theta.zeros_like();
        std.narrow(1, head.start, weights).copy_(&marginal.flatten(1, 2));
        std.narrow(1, head.start + weights, head.outputs).copy_(&log_noise.exp());
        if let Some(factors) = factors {
            return Posterior::BlockGaussians { mean, std, factors, start: head.start };
        }
        if rank == 0 {
            return Posterior::Gaussians { mean, std };
        }
        // Its covariance is (diag(std²) + Dᵀ D / (K − 1)) / 2; a row of zeros makes K − 1 the rank.
        let deviations = Tensor::zeros([n, rank + 1, theta.size()[1]], (theta.kind(), theta.device()));
        let low_rank = columns.flatten(2, 3) * (2.0 * rank as f64).sqrt();
        deviations.narrow(1, 0, rank).narrow(2, head.start, weights).copy_(&low_rank);
        Posterior::LowRankGaussians { mean, std: std * std::f64::consts::SQRT_2, deviations }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)?;
        if let Some((numbers, adam)) = &mut self.spread {
            // The optimizer of theta may be Adam, too, whose tensors have the same names.
            keeper.below("vbll.", |keeper| adam.keep(keeper))?;
            keeper.tensor("vbll.spread", numbers)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
