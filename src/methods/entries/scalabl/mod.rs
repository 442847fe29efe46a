//! `[method.scalabl]`: ScalaBL, scalable Bayesian low-rank adaptation by variational inference in a subspace (Samplawski et al.,
//! UAI 2025, arXiv 2506.21408): every low-rank update s B A has A = diag(m) V, and the r numbers m of a layer are Gaussian. V, B and
//! all other columns are points.
//!
//! | symbol | here |
//! |---|---|
//! | A = U diag(m) V at the start | the decomposition of A's random start; U is left out, which turns A to Uᵀ A, and B to B U |
//! | A = diag(m + σ ε) V, ε ~ N(0, 1) | one ε for a row of A, so that σ has r numbers a layer; a draw for each part of a batch |
//! | prior N(0, β²) on m | β is `prior_std` |
//! | ∂L/∂V_k = (m_k + σ_k ε_k) G_k, ∂L/∂log m_k = m_k G_k·V_k, ∂L/∂log σ_k = σ_k ε_k G_k·V_k | G the gradient at the noisy A; V and B by the optimizer, log m and log σ by Adam with `std_lr` |
//! | reverse: KL(q ‖ p) = Σ ln(β / σ) + (σ² + m²) / (2 β²) − ½ | the bound's |
//! | forward: KL(p ‖ q) = Σ ln(σ / β) + (β² + m²) / (2 σ²) − ½ | what the authors' code computes |
//! | log m, log σ ← … − η π_i ∇KL | the step of the divergence after that, η is `kl_lr`, π_i as in BLoB over `cycle` steps |
//!
//! theta holds A itself, the mean of the draws; a step divides it by m, moves V, and multiplies it by the new m. Log σ starts at
//! ln U(ε/√2, ε), ε is `init`.
//!
//! Differs from the authors' code in the default divergence, and in that log m and log σ have a learning rate of their own; there it is
//! that of all parameters. Its prior is N(σ₀, (1 + σ₀)²) with the start σ₀ of σ, since a tensor of zeros is overwritten by that start; here it
//! is the N(0, β²) that it means.

use anyhow::{Result, bail};
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::methods::{
    Answer, Entry, Evaluation, Method, MethodContext, MethodSpec, Objective, Particles, Parts, Request, RowsAre, Step,
    Update, Variant, spec,
};
use crate::optimizers::{Optimizer, adam};
use crate::posterior::{Posterior, Predictive, Rows};
use crate::schema::{Reader, settings, words};
use crate::subspace::geometry;

pub static ENTRY: Entry = Entry {
    key: "scalabl",
    about: "low-rank updates with a Gaussian over the r singular values of each factor A (ScalaBL)",
    paper: "ScalaBL",
    update: Update::Optimizer,
    rows: RowsAre::Gaussians,
    particles: Particles::Any,
    bench: &[Variant { key: "scalabl", sets: &["cycle=100"], asks_for_mixing: false }],
    names: &[("low-rank", "ScalaBL")],
    names_of_many: &[("low-rank", "Multi-ScalaBL")],
    read: |reader, context| Box::new(Spec::read(reader, context)),
};

