//! `[method.bbb]`: mean-field variational inference, Bayes by backprop (Blundell et al. 2015, arXiv 1505.05424), with the KL
//! divergence in closed form. Each particle is a Gaussian; n > 1 is a mixture of n, each trained alone.
//!
//! | symbol | here |
//! |---|---|
//! | N, the number of training images | `ess` |
//! | μ, the mean | a row of theta |
//! | σ = log(1 + exp(ρ)) | the standard deviations; ρ is `rho` |
//! | σ_p² = 1 / (N δ), the prior's variance around 0 | δ is `weight_decay` |
//! | T, the temperature | `temperature` |
//! | L̄(μ + σ ε) + (T / N) KL(N(μ, σ²) ‖ N(0, σ_p²)) | what is minimised, by Adam, in μ and ρ |
//! | KL = Σ ln(σ_p / σ) + (σ² + μ²) / (2 σ_p²) − ½ | [`divergence`] |
//!
//! With the gradient g of the mean loss at μ + σ ε, the gradients are g + T δ μ for μ, and g ε + T (δ σ − 1 / (N σ)) for σ,
//! times dσ/dρ = 1 / (1 + exp(−ρ)). A step averages `mc_samples` draws; each part of a batch (`train.accumulate`) has draws of
//! its own, so that more parts make the gradient less noisy.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::noise::{At, Noise};
use crate::base::random::Purpose;
use crate::base::tensor_file::State;
use crate::methods::{
    Entry, Evaluation, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant, keys,
};
use crate::optimizers::{Optimizer, adam};
use crate::posterior::{Posterior, Predictive};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "bbb",
    about: "mean-field variational inference, Bayes by backprop: one Gaussian per particle (its own optimizer, Adam)",
    paper: "BBB",
    update: Update::Own,
    rows: RowsAre::Gaussians,
    particles: Particles::Any,
    bench: &[Variant { key: "bbb", sets: &["lr=1e-3", "ess=1e6"], asks_for_mixing: false }],
    names: &[("full", "BBB"), ("low-rank", "Low-rank BBB")],
    names_of_many: &[("full", "Multi-BBB"), ("low-rank", "Low-rank Multi-BBB")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    #[derive(Clone, Debug)]
    struct Spec {
        ess: f64, by keys::ess;
        particles: i64, by keys::gaussians;
        /// Learning rate of Adam, for means and deviations.
        lr: f64, in above(0.0);
        /// Weight decay: the prior's precision over the effective sample size.
        weight_decay: f64 = 1e-4, in above(0.0);
        /// Temperature of the posterior: the factor of the KL divergence.
        temperature: f64 = 1.0, in above(0.0);
        // A reader without a config gives the sample size 0.
        /// Initial standard deviation; by default 1.5 / √ess.
        std_init: f64, unset 1.5 / ess.max(f64::MIN_POSITIVE).sqrt(), in above(0.0);
        /// Noisy weights per training step.
        mc_samples: i64 = 1, in 1..=10_000;
        /// Draws per particle that predict after training.
        samples: usize = 8, in 1..=100_000;
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Bbb::new(self.clone(), &parts.theta, Noise::new(parts.seed, Purpose::Noise)))
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    /// ρ, and two moments of each of μ and ρ.
    fn kept_matrices(&self) -> u64 {
        5
    }

    /// The deviations, the noise, the noisy weights, the gradients and their two sums, then both gradients and both parameters
    /// side by side.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        10
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2
    }
}

struct Bbb {
    spec: Spec,
    noise: Noise,
    /// ρ, `[n, P]`.
    rho: Tensor,
    /// Adam over μ and ρ side by side, `[n, 2 P]`.
    optimizer: Box<dyn Optimizer>,
    steps: i64,
}

/// The sums over the draws of a step.
struct Sums {
    /// The losses, `[n]`.
    losses: Tensor,
    /// The gradient g, `[n, P]`.
    gradients: Tensor,
    /// The product g ε, `[n, P]`.
    products: Tensor,
}

