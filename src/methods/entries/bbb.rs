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

use crate::base::random::{At, Noise, Purpose};
use crate::base::tensor_file::State;
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
        samples: usize, by spec::samples;
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
mod tests {
    use super::*;
    use crate::methods::{Answer, Request};

    /// L = Σ a (θ − b)⁴.
    struct Quartic;

    fn row(values: [f64; 3]) -> Tensor {
        Tensor::from_slice(&values).view([1, 3])
    }

    impl Objective for Quartic {
        fn evaluate(&mut self, request: &Request) -> Result<Answer> {
            let (a, apart) = (row([1.0, 3.0, 0.5]), request.plain()? - row([0.3, 0.1, -0.2]));
            let losses = (&a * apart.square().square()).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
            Ok(Evaluation { losses, gradients: &a * apart.square() * &apart * 4.0 }.into())
        }
    }

    fn spec() -> Spec {
        Spec {
            particles: 1,
            lr: 0.1,
            ess: 50.0,
            weight_decay: 0.02,
            temperature: 0.7,
            // softplus(−1.5)
            std_init: 0.2014132779827524,
            mc_samples: 1,
            samples: 8,
        }
    }

    /// ```python
    /// import torch
    /// from torch.distributions import Normal, kl_divergence
    /// torch.set_default_dtype(torch.float64)
    /// N, delta, T = 50.0, 0.02, 0.7
    /// mu = torch.tensor([1.0, -2.0, 0.3], requires_grad=True)
    /// rho = torch.full((3,), -1.5, requires_grad=True)
    /// a = torch.tensor([1.0, 3.0, 0.5]); b = torch.tensor([0.3, 0.1, -0.2])
    /// eps = [torch.tensor([0.5, -1.0, 0.25]), torch.tensor([-0.75, 0.1, 1.5])]
    /// prior = Normal(0.0, 1 / (N * delta) ** 0.5)
    /// print(kl_divergence(Normal(mu, torch.nn.functional.softplus(rho)), prior).sum().item())
    /// o = torch.optim.Adam([mu, rho], lr=0.1)
    /// for e in eps:
    ///     o.zero_grad()
    ///     sigma = torch.nn.functional.softplus(rho)
    ///     w = mu + sigma * e
    ///     ((a * (w - b) ** 4).sum() + T / N * kl_divergence(Normal(mu, sigma), prior).sum()).backward()
    ///     o.step()
    /// print(mu.tolist(), rho.tolist())
    /// ```
    #[test]
    fn equals_autograd_and_adam_in_torch() {
        let mut theta = row([1.0, -2.0, 0.3]);
        let noise = Noise::Given(vec![row([0.5, -1.0, 0.25]), row([-0.75, 0.1, 1.5])]);
        let mut bbb = Bbb::new(spec(), &theta, noise);
        let kl = spec::divergence(&theta, &bbb.deviations(), 1.0).double_value(&[0]);
        assert!((kl - 5.913040080189635).abs() < 1e-9, "{kl}");
        for _ in 0..2 {
            bbb.step(&mut theta, &mut Quartic, 1.0).unwrap();
        }
        let near = |found: &Tensor, expected: [f64; 3]| {
            let difference = (found - row(expected)).abs().max().double_value(&[]);
            assert!(difference < 1e-9, "{difference:e}");
        };
        near(&theta, [0.8198703406721584, -1.803473607688516, 0.10261214093602034]);
        near(&bbb.rho, [-1.6382816966222815, -1.662483169590073, -1.6758174092462315]);
    }

    #[test]
    fn the_divergence_of_the_prior_from_itself_is_0() {
        let kl = spec::divergence(&row([0.0; 3]), &row([0.3; 3]), 0.3);
        assert!(kl.abs().double_value(&[0]) < 1e-12);
    }
}
