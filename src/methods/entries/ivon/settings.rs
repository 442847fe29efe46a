//! The table `[method.ivon]`.

use serde::Serialize;

use crate::methods::keys;
use crate::optimizers;
use crate::schema::{Bounds, Reader, words};

words! {
    /// The estimate of the curvature.
    pub enum Estimator {
        /// Price's theorem: gradients times the noise they were taken at.
        Price = "price",
        /// Squared gradients.
        Gradsq = "gradsq",
    }
}

#[derive(Serialize, Clone, Debug)]
pub struct Spec {
    pub particles: i64,
    /// The learning rate: one for all particles, or one per particle.
    pub lr: Vec<f64>,
    pub ess: f64,
    pub hess_init: f64,
    pub beta1: f64,
    pub beta2: f64,
    pub weight_decay: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_radius: Option<f64>,
    pub rescale_lr: bool,
    pub debias: bool,
    pub estimator: Estimator,
    /// The number of noisy weights per training step.
    pub mc_samples: i64,
    /// The number of draws per particle that predict after training.
    pub samples: usize,
}

impl Spec {
    pub fn read(reader: &Reader) -> Spec {
        let spec = Spec {
            particles: keys::gaussians(reader),
            lr: optimizers::keys::rates(reader),
            ess: reader
                .float("ess", Bounds::above(0.0))
                .about("Effective sample size λ: the number of training images, or more for a cold posterior.")
                .required_because(
                    "the effective sample size λ: the number of training images, or more for a cold posterior",
                ),
            hess_init: reader.float("hess_init", Bounds::above(0.0)).about("Initial value of the Hessian.").or(1.0),
            beta1: optimizers::keys::beta1(reader),
            beta2: reader
                .float("beta2", Bounds::from_below(0.0, 1.0))
                .about("Decay of the Hessian's running mean.")
                .or(0.99999),
            weight_decay: reader
                .float("weight_decay", Bounds::at_least(0.0))
                .about("Weight decay δ: the prior's precision is λ δ.")
                .or(1e-4),
            clip_radius: reader
                .float("clip_radius", Bounds::above(0.0))
                .about("Largest change of a parameter in a step, before the learning rate.")
                .optional(),
            rescale_lr: reader
                .boolean("rescale_lr")
                .about("Whether the learning rate is multiplied by hess_init + weight_decay.")
                .or(true),
            debias: reader
                .boolean("debias")
                .about("Whether the running mean of the gradient is divided by 1 − β₁ᵗ.")
                .or(true),
            estimator: reader
                .choice("estimator")
                .about("Estimate of the curvature: from gradients times noise, or from squared gradients.")
                .or(Estimator::Price),
            mc_samples: reader.count("mc_samples", 1..=10_000).about("Noisy weights per training step.").or(1) as i64,
            samples: reader
                .count("samples", 1..=100_000)
                .about("Draws per particle that predict after training.")
                .or(8),
        };
        spec.check(reader);
        spec
    }

    fn check(&self, reader: &Reader) {
        if self.lr.len() > 1 && self.lr.len() as i64 != self.particles {
            let why = format!(
                "has {} learning rates for {} particles: give one, or one per particle",
                self.lr.len(),
                self.particles
            );
            reader.problem("lr", why);
        }
    }
}
