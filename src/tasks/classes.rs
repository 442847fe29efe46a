//! Classification: logits of C classes, learnt by their cross-entropy with labels.

use anyhow::Result;
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use super::{About, Batched, Loss, Outcome, Task, Validated};
use crate::base::logging;
use crate::base::tensor::{label_log_probabilities, upload};
use crate::data::batches::SplitFacts;
use crate::metrics::{Average, Metric, Scores, value};
use crate::model::Input;
use crate::model::head::Head;
use crate::model::network::Weights;
use crate::model::network::ops::Constant;
use crate::predict::Predictor;
use crate::predictions::{ENDING, Predictions};

/// The choice of one of several classes.
pub struct Classes;

impl Classes {
    /// Returns predictions of logits `[m, N, C]` of a split, with its labels and groups.
    ///
    /// # Errors
    /// Fails if lengths do not fit each other, or if a logit is not finite.
    pub fn predictions(
        predictor: &Predictor,
        logits: Vec<f32>,
        split: &SplitFacts,
        about: About,
    ) -> Result<Predictions> {
        let predictions = predictor.predictions(logits, Some(split.labels.clone()))?;
        let predictions = match &split.groups {
            Some(groups) => predictions.with_groups(groups.of.clone(), groups.names.clone())?,
            None => predictions,
        };
        predictions.with_class_names(about.classes)?.with_metadata(about.metadata)
    }

    /// Returns the logits `[m, N, C]` of samples, in every process of their group.
    ///
    /// # Errors
    /// Fails if samples cannot be read, or if memory does not suffice.
    pub fn all_logits(predictor: &Predictor, samples: &Batched) -> Result<Vec<f32>> {
        let bar = logging::bar(samples.indices.len() as u64, "predicting");
        let logits = shared(predictor, samples, &bar)?;
        bar.finish_and_clear();
        Ok(logits)
    }
}

fn shared(predictor: &Predictor, samples: &Batched, bar: &ProgressBar) -> Result<Vec<f32>> {
    let Batched { group, set, indices, batch_size } = *samples;
    predictor.shared_logits(group, set, indices, batch_size, bar)
}

impl Loss for Classes {
    /// Returns the cross-entropies of labels `[q, B]` from features `[p, B, d]`.
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor {
        let logits = head.logits(weights, features);
        -label_log_probabilities(&logits, &labels.expand([logits.size()[0], -1], false), logits.kind())
    }
}

/// The cross-entropy of labels with weights w of the classes and smoothing ε, as torch's `CrossEntropyLoss` has it:
/// (1 − ε) w_y (−log p_y) + (ε / C) Σ_c w_c (−log p_c). The mean over a batch is the sum divided by Σ w_y.
pub struct Recipe {
    /// The weights of the classes, `[C]` in f64 on the host; `None` if they are equal.
    weights: Option<Vec<f64>>,
    /// The same on the device and in the type of the latest logits.
    uploaded: Constant,
    smoothing: f64,
}

impl Recipe {
    pub fn new(weights: Option<Vec<f64>>, smoothing: f64) -> Recipe {
        Recipe { weights, uploaded: Constant::new("class weights"), smoothing }
    }

    /// Returns the losses `[p, B]` of labels `[p, B]`, given logits `[p, B, C]`.
    pub fn of_logits(&self, logits: &Tensor, labels: &Tensor) -> Tensor {
        let log_p = logits.log_softmax(-1, logits.kind());
        let own = |values: &Tensor| -values.gather(-1, &labels.unsqueeze(-1), false).squeeze_dim(-1);
        let log_p = match &self.weights {
            None => log_p,
            Some(weights) => {
                let place = (logits.kind(), logits.device());
                let make = |(kind, device)| upload(&Tensor::from_slice(weights).to_kind(kind), device);
                log_p * self.uploaded.get(&[], place, make)
            }
        };
        if self.smoothing == 0.0 {
            return own(&log_p);
        }
        let of_all = -log_p.mean_dim([-1i64].as_slice(), false, logits.kind());
        own(&log_p) * (1.0 - self.smoothing) + of_all * self.smoothing
    }
}

impl Loss for Recipe {
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor {
        let logits = head.logits(weights, features);
        self.of_logits(&logits, &labels.expand([logits.size()[0], -1], false))
    }

    /// Returns B / Σ w_y, so that the mean over the B samples is the weighted mean; `None` if classes weigh the same.
    fn scale(&self, labels: &mut dyn Iterator<Item = u32>) -> Option<f64> {
        let weights = self.weights.as_ref()?;
        let (count, sum) = labels.fold((0, 0.0), |(count, sum), label| (count + 1, sum + weights[label as usize]));
        Some(f64::from(count) / sum)
    }
}

