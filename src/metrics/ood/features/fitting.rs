//! What detectors are fitted on, and what fitting gives.

use anyhow::Result;
use tch::{Kind, Tensor};

/// A score of features, higher for samples from outside.
pub struct Entry {
    /// The word of `--ood-by`.
    pub key: &'static str,
    /// The formula. High values mean outside.
    pub definition: &'static str,
    pub paper: &'static str,
    /// Returns the bytes that the detector and its fitting take beside the features.
    pub kept: fn(Sizes) -> u64,
    /// Fits the detector.
    pub fit: fn(&Features) -> Result<Box<dyn Detector>>,
}

/// The sizes that memory is planned by.
#[derive(Clone, Copy)]
pub struct Sizes {
    /// The number of images that detectors are fitted on, N.
    pub images: u64,
    /// The number of features, d.
    pub width: u64,
    pub classes: u64,
    /// The number of images that are scored at once.
    pub batch: u64,
}

/// The features of the images that detectors are fitted on.
pub struct Features {
    /// The features `[N, d]`, as the classifier sees them.
    pub values: Tensor,
    /// The classes `[N]`.
    pub labels: Tensor,
    pub classifier: Classifier,
}

/// The linear classifier behind the features.
pub struct Classifier {
    /// The weight `[C, d]`, in f64.
    pub weight: Tensor,
    /// The bias `[C]`, in f64.
    pub bias: Tensor,
}

/// A detector that has been fitted.
pub trait Detector {
    /// Returns the scores `[B]` of features `[B, d]` in f64, higher for samples from outside.
    fn scores(&self, features: &Tensor) -> Tensor;
}

/// The number of rows of features that are computed with in f64 at once.
const ROWS: i64 = 4096;

impl Features {
    /// Returns the number of images, N.
    pub fn count(&self) -> i64 {
        self.values.size()[0]
    }

    /// Returns the number of features, d.
    pub fn width(&self) -> i64 {
        self.values.size()[1]
    }

    /// Returns the features in parts `[≤ 4096, d]`, in f64, each with the index of its first row.
    pub fn parts(&self) -> impl Iterator<Item = (i64, Tensor)> {
        let part = |start| (start, self.values.narrow(0, start, self.rows_from(start)).to_kind(Kind::Double));
        (0..self.count()).step_by(ROWS as usize).map(part)
    }

    /// Returns the number of rows of the part that begins at `start`.
    pub fn rows_from(&self, start: i64) -> i64 {
        ROWS.min(self.count() - start)
    }
}

impl Classifier {
    /// Returns the logits `[B, C]` of features `[B, d]`, both in f64.
    pub fn logits(&self, features: &Tensor) -> Tensor {
        features.matmul(&self.weight.tr()) + &self.bias
    }

    /// Returns −log Σ_c exp z_c of the logits of features `[B, d]`, `[B]`, in f64.
    pub fn energy(&self, features: &Tensor) -> Tensor {
        -self.logits(features).logsumexp([1i64].as_slice(), false)
    }
}
