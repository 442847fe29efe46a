//! Virtual-logit matching (Wang et al. 2022, arXiv 2203.10807): the length of the feature outside the principal subspace, scaled to the size of
//! logits, and the energy. The origin is o = −W⁺ b, the subspace that of the D largest eigenvalues of (1/N) Σ (f − o)(f − o)ᵀ, and the scale α the
//! mean of the largest logits over the mean of these lengths.
//!
//! D is 1000 for 2048 features and more, 512 for 768 and more, and half of the features below. Differs: the authors' code has 512 for all that are
//! fewer than 2048, which leaves nothing outside for a network with 512 features; OpenOOD has 256; pytorch-ood limits logits to 100.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::metrics::ood::features::fitting::{Classifier, Detector, Entry, Features, Sizes};

pub static ENTRY: Entry = Entry {
    key: "vim",
    definition: "alpha |R^T (f - o)| - log sum_c exp z_c, R the directions outside the principal subspace and o = -pinv(W) b",
    paper: "Wang et al. 2022",
    kept: |Sizes { width, classes, batch, .. }| 8 * (6 * width * width + 4 * classes * width + 3 * batch * width),
    fit,
};

struct Residual {
    /// The directions outside the principal subspace, `[d, d − D]`.
    outside: Tensor,
    /// The origin o, `[d]`.
    origin: Tensor,
    alpha: f64,
    classifier: Classifier,
}

/// Returns the dimension D of the principal subspace of d features.
pub(in crate::metrics::ood::features) fn dimension(width: i64) -> i64 {
    match width {
        2048.. => 1000,
        768.. => 512,
        _ => width / 2,
    }
}

fn fit(features: &Features) -> Result<Box<dyn Detector>> {
    let Classifier { weight, bias } = &features.classifier;
    let classifier = Classifier { weight: weight.shallow_clone(), bias: bias.shallow_clone() };
    let width = features.width();
    let origin = -weight.pinverse(1e-15).matmul(bias);
    let mut second_moment = Tensor::zeros([width, width], (Kind::Double, features.values.device()));
    for (_, rows) in features.parts() {
        let centred = rows - &origin;
        second_moment += centred.tr().matmul(&centred);
    }
    // Eigenvalues rise.
    let (_, vectors) = (second_moment / features.count() as f64).linalg_eigh("L");
    let outside = vectors.narrow(1, 0, width - dimension(width));
    let mut fitted = Residual { outside, origin, alpha: 1.0, classifier };
    let (mut largest, mut lengths) = (0.0, 0.0);
    for (_, rows) in features.parts() {
        largest += fitted.classifier.logits(&rows).amax([1i64].as_slice(), false).sum(Kind::Double).double_value(&[]);
        lengths += fitted.lengths(&rows).sum(Kind::Double).double_value(&[]);
    }
    fitted.alpha = largest / lengths;
    Ok(Box::new(fitted))
}

impl Residual {
    /// Returns the lengths `[B]` of features `[B, d]` outside the principal subspace.
    fn lengths(&self, features: &Tensor) -> Tensor {
        (features - &self.origin).matmul(&self.outside).norm_scalaropt_dim(2.0, [-1], false)
    }
}

impl Detector for Residual {
    fn scores(&self, features: &Tensor) -> Tensor {
        self.lengths(features) * self.alpha + self.classifier.energy(features)
    }
}
