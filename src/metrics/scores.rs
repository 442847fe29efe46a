//! One streaming pass over all predictions that computes the per-sample quantities in f64 from which every metric
//! follows. Log-probabilities come from log-sum-exp of the logits, so nothing is clamped and no probability underflows
//! before its logarithm is taken. The memory is a few numbers per sample, independent
//! of m, and a few per class.

use anyhow::{Context, Result, ensure};

use super::average::{Average, PerAverage, UNSCALED};
use super::bins::ClassGaps;
use super::sample::{Outcome, Sample, Scratch, each_sample, outcome, with_sums};
use crate::predictions::{Predictions, Shape};

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
    /// The gaps between labels and probabilities of every class, by bins of the probability.
    pub class_gaps: PerAverage<ClassGaps>,
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
        let classes = predictions.classes();
        let gaps = || PerAverage::each(|_| ClassGaps::new(classes));
        let (rows, parts) = with_sums(predictions, temperatures, gaps, |scratch, gaps, i| {
            let (sample, label) = (scratch.read(predictions, i)?, labels[i] as usize);
            gaps.logit.add(scratch.probabilities(Average::Logit), label);
            gaps.probability.add(scratch.probabilities(Average::Probability), label);
            Ok((sample, scratch.outcome(predictions, i, label)))
        })?;
        let averaged = |average| Averaged::gather(classes, || rows.iter().map(|(_, outcome)| outcome.of(average)));
        Ok(Self {
            uncertainty: Uncertainty::gather(predictions.shape(), &rows, |(sample, _)| sample),
            outcomes: PerAverage::each(averaged),
            class_gaps: PerAverage::each(|average| {
                ClassGaps::joined(classes, parts.iter().map(|part| part.of(average)))
            }),
            labels: labels.to_vec(),
        })
    }

    /// Computes the scores of probabilities, `[N, C]`, that do not come from members; both averages are these. They are not rounded, since
    /// many of them may be one fraction, such as 3/5, which is the edge of a bin. In the NLL, a probability below 2.2e-16 counts as that,
    /// as in scikit-learn's `log_loss`.
    pub(super) fn of_probabilities(classes: usize, probabilities: &[Vec<f64>], labels: &[u32]) -> Self {
        let mut gaps = ClassGaps::new(classes);
        let mut row = |(probabilities, label): (&Vec<f64>, &u32)| {
            let label = *label as usize;
            gaps.add(probabilities, label);
            let nll = -probabilities[label].max(f64::EPSILON).ln();
            (Sample::of_probabilities(probabilities), outcome(probabilities, probabilities, label, nll))
        };
        let rows: Vec<(Sample, Outcome)> = probabilities.iter().zip(labels).map(&mut row).collect();
        let shape = Shape { members: 1, samples: rows.len(), classes };
        let averaged = |_| Averaged::gather(classes, || rows.iter().map(|(_, outcome)| outcome));
        Self {
            uncertainty: Uncertainty::gather(shape, &rows, |(sample, _)| sample),
            outcomes: PerAverage::each(averaged),
            class_gaps: PerAverage { logit: gaps.clone(), probability: gaps },
            labels: labels.to_vec(),
        }
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
    fn gather<'a, I: Iterator<Item = &'a Outcome>>(classes: usize, outcomes: impl Fn() -> I) -> Self {
        Self {
            correct: outcomes().map(|o| o.label_rank == 0).collect(),
            in_top5: (classes > 5).then(|| outcomes().map(|o| o.label_rank < 5).collect()),
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

/// The classes and confidences of the averaged predictions, each `[N]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Guesses {
    /// The class with the largest probability. Of equal ones, the first counts.
    pub predicted: Vec<u32>,
    /// The largest probability.
    pub confidence: Vec<f64>,
    /// log p_1 − log p_0 of two classes; `None` for more.
    pub log_odds: Option<Vec<f64>>,
}

/// The disagreement between at least two members for each sample, `[N]`. All but `disagreement` are in nats.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// `H[p̄] − mean_k H[p_k]`.
    pub mutual_information: Vec<f64>,
    /// mean_k KL(p̄ ‖ p_k).
    pub diversity_kl: Vec<f64>,
    /// The mean of KL(p_k ‖ p_l) over ordered pairs k ≠ l.
    pub pairwise_kl: Vec<f64>,
    /// The share of member pairs whose predicted classes differ.
    pub disagreement: Vec<f64>,
}

/// The per-sample quantities that need no label. Each vector has one entry per sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Uncertainty {
    /// The sizes m, N and C of the predictions.
    pub shape: Shape,
    pub guesses: PerAverage<Guesses>,
    /// The entropy `H[p̄]` in nats.
    pub predictive_entropy: Vec<f64>,
    /// The mean entropy `mean_k H[p_k]` in nats.
    pub expected_entropy: Vec<f64>,
    /// `None` for a single member, which cannot disagree.
    pub spread: Option<Spread>,
    /// −log Σ_c exp z_c of the mean logits z. It is high if no class has a large logit.
    pub energy: Vec<f64>,
    /// The mean over members of −log Σ_c exp z_kc.
    pub expected_energy: Vec<f64>,
}

