//! `[method.ivon]`: improved variational online Newton (Shen et al. 2024, arXiv 2402.17641, Algorithm 1). The posterior
//! of each particle is a Gaussian with mean m (a row of theta) and standard deviations σ. Training follows the gradient
//! at noisy weights m + σ ε. n > 1 particles form a mixture of n such Gaussians (Multi-IVON).
//!
//! | symbol | here |
//! |---|---|
//! | λ (effective sample size) | `ess` |
//! | δ (weight decay) | `weight_decay`; the prior's precision is λ δ |
//! | h_0, h | `hess_init`, `hessian` |
//! | g, β_1, β_2 | `momentum`, `beta1`, `beta2` |
//! | ξ | `clip_radius` |
//! | σ = 1 / √(λ (h + δ)) | `Ivon::deviations` |
//! | h_0 with `tune_hess_init` | the smallest power of two at which draws hardly change the loss of the first batch |
//! | f = λ (h + δ) mean(ĝ ∘ (θ − m)), or λ mean(ĝ²) | `estimator = "price"`, `"gradsq"` |
//!
//! As in the authors' own code, there are three differences from Algorithm 1: several samples of θ can be averaged in a
//! step, the direction can be clipped, and the learning rate is rescaled by h_0 + δ only if `rescale_lr` is set. The
//! mean is never overwritten by a noisy sample, so no error can leave it noisy.

#[cfg(test)]
mod tests;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::base::tensor::{Tile, host_f64, quantiles, tiles};
use crate::methods::{
    Entry, Evaluation, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant, spec,
};
use crate::optimizers::{beta1, check_rates, correction, rate_column};
use crate::posterior::{Posterior, Predictive};
use crate::schema::{Reader, settings, words};

pub static ENTRY: Entry = Entry {
    key: "ivon",
    about: "variational online Newton: one Gaussian per particle, trained at noisy weights (its own optimizer)",
    paper: "IVON@mean, IVON, Multi-IVON",
    update: Update::Own,
    rows: RowsAre::Gaussians,
    particles: Particles::Any,
    bench: &[Variant { key: "ivon", sets: &["lr=0.01", "ess=1e6", "hess_init=0.03"], asks_for_mixing: false }],
    names: &[("full", "IVON"), ("low-rank", "Low-rank IVON")],
    names_of_many: &[("full", "Multi-IVON"), ("low-rank", "Low-rank Multi-IVON")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn has_independent_columns(&self) -> bool {
        true
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Ivon::new(self.clone(), &parts.theta, Noise::new(parts.seed, Purpose::Noise)))
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn narrowed_by(&self) -> &'static str {
        "raise method.ivon.hess_init or method.ivon.ess, or set method.ivon.tune_hess_init = true"
    }

    /// The running means of the gradient and of the Hessian.
    fn kept_matrices(&self) -> u64 {
        2
    }

    /// The deviations, the noise, the noisy weights and the gradients; from the second sample or part on, also the sums
    /// of two of them.
    fn matrices_of_a_step(&self, parts: usize) -> u64 {
        if parts == 1 && self.mc_samples == 1 { 4 } else { 6 }
    }

    fn gradients_of_a_step(&self) -> u64 {
        self.mc_samples as u64
    }

    /// All of its gradients are those of losses, and they come before anything moves.
    fn skips_steps(&self) -> bool {
        true
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2
    }
}

/// The number of draws by which h_0 is tuned, and the step that their noise has.
const TUNING_DRAWS: i64 = 8;
const TUNING: i64 = -2;

/// The exponents of the smallest and the largest h_0 that are tried.
const EXPONENTS: (f64, f64) = (-30.0, 20.0);

/// Returns how far draws may change losses: by 2 %, or by 0.02 nats. A lower loss is a change, too: noise that undoes a network which is
/// surely wrong of many images, as of wrong labels, lowers its loss to that of a guess.
fn tolerance(losses: &Tensor) -> Tensor {
    (losses * 0.02).clamp_min(0.02)
}