words! {
    /// The divergence between the Gaussian q and the prior p.
    pub enum Divergence {
        /// KL(q ‖ p), that of the evidence bound.
        Reverse = "reverse",
        /// KL(p ‖ q), that of the authors' code.
        Forward = "forward",
    }
}

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec(context: &MethodContext) {
        pub particles: i64, by spec::particles;
        /// Learning rate of Adam for the logarithms of the means and standard deviations of the singular values.
        pub std_lr: f64 = 1e-4, in above(0.0);
        /// Learning rate of the gradient step on the KL divergence.
        pub kl_lr: f64 = 0.2, in at_least(0.0);
        /// Standard deviation β of the prior on the singular values.
        pub prior_std: f64 = 1.0, in above(0.0);
        /// Divergence from the prior: KL(q ‖ p), or KL(p ‖ q) as in the authors' code.
        pub divergence: Divergence = Divergence::Reverse;
        /// Largest start ε of the standard deviations.
        pub init: f64 = 0.05, in above(0.0);
        pub cycle: Option<i64>, by |reader| spec::cycle(reader, kl_lr);
        pub samples: usize, by |reader| spec::samples(reader, 10);
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader, context: &MethodContext) {
        if context.is_not("low-rank") {
            reader.problem("particles", "singular values of low-rank updates are Gaussian: write [subspace.low-rank]");
        }
        spec::check_divergence(reader, self.kl_lr, &["prior_std", "divergence", "cycle"]);
    }

    /// Returns the gradients of the divergence by ln m and by ln σ, `[n, R]` each.
    fn pull(&self, mean: &Tensor, std: &Tensor) -> [Tensor; 2] {
        let (mean, variance, prior) = (mean.square(), std.square(), self.prior_std.powi(2));
        match self.divergence {
            Divergence::Reverse => [mean / prior, variance / prior - 1.0],
            Divergence::Forward => [&mean / &variance, (&mean + prior) / -variance + 1.0],
        }
    }

    /// Returns the divergence of each particle, `[n]` in f64.
    fn divergence(&self, mean: &Tensor, std: &Tensor) -> Tensor {
        match self.divergence {
            Divergence::Reverse => spec::divergence(mean, std, self.prior_std),
            Divergence::Forward => {
                let (mean, std) = (mean.to_kind(Kind::Double), std.to_kind(Kind::Double));
                let ratio = (mean.square() + self.prior_std.powi(2)) / (std.square() * 2.0);
                let each = (std / self.prior_std).log() + ratio - 0.5;
                each.sum_dim_intlist([1i64].as_slice(), false, Kind::Double)
            }
        }
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Scalabl::new(self.clone(), parts))
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn narrowed_by(&self) -> &'static str {
        "lower method.scalabl.init"
    }

    /// The noisy theta, its gradients, the direction and the sums of them.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        4
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2
    }
}

/// The smallest start of m, by which rows are divided.
const LEAST: f64 = 1e-8;

struct Scalabl {
    spec: Spec,
    parts: Parts,
    noise: Noise,
    steps: i64,
    /// The updates, whose ranks add up to R.
    updates: Vec<geometry::Update>,
    /// ln m, then ln σ, `[n, 2 R]`.
    numbers: Tensor,
    /// Adam for them.
    adam: Box<dyn Optimizer>,
}

/// The factors A = U diag(m) V of an update.
struct Decomposed {
    /// U, `[n, r, r]`.
    left: Tensor,
    /// m, `[n, r]`.
    values: Tensor,
    /// V, `[n, r, in]`.
    right: Tensor,
}

impl Decomposed {
    fn of(update: &geometry::Update, theta: &Tensor) -> Decomposed {
        let (left, values, right) = update.a(theta).to_kind(Kind::Double).svd(true, true);
        Decomposed { left, values: values.clamp_min(LEAST), right: right.transpose(1, 2) }
    }
}

impl Scalabl {
    fn new(spec: Spec, parts: Parts) -> Scalabl {
        let (updates, noise) = (parts.geometry.updates(), Noise::new(parts.seed, Purpose::Noise));
        let values: Vec<Tensor> = updates.iter().map(|update| Decomposed::of(update, &parts.theta).values).collect();
        let log_mean = match values.is_empty() {
            true => Tensor::zeros([parts.theta.size()[0], 0], (parts.theta.kind(), parts.theta.device())),
            false => Tensor::cat(&values, 1).log().to_kind(parts.theta.kind()),
        };
        let log_std = spec::spread_at_start(&noise, &log_mean, spec.init).log();
        let numbers = Tensor::cat(&[log_mean, log_std], 1);
        let adam = adam(&[spec.std_lr], &numbers);
        Scalabl { spec, parts, noise, steps: 0, updates, numbers, adam }
    }

    /// Returns m and σ, `[n, R]` each.
    fn moments(&self) -> [Tensor; 2] {
        let half = self.numbers.size()[1] / 2;
        [0, half].map(|start| self.numbers.narrow(1, start, half).exp())
    }

    /// Turns A to Uᵀ A = diag(m) V, and B to B U, so that their product stays.
    fn turn(&self, theta: &Tensor) {
        for update in &self.updates {
            let Decomposed { left, values, right } = Decomposed::of(update, theta);
            let b = update.b(theta).to_kind(Kind::Double).matmul(&left);
            update.b(theta).copy_(&b);
            update.a(theta).copy_(&(values.unsqueeze(2) * right));
        }
    }

    /// Multiplies the rows of A by factors `[n, R]`, in place.
    fn scale(updates: &[geometry::Update], theta: &Tensor, factors: &Tensor) {
        let mut done = 0;
        for update in updates {
            let _ = update.a(theta).g_mul_(&factors.narrow(1, done, update.rank).unsqueeze(2));
            done += update.rank;
        }
    }

