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

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::methods::{
    Entry, Evaluation, Method, MethodSpec, Objective, Particles, Parts, RowsAre, Step, Update, Variant, spec,
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
        ess: f64, by spec::ess;
        particles: i64, by spec::particles;
        /// Learning rate of Adam, for means and deviations.
        lr: f64, in above(0.0);
        /// Weight decay: the prior's precision over the effective sample size.
        weight_decay: f64 = 1e-4, in above(0.0);
        /// Temperature of the posterior: the factor of the KL divergence.
        temperature: f64 = 1.0, in above(0.0);
        // A reader without a config gives the sample size 0.
        /// Initial standard deviation; by default 1.5 / √ess.
        std_init: f64, unset 1.5 / ess.max(f64::MIN_POSITIVE).sqrt(), in above(0.0);
        mc_samples: i64, by spec::mc_samples;
        samples: usize, by |reader| spec::samples(reader, 8);
    }
}

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn has_independent_columns(&self) -> bool {
        true
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Bbb::new(self.clone(), &parts.theta, Noise::new(parts.seed, Purpose::Noise)))
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn narrowed_by(&self) -> &'static str {
        "lower method.bbb.std_init, or raise method.bbb.ess"
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
        let Evaluation { losses, gradients } = Evaluation::zero(theta);
        let mut sums = Sums { losses, gradients, products: theta.zeros_like() };
        for at in At::of_step(self.steps, samples, objective.parts()) {
            let noise = self.noise.draw(at, theta);
            let Evaluation { losses, gradients } =
                objective.losses_of_part(&(theta + deviations * &noise), at.part as usize)?;
            sums.losses += losses / samples as f64;
            sums.products += noise * &gradients / samples as f64;
            sums.gradients += gradients / samples as f64;
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

impl Method for Bbb {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let deviations = self.deviations();
        let sums = self.sample(theta, &deviations, objective)?;
        let gradients = self.gradients(theta, &deviations, &sums);
        let prior = 1.0 / (self.spec.ess * self.spec.weight_decay).sqrt();
        let kl = spec::divergence(theta, &deviations, prior).mean(Kind::Double) / self.spec.ess;
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

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.optimizer.keep(keeper)?;
        keeper.tensor("bbb.rho", &mut self.rho)?;
        keeper.count("bbb.steps", &mut self.steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::methods::doubles::{Layers, given};

    /// Three steps of bayesian-torch's layer with torch's Adam (tests/fixtures/authors/bbb.json).
    #[test]
    fn steps_are_those_of_bayesian_torch() {
        let golden = Golden::of_authors("bbb");
        let row = |name: &str, step: i64| golden.tensor(name).get(step).view([1, -1]);
        let spec = Spec {
            particles: 1,
            lr: golden.number("lr"),
            ess: golden.number("ess"),
            weight_decay: golden.number("weight_decay"),
            temperature: golden.number("temperature"),
            std_init: golden.number("rho").exp().ln_1p(),
            mc_samples: 1,
            samples: 8,
        };
        let mut theta = golden.tensor("start").view([1, -1]);
        let noise = given((0..3).map(|step| row("noise", step)).collect());
        let mut bbb = Bbb::new(spec, &theta, noise);
        let mut layer = Layers::of(&golden);
        for step in 0..3 {
            let diagnostics = bbb.step(&mut theta, &mut layer, 1.0).unwrap().diagnostics.unwrap();
            near(&(diagnostics.get(1) * golden.number("ess")), &golden.tensor("divergences").get(step), 1e-12);
            near(&theta, &row("means", step), 1e-12);
            near(&bbb.rho, &row("rhos", step), 1e-12);
        }
    }

    #[test]
    fn the_divergence_of_the_prior_from_itself_is_0() {
        let zero = Tensor::zeros([1, 3], tch::kind::DOUBLE_CPU);
        let kl = spec::divergence(&zero, &(&zero + 0.3), 0.3);
        assert!(kl.abs().double_value(&[0]) < 1e-12);
    }
}
