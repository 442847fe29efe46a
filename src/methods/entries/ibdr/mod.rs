//! `[method.ibdr]`: Interactive Bayesian Distributional Robustness (Pham et al., ICML 2025): n Gaussians whose draws are
//! trained at nearby worst cases, and whose predictions of the wrong classes are kept apart.
//!
//! | symbol | here |
//! |---|---|
//! | K, μ_i, σ; θ_i = μ_i + σ ε_i | `particles`, a row of theta, `std` |
//! | α, β, ρ | `diversity`, `kl_weight`, `radius` |
//! | α_1 and the number of ascents | `ascent_lr`, `ascent_steps` |
//! | λ at the start, α_λ | `lambda`, `lambda_lr` |
//! | l_div = det G, the squared volume of [`crate::methods::diversity`] | [`Volume::Squared`] |
//! | J(θ) = (1/K) Σ_i L(θ_i) − α mean_x l_div(θ_1..K; x, y) | `Ibdr::look` |
//! | θ' ← θ' + α_1 [K ∇J(θ') − 2 λ (θ' − θ)], from θ' = θ | `Ibdr::ascend` |
//! | λ ← max(0, λ − α_λ [ρ − (1/K) Σ_i ‖θ'_i − θ_i‖²]) | `Ibdr::update_lambda` |
//! | K ∇J(θ') + 2 β μ | handed to the optimizer as the gradient of μ |
//!
//! This is Algorithm 1 with the objective of Theorem 4.1, times K, and the prior N(0, I). Differences from the paper: the
//! printed objective adds α l_div, which for α > 0 would make particles alike; here, as its text says, diversity grows.
//! With one ascent from θ' = θ the gradient of the cost is 0, so that λ has no effect on the particles; more ascents feel
//! it. σ stays as it is, as in Algorithm 1, so the term d (σ − log σ) is a constant.
//!
//! `variant = "released"` is the authors' code instead: the cross-entropy of the mean logits, minus α log det(G + 1e-7 I);
//! θ' = θ + g / (2 λ) (`cost = "euclidean"`), or the maximiser g / (2 λ (g² + damping)) of the cost with the diagonal
//! empirical Fisher matrix, which is undamped there; λ ← clamp(λ − α_λ (bound − D), 0.5, 5) with D = e^(max(0, r − bound) / 0.01) r,
//! where r is the distance of the mean logits' probabilities at θ and θ': L2, or half the symmetrised KL divergence for
//! the Fisher cost. The gradient of the ascent is limited to a norm of `ascent_clip_norm` over all particles; the one that the
//! optimizer gets is not. α_λ follows the schedule of the learning rate, as theirs is the optimizer's current rate.

mod settings;

use anyhow::{Result, ensure};
use tch::{Kind, Tensor, with_grad};

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::base::tensor::label_log_probabilities;
use crate::methods::diversity::{Diversity, Volume, diversity};
use crate::methods::{
    Entry, Method, MethodSpec, Objective, Output, Outputs, Particles, Parts, RowsAre, Step, Update, Variant,
};
use crate::optimizers::clip_rows;
use crate::posterior::Posterior;
use settings::{Cost, Form, Paper, Released, Rule, Spec};

pub static ENTRY: Entry = Entry {
    key: "ibdr",
    about: "Gaussians trained at nearby worst cases, with diverse predictions of the wrong classes (IBDR)",
    paper: "IBDR",
    update: Update::Optimizer,
    rows: RowsAre::Gaussians,
    particles: Particles::Any,
    bench: &[
        Variant { key: "ibdr", sets: &["std=0.01"], asks_for_mixing: true },
        Variant { key: "ibdr-released", sets: &["variant=released", "std=0.001"], asks_for_mixing: true },
    ],
    names: &[("full", "IBDR"), ("low-rank", "Low-rank IBDR")],
    names_of_many: &[],
    read: |reader, _| Box::new(Spec::read(reader)),
};

impl MethodSpec for Spec {
    fn particles(&self) -> i64 {
        self.particles
    }

    fn has_independent_columns(&self) -> bool {
        self.std > 0.0
    }

    fn needs_classes(&self) -> bool {
        true
    }

    fn has_own_loss(&self) -> bool {
        true
    }

