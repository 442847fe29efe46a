//! `[method.vogn]`: variational online Gauss-Newton (Khan et al. 2018, arXiv 1806.04854; Osawa et al. 2019, arXiv 1906.02506,
//! equation 3). The posterior of each particle is a Gaussian with mean m (a row of theta) and standard deviations σ. Training
//! follows the gradient at noisy weights m + σ ε, and measures curvature by the squared gradients of single images.
//!
//! | symbol | here |
//! |---|---|
//! | N, the number of training images | `ess` |
//! | δ (weight decay) | `weight_decay`; the prior's precision is N δ |
//! | s_0, s | `hess_init`, `hessian` |
//! | γ, the damping | `damping` |
//! | g, β_1, β_2 | `momentum`, `beta1`, `beta2` |
//! | σ = 1 / √(N (s + δ + γ)) | `Vogn::deviations` |
//! | s ← β_2 s + (1 − β_2) mean_i ĝ_i² | ĝ_i the gradient of image i |
//! | g ← β_1 g + (1 − β_1) ĝ, ḡ = g / (1 − β_1ᵗ) | ĝ the mean of the ĝ_i |
//! | m ← m − α (ḡ + δ m) / (s + δ + γ) | with the new s |
//!
//! The gradient of a single image needs a copy of the particle and of its gradient for that image: a step of a batch of B images
//! takes the time of B particles' backward passes through the trained layers, in chunks that fit in memory. IVON with
//! `estimator = "gradsq"` squares the gradient of the mean instead, which is cheap and depends on the batch size.
//!
//! Differs from the authors' code (pytorch-sso): there g also averages the prior's gradient δ m, and is not divided by 1 − β_1ᵗ, so
//! that the first step is 1 − β_1 of the one here; δ enters the damping as a running mean from 0 on; γ is 10⁻⁷ unless set, and the
//! weight of the prior and the noise rise over the first 1,000 steps. Without momentum the steps are the same.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::methods::{
    Entry, Evaluation, Extended, Extra, Method, MethodSpec, Objective, Particles, Parts, Request, RowsAre, Step,
    Update, Variant, spec,
};
use crate::optimizers::correction;
use crate::posterior::{Posterior, Predictive};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "vogn",
    about: "variational online Gauss-Newton: one Gaussian per particle, its curvature from gradients of single images (its own optimizer)",
    paper: "VOGN",
    update: Update::Own,
    rows: RowsAre::Gaussians,
    particles: Particles::Any,
    bench: &[Variant { key: "vogn", sets: &["lr=1e-3", "ess=1e6"], asks_for_mixing: false }],
    names: &[("full", "VOGN"), ("low-rank", "Low-rank VOGN")],
    names_of_many: &[("full", "Multi-VOGN"), ("low-rank", "Low-rank Multi-VOGN")],
    read: |reader, _| Box::new(Spec::read(reader)),
};

settings! {
    #[derive(Clone, Debug)]
    struct Spec {
        particles: i64, by spec::particles;
        /// Learning rate.
        lr: f64, in above(0.0);
        /// Effective sample size: the number of training images, or more for a cold posterior.
        ess: f64, in above(0.0),
            because "the effective sample size: the number of training images, or more for a cold posterior";
        /// Initial value of the Hessian.
        hess_init: f64 = 1.0, in above(0.0);
        beta1: f64, by crate::optimizers::beta1;
        /// Decay of the Hessian's running mean.
        beta2: f64 = 0.999, in from_below(0.0, 1.0);
        /// Weight decay: the prior's precision over the effective sample size.
        weight_decay: f64 = 1e-4, in above(0.0);
        /// Number added to the Hessian, in the step and in the variance.
        damping: f64 = 0.0, in at_least(0.0);
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
        Box::new(Vogn::new(self.clone(), &parts.theta, Noise::new(parts.seed, Purpose::Noise)))
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn narrowed_by(&self) -> &'static str {
        "raise method.vogn.hess_init, method.vogn.damping or method.vogn.ess"
    }

    /// The running means of the gradient and of the Hessian.
    fn kept_matrices(&self) -> u64 {
        2
    }

    /// The deviations, the noisy weights, the gradients, the squares, and the sums of both.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        6
    }

    fn squares_images(&self) -> bool {
        true
    }

    fn gradients_of_a_step(&self) -> u64 {
        self.mc_samples as u64
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2
    }
}

struct Vogn {
    spec: Spec,
    noise: Noise,
    /// g, `[n, P]`.
    momentum: Tensor,
    /// s, `[n, P]`.
    hessian: Tensor,
    steps: i64,
}

