//! `[method.blob]`: BLoB, Bayesian low-rank adaptation by backpropagation (Wang et al. 2024, arXiv 2406.11675): the factor A of
//! every low-rank update is Gaussian, mean and variance are trained together, B and all other columns are points.
//!
//! | symbol | here |
//! |---|---|
//! | q(A) = N(M, Ω²), Ω = G² | M in theta; G starts at U(ε/√2, ε), ε is `init` |
//! | prior N(0, β²) on A alone | β is `prior_std` |
//! | ∇_M, ∇_B, ∇_G = 2 G E ∘ ∇_(Ω E) | gradients of the mean loss at A = M + Ω E; M and B by the optimizer, G by Adam with `std_lr` |
//! | KL = Σ ln(β / Ω) + (Ω² + M²) / (2 β²) − ½ | [`divergence`] |
//! | M ← M − η π_i M / β², G ← G − η π_i (2 G³ / β² − 2 / G) | its gradient step after that; η is `kl_lr` |
//! | π_i = 2^i / (2^(m+1) − 1), i = 1 … m, and again from 1 | m is `cycle` |
//!
//! With `flipout` each image sees Ω E ∘ (q rᵀ) with random signs q and r of its own, so that the images' gradients are less
//! correlated; without it all images of a part of a batch see Ω E itself. E is drawn once for each part.
//!
//! Differences from the authors' code: signs are drawn for each image, as the paper says, where the code draws them for each
//! token. The KL divergence is exact, there 10⁻⁶ is added in both logarithms and to 2 β². Their optimizer is made before G exists:
//! there G follows its gradient of the loss with the rate `kl_lr`, here by Adam, as the paper's gradient step has it. Their AdamW for
//! M and B has eps = 10⁻⁶, and `kl_lr` is 0.02 in the parser, 0.01 (Llama) and 0.002 (RoBERTa) in the published scripts.

use anyhow::{Result, bail};
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::methods::{
    Entry, Evaluation, Extended, Extra, FactorNoise, Method, MethodContext, MethodSpec, Objective, Particles, Parts,
    Request, RowsAre, Step, Update, Variant, advised, spec,
};
use crate::optimizers::{Optimizer, adam};
use crate::posterior::{Posterior, Predictive};
use crate::schema::{Reader, settings};

pub static ENTRY: Entry = Entry {
    key: "blob",
    about: "low-rank updates with a Gaussian factor A, mean and variance trained by backpropagation (BLoB)",
    paper: "BLoB",
    update: Update::Optimizer,
    rows: RowsAre::Gaussians,
    particles: Particles::Any,
    bench: &[Variant { key: "blob", sets: &["cycle=100"], asks_for_mixing: false }],
    names: &[("low-rank", "BLoB")],
    names_of_many: &[("low-rank", "Multi-BLoB")],
    read: |reader, context| Box::new(Spec::read(reader, context)),
};

settings! {
    #[derive(Clone, Debug)]
    pub struct Spec(context: &MethodContext) {
        pub particles: i64, by spec::particles;
        /// Learning rate of Adam for the roots G of the standard deviations.
        pub std_lr: f64 = 1e-4, in above(0.0);
        /// Learning rate of the gradient step on the KL divergence.
        pub kl_lr: f64 = 0.02, in at_least(0.0);
        /// Standard deviation β of the prior on the factors A.
        pub prior_std: f64 = 0.2, in above(0.0);
        /// Largest start ε of the roots of the standard deviations.
        pub init: f64 = 0.05, in above(0.0);
        pub cycle: Option<i64>, by |reader| spec::cycle(reader, kl_lr);
        /// Whether each image sees the noise with random signs of its own.
        pub flipout: bool = true;
        pub samples: usize, by |reader| spec::samples(reader, 10);
    } then check
}

impl Spec {
    fn check(&self, reader: &Reader, context: &MethodContext) {
        if context.is_not("low-rank") {
            reader.problem("particles", "the factor A of low-rank updates is Gaussian: write [subspace.low-rank]");
        }
        // The lengths of the rows would be those without the noise, and a draw has them with it.
        if let Some(setting) = context.scaled_by.filter(|_| self.flipout) {
            reader.problem("flipout", format!("{setting} divides by the lengths of the drawn rows, which are the same for all images: set flipout = false"));
        }
        spec::check_divergence(reader, self.kl_lr, &["prior_std", "cycle"]);
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
        Box::new(Blob::new(self.clone(), parts))
    }

    fn predictive(&self) -> Predictive {
        Predictive::Draws(self.samples)
    }

    fn narrowed_by(&self) -> &'static str {
        "lower method.blob.init"
    }

    /// G and the two moments of Adam.
    fn kept_matrices(&self) -> u64 {
        3
    }

    fn keeps_activations(&self) -> Option<&'static str> {
        self.flipout.then_some("with flipout takes gradients by the noise of each image, which need the graph")
    }

    /// The noise of Flipout is in the factors.
    fn asks_for_extras(&self) -> bool {
        self.flipout
    }

    /// The noise, the noisy factors in theta, the gradients by both, and the sums of two of them.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        7
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2
    }
}