impl Bbb {
    fn new(spec: Spec, theta: &Tensor, noise: Noise) -> Bbb {
        // The inverse of the softplus.
        let rho = theta.full_like(spec.std_init.exp_m1().ln());
        let optimizer = adam(&[spec.lr], &Tensor::cat(&[theta, &rho], 1));
        Bbb { spec, noise, rho, optimizer, steps: 0 }
    }

    /// Returns σ, `[n, P]`.
    fn deviations(&self) -> Tensor {
        self.rho.softplus()
    }

    /// Averages gradients at `mc_samples` draws for each part of the batch.
    fn sample(&self, theta: &Tensor, deviations: &Tensor, objective: &mut dyn Objective) -> Result<Sums> {
        let samples = self.spec.mc_samples;
        let zeros = theta.zeros_like();
        let losses = zeros.select(1, 0).to_kind(Kind::Float);
        let mut sums = Sums { losses, gradients: zeros.copy(), products: zeros };
        for sample in 0..samples {
            for part in 0..objective.parts() {
                let noise = self.noise.draw(At { step: self.steps, sample, part: part as i64 }, theta);
                let Evaluation { losses, gradients } =
                    objective.losses_of_part(&(theta + deviations * &noise), part)?;
                sums.losses += losses / samples as f64;
                sums.products += noise * &gradients / samples as f64;
                sums.gradients += gradients / samples as f64;
            }
        }
        Ok(sums)
    }

    /// Returns the gradients for μ and for ρ side by side, `[n, 2 P]`.
    fn gradients(&self, theta: &Tensor, deviations: &Tensor, sums: &Sums) -> Tensor {
        let Spec { ess, weight_decay, temperature, .. } = self.spec;
        let mean = &sums.gradients + theta * (temperature * weight_decay);
        let pull = deviations * weight_decay - deviations.reciprocal() / ess;
        let rho = (&sums.products + pull * temperature) * self.rho.sigmoid();
        Tensor::cat(&[mean, rho], 1)
    }
}

/// Returns KL(N(μ, σ²) ‖ N(0, σ_p²)) of each particle, `[n]` in f64, for μ and σ `[n, P]`.
fn divergence(mean: &Tensor, deviations: &Tensor, prior: f64) -> Tensor {
    let of = |t: &Tensor| t.to_kind(Kind::Double) / prior;
    let (mean, ratio) = (of(mean), of(deviations));
    let each = (mean.square() + ratio.square() - 1.0) * 0.5 - ratio.log();
    each.sum_dim_intlist([1i64].as_slice(), false, Kind::Double)
}

impl Method for Bbb {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let deviations = self.deviations();
        let sums = self.sample(theta, &deviations, objective)?;
        let gradients = self.gradients(theta, &deviations, &sums);
        let prior = 1.0 / (self.spec.ess * self.spec.weight_decay).sqrt();
        let kl = divergence(theta, &deviations, prior).mean(Kind::Double) / self.spec.ess;
        let mut both = Tensor::cat(&[&*theta, &self.rho], 1);
        self.optimizer.step(&mut both, &gradients, factor);
        let parameters = theta.size()[1];
        theta.copy_(&both.narrow(1, 0, parameters));
        self.rho.copy_(&both.narrow(1, parameters, parameters));
        self.steps += 1;
        let diagnostics = Tensor::stack(&[deviations.mean(Kind::Double), kl], 0);
        Ok(Step { losses: sums.losses, diagnostics: Some(diagnostics) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        &["mean_posterior_std", "kl_per_image"]
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        Posterior::Gaussians { mean: theta.shallow_clone(), std: self.deviations() }
    }

    fn save(&self, state: &mut State) {
        self.optimizer.save(state);
        state.put("bbb.rho", &self.rho);
        state.put_count("bbb.steps", self.steps);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.optimizer.load(state)?;
        state.copy_into("bbb.rho", &mut self.rho)?;
        self.steps = state.count("bbb.steps")?;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