impl Vogn {
    fn new(spec: Spec, theta: &Tensor, noise: Noise) -> Vogn {
        let (momentum, hessian) = (theta.zeros_like(), theta.full_like(spec.hess_init));
        Vogn { spec, noise, momentum, hessian, steps: 0 }
    }

    /// Returns s + δ + γ, `[n, P]`.
    fn precision(&self) -> Tensor {
        &self.hessian + (self.spec.weight_decay + self.spec.damping)
    }

    /// Returns σ, `[n, P]`.
    fn deviations(&self) -> Tensor {
        (self.precision() * self.spec.ess).rsqrt()
    }

    /// Averages gradients and squares at `mc_samples` noisy weights. Each part of the batch has its own noise.
    fn sample(&self, theta: &Tensor, deviations: &Tensor, objective: &mut dyn Objective) -> Result<Extended> {
        let samples = self.spec.mc_samples;
        let mut sums = Extended { own: Evaluation::zero(theta), extra: theta.zeros_like() };
        for at in At::of_step(self.steps, samples, objective.parts()) {
            let noisy = self.noise.draw(at, theta).g_mul_(deviations).g_add_(theta);
            let request = Request::losses(&noisy).on_part(at.part as usize).with(Extra::Squares);
            let found = objective.evaluate(&request)?.extended()?;
            sums.own.losses += found.own.losses / samples as f64;
            sums.own.gradients += found.own.gradients / samples as f64;
            sums.extra += found.extra / samples as f64;
        }
        Ok(sums)
    }
}

impl Method for Vogn {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let Spec { lr, beta1, beta2, weight_decay, .. } = self.spec;
        let deviations = self.deviations();
        let Extended { own, extra: squares } = self.sample(theta, &deviations, objective)?;
        self.steps += 1;
        self.hessian *= beta2;
        self.hessian += squares * (1.0 - beta2);
        self.momentum *= beta1;
        self.momentum += own.gradients * (1.0 - beta1);
        let debias = correction(beta1, self.steps);
        let direction = (&self.momentum / debias + &*theta * weight_decay) / self.precision();
        *theta -= direction * (lr * factor);
        let means = [deviations.mean(Kind::Double), self.hessian.mean(Kind::Double)];
        Ok(Step { losses: own.losses, diagnostics: Some(Tensor::stack(&means, 0)) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        &["mean_posterior_std", "mean_hessian"]
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        Posterior::Gaussians { mean: theta.shallow_clone(), std: self.deviations() }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.tensor("vogn.momentum", &mut self.momentum)?;
        keeper.tensor("vogn.hessian", &mut self.hessian)?;
        keeper.count("vogn.steps", &mut self.steps)
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::methods::Answer;
    use crate::methods::doubles::given;

    /// L_i = Σ a (θ − x_i)⁴ / 4 for two images.
    struct Images;

    fn row(values: [f64; 3]) -> Tensor {
        Tensor::from_slice(&values).view([1, 3])
    }

    /// Returns the particles of a request for squared gradients.
    fn squared<'a>(request: &Request<'a>) -> Result<&'a Tensor> {
        match request.extra {
            Extra::Squares => Ok(request.theta),
            _ => Err(request.refused("squares are asked for")),
        }
    }

    impl Objective for Images {
        fn evaluate(&mut self, request: &Request) -> Result<Answer> {
            let theta = squared(request)?;
            let cube = |x: [f64; 3]| (theta - row(x)).pow_tensor_scalar(3.0) * row([1.0, 0.5, 2.0]);
            let (first, second) = (cube([1.0, -2.0, 0.5]), cube([0.3, 0.4, -0.2]));
            let losses = Tensor::zeros([1], (Kind::Double, Device::Cpu));
            let own = Evaluation { losses, gradients: (&first + &second) / 2.0 };
            Ok(Extended { own, extra: (first.square() + second.square()) / 2.0 }.into())
        }
    }