    /// Returns G_k · A_k for each row of each A, `[n, R]`.
    fn along(updates: &[geometry::Update], gradients: &Tensor, theta: &Tensor) -> Tensor {
        let of = |update: &geometry::Update| {
            let product = update.a(gradients) * update.a(theta);
            product.sum_dim_intlist([2i64].as_slice(), false, theta.kind())
        };
        Tensor::cat(&updates.iter().map(of).collect::<Vec<_>>(), 1)
    }
}

/// An objective of V in place of A = diag(m) V.
struct OfDirections<'a> {
    inner: &'a mut dyn Objective,
    updates: &'a [geometry::Update],
    /// m, `[n, R]`.
    mean: &'a Tensor,
}

impl Objective for OfDirections<'_> {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?.copy();
        Scalabl::scale(self.updates, &theta, self.mean);
        let Evaluation { losses, gradients } =
            self.inner.evaluate(&Request { theta: &theta, ..*request })?.evaluation()?;
        let gradients = gradients.copy();
        Scalabl::scale(self.updates, &gradients, self.mean);
        Ok(Evaluation { losses, gradients }.into())
    }
}

impl Method for Scalabl {
    /// Turns theta, so that the rows of each A are those that m and σ belong to.
    fn prepare(&mut self, theta: &Tensor, _: &mut dyn Objective) -> Result<()> {
        self.turn(theta);
        Ok(())
    }

    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let [mean, std] = self.moments();
        let mut sums: Option<[Tensor; 4]> = None;
        for at in At::of_step(self.steps, 1, objective.parts()) {
            let noise = self.noise.draw(at, &mean) * &std;
            let noisy = theta.copy();
            Scalabl::scale(&self.updates, &noisy, &(&noise / &mean + 1.0));
            let Evaluation { losses, gradients } = objective.losses_of_part(&noisy, at.part as usize)?;
            let gradients = gradients.copy();
            let along = Scalabl::along(&self.updates, &gradients, theta);
            let by_log_std = &along * &noise / &mean;
            Scalabl::scale(&self.updates, &gradients, &(&mean + noise));
            let found = [losses, gradients, along, by_log_std];
            sums = Some(match sums {
                None => found,
                Some([l, g, m, s]) => {
                    let [losses, gradients, along, by_log_std] = found;
                    [l + losses, g + gradients, m + along, s + by_log_std]
                }
            });
        }
        let Some([losses, direction, by_log_mean, by_log_std]) = sums else {
            bail!("scalabl: a step without a part of the batch")
        };
        Scalabl::scale(&self.updates, theta, &mean.reciprocal());
        let mut of_directions = OfDirections { inner: objective, updates: &self.updates, mean: &mean };
        self.parts.apply(theta, &direction, &mut of_directions, factor)?;
        self.adam.step(&mut self.numbers, &Tensor::cat(&[by_log_mean, by_log_std], 1), factor);
        let rate = spec::divergence_rate(self.spec.kl_lr * factor, self.spec.cycle, self.steps);
        let [mean, std] = self.moments();
        self.numbers -= Tensor::cat(&self.spec.pull(&mean, &std), 1) * rate;
        let [mean, std] = self.moments();
        Scalabl::scale(&self.updates, theta, &mean);
        self.steps += 1;
        let divergence = self.spec.divergence(&mean, &std).mean(Kind::Double);
        let diagnostics = Tensor::stack(&[divergence, mean.mean(Kind::Double), std.mean(Kind::Double)], 0);
        Ok(Step { losses, diagnostics: Some(diagnostics) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        &["kl_divergence", "mean_singular_value", "mean_posterior_std"]
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        let [mean, std] = self.moments();
        let spread = theta.zeros_like();
        self.updates.iter().for_each(|update| update.a(&spread).copy_(&update.a(theta)));
        Scalabl::scale(&self.updates, &spread, &(std / mean));
        let of = |update: &geometry::Update| Rows { start: update.start, count: update.rank, width: update.inputs };
        let rows = self.updates.iter().map(of).collect();
        Posterior::TiedGaussians { mean: theta.shallow_clone(), std: spread, rows }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)?;
        // The optimizer of theta may be Adam, too, whose tensors have the same names.
        keeper.below("scalabl.", |keeper| self.adam.keep(keeper))?;
        keeper.tensor("scalabl.numbers", &mut self.numbers)?;
        keeper.count("scalabl.steps", &mut self.steps)
    }
}

#[cfg(test)]
mod tests;
