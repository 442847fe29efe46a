//! `[method.bayestune]`: BayesTune (Kim and Hospedales, NeurIPS 2023). A Laplace prior holds every parameter at its start, each
//! with a scale of its own. Langevin dynamics sample parameters and scales; then the parameters with the largest posterior mean
//! of the scale are fine-tuned, all others stay as they were.
//!
//! | symbol | here |
//! |---|---|
//! | θ_i ~ Laplace(θ⁰_i, λ_i), Δ = θ − θ⁰ | θ⁰ the start of the particle |
//! | λ_i ~ Gamma(α, β) | `alpha`, `beta`; a small α and a large β want small scales |
//! | N, T, η, ε | `ess`, `temperature`, `lr`, `scale_lr` |
//! | Δ ← S(Δ − η g, η / (N λ)) + √(2 η T / N) ξ | g the gradient of the mean loss; S(x, t) = sign(x) max(\|x\| − t, 0) |
//! | u ← u − ε ∂U/∂u + √(2 ε) ξ', u = log λ | ∂U/∂u = −\|Δ\| / λ + (1 − α) + β λ ([`slopes`]) |
//! | λ̄, the mean of λ after `burn_in` of `search_steps` | a share `share` of each particle's parameters is tuned |
//!
//! U = −log p(θ, λ \| D) − log λ, the last term for the change of variables to u. Differences from the authors' code: scales
//! are sampled as logarithms and by Langevin dynamics, there they are clamped and moved by Adam; parameters follow plain Langevin
//! dynamics, there AdamW with noise in its gradient; their search begins after half of its steps without noise and prior; the prior's pull is taken
//! implicitly, as a soft threshold, since its sign jumps at Δ = 0; and a drift of u is at most 1 in a step.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::methods::{
    Entry, Evaluation, MAX_PARTICLES, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant,
};
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "bayestune",
    about: "a Laplace prior with a sampled scale for every parameter, then fine-tuning of those with the largest (BayesTune)",
    paper: "BayesTune",
    update: Update::Optimizer,
    rows: RowsAre::Samples,
    particles: Particles::Any,
    bench: &[Variant {
        key: "bayestune",
        sets: &["lr=0.01", "ess=1e6", "search_steps=1000000"],
        asks_for_mixing: false,
    }],
    names: &[("full", "BayesTune"), ("low-rank", "Low-rank BayesTune")],
    names_of_many: &[("full", "BayesTune ensemble"), ("low-rank", "Low-rank BayesTune ensemble")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

/// The range of the scales λ.
const SCALES: (f64, f64) = (1e-8, 1e4);

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec {
        /// Training steps in which parameters and scales are sampled; the steps after them fine-tune. `train.clip_norm`, `b_rate`,
        /// `head_rate` and `layer_decay` act in the latter alone.
        pub search_steps: i64, in 1..=1_000_000_000;
        /// Number of particles.
        pub particles: i64 = 1, in 1..=MAX_PARTICLES;
        /// Steps of the search that do not count in the mean of the scales; half of them by default.
        pub burn_in: i64, unset search_steps / 2, in 0..=1_000_000_000;
        /// Step size of the search on the mean loss, times the schedule.
        pub lr: f64, in above(0.0);
        /// Effective sample size N: far more than there are images, so that the prior's pull 1 / (N λ) does not swallow
        /// the gradients.
        pub ess: f64 = 1e12, in above(0.0);
        /// Temperature of the parameters' noise in the search.
        pub temperature: f64 = 1.0, in at_least(0.0);
        /// Step size of the logarithms of the scales.
        pub scale_lr: f64 = 0.01, in above(0.0);
        /// Scale λ at the start.
        pub scale_init: f64 = 1e-4, in above(0.0);
        /// Shape α of the scales' Gamma prior.
        pub alpha: f64 = 0.01, in above(0.0);
        /// Rate β of the scales' Gamma prior.
        pub beta: f64 = 100.0, in above(0.0);
        /// Share of each particle's parameters that is fine-tuned, rounded down to at least one.
        pub share: f64 = 0.05, in between(0.0, 1.0);
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader) {
        let Spec { burn_in, search_steps, .. } = *self;
        if burn_in >= search_steps && search_steps > 0 {
            reader.problem("burn_in", format!("must be below search_steps = {search_steps}: no scale would be left"));
        }
    }

    /// Returns the deviations Δ after a step of size `rate`.
    fn drawn(&self, deviations: &Tensor, gradients: &Tensor, log_scales: &Tensor, rate: f64, noise: &Tensor) -> Tensor {
        let pulled = deviations - gradients * rate;
        let threshold = (-log_scales).exp() * (rate / self.ess);
        let held = pulled.sign() * (pulled.abs() - threshold).clamp_min(0.0);
        held + noise * (2.0 * rate * self.temperature / self.ess).sqrt()
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn wants_more_samples_than_images(&self) -> bool {
        true
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(BayesTune::new(self.clone(), parts))
    }

    fn check_steps(&self, steps: usize) -> Result<()> {
        ensure!(
            self.search_steps < steps as i64,
            "method.bayestune: {steps} training steps leave none to fine-tune: lower search_steps = {}",
            self.search_steps
        );
        Ok(())
    }

    fn shortened(&self, steps: usize) -> Vec<(&'static str, toml::Value)> {
        vec![("search_steps", (steps as i64 / 2).max(1).into()), ("burn_in", 0.into())]
    }

    /// The starts, the scales, their sums and the choice.
    fn kept_matrices(&self) -> u64 {
        4
    }

    /// The gradients, the noise, the deviations and their thresholds.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        4
    }
}

