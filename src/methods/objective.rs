//! The loss of a step's batch as methods see it.

use anyhow::{Result, bail};
use tch::Tensor;

/// The loss and the gradient of every particle.
pub struct Evaluation {
    /// The mean minibatch loss of each particle, `[n]`.
    pub losses: Tensor,
    /// The gradient of each particle's own loss, `[n, P]`.
    pub gradients: Tensor,
}

/// The gradients of a part of the batch, and how its images differ in them.
pub struct Squared {
    /// The losses and gradients of the part, times its share of the batch.
    pub own: Evaluation,
    /// The sum over the images of the part of squared gradients of single images, over the size of the whole batch,
    /// `[n, P]`. Over all parts these add up to the mean of squared gradients.
    pub squares: Tensor,
}

/// The place of the random signs of a step: a source of noise, and where in it.
#[derive(Clone, Copy, Debug)]
pub struct Signs {
    pub seed: u64,
    pub step: i64,
}

/// The gradients of a part of the batch with noise in the factors A of low-rank updates, times its share of the batch.
pub struct Noisy {
    pub own: Evaluation,
    /// The gradients with respect to the noise, `[n, P]`.
    pub by_noise: Tensor,
}

/// Gradients mixed in weight space, and the particles' own.
pub struct Mixed {
    pub own: Evaluation,
    /// The mixed gradients, `[n, P]`.
    pub gradients: Tensor,
}

/// The logits of all particles on the batch of a step, without a graph, and the labels.
pub struct Outputs {
    /// The logits, `[n, B, C]`.
    pub logits: Tensor,
    /// The labels, `[n, B]`.
    pub labels: Tensor,
}

/// What enters the head on the batch of a step, for all particles, without a graph, and the labels.
pub struct HeadInputs {
    /// The features, normalised if the head sees them so, `[n, B, d]`.
    pub features: Tensor,
    /// The labels, `[n, B]`.
    pub labels: Tensor,
}

/// The loss of a step's batch, which a method may evaluate any number of times within the step.
pub trait Objective {
    /// Returns the losses and gradients at `theta: [n, P]` on the batch of the step.
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation>;

    /// Returns Σ_j c_ij G_j in the columns of particle i, where G_j is the gradient of L_j with respect to the weights
    /// of a block. There is one constant matrix c per block: `matrices: [L, n, n]`.
    ///
    /// # Errors
    /// Fails if the matrices have another shape, or if the objective has no weights.
    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        let _ = (theta, matrices);
        bail!("this objective does not know the weights behind theta: it cannot mix gradients there")
    }

    /// Returns the losses and gradients on one part like [`evaluate_part`](Self::evaluate_part), and the squared gradients of
    /// its single images. It costs one copy of a particle and of its gradient for each image that is computed at once.
    ///
    /// # Errors
    /// Fails if the objective has no single images.
    fn evaluate_squared(&mut self, theta: &Tensor, part: usize) -> Result<Squared> {
        let _ = (theta, part);
        bail!("this objective does not know single images: it cannot square their gradients")
    }

    /// Returns the losses and gradients on one part like [`evaluate_part`](Self::evaluate_part), where each sample sees the
    /// factors A of low-rank updates with the `noise: [n, P]` in their columns, times signs of its own (flipout): a random
    /// sign for each row and for each column of A. The signs are a pure function of the particle, the layer and the sample's
    /// number in the batch. Noise in other columns is not read.
    ///
    /// # Errors
    /// Fails if the objective has no such layers.
    fn evaluate_flipped(&mut self, theta: &Tensor, noise: &Tensor, signs: Signs, part: usize) -> Result<Noisy> {
        let _ = (theta, noise, signs, part);
        bail!("this objective does not know the layers behind theta: it cannot flip signs there")
    }

    /// Returns the logits of all particles `theta: [n, P]`, for a loss that joins them.
    ///
    /// # Errors
    /// Fails if the objective has no logits.
    fn outputs(&mut self, theta: &Tensor) -> Result<Outputs> {
        let _ = theta;
        bail!("this objective does not know the logits behind its losses")
    }

    /// Returns Σ_bc G_ibc ∂z_ibc/∂θ_i, `[n, P]`, for the logits z at `theta: [n, P]` and `by_logits: [n, B, C]`, the
    /// gradient G of a loss with respect to them. With [`outputs`](Self::outputs) it gives the exact gradient of any loss
    /// of all particles' logits, however few particles and images go through the network at once.
    ///
    /// # Errors
    /// Fails if the objective has no logits.
    fn pull_back(&mut self, theta: &Tensor, by_logits: &Tensor) -> Result<Tensor> {
        let _ = (theta, by_logits);
        bail!("this objective does not know the logits behind its losses")
    }

    /// Returns what enters the head of all particles `theta: [n, P]`, for a loss that knows the head's form.
    ///
    /// # Errors
    /// Fails if the objective has no head.
    fn head_inputs(&mut self, theta: &Tensor) -> Result<HeadInputs> {
        let _ = theta;
        bail!("this objective does not know what enters the head")
    }

    /// Returns Σ_bj G_ibj ∂φ_ibj/∂θ_i, `[n, P]`, for what enters the head, φ, at `theta: [n, P]` and `by_features: [n, B, d]`,
    /// the gradient G of a loss with respect to it. The columns of the head itself get 0.
    ///
    /// # Errors
    /// Fails if the objective has no head.
    fn pull_back_head_inputs(&mut self, theta: &Tensor, by_features: &Tensor) -> Result<Tensor> {
        let _ = (theta, by_features);
        bail!("this objective does not know what enters the head")
    }

    /// Returns the number of parts that the batch is split into (`train.accumulate`).
    fn parts(&self) -> usize {
        1
    }

    /// Returns the share of the batch that is in a part.
    fn share(&self, part: usize) -> f64 {
        let _ = part;
        1.0
    }

    /// Returns the losses and gradients on one part, times its share. Over all parts they add up to
    /// [`evaluate`](Self::evaluate).
    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        let _ = part;
        self.evaluate(theta)
    }
}
