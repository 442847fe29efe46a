//! The loss of mixed images: λ times the loss of the image's own label plus 1 − λ times that of its partner's.
//!
//! With smoothing ε this is timm's `SoftTargetCrossEntropy` of the target that `timm.data.mixup.mixup_target` makes. As a likelihood it is
//! p(y | x)^λ p(y' | x)^(1 − λ): each of the two labels is tempered, and together they count as one image.

use tch::{Kind, Tensor};

use super::{Loss, Recipe};
use crate::model::head::Head;
use crate::model::network::Weights;

/// The loss of labels `[q, B, 3]` in f32: the own class, the partner's class, and the share λ of the own one.
pub struct MixedLabels {
    /// The loss of each of the two labels, without weights of the classes.
    each: Recipe,
}

impl MixedLabels {
    pub fn new(smoothing: f64) -> MixedLabels {
        MixedLabels { each: Recipe::new(None, smoothing) }
    }

    /// Returns labels `[q, B, 3]` of classes and shares `[q, B]`.
    pub fn labels(own: &Tensor, partners: &Tensor, shares: &Tensor) -> Tensor {
        Tensor::stack(&[own, partners, shares].map(|part| part.to_kind(Kind::Float)), -1)
    }

    /// Returns the losses `[p, B]` of labels `[p, B, 3]`, given logits `[p, B, C]`.
    fn of_logits(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        let of = |class: i64| self.each.of_logits(logits, &labels.select(-1, class).to_kind(Kind::Int64));
        let share = labels.select(-1, 2).to_kind(logits.kind());
        of(0) * &share + of(1) * (1.0 - &share)
    }
}

impl Loss for MixedLabels {
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor {
        let logits = head.logits(weights, features);
        self.of_logits(&logits, &labels.expand([logits.size()[0], -1, -1], false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // scripts/make_mixup_goldens.py, timm 1.0.31, whose targets are in f32
    const GOLDENS: [(f64, f64, [f64; 3]); 2] = [
        (0.0, 1.3901261743099909, [0.0378366918413248, -0.11793696909797807, 0.08010027725665325]),
        (0.1, 1.381063684827891, [0.029503358355279587, -0.1012703024407759, 0.07176694408549629]),
    ];

    /// The mean loss and its gradient at the first sample.
    #[test]
    fn losses_are_those_of_timm() {
        for (smoothing, expected, gradient) in GOLDENS {
            let numbers: Vec<f64> = (0..12).map(|i| f64::from(i * i * 5 % 17) / 4.0 - 2.0).collect();
            let logits = Tensor::from_slice(&numbers).view([1, 4, 3]).set_requires_grad(true);
            let classes = Tensor::from_slice(&[1i64, 0, 2, 1]).view([1, 4]);
            let shares = Tensor::from_slice(&[0.83, 0.27, 0.55, 0.91]).view([1, 4]);
            let labels = MixedLabels::labels(&classes, &classes.flip([1]), &shares);
            let loss = MixedLabels::new(smoothing).of_logits(&logits, &labels).mean(Kind::Double);
            let found = Tensor::run_backward(&[&loss], &[&logits], false, false);
            let first = Vec::<f64>::try_from(found[0].get(0).get(0)).unwrap();
            assert!((loss.double_value(&[]) - expected).abs() < 1e-6, "{loss:?} {expected}");
            assert!(first.iter().zip(gradient).all(|(a, b)| (a - b).abs() < 1e-7), "{first:?} {gradient:?}");
        }
    }
}