struct BayesTune {
    spec: Spec,
    parts: Parts,
    noise: Noise,
    steps: i64,
    /// θ⁰, `[n, P]`.
    start: Tensor,
    /// u = log λ, `[n, P]`.
    log_scales: Tensor,
    /// The sum of the scales after the burn-in, `[n, P]`.
    sum: Tensor,
    /// 1 for the parameters that are fine-tuned, 0 for all others, `[n, P]`.
    chosen: Tensor,
}

/// Returns ∂U/∂u for deviations Δ and logarithms u of scales.
fn slopes(deviations: &Tensor, log_scales: &Tensor, alpha: f64, beta: f64) -> Tensor {
    let scales = log_scales.exp();
    &scales * beta - deviations.abs() / &scales + (1.0 - alpha)
}

impl BayesTune {
    fn new(spec: Spec, parts: Parts) -> BayesTune {
        let start = parts.theta.copy();
        let (log_scales, sum) = (start.full_like(spec.scale_init.ln()), start.zeros_like());
        let (noise, chosen) = (Noise::new(parts.seed, Purpose::Noise), start.zeros_like());
        BayesTune { spec, parts, noise, steps: 0, start, log_scales, sum, chosen }
    }

    fn is_searching(&self) -> bool {
        self.steps < self.spec.search_steps
    }

    /// Draws parameters and scales once more.
    fn search(&mut self, theta: &mut Tensor, gradients: &Tensor, factor: f64) {
        let Spec { lr, scale_lr, alpha, beta, .. } = self.spec;
        /// The number of the scales' noise in a step; the parameters' is 0.
        const OF_SCALES: i64 = 1;
        let rate = lr * factor;
        let noise = |part| self.noise.draw(At { step: self.steps, sample: 0, part }, theta);
        let deviations = self.spec.drawn(&(&*theta - &self.start), gradients, &self.log_scales, rate, &noise(0));
        let drift = (slopes(&deviations, &self.log_scales, alpha, beta) * scale_lr).clamp(-1.0, 1.0);
        let moved = &self.log_scales - drift + noise(OF_SCALES) * (2.0 * scale_lr).sqrt();
        self.log_scales = moved.clamp(SCALES.0.ln(), SCALES.1.ln());
        theta.copy_(&(deviations + &self.start));
    }

    /// Chooses the parameters of each particle with the largest mean scale, and returns theta to its start.
    fn choose(&mut self, theta: &mut Tensor) {
        let parameters = theta.size()[1];
        let count = ((self.spec.share * parameters as f64) as i64).clamp(1, parameters);
        let (_, indices) = self.sum.topk(count, 1, true, false);
        self.chosen = self.sum.zeros_like().scatter_value(1, &indices, 1.0);
        theta.copy_(&self.start);
    }
}

impl Method for BayesTune {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let Evaluation { losses, gradients } = objective.losses(theta)?;
        if self.is_searching() {
            self.search(theta, &gradients, factor);
            self.steps += 1;
            if self.steps > self.spec.burn_in {
                self.sum += self.log_scales.exp();
            }
            if !self.is_searching() {
                self.choose(theta);
            }
        } else {
            self.steps += 1;
            self.parts.apply(theta, &(gradients * &self.chosen), objective, factor)?;
            // Weight decay must not move the others either.
            let kept = theta.where_self(&self.chosen.to_kind(Kind::Bool), &self.start);
            theta.copy_(&kept);
        }
        let median = self.log_scales.median().exp();
        let diagnostics = Tensor::stack(&[self.log_scales.exp().mean(Kind::Double), median.to_kind(Kind::Double)], 0);
        Ok(Step { losses, diagnostics: Some(diagnostics) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        &["mean_scale", "median_scale"]
    }

    /// Nothing is tuned before the first step after the search.
    fn has_posterior(&self) -> bool {
        self.steps > self.spec.search_steps
    }

    fn remarks(&self) -> Result<Vec<String>> {
        let chosen = self.chosen.get(0).sum(Kind::Double).double_value(&[]);
        Ok(vec![format!("bayestune: {chosen} of {} parameters of each particle were tuned", self.start.size()[1])])
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)?;
        keeper.count("bayestune.steps", &mut self.steps)?;
        // Where particles start from images (init = "eva"), a resumed run does not compute their start again.
        keeper.tensor("bayestune.start", &mut self.start)?;
        keeper.tensor("bayestune.log_scales", &mut self.log_scales)?;
        keeper.tensor("bayestune.sum", &mut self.sum)?;
        keeper.tensor("bayestune.chosen", &mut self.chosen)
    }
}

#[cfg(test)]
mod tests;