impl Task for Classes {
    fn learnt(&self, classes: usize) -> String {
        format!("{classes} classes")
    }

    fn names(&self, classes: &[String]) -> String {
        classes.join(", ")
    }

    /// Returns the NLL, the accuracy, the ECE and another metric of the averaged logits.
    fn validate(&self, predictor: &Predictor, held_out: &Batched, by: &Metric) -> Result<Validated> {
        let logits = shared(predictor, held_out, &ProgressBar::hidden())?;
        let labels = held_out.indices.iter().map(|i| held_out.set.split.labels[*i as usize]).collect();
        let scores = Scores::compute(&predictor.predictions(logits, Some(labels))?)?;
        let of = |key: &str| Some(value(&scores, key, Average::Logit).unwrap_or(f64::NAN));
        let criterion = (by.eval)(&scores, Average::Logit);
        Ok(Validated { nll: of("nll"), accuracy: of("accuracy"), ece: of("ece"), criterion })
    }

    fn predict(&self, predictor: &Predictor, tests: &Batched, about: About) -> Result<Box<dyn Outcome>> {
        let logits = Classes::all_logits(predictor, tests)?;
        Ok(Box::new(Classes::predictions(predictor, logits, &tests.set.split, about)?))
    }

    /// Returns the logits `[m, B, C]` of the classes.
    fn logits(&self, predictor: &Predictor, input: &Input) -> Result<Tensor> {
        let count = input.samples() as usize;
        predictor.logits(&predictor.plan(count, count)?, input)
    }

    fn ending(&self) -> &'static str {
        ENDING
    }

    fn saved_bytes(&self, members: u64, classes: u64) -> u64 {
        members * classes * Kind::Float.elt_size_in_bytes() as u64
    }
}

/// The loss of mixed images: λ times the loss of the image's own label plus 1 − λ times that of its partner's. Labels are `[q, B, 3]` in f32: the
/// own class, the partner's class, and the share λ of the own one.
///
/// With smoothing ε this is timm's `SoftTargetCrossEntropy` of the target that `timm.data.mixup.mixup_target` makes. As a likelihood it is
/// p(y | x)^λ p(y' | x)^(1 − λ): each of the two labels is tempered, and together they count as one image.
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

    // scripts/make_loss_goldens.py, torch 2.11.0
    const GOLDENS: [(bool, f64, f64, [f64; 3]); 3] = [
        (true, 0.0, 1.1574260113707697, [0.052642353866191025, -0.16408621787544775, 0.1114438640092567]),
        (false, 0.1, 1.074501180642984, [0.02950335850799147, -0.10127030243131141, 0.07176694392331992]),
        (true, 0.1, 1.1590313389852565, [0.04776971487157118, -0.1477880571688866, 0.10001834229731538]),
    ];

    /// The mean of the scaled losses and its gradient at the first sample.
    #[test]
    fn losses_are_those_of_torch() {
        for (weighted, smoothing, expected, gradient) in GOLDENS {
            let recipe = Recipe::new(weighted.then(|| vec![0.5, 2.0, 1.25]), smoothing);
            let numbers: Vec<f64> = (0..12).map(|i| f64::from(i * i * 5 % 17) / 4.0 - 2.0).collect();
            let logits = Tensor::from_slice(&numbers).view([1, 4, 3]).set_requires_grad(true);
            let scale = recipe.scale(&mut [1, 0, 2, 1].into_iter()).unwrap_or(1.0);
            let labels = Tensor::from_slice(&[1i64, 0, 2, 1]).view([1, 4]);
            let loss = (recipe.of_logits(&logits, &labels) * scale).mean(Kind::Double);
            let found = Tensor::run_backward(&[&loss], &[&logits], false, false);
            let first = Vec::<f64>::try_from(found[0].get(0).get(0)).unwrap();
            assert!((loss.double_value(&[]) - expected).abs() < 1e-12, "{loss:?} {expected}");
            assert!(first.iter().zip(gradient).all(|(a, b)| (a - b).abs() < 1e-12), "{first:?} {gradient:?}");
        }
    }

    // scripts/make_mixup_goldens.py, timm 1.0.31, whose targets are in f32
    const MIXED: [(f64, f64, [f64; 3]); 2] = [
        (0.0, 1.3901261743099909, [0.0378366918413248, -0.11793696909797807, 0.08010027725665325]),
        (0.1, 1.381063684827891, [0.029503358355279587, -0.1012703024407759, 0.07176694408549629]),
    ];

    /// The mean loss and its gradient at the first sample.
    #[test]
    fn losses_are_those_of_timm() {
        for (smoothing, expected, gradient) in MIXED {
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