impl Uncertainty {
    /// Computes the quantities in one parallel pass over the samples.
    ///
    /// # Errors
    /// Fails if a logit is NaN or infinite; the message names the member and the sample.
    pub fn compute(predictions: &Predictions) -> Result<Self> {
        let samples = each_sample(predictions, UNSCALED, |scratch, i| scratch.read(predictions, i))?;
        Ok(Self::gather(predictions.shape(), &samples, |sample| sample))
    }

    /// Gathers the quantities of all rows. `of` returns the label-free part of a row.
    pub(super) fn gather<T>(shape: Shape, rows: &[T], of: impl Fn(&T) -> &Sample) -> Self {
        let column = |get: fn(&Sample) -> f64| rows.iter().map(|row| get(of(row))).collect::<Vec<_>>();
        let guesses = |average| Guesses {
            predicted: rows.iter().map(|row| of(row).guess.of(average).predicted).collect(),
            confidence: rows.iter().map(|row| of(row).guess.of(average).confidence).collect(),
            log_odds: rows.iter().map(|row| of(row).guess.of(average).log_odds).collect(),
        };
        Self {
            shape,
            guesses: PerAverage::each(guesses),
            predictive_entropy: column(|s| s.predictive_entropy),
            expected_entropy: column(|s| s.expected_entropy),
            spread: (shape.members > 1).then(|| Spread {
                mutual_information: column(|s| s.mutual_information),
                diversity_kl: column(|s| s.diversity_kl),
                pairwise_kl: column(|s| s.pairwise_kl),
                disagreement: column(|s| s.disagreement),
            }),
            energy: column(|s| s.energy),
            expected_energy: column(|s| s.expected_energy),
        }
    }
}

/// Returns the class probabilities of one sample, `[C]`.
///
/// # Errors
/// Fails if there is no such sample or one of its logits is NaN or infinite.
pub fn distribution(predictions: &Predictions, sample: usize, average: Average) -> Result<Vec<f64>> {
    distribution_at(predictions, sample, average, UNSCALED)
}

/// Returns the class probabilities of one sample at temperatures, `[C]`.
pub(super) fn distribution_at(
    predictions: &Predictions,
    sample: usize,
    average: Average,
    temperatures: PerAverage<f64>,
) -> Result<Vec<f64>> {
    let samples = predictions.samples();
    ensure!(sample < samples, "predictions: sample {sample}: must be below {samples}, the number of samples");
    let mut scratch = Scratch::new(predictions.classes(), temperatures);
    scratch.read(predictions, sample)?;
    Ok(scratch.probabilities(average).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_members() -> Predictions {
        let logits = [0.8, 0.2, 0.3, 0.7, 0.6, 0.4, 0.9, 0.1].map(|p: f64| p.ln() as f32);
        Predictions::unlabelled(Shape { members: 2, samples: 2, classes: 2 }, logits.to_vec()).unwrap()
    }

    // Worked by hand: members (.8, .2), (.6, .4) on sample 0 and (.3, .7), (.9, .1) on sample 1. The mean probabilities
    // are (.7, .3) and (.6, .4); the mean logits are half of log .48, log .08 and half of log .27, log .07.
    #[test]
    fn unlabelled_samples_by_hand() {
        let found = Uncertainty::compute(&two_members()).unwrap();
        let close = |got: &[f64], want: [f64; 2]| {
            assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-7), "{got:?}, not {want:?}");
        };
        let energies = [[0.48f64, 0.08], [0.27, 0.07]].map(|[a, b]| -(a.sqrt() + b.sqrt()).ln());
        close(&found.energy, energies);
        close(&found.expected_energy, [0.0, 0.0]);
        close(&found.guesses.probability.confidence, [0.7, 0.6]);
        close(&found.guesses.logit.confidence, [1.0 / (1.0 + 6f64.sqrt().recip()), 1.0 / (1.0 + (7f64 / 27.0).sqrt())]);
        assert_eq!((found.guesses.logit.predicted, found.guesses.probability.predicted), (vec![0, 0], vec![0, 0]));
        assert_eq!(found.spread.unwrap().disagreement, [0.0, 1.0]);
        for (sample, want) in [(0, [0.7, 0.3]), (1, [0.6, 0.4])] {
            close(&distribution(&two_members(), sample, Average::Probability).unwrap(), want);
        }
        let logit_mean = distribution(&two_members(), 1, Average::Logit).unwrap();
        assert_eq!(logit_mean[0], found.guesses.logit.confidence[1]);
    }

    #[test]
    fn one_member_has_no_spread_and_a_sample_must_exist() {
        let one = Predictions::unlabelled(Shape { members: 1, samples: 1, classes: 2 }, vec![1.0, 2.0]).unwrap();
        assert!(Uncertainty::compute(&one).unwrap().spread.is_none());
        let message = distribution(&one, 1, Average::Logit).unwrap_err().to_string();
        assert!(message.contains("sample 1: must be below 1"), "{message}");
    }
}