    /// ```python
    /// import numpy as np
    /// X = np.array([[1.0, -2.0, .5], [.3, .4, -.2]]); a = np.array([1.0, .5, 2.0])
    /// m = np.array([.1, .2, -.3]); g = np.zeros(3); s = np.full(3, .5)
    /// N, d, gam, b1, b2, lr = 100., .01, .1, .9, .95, .1
    /// for t, e in enumerate([[.5, -1.0, .25], [-.75, .1, 1.5], [1.2, .4, -.6]], 1):
    ///     w = m + np.array(e) / np.sqrt(N * (s + d + gam))
    ///     gi = a * (w - X) ** 3
    ///     s = b2 * s + (1 - b2) * (gi ** 2).mean(0)
    ///     g = b1 * g + (1 - b1) * gi.mean(0)
    ///     m = m - lr * (g / (1 - b1 ** t) + d * m) / (s + d + gam)
    /// print(m.tolist(), s.tolist())
    /// ```
    #[test]
    fn three_steps_are_those_of_the_formula() {
        let spec = Spec {
            particles: 1,
            lr: 0.1,
            ess: 100.0,
            hess_init: 0.5,
            beta1: 0.9,
            beta2: 0.95,
            weight_decay: 0.01,
            damping: 0.1,
            mc_samples: 1,
            samples: 8,
        };
        let noise = given(vec![row([0.5, -1.0, 0.25]), row([-0.75, 0.1, 1.5]), row([1.2, 0.4, -0.6])]);
        let mut theta = row([0.1, 0.2, -0.3]);
        let mut vogn = Vogn::new(spec, &theta, noise);
        for _ in 0..3 {
            vogn.step(&mut theta, &mut Images, 1.0).unwrap();
        }
        let near = |found: &Tensor, expected: [f64; 3]| near(found, &row(expected), 1e-12);
        near(&theta, MEAN);
        near(&vogn.hessian, HESSIAN);
    }

    const MEAN: [f64; 3] = [0.2603660027813958, -0.2684900019047242, -0.11486738321098555];
    const HESSIAN: [f64; 3] = [0.4552354758957183, 1.5375264206722021, 0.46756669657266203];

    /// Cross-entropy of a linear layer `[4, 3]`, the gradient of each image by hand.
    struct Classes {
        x: Tensor,
        labels: Tensor,
    }

    impl Objective for Classes {
        fn evaluate(&mut self, request: &Request) -> Result<Answer> {
            let theta = squared(request)?;
            let truth = self.labels.to_kind(Kind::Int64).one_hot(4).to_kind(Kind::Double);
            let errors = self.x.matmul(&theta.view([4, 3]).tr()).softmax(-1, Kind::Double) - truth;
            let gradients = errors.unsqueeze(2) * self.x.unsqueeze(1);
            let mean = |each: Tensor| each.mean_dim([0i64].as_slice(), false, Kind::Double).view([1, 12]);
            let losses = Tensor::zeros([1], (Kind::Double, Device::Cpu));
            Ok(Extended { extra: mean(gradients.square()), own: Evaluation { losses, gradients: mean(gradients) } }
                .into())
        }
    }

    /// Runs the steps of `case` in tests/fixtures/authors/vogn.json and returns theta and the deviations after each.
    fn authors(golden: &Golden, case: &str, beta1: f64) -> Vec<(Tensor, Tensor)> {
        let spec = Spec {
            particles: 1,
            lr: golden.number("lr"),
            ess: golden.number("ess"),
            // Their damping and their share of the prior enter the running mean from 0 on, and the precision starts as a whole.
            hess_init: golden.number("precision") - golden.number("weight_decay"),
            beta1,
            beta2: 1.0 - golden.number("decay"),
            weight_decay: golden.number("weight_decay"),
            damping: golden.number("damping"),
            mc_samples: 1,
            samples: 8,
        };
        let tensor = |name: &str| golden.tensor(&format!("{case}/{name}"));
        let noise = tensor("noise");
        let draws = (0..noise.size()[0]).map(|step| noise.get(step).view([1, 12])).collect();
        let mut theta = tensor("start").view([1, 12]);
        let mut vogn = Vogn::new(spec, &theta, given(draws));
        let mut objective = Classes { x: tensor("x"), labels: tensor("labels") };
        let steps = 0..noise.size()[0];
        steps
            .map(|_| {
                vogn.step(&mut theta, &mut objective, 1.0).unwrap();
                (theta.copy(), vogn.deviations())
            })
            .collect()
    }

    #[test]
    fn steps_without_momentum_are_those_of_the_authors_code() {
        let golden = Golden::of_authors("vogn");
        let (means, stds) =
            (golden.tensor("plain/means").view([5, 1, 12]), golden.tensor("plain/stds").view([5, 1, 12]));
        for (step, (mean, std)) in authors(&golden, "plain", 0.0).into_iter().enumerate() {
            near(&mean, &means.get(step as i64), 1e-13);
            near(&std, &stds.get(step as i64), 1e-13);
        }
    }

    /// Theirs starts the running mean of gradients, the prior's among them, at 0 without a correction: its first step is a tenth.
    #[test]
    fn momentum_is_corrected_where_the_authors_code_does_not() {
        let golden = Golden::of_authors("vogn");
        let (start, mean) = (golden.tensor("running_mean/start"), golden.tensor("running_mean/means/0"));
        let decay = golden.number("gradient_decay");
        let (own, _) = authors(&golden, "running_mean", 1.0 - decay).remove(0);
        let start = start.view([1, 12]);
        near(&(own - &start), &((mean.view([1, 12]) - &start) / decay), 1e-13);
    }
}
