//! Activation shaping, ASH-S (Djurisic et al. 2023, arXiv 2209.09858): the energy of the logits of features of which the smallest 65 % are 0 and the
//! others grow by the factor exp(sum before / sum after).
//!
//! Differs: OpenOOD has ASH-B, which gives all that are kept one value, and 90 %; 65 % is pytorch-ood's, for ASH-S.

use tch::Tensor;

use crate::metrics::ood::features::fitting::{Classifier, Detector, Entry, Sizes};

/// The share of features that become 0.
const SHARE: f64 = 0.65;

pub static ENTRY: Entry = Entry {
    key: "ash",
    definition: "-log sum_c exp z_c of the logits of f with its smallest 65 % at 0, times exp(sum before / sum after)",
    paper: "Djurisic et al. 2023",
    kept: |Sizes { width, classes, batch, .. }| 8 * (classes * width + batch * (4 * width + classes)),
    fit: |features| {
        let Classifier { weight, bias } = &features.classifier;
        Ok(Box::new(Shaped(Classifier { weight: weight.shallow_clone(), bias: bias.shallow_clone() })))
    },
};

struct Shaped(Classifier);

impl Detector for Shaped {
    fn scores(&self, features: &Tensor) -> Tensor {
        let width = features.size()[1];
        let kept = width - (width as f64 * SHARE).round_ties_even() as i64;
        let (values, places) = features.topk(kept, 1, true, true);
        let sums = |of: &Tensor| of.sum_dim_intlist([1i64].as_slice(), true, None::<tch::Kind>);
        let factors = (sums(features) / sums(&values)).exp();
        self.0.energy(&features.zeros_like().scatter(1, &places, &(values * factors)))
    }
}
