//! The settings of a Gaussian over the projections of a zero-shot model.

use crate::posterior::Output;

/// The settings of the fit and of its predictions.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The most images of the training split in the curvature.
    pub images: usize,
    /// The factor τ on the curvature, how many times the images are counted; `None` if it is chosen on held-out images.
    pub pseudo_count: Option<f64>,
    /// The prior precision λ, if it is fixed.
    pub prior_precision: Option<f64>,
    pub output: Output,
    /// The number of draws.
    pub samples: usize,
}
