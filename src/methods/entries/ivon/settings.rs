//! The table `[method.ivon]`.

use crate::methods::gaussians;
use crate::optimizers;
use crate::schema::{Reader, settings, words};

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
        pub particles: i64, by gaussians::particles;
        /// Learning rate, or one per particle.
        pub lr: Vec<f64>, in above(0.0);
        /// Effective sample size λ: the number of training images, or more for a cold posterior.
        pub ess: f64, in above(0.0),
            because "the effective sample size λ: the number of training images, or more for a cold posterior";
        /// Initial value of the Hessian.
        pub hess_init: f64 = 1.0, in above(0.0);
        pub beta1: f64, by optimizers::moments::beta1;
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
        pub mc_samples: i64, by gaussians::mc_samples;
        pub samples: usize, by gaussians::samples;
    } then check
}

impl Spec {
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
