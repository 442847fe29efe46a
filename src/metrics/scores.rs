//! One streaming pass over all predictions: per-sample quantities in f64, from which every metric follows.
//! Log-probabilities come from log-sum-exp of the logits, so nothing is clamped and no probability underflows
//! on its way to a logarithm. Memory: a few numbers a sample, whatever C and m.

use anyhow::Result;
use rayon::prelude::*;

use super::sample::{Sample, Scratch};
use crate::predictions::Predictions;

/// How the members' outputs are averaged into one prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// p̄ = mean of softmax: columns end in `_pm`.
    Probability,
    /// Softmax of the mean logits: columns end in `_lm`.
    Logit,
}

impl Average {
    /// In the order of the columns.
    pub const ALL: [Average; 2] = [Average::Logit, Average::Probability];

    /// The column suffix without underscore: `lm`, `pm`.
    pub fn suffix(self) -> &'static str {
        match self {
            Average::Probability => "pm",
            Average::Logit => "lm",
        }
    }
}

/// Per-sample quantities of one averaged prediction, each `[N]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Averaged {
    /// Class of the largest probability (the first of equals).
    pub predicted: Vec<u32>,
    /// The largest probability.
    pub confidence: Vec<f64>,
    pub correct: Vec<bool>,
    /// Whether the label is among the five most probable classes; `None` where C ≤ 5.
    pub in_top5: Option<Vec<bool>>,
    /// −log p_y in nats.
    pub nll: Vec<f64>,
    /// `Σ_c (p_c − 1[y = c])²`, from 0 to 2.
    pub brier: Vec<f64>,
}

/// Per-sample disagreement of at least two members, each `[N]`, in nats except `disagreement`.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// `H[p̄] − mean_k H[p_k]`.
    pub mutual_information: Vec<f64>,
    /// mean_k KL(p̄ ‖ p_k).
    pub diversity_kl: Vec<f64>,
    /// mean over ordered pairs k ≠ l of KL(p_k ‖ p_l).
    pub pairwise_kl: Vec<f64>,
    /// Share of member pairs whose predicted classes differ.
    pub disagreement: Vec<f64>,
}

/// Everything the metrics read; one entry per sample in each vector.
#[derive(Clone, Debug, PartialEq)]
pub struct Scores {
    pub probability: Averaged,
    pub logit: Averaged,
    /// `H[p̄]`, nats.
    pub predictive_entropy: Vec<f64>,
    /// `mean_k H[p_k]`, nats.
    pub expected_entropy: Vec<f64>,
    /// `None` for a single member, which cannot disagree.
    pub spread: Option<Spread>,
}

impl Scores {
    /// One parallel pass over the samples. Errors: a NaN or infinite logit, named by member and sample.
    pub fn compute(predictions: &Predictions) -> Result<Self> {
        let samples: Vec<Sample> = (0..predictions.samples())
            .into_par_iter()
            .map_init(|| Scratch::new(predictions.classes()), |scratch, i| scratch.score(predictions, i))
            .collect::<Result<_>>()?;
        let column = |get: fn(&Sample) -> f64| samples.iter().map(get).collect::<Vec<_>>();
        let spread = (predictions.members() > 1).then(|| Spread {
            mutual_information: column(|s| s.mutual_information),
            diversity_kl: column(|s| s.diversity_kl),
            pairwise_kl: column(|s| s.pairwise_kl),
            disagreement: column(|s| s.disagreement),
        });
        let has_top5 = predictions.classes() > 5;
        Ok(Self {
            probability: Averaged::gather(&samples, has_top5, Average::Probability),
            logit: Averaged::gather(&samples, has_top5, Average::Logit),
            predictive_entropy: column(|s| s.predictive_entropy),
            expected_entropy: column(|s| s.expected_entropy),
            spread,
        })
    }

    pub fn averaged(&self, average: Average) -> &Averaged {
        match average {
            Average::Probability => &self.probability,
            Average::Logit => &self.logit,
        }
    }
}

impl Averaged {
    fn gather(samples: &[Sample], has_top5: bool, average: Average) -> Self {
        let points = || samples.iter().map(|sample| sample.point(average));
        Self {
            predicted: points().map(|p| p.predicted).collect(),
            confidence: points().map(|p| p.confidence).collect(),
            correct: points().map(|p| p.label_rank == 0).collect(),
            in_top5: has_top5.then(|| points().map(|p| p.label_rank < 5).collect()),
            nll: points().map(|p| p.nll).collect(),
            brier: points().map(|p| p.brier).collect(),
        }
    }
}

/// Mean of `values`; `None` if there are none.
pub(super) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (count, sum) = values.into_iter().fold((0usize, 0.0), |(n, sum), value| (n + 1, sum + value));
    (count > 0).then(|| sum / count as f64)
}
