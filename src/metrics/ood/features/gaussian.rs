//! Gaussians with one covariance around several means, by their Mahalanobis distances.

use tch::{Kind, Tensor};

use super::fitting::Features;

/// Means `[K, d]` and the covariance that they share.
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
