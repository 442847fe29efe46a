//! Regression: a number for each sample, learnt by the likelihood of a Gaussian. The members predict a mixture of Gaussians.

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use super::{About, Batched, Loss, Outcome, Task, Validated};
use crate::base::logging;
use crate::base::tensor::host_f64;
use crate::data::Medium;
use crate::metrics::numbers::{Mixture, of_all, value};
use crate::metrics::{Metric, NLL};
use crate::model::Input;
use crate::model::head::Head;
use crate::model::network::Weights;
use crate::predict::Predictor;
use crate::predictions::Numbers as Saved;
use crate::predictions::numbers::{ENDING, Moments};

/// The prediction of a number.
pub struct Numbers;

impl Loss for Numbers {
    /// Returns the negative log-likelihoods of numbers `[q, B]`, from features `[p, B, d]`.
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor {
        head.gaussian().losses(&head.logits(weights, features), labels)
    }
}

/// Returns the Gaussians of all members for the samples.
fn predicted(predictor: &Predictor, samples: &Batched, bar: &ProgressBar) -> Result<Saved> {
    let Batched { group, set, indices, batch_size } = *samples;
    let outputs = predictor.shared_logits(group, set, indices, batch_size, bar)?;
    let shape = [predictor.members() as i64, indices.len() as i64, predictor.classes() as i64];
    let gaussians = predictor.model.head.gaussian().moments(&Tensor::from_slice(&outputs).view(shape));
    let [means, variances, spreads] = gaussians.each_ref().map(host_f64);
    let numbers = host_f64(&set.labels(indices).to_kind(Kind::Double))?;
    let found = Saved::new(means?, variances?, numbers)?.with_spreads(spreads?)?;
    match predictor.averaging_weights() {
        Some(weights) => found.with_weights(weights.to_vec()),
        None => Ok(found),
    }
}

/// Returns the mixture of the members for each sample, from their outputs `[m, B, C]`.
///
/// # Errors
/// Fails if libtorch fails, or if a mean or a variance is not finite.
pub fn mixtures(predictor: &Predictor, outputs: &Tensor) -> Result<Vec<Mixture>> {
    let (members, samples) = (outputs.size()[0] as usize, outputs.size()[1] as usize);
    let gaussians = predictor.model.head.gaussian().moments(outputs);
    let [means, variances, spreads] = gaussians.each_ref().map(host_f64);
    let (means, variances, spreads) = (means?, variances?, spreads?);
    let moments = |at: usize| Moments { mean: means[at], variance: variances[at], spread: spreads[at] };
    if let Some(at) = (0..means.len()).find(|at| !moments(*at).are_sound()) {
        bail!(moments(at).fault(at / samples, at % samples));
    }
    let shares = predictor.shares();
    let of = |sample: usize| (0..members).map(move |member| member * samples + sample);
    let mixture = |sample| Mixture::new(&shares, of(sample).map(moments));
    Ok((0..samples).map(mixture).collect())
}

impl Task for Numbers {
    fn learnt(&self, _: usize) -> String {
        "a number".to_string()
    }

    fn names(&self, classes: &[String]) -> String {
        format!("none: it predicts the number `{}`", classes.join(", "))
    }

    fn pipeline(&self, _: Medium) -> &'static str {
        "other"
    }

    /// Returns the NLL of the mixture alone, which is all that compares epochs of numbers.
    fn validate(&self, predictor: &Predictor, held_out: &Batched, _: &Metric) -> Result<Validated> {
        let found = predicted(predictor, held_out, &ProgressBar::hidden())?;
        let nll = value(&of_all(&found), NLL.key);
        Ok(Validated { nll, criterion: nll, ..Validated::default() })
    }

    fn predict(&self, predictor: &Predictor, tests: &Batched, about: About) -> Result<Box<dyn Outcome>> {
        let bar = logging::bar(tests.indices.len() as u64, "predicting");
        let found = predicted(predictor, tests, &bar)?;
        bar.finish_and_clear();
        Ok(Box::new(found.with_metadata(about.metadata)))
    }

    /// Returns the outputs `[m, B, C]` of the head, on the scale of what is learnt.
    fn logits(&self, predictor: &Predictor, input: &Input) -> Result<Tensor> {
        let count = input.samples() as usize;
        predictor.logits(&predictor.plan(count, count)?, input)
    }

    fn ending(&self) -> &'static str {
        ENDING
    }

    fn has_classes(&self) -> bool {
        false
    }

    /// Returns the bytes of a mean, a variance, and at most the part of it that is that of the mean, of each member.
    fn saved_bytes(&self, members: u64, _: u64) -> u64 {
        3 * members * Kind::Double.elt_size_in_bytes() as u64
    }
}