pub struct Ivon {
    spec: Spec,
    /// The start h_0 of the Hessian, `[n, 1]`.
    start: Tensor,
    /// The learning rates α, `[n, 1]`, rescaled by h_0 + δ if the settings ask for it.
    rates: Tensor,
    /// The momentum g, `[n, P]`.
    momentum: Tensor,
    /// The Hessian h, `[n, P]`.
    hessian: Tensor,
    steps: i64,
    noise: Noise,
}

/// The sums, then the averages, over the samples of one step.
struct Averages {
    /// The losses, `[n]`.
    losses: Tensor,
    /// The gradient ĝ, `[n, P]`.
    gradient: Tensor,
    /// The product ĝ ∘ (θ − m) for Price's estimator, ĝ² for squared gradients, `[n, P]`.
    product: Tensor,
}

/// The means `theta: [n, P]` around which draws are tried, with their losses `[n]` in f64.
struct Means<'a> {
    theta: &'a Tensor,
    losses: &'a Tensor,
}

impl Ivon {
    /// Creates the method with starting means `theta: [n, P]`.
    pub fn new(spec: Spec, theta: &Tensor, noise: Noise) -> Ivon {
        let rates = rate_column(&spec.lr, theta);
        let rates = if spec.rescale_lr { rates * (spec.hess_init + spec.weight_decay) } else { rates };
        let (momentum, hessian) = (theta.zeros_like(), theta.full_like(spec.hess_init));
        let start = theta.narrow(1, 0, 1).full_like(spec.hess_init);
        Ivon { spec, start, rates, momentum, hessian, steps: 0, noise }
    }

    /// Takes a start h_0 that was found, `[n, 1]`.
    fn begin_at(&mut self, start: Tensor) {
        if self.spec.rescale_lr {
            self.rates = rate_column(&self.spec.lr, &self.hessian) * (&start + self.spec.weight_decay);
        }
        self.hessian.copy_(&start.expand_as(&self.hessian));
        self.start = start;
    }

    /// Returns how far some draws with this h, `[n, 1]`, are at most from the losses `own: [n]` of the means, `[n]` in f64; a loss that is no
    /// number is the farthest.
    fn changes_at(&self, means: &Means, hessian: &Tensor, objective: &mut dyn Objective) -> Result<Tensor> {
        let Means { theta, losses: own } = *means;
        let deviations = ((hessian + self.spec.weight_decay) * self.spec.ess).rsqrt();
        let mut largest = Tensor::zeros([theta.size()[0]], (Kind::Double, theta.device()));
        for sample in 0..TUNING_DRAWS {
            let noise = self.noise.draw(At { step: TUNING, sample, part: 0 }, theta);
            let losses = objective.losses(&(theta + noise * &deviations))?.losses.to_kind(Kind::Double);
            largest = largest.maximum(&(losses - own).abs());
        }
        Ok(largest)
    }

    /// Returns the smallest powers of two, `[n, 1]`, at which draws change the loss of a batch by no more than the [`tolerance`].
    ///
    /// # Errors
    /// Fails if the largest is too small, or if the objective fails.
    fn tuned(&self, theta: &Tensor, objective: &mut dyn Objective) -> Result<Tensor> {
        let own = objective.losses(theta)?.losses.to_kind(Kind::Double);
        let most = tolerance(&own);
        let means = Means { theta, losses: &own };
        let of = |exponents: &Tensor| exponents.exp2().to_kind(theta.kind()).unsqueeze(1);
        let (mut low, mut high) = (own.full_like(EXPONENTS.0), own.full_like(EXPONENTS.1));
        let fits = self.changes_at(&means, &of(&high), objective)?.le_tensor(&most);
        ensure!(
            fits.all().int64_value(&[]) == 1,
            "method.ivon.tune_hess_init: even a Hessian of 2^{} leaves draws that change the loss of the first batch: raise method.ivon.ess = {}",
            EXPONENTS.1,
            self.spec.ess
        );
        // `high` always fits, and `low` counts as too small.
        while (&high - &low).max().double_value(&[]) > 1.0 {
            let middle = ((&low + &high) / 2.0).floor();
            let fits = self.changes_at(&means, &of(&middle), objective)?.le_tensor(&most);
            high = middle.where_self(&fits, &high);
            low = low.where_self(&fits, &middle);
        }
        Ok(of(&high))
    }

