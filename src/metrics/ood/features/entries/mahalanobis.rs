//! The Mahalanobis distance of the feature from the nearest class mean, under the covariance that the classes share (Lee et al. 2018, arXiv
//! 1807.03888), of the features before the classifier and without moving the input.
//!
//! Differs: pytorch-ood halves the squared distance, divides the covariance by N − 1 and adds 1e-6 to its diagonal. The factor changes no
//! ranking. Directions without variance are left out here, as in OpenOOD, whatever the scale of the features.

use tch::Tensor;

use crate::metrics::ood::features::fitting::{Detector, Entry, Gaussian, Sizes};

pub static ENTRY: Entry = Entry {
    key: "mahalanobis",
    definition: "min_c (f - mu_c)^T Sigma^-1 (f - mu_c), mu_c the mean of class c and Sigma the covariance within classes",
    paper: "Lee et al. 2018",
    kept,
    fit: |features| Ok(Box::new(Nearest(Gaussian::of_classes(features)))),
};

/// Returns the bytes of a Gaussian and its fitting: the covariance, its vectors and their work space, the means, and the distances of a
/// batch.
pub(super) fn kept(Sizes { width, classes, batch, .. }: Sizes) -> u64 {
    8 * (6 * width * width + 3 * classes * width + batch * (classes + 2 * width))
}

struct Nearest(Gaussian);

impl Detector for Nearest {
    fn scores(&self, features: &Tensor) -> Tensor {
        self.0.distances(features).amin([1i64].as_slice(), false)
    }
}
