//! Classification: logits of C classes, learnt by their cross-entropy with labels.

use anyhow::Result;
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use super::{About, Batched, Outcome, Task, Validated};
use crate::base::logging;
use crate::base::tensor::label_log_probabilities;
use crate::data::batches::SplitFacts;
use crate::metrics::{Average, Metric, Scores, value};
use crate::model::Input;
use crate::model::head::Head;
use crate::model::network::Weights;
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

impl Task for Classes {
    fn learnt(&self, classes: usize) -> String {
        format!("{classes} classes")
    }

    fn names(&self, classes: &[String]) -> String {
        classes.join(", ")
    }

    /// Returns the cross-entropies of labels `[q, B]` from features `[p, B, d]`.
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor {
        let logits = head.logits(weights, features);
        -label_log_probabilities(&logits, &labels.expand([logits.size()[0], -1], false), logits.kind())
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