    /// Returns h + δ of a tile, which is always positive.
    fn precision(&self, tile: &Tile) -> Tensor {
        tile.of(&self.hessian) + self.spec.weight_decay
    }

    /// Returns the standard deviations σ, `[n, P]`.
    fn deviations(&self) -> Tensor {
        let deviations = self.hessian.empty_like();
        for tile in tiles(&deviations) {
            let precision = self.precision(&tile).g_mul_scalar_(self.spec.ess);
            tile.of(&deviations).copy_(&precision.rsqrt());
        }
        deviations
    }

    /// Averages the gradients at `mc_samples` noisy weights. Each part of the batch has its own noise.
    fn sample(&self, theta: &Tensor, deviations: &Tensor, objective: &mut dyn Objective) -> Result<Averages> {
        let samples = self.spec.mc_samples;
        let mut sums: Option<Averages> = None;
        for at in At::of_step(self.steps, samples, objective.parts()) {
            let part = at.part as usize;
            let mut noise = self.noise.draw(at, theta) * deviations;
            let (Evaluation { losses, gradients }, share) =
                (objective.losses_of_part(&(theta + &noise), part)?, objective.share(part));
            let product = match self.spec.estimator {
                Estimator::Price => noise.g_mul_(&gradients),
                // The gradient of a part is already multiplied by its share.
                Estimator::Gradsq => gradients.square() / share,
            };
            sums = Some(match sums {
                None => Averages { losses, gradient: gradients, product },
                Some(Averages { losses: l, gradient: g, product: p }) => {
                    Averages { losses: l + losses, gradient: g + gradients, product: p + product }
                }
            });
        }
        let Some(Averages { losses, gradient, product }) = sums else { anyhow::bail!("ivon: a step without a sample") };
        let mean = |sum: Tensor| if samples == 1 { sum } else { sum / samples as f64 };
        Ok(Averages { losses: mean(losses), gradient: mean(gradient), product: mean(product) })
    }

    /// Updates h ← β_2 h + (1 − β_2) f + ½ (1 − β_2)² (h − f)² / (h + δ), with the old h on the right.
    fn update_hessian(&self, tile: &Tile, product: &Tensor) {
        let Spec { ess, beta2, .. } = self.spec;
        let (mut hessian, product, precision) = (tile.of(&self.hessian), tile.of(product), self.precision(tile));
        let curvature = match self.spec.estimator {
            Estimator::Price => &precision * product * ess,
            Estimator::Gradsq => product * ess,
        };
        let difference = curvature - &hessian;
        let correction = difference.square() / precision * (0.5 * (1.0 - beta2).powi(2));
        hessian += difference * (1.0 - beta2) + correction;
    }

    /// Updates m ← m − α clip((ḡ + δ m) / (h + δ), ±ξ), where ḡ is the debiased momentum.
    fn update_mean(&self, tile: &Tile, theta: &Tensor, gradient: &Tensor, factor: f64) {
        let Spec { beta1, weight_decay, debias, clip_radius, .. } = self.spec;
        let (mut theta, mut momentum) = (tile.of(theta), tile.of(&self.momentum));
        momentum.copy_(&(&momentum * beta1 + tile.of(gradient) * (1.0 - beta1)));
        let debiased = if debias { 1.0 / correction(beta1, self.steps) } else { 1.0 };
        let direction = (momentum * debiased + &theta * weight_decay) / self.precision(tile);
        let direction = match clip_radius {
            Some(radius) => direction.clamp(-radius, radius),
            None => direction,
        };
        theta -= direction * tile.rows_of(&self.rates) * factor;
    }
}

