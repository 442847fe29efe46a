//! One streaming pass over all predictions that computes the per-sample quantities in f64 from which every metric
//! follows. Log-probabilities come from log-sum-exp of the logits, so nothing is clamped and no probability underflows
//! before its logarithm is taken. The memory is a few numbers per sample, independent of C and m.

use anyhow::{Context, Result, ensure};

use super::average::{Average, PerAverage, UNSCALED};
use super::sample::{Outcome, each_sample};
use super::uncertainty::Uncertainty;
use crate::predictions::Predictions;

/// The scores of one averaged prediction against the labels, each `[N]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Averaged {
    pub correct: Vec<bool>,
    /// Whether the label is among the five most probable classes. `None` if C ≤ 5.
    pub in_top5: Option<Vec<bool>>,
    /// −log p_y in nats.
    pub nll: Vec<f64>,
    /// `Σ_c (p_c − 1[y = c])²`, from 0 to 2.
    pub brier: Vec<f64>,
}

/// The per-sample quantities that the metrics read. Each vector has one entry per sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    /// The quantities that need no label: predicted classes, confidences, entropies, spread.
    pub uncertainty: Uncertainty,
    pub outcomes: PerAverage<Averaged>,
    pub labels: Vec<u32>,
}

impl Scores {
    /// Computes the scores in one parallel pass over the samples.
    ///
    /// # Errors
    /// Fails if the predictions have no labels or a logit is NaN or infinite; the message names the member and the
    /// sample.
    pub fn compute(predictions: &Predictions) -> Result<Self> {
        Self::compute_scaled(predictions, UNSCALED)
    }

    /// Computes scores like [`Scores::compute`], with logits divided by a positive temperature T. The probability mean
    /// and all quantities that the averages share use softmax(z_k / T) for every member. The logit mean uses
    /// softmax(mean_k z_k / T) with a T of its own.
    pub fn compute_scaled(predictions: &Predictions, temperatures: PerAverage<f64>) -> Result<Self> {
        for average in Average::ALL {
            let temperature = *temperatures.of(average);
            let scalable = temperature.is_finite() && temperature > 0.0;
            ensure!(scalable, "temperature_{} = {temperature}: must be positive", average.suffix());
        }
        let labels = labels(predictions)?;
        let rows = each_sample(predictions, temperatures, |scratch, i| {
            let sample = scratch.read(predictions, i)?;
            Ok((sample, scratch.outcome(predictions, i, labels[i] as usize)))
        })?;
        let has_top5 = predictions.classes() > 5;
        let averaged = |average| Averaged::gather(has_top5, || rows.iter().map(|(_, outcome)| outcome.of(average)));
        Ok(Self {
            uncertainty: Uncertainty::gather(predictions.shape(), &rows, |(sample, _)| sample),
            outcomes: PerAverage::each(averaged),
            labels: labels.to_vec(),
        })
    }

    pub fn averaged(&self, average: Average) -> &Averaged {
        self.outcomes.of(average)
    }

    /// Returns the label and the predicted class of each sample, `[N]`.
    pub fn labels_with_guesses(&self, average: Average) -> Vec<[u32; 2]> {
        let predicted = &self.uncertainty.guesses.of(average).predicted;
        self.labels.iter().zip(predicted).map(|(label, predicted)| [*label, *predicted]).collect()
    }

    /// Returns the largest probability of each sample, `[N]`.
    pub fn confidence(&self, average: Average) -> &[f64] {
        &self.uncertainty.guesses.of(average).confidence
    }

    /// Returns the indices of the samples by falling confidence. Ties stay in the order of the samples.
    pub fn most_confident_first(&self, average: Average) -> Vec<usize> {
        let confidence = self.confidence(average);
        let mut order: Vec<usize> = (0..confidence.len()).collect();
        order.sort_by(|a, b| confidence[*b].total_cmp(&confidence[*a]));
        order
    }

    /// Returns `H[p̄] − mean_k H[p_k]` of each sample, `[N]`; `None` for a single member.
    pub fn mutual_information(&self) -> Option<&[f64]> {
        self.uncertainty.spread.as_ref().map(|spread| spread.mutual_information.as_slice())
    }
}

/// Returns the labels, `[N]`. Without labels, the error says what an unlabelled set can be used for.
pub(super) fn labels(predictions: &Predictions) -> Result<&[u32]> {
    predictions.labels().context(
        "predictions: have no labels (no tensor `labels`), so they cannot be scored; an unlabelled set serves as \
         out-of-distribution set",
    )
}

impl Averaged {
    fn gather<'a, I: Iterator<Item = &'a Outcome>>(has_top5: bool, outcomes: impl Fn() -> I) -> Self {
        Self {
            correct: outcomes().map(|o| o.label_rank == 0).collect(),
            in_top5: has_top5.then(|| outcomes().map(|o| o.label_rank < 5).collect()),
            nll: outcomes().map(|o| o.nll).collect(),
            brier: outcomes().map(|o| o.brier).collect(),
        }
    }
}

/// Returns the mean of `values`. `None` if there are none.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.into_iter().fold((0usize, 0.0), |(n, sum), value| (n + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}
