//! What detectors are fitted on, and what fitting gives.

use crate::schema::keyed;
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

keyed!(Entry, "score");

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

/// Gaussians with the means `[K, d]` and one covariance, by their Mahalanobis distances.
pub struct Gaussian {
    /// The map `[d, r]` to coordinates in which the covariance is the identity.
    whitening: Tensor,
    /// The means in these coordinates, `[K, r]`.
    centres: Tensor,
}

impl Gaussian {
    /// Fits a mean for each class that occurs, and Σ = (1/N) Σ_i (f_i − μ_(y_i)) (f_i − μ_(y_i))ᵀ.
    pub fn of_classes(features: &Features) -> Gaussian {
        let classes = features.labels.max().int64_value(&[]) + 1;
        Gaussian::fit(features, &features.labels, classes)
    }

    /// Fits one mean and one covariance to all features.
    pub fn of_all(features: &Features) -> Gaussian {
        Gaussian::fit(features, &features.labels.zeros_like(), 1)
    }

    fn fit(features: &Features, groups: &Tensor, count: i64) -> Gaussian {
        let (width, device) = (features.width(), features.values.device());
        let options = (Kind::Double, device);
        let mut sums = Tensor::zeros([count, width], options);
        let mut counts = Tensor::zeros([count], options);
        for (start, rows) in features.parts() {
            let of_rows = groups.narrow(0, start, features.rows_from(start));
            let _ = sums.index_add_(0, &of_rows, &rows);
            let _ = counts.index_add_(0, &of_rows, &Tensor::ones([features.rows_from(start)], options));
        }
        let means = sums / counts.clamp_min(1.0).unsqueeze(1);
        let mut covariance = Tensor::zeros([width, width], options);
        for (start, rows) in features.parts() {
            let centred = rows - means.index_select(0, &groups.narrow(0, start, features.rows_from(start)));
            covariance += centred.tr().matmul(&centred);
        }
        let whitening = whitening(&(covariance / features.count() as f64));
        let seen = means.index_select(0, &counts.gt(0.0).nonzero().squeeze_dim(1));
        Gaussian { centres: seen.matmul(&whitening), whitening }
    }

    /// Returns the squared Mahalanobis distances `[B, K]` of features `[B, d]` in f64 from every mean.
    pub fn distances(&self, features: &Tensor) -> Tensor {
        const DIRECT: i64 = 2;
        Tensor::cdist(&features.matmul(&self.whitening), &self.centres, 2.0, DIRECT).square()
    }
}

/// Returns W `[d, r]` with W Wᵀ the pseudo-inverse of a covariance `[d, d]`. Directions without variance, up to rounding, are left out.
fn whitening(covariance: &Tensor) -> Tensor {
    let (values, vectors) = covariance.linalg_eigh("L");
    let floor = values.max().double_value(&[]) * covariance.size()[0] as f64 * f64::EPSILON;
    let kept = values.gt(floor).nonzero().squeeze_dim(1);
    vectors.index_select(1, &kept) / values.index_select(0, &kept).sqrt()
}