    fn narrowed_by(&self) -> &'static str {
        "lower method.ibdr.std"
    }

    fn noise_left_out(&self) -> Option<&'static str> {
        (self.std == 0.0).then_some("method.ibdr.std above 0")
    }

    fn build(&self, parts: Parts) -> Box<dyn Method> {
        Box::new(Ibdr::new(self.clone(), parts))
    }

    fn check_classes(&self, classes: i64) -> Result<()> {
        let most = classes - 1;
        ensure!(
            self.particles <= most,
            "method.ibdr.particles = {}: the diversity of {classes} classes is the volume of vectors of {most} numbers, and \
             more than {most} of them span none: use at most {most} particles, or [method.svgd]",
            self.particles
        );
        Ok(())
    }

    fn needs_shared_batches(&self) -> bool {
        true
    }

    /// The draws, the worst cases, the gradients at them, and the noise.
    fn matrices_of_a_step(&self, _: usize) -> u64 {
        4
    }

    fn matrices_of_the_posterior(&self) -> u64 {
        2
    }

    /// One for each ascent, and one at the worst case.
    fn gradients_of_a_step(&self) -> u64 {
        match self.rule {
            Rule::Paper(Paper { ascent_steps, .. }) => 1 + ascent_steps as u64,
            Rule::Released(_) => 2,
        }
    }
}

/// The objective at some particles.
struct Look {
    /// The cross-entropy of each particle, `[n]`.
    losses: Tensor,
    /// The mean of the volumes over the batch, in f64.
    volume: Tensor,
    /// The gradient with respect to the logits, `[n, B, C]`.
    by_logits: Tensor,
    /// The mean logits, `[B, C]`.
    mean_logits: Tensor,
}

/// Particles, and what the logits there say.
struct Seen {
    /// The particles, `[n, P]`.
    theta: Tensor,
    look: Look,
}

pub struct Ibdr {
    spec: Spec,
    parts: Parts,
    noise: Noise,
    steps: i64,
    /// λ, a number in f64.
    lambda: Tensor,
}

impl Ibdr {
    fn new(spec: Spec, parts: Parts) -> Ibdr {
        let noise = Noise::new(parts.seed, Purpose::Noise);
        let lambda = Tensor::from(spec.lambda).to_device(parts.theta.device());
        Ibdr { spec, parts, noise, steps: 0, lambda }
    }

    /// Evaluates the objective, times n in the paper's form, and its gradient with respect to the logits.
    fn look(&self, outputs: &Outputs) -> Result<Look> {
        let logits = outputs.values.detach().set_requires_grad(true);
        let (images, kind) = (logits.size()[1] as f64, logits.kind());
        let mean_over_images = |values: Tensor| values.mean_dim([-1i64].as_slice(), false, kind);
        let losses = with_grad(|| mean_over_images(-label_log_probabilities(&logits, &outputs.labels, kind)));
        let mean_logits = with_grad(|| logits.mean_dim([0i64].as_slice(), false, kind));
        let labels = outputs.labels.get(0);
        let (root, volume, scale) = match self.spec.variant {
            Form::Paper => (with_grad(|| losses.sum(kind)), Volume::Squared, self.spec.particles as f64),
            Form::Released => {
                let of_mean = || mean_over_images(-label_log_probabilities(&mean_logits, &labels, kind));
                (with_grad(of_mean), Volume::Log { epsilon: 1e-7 }, 1.0)
            }
        };
        let by_logits = Tensor::f_run_backward(&[root], &[&logits], false, false)?.swap_remove(0);
        let Diversity { values, by_logits: by_volume } = diversity(&logits, &labels, volume)?;
        let weight = self.spec.diversity * scale / images;
        Ok(Look {
            losses: losses.detach(),
            volume: values.mean(Kind::Double),
            by_logits: by_logits - (by_volume * weight).to_kind(kind),
            mean_logits: mean_logits.detach(),
        })
    }

    /// Returns the worst cases near the draws `theta: [n, P]`, given the objective there.
    fn ascend(&self, theta: &Tensor, look: &Look, objective: &mut dyn Objective) -> Result<Tensor> {
        let lambda = self.lambda.to_kind(theta.kind());
        let gradients = objective.pull_back(theta, Output::Logits, &look.by_logits)?;
        match self.spec.rule {
            Rule::Paper(Paper { ascent_lr, ascent_steps, .. }) => {
                let mut worst = theta + gradients * ascent_lr;
                for _ in 1..ascent_steps {
                    let look = self.look(&objective.outputs(&worst, Output::Logits)?)?;
                    let gradients = objective.pull_back(&worst, Output::Logits, &look.by_logits)?;
                    worst += (gradients - (&worst - theta) * (&lambda * 2.0)) * ascent_lr;
                }
                Ok(worst)
            }
            Rule::Released(Released { cost, damping, ascent_clip_norm, .. }) => {
                let gradients = clip_rows(&gradients.view([1, -1]), ascent_clip_norm).view_as(theta);
                Ok(theta
                    + match (cost, damping) {
                        (Cost::Fisher, Some(damping)) => &gradients / ((gradients.square() + damping) * (lambda * 2.0)),
                        _ => gradients / (lambda * 2.0),
                    })
            }
        }
    }

