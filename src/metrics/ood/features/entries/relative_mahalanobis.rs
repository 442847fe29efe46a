//! The relative Mahalanobis distance (Ren et al. 2021, arXiv 2106.09022): the squared distance from the nearest class mean, less that from the
//! mean of all features under the covariance of all.
//!
//! Differs: pytorch-ood (at d047673) does not divide the covariance of all features by their number, so that the second distance is N times
//! smaller; this is the paper's, as OpenOOD has it.

use tch::Tensor;

use super::mahalanobis::kept;
use crate::metrics::ood::features::fitting::{Detector, Entry, Gaussian};

pub static ENTRY: Entry = Entry {
    key: "relative-mahalanobis",
    definition: "the Mahalanobis distance, less (f - mu)^T Sigma_0^-1 (f - mu) with the mean and covariance of all features",
    paper: "Ren et al. 2021",
    kept: |sizes| 2 * kept(sizes),
    fit: |features| {
        Ok(Box::new(Relative { classes: Gaussian::of_classes(features), background: Gaussian::of_all(features) }))
    },
};

struct Relative {
    classes: Gaussian,
    background: Gaussian,
}

impl Detector for Relative {
    fn scores(&self, features: &Tensor) -> Tensor {
        let nearest = self.classes.distances(features).amin([1i64].as_slice(), false);
        nearest - self.background.distances(features).squeeze_dim(1)
    }
}