impl Method for Ivon {
    fn prepare(&mut self, theta: &Tensor, objective: &mut dyn Objective) -> Result<()> {
        if self.spec.tune_hess_init {
            let start = self.tuned(theta, objective)?;
            self.begin_at(start);
        }
        Ok(())
    }

    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let deviations = self.deviations();
        let Averages { losses, gradient, product } = self.sample(theta, &deviations, objective)?;
        self.steps += 1;
        for tile in tiles(theta) {
            self.update_hessian(&tile, &product);
            self.update_mean(&tile, theta, &gradient, factor);
        }
        let means = [deviations.mean(Kind::Double), self.hessian.mean(Kind::Double)];
        Ok(Step { losses, diagnostics: Some(Tensor::stack(&means, 0)) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        &["mean_posterior_std", "mean_hessian"]
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        Posterior::Gaussians { mean: theta.shallow_clone(), std: self.deviations() }
    }

    fn remarks(&self) -> Result<Vec<String>> {
        /// The relative change of h below which it counts as not having moved.
        const MOVED: f64 = 0.01;
        let stds = quantiles(&self.deviations(), &[0.01, 0.5, 0.99])?;
        let moved = quantiles(&(&self.hessian / &self.start), &[0.01, 0.5, 0.99])?;
        let shown = |values: &[f64]| values.iter().map(|value| format!("{value:.3e}")).collect::<Vec<_>>().join(", ");
        let mut remarks = vec![format!(
            "ivon: posterior standard deviation {} (1 %, median, 99 %); Hessian over its start {}",
            shown(&stds),
            shown(&moved)
        )];
        if self.spec.tune_hess_init {
            remarks.push(format!("ivon: the Hessian started at {}", shown(&host_f64(&self.start)?)));
        }
        if moved.iter().all(|ratio| (ratio - 1.0).abs() < MOVED) {
            // A start that was found is as low as the loss allows.
            let lower = if self.spec.tune_hess_init { "" } else { "lower method.ivon.hess_init, " };
            remarks.push(format!(
                "ivon: the Hessian has hardly left its start, so the posterior says little: {lower}raise method.ivon.lr, or set \
                 method.ivon.beta2 = 0.9999"
            ));
        }
        Ok(remarks)
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        if self.spec.tune_hess_init {
            let mut start = self.start.copy();
            keeper.tensor("ivon.start", &mut start)?;
            if keeper.restores() {
                self.begin_at(start);
            }
        }
        keeper.tensor("ivon.momentum", &mut self.momentum)?;
        keeper.tensor("ivon.hessian", &mut self.hessian)?;
        keeper.count("ivon.steps", &mut self.steps)
    }
}

words! {
    /// The estimate of the curvature.
    pub enum Estimator {
        /// Price's theorem: gradients times the noise they were taken at.
        Price = "price",
        /// Squared gradients.
        Gradsq = "gradsq",
    }
}

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec {
        pub particles: i64, by spec::particles;
        /// Learning rate, or one per particle.
        pub lr: Vec<f64>, in above(0.0);
        /// Effective sample size λ: the number of training images, or more for a cold posterior.
        pub ess: f64, in above(0.0),
            because "the effective sample size λ: the number of training images, or more for a cold posterior";
        /// Initial value of the Hessian.
        pub hess_init: f64 = 1.0, in above(0.0);
        /// Whether the Hessian starts, instead, at the smallest power of two at which no draw changes the loss of the first batch by more
        /// than 2 %, or than 0.02 nats where that is more.
        pub tune_hess_init: bool = false, omit false;
        pub beta1: f64, by beta1;
        /// Decay of the Hessian's running mean.
        pub beta2: f64 = 0.99999, in from_below(0.0, 1.0);
        /// Weight decay δ: the prior's precision is λ δ.
        pub weight_decay: f64 = 1e-4, in at_least(0.0);
        /// Largest change of a parameter in a step, before the learning rate.
        pub clip_radius: Option<f64>, in above(0.0);
        /// Whether the learning rate is multiplied by hess_init + weight_decay.
        pub rescale_lr: bool = true;
        /// Whether the running mean of the gradient is divided by 1 − β₁ᵗ.
        pub debias: bool = true;
        /// Estimate of the curvature: from gradients times noise, or from squared gradients.
        pub estimator: Estimator = Estimator::Price;
        pub mc_samples: i64, by spec::mc_samples;
        pub samples: usize, by |reader| spec::samples(reader, 8);
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader) {
        if self.tune_hess_init && reader.sets("hess_init") {
            reader.problem("hess_init", "is found by tune_hess_init: leave one of them out");
        }
        check_rates(&self.lr, self.particles).iter().for_each(|why| reader.problem("lr", why));
    }
}