    /// Updates λ after an ascent with this transport cost, where the learning rates are multiplied by `factor`.
    fn update_lambda(&mut self, cost: &Tensor, factor: f64) {
        /// The limits of λ in the released code, and the scale on which it punishes a distance beyond the bound.
        const LIMITS: (f64, f64) = (0.5, 5.0);
        const SCALE: f64 = 0.01;
        let rate = self.spec.lambda_lr;
        self.lambda = match self.spec.rule {
            Rule::Paper(Paper { radius, .. }) => (&self.lambda + (cost - radius) * rate).clamp_min(0.0),
            Rule::Released(Released { bound, .. }) => {
                let moved = ((cost - bound).clamp_min(0.0) / SCALE).exp() * cost;
                (&self.lambda + (moved - bound) * (rate * factor)).clamp(LIMITS.0, LIMITS.1)
            }
        };
    }

    /// Returns how far the worst cases are from the draws, a number in f64.
    fn cost(&self, drawn: &Seen, worst: &Seen) -> Tensor {
        let last = [-1i64];
        match self.spec.rule {
            Rule::Paper(_) => (&worst.theta - &drawn.theta).square().sum(Kind::Double) / drawn.theta.size()[0] as f64,
            Rule::Released(Released { cost, .. }) => {
                let of = |look: &Look| look.mean_logits.log_softmax(-1, Kind::Double);
                let (p, q) = (of(&drawn.look), of(&worst.look));
                let distances = match cost {
                    Cost::Euclidean => (p.exp() - q.exp()).norm_scalaropt_dim(2.0, last, false),
                    // KL(p, q) + KL(q, p) = Σ (p − q) (log p − log q).
                    Cost::Fisher => {
                        ((p.exp() - q.exp()) * (&p - &q)).sum_dim_intlist(last.as_slice(), false, Kind::Double) / 2.0
                    }
                };
                distances.mean(Kind::Double)
            }
        }
    }
}

impl Method for Ibdr {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let drawn = match self.spec.std {
            0.0 => theta.shallow_clone(),
            std => self.noise.draw(At { step: self.steps, sample: 0, part: 0 }, theta) * std + &*theta,
        };
        self.steps += 1;
        let look = self.look(&objective.outputs(&drawn, Output::Logits)?)?;
        let worst = self.ascend(&drawn, &look, objective)?;
        let drawn = Seen { theta: drawn, look };
        let look = self.look(&objective.outputs(&worst, Output::Logits)?)?;
        let worst = Seen { theta: worst, look };
        let mut direction = objective.pull_back(&worst.theta, Output::Logits, &worst.look.by_logits)?;
        let cost = self.cost(&drawn, &worst);
        self.update_lambda(&cost, factor);
        if let Rule::Paper(Paper { kl_weight, .. }) = self.spec.rule {
            direction += &*theta * (2.0 * kl_weight);
        }
        drop(worst);
        let Seen { look: Look { volume, losses, .. }, .. } = drawn;
        self.parts.apply(theta, &direction, objective, factor)?;
        let diagnostics = Tensor::stack(&[&volume, &self.lambda, &cost], 0);
        Ok(Step { losses, diagnostics: Some(diagnostics) })
    }

    fn diagnostics(&self) -> &'static [&'static str] {
        match self.spec.variant {
            Form::Paper => &["squared_volume", "lambda", "transport_cost"],
            Form::Released => &["log_volume", "lambda", "transport_cost"],
        }
    }

    fn posterior(&self, theta: &Tensor) -> Posterior {
        match self.spec.std {
            0.0 => Posterior::Points { theta: theta.shallow_clone() },
            std => Posterior::Gaussians { mean: theta.shallow_clone(), std: theta.full_like(std) },
        }
    }

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.parts.optimizer.keep(keeper)?;
        keeper.count("ibdr.steps", &mut self.steps)?;
        keeper.tensor("ibdr.lambda", &mut self.lambda)
    }
}

#[cfg(test)]
mod tests;