struct Blob {
    spec: Spec,
    parts: Parts,
    noise: Noise,
    steps: i64,
    /// The first column and the length of each factor A.
    columns: Vec<(i64, i64)>,
    /// G, `[n, K]` for the K columns of all factors A.
    roots: Tensor,
    /// Adam for G.
    adam: Box<dyn Optimizer>,
}

impl Blob {
    fn new(spec: Spec, parts: Parts) -> Blob {
        let updates = parts.geometry.updates();
        let columns: Vec<(i64, i64)> =
            updates.iter().map(|update| (update.start, update.rank * update.inputs)).collect();
        let noise = Noise::new(parts.seed, Purpose::Noise);
        let roots = spec::spread_at_start(&noise, &take(&columns, &parts.theta), spec.init);
        let adam = adam(&[spec.std_lr], &roots);
        Blob { spec, parts, noise, steps: 0, columns, roots, adam }
    }

    /// Returns the gradients on a part of the batch with the noise Ω E, `[n, P]`, and those with respect to the noise.
    fn at(&self, theta: &Tensor, noise: &Tensor, objective: &mut dyn Objective, part: usize) -> Result<Extended> {
        if self.spec.flipout {
            let noise = FactorNoise { noise, seed: self.parts.seed, step: self.steps };
            let request = Request::losses(theta).on_part(part).with(Extra::Noise(noise));
            let advice = "set method.blob.flipout = false";
            return objective.evaluate(&request).map_err(|error| advised(error, advice))?.extended();
        }
        let own = objective.losses_of_part(&(theta + noise), part)?;
        let extra = own.gradients.shallow_clone();
        Ok(Extended { own, extra })
    }

    /// Follows the gradient of the KL divergence.
    fn pull(&mut self, theta: &Tensor, factor: f64) {
        let rate = spec::divergence_rate(self.spec.kl_lr * factor, self.spec.cycle, self.steps);
        let precision = self.spec.prior_std.powi(-2);
        for (start, length) in &self.columns {
            let _ = theta.narrow(1, *start, *length).g_mul_scalar_(1.0 - rate * precision);
        }
        let by_root = self.roots.pow_tensor_scalar(3) * (2.0 * precision) - self.roots.reciprocal() * 2.0;
        self.roots -= by_root * rate;
    }
}

/// Returns the given columns of a matrix `[n, P]` side by side, `[n, K]`.
fn take(columns: &[(i64, i64)], matrix: &Tensor) -> Tensor {
    Tensor::cat(&columns.iter().map(|(start, length)| matrix.narrow(1, *start, *length)).collect::<Vec<_>>(), 1)
}

/// Returns `[n, P]` in the shape of `like` with `[n, K]` in the given columns and 0 elsewhere.
fn spread(columns: &[(i64, i64)], values: &Tensor, like: &Tensor) -> Tensor {
    let (all, mut done) = (like.zeros_like(), 0);
    for (start, length) in columns {
        all.narrow(1, *start, *length).copy_(&values.narrow(1, done, *length));
        done += length;
    }
    all
}

impl Method for Blob {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let std = self.roots.square();
        let mut sums: Option<(Tensor, Tensor, Tensor)> = None;
        for at in At::of_step(self.steps, 1, objective.parts()) {
            let noise = self.noise.draw(at, &self.roots);
            let moved = spread(&self.columns, &(&std * &noise), theta);
            let found = self.at(theta, &moved, objective, at.part as usize)?;
            let Evaluation { losses, gradients } = found.own;
            let products = take(&self.columns, &found.extra) * noise;
            sums = Some(match sums {
                None => (losses, gradients, products),
                Some((l, g, p)) => (l + losses, g + gradients, p + products),
            });
        }
        let Some((losses, gradients, products)) = sums else { bail!("blob: a step without a part of the batch") };
        self.parts.apply(theta, &gradients, objective, factor)?;
        let by_root = products * &self.roots * 2.0;
        self.adam.step(&mut self.roots, &by_root, factor);
        self.pull(theta, factor);
        self.steps += 1;
        let std = self.roots.square();
        let divergence = spec::divergence(&take(&self.columns, theta), &std, self.spec.prior_std).mean(Kind::Double);
        let diagnostics = Tensor::stack(&[divergence, std.mean(Kind::Double)], 0);
        Ok(Step { losses, diagnostics: Some(diagnostics) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        &["kl_divergence", "mean_posterior_std"]
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        let std = spread(&self.columns, &self.roots.square(), theta);
        Posterior::Gaussians { mean: theta.shallow_clone(), std }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)?;
        // The optimizer of theta may be Adam, too, whose tensors have the same names.
        keeper.below("blob.", |keeper| self.adam.keep(keeper))?;
        keeper.tensor("blob.roots", &mut self.roots)?;
        keeper.count("blob.steps", &mut self.steps)
    }
}

#[cfg(test)]
mod tests;
