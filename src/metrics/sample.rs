//! The quantities of one sample, computed from its m rows of logits.
//!
//! Member k has the weight w_k in every mean: 1, or that of its draw; their sum is W, which is m for weights of 1. With
//! log p_kc from log-sum-exp, S_c = Σ_k w_k p_kc and T_c = Σ_k w_k log p_kc, the divergences need one pass over the members:
//! Σ_{k≠l} w_k w_l KL(p_k‖p_l) = W Σ_kc w_k p_kc log p_kc − Σ_c S_c T_c, and
//! mean_k KL(p̄‖p_k) = Σ_c p̄_c (log p̄_c − T_c/W).

use anyhow::Result;
use rayon::prelude::*;

use super::average::{Average, PerAverage};
use super::bins::BINS;
use crate::predictions::{Predictions, check_finite};

/// The class and confidence of one averaged prediction for one sample.
pub(super) struct Guess {
    pub predicted: u32,
    pub confidence: f64,
    /// log p_1 − log p_0 of two classes; `None` for more.
    pub log_odds: Option<f64>,
}

/// The quantities that need no label.
pub(super) struct Sample {
    pub guess: PerAverage<Guess>,
    pub predictive_entropy: f64,
    pub expected_entropy: f64,
    pub mutual_information: f64,
    pub diversity_kl: f64,
    pub pairwise_kl: f64,
    pub disagreement: f64,
    pub energy: f64,
    pub expected_energy: f64,
}

/// The classes of one averaged prediction, the most probable first.
pub(super) struct Ranked {
    /// The classes, `[C]`. Of equally probable ones, the first counts as more probable.
    pub classes: Vec<usize>,
    /// Their probabilities, `[C]`, which fall.
    pub probabilities: Vec<f64>,
}

/// The scores of one averaged prediction against the label.
pub(super) struct Outcome {
    /// The number of classes ranked before the label. 0 means correct.
    pub label_rank: usize,
    pub nll: f64,
    pub brier: f64,
}

/// The buffers of one worker thread. Each has shape `[C]`, except those with one entry per member.
pub(super) struct Scratch {
    /// The factors of the logits. That of the probability mean scales the members' logits, from which `_pm` and all
    /// shared quantities follow; that of the logit mean scales the mean logits for `_lm`.
    inverse_temperature: PerAverage<f64>,
    /// The probabilities of a member while it is added, and afterwards those of the mean logits.
    softmax: Vec<f64>,
    mean_probability: Vec<f64>,
    mean_log_probability: Vec<f64>,
    mean_logit: Vec<f64>,
    mean_logit_log_sum: f64,
    /// The class that each member predicts, with the member's weight.
    votes: Vec<(usize, f64)>,
    log_sums: Vec<f64>,
    label_log_probabilities: Vec<f64>,
}

/// Runs `work` on every sample in parallel and returns the results in the order of the samples.
pub(super) fn each_sample<T: Send>(
    predictions: &Predictions,
    temperatures: PerAverage<f64>,
    work: impl Fn(&mut Scratch, usize) -> Result<T> + Sync + Send,
) -> Result<Vec<T>> {
    let scratch = || Scratch::new(predictions.classes(), temperatures);
    let found = (0..predictions.samples()).into_par_iter().map_init(scratch, work).collect::<Result<_>>()?;
    predictions.expect_whole()?;
    Ok(found)
}

/// The numbers of sums that all parts of [`with_sums`] hold together, and the most parts.
const SUMS: usize = 1 << 23;
const PARTS: usize = 64;

/// Runs `work` like [`each_sample`], with sums that it adds to. The samples are cut into parts, each with sums of its own; the cuts depend
/// on the shape alone, so that what is added up does not vary with the number of threads.
pub(super) fn with_sums<T: Send, S: Send>(
    predictions: &Predictions,
    temperatures: PerAverage<f64>,
    zero: impl Fn() -> S + Sync + Send,
    work: impl Fn(&mut Scratch, &mut S, usize) -> Result<T> + Sync + Send,
) -> Result<(Vec<T>, Vec<S>)> {
    let (samples, classes) = (predictions.samples(), predictions.classes());
    let parts = (SUMS / (2 * BINS * classes)).clamp(1, PARTS).min(samples);
    let part = |part: usize| {
        let (mut scratch, mut sums) = (Scratch::new(classes, temperatures), zero());
        let range = part * samples / parts..(part + 1) * samples / parts;
        let found = range.map(|i| work(&mut scratch, &mut sums, i)).collect::<Result<Vec<T>>>()?;
        Ok((found, sums))
    };
    let found: Vec<(Vec<T>, S)> = (0..parts).into_par_iter().map(part).collect::<Result<_>>()?;
    predictions.expect_whole()?;
    let (rows, sums): (Vec<Vec<T>>, Vec<S>) = found.into_iter().unzip();
    Ok((rows.into_iter().flatten().collect(), sums))
}

/// The numbers of the averaged probabilities p̄ beside those of the members.
struct Divergences {
    /// `H[p̄]`.
    entropy: f64,
    /// mean_k KL(p̄‖p_k).
    from_members: f64,
    /// Σ_c p̄_c mean_k log p_kc.
    cross: f64,
}

impl Scratch {
    pub fn new(classes: usize, temperatures: PerAverage<f64>) -> Self {
        let zeros = || vec![0.0; classes];
        Self {
            inverse_temperature: PerAverage::each(|average| 1.0 / temperatures.of(average)),
            softmax: zeros(),
            mean_probability: zeros(),
            mean_log_probability: zeros(),
            mean_logit: zeros(),
            mean_logit_log_sum: 0.0,
            votes: vec![],
            log_sums: vec![],
            label_log_probabilities: vec![],
        }
    }

    /// Reads all logits of a sample in one pass and computes the quantities that need no label.
    pub fn read(&mut self, predictions: &Predictions, sample: usize) -> Result<Sample> {
        let total = predictions.total_weight();
        self.reset();
        let (mut negative_entropies, mut squares) = (0.0, 0.0);
        for member in 0..predictions.members() {
            let row = predictions.logits(member, sample);
            check_finite(row, member, sample)?;
            let weight = predictions.weight(member);
            negative_entropies += weight * self.add_member(row, weight);
            squares += weight * weight;
        }
        for sums in [&mut self.mean_probability, &mut self.mean_log_probability, &mut self.mean_logit] {
            sums.iter_mut().for_each(|sum| *sum /= total);
        }
        self.mean_logit.iter_mut().for_each(|logit| *logit *= self.inverse_temperature.logit);
        self.softmax.copy_from_slice(&self.mean_logit);
        self.mean_logit_log_sum = softmax_in_place(&mut self.softmax);
        let Divergences { entropy: predictive_entropy, from_members: diversity_kl, cross } = self.divergences();
        let expected_entropy = -negative_entropies / total;
        // This is (Σ_kc w_k p_kc log p_kc − (1/W) Σ_c S_c T_c) / (W − Σ_k w_k² / W), the mean over ordered pairs k ≠ l with the
        // weights w_k w_l. Weights of 1 have the denominator m − 1.
        let others = total - squares / total;
        let pairwise_kl = if others > 0.0 { (negative_entropies - total * cross) / others } else { 0.0 };
        // Mutual information and the two divergences are ≥ 0 in exact arithmetic, and 0 for equal members. What a difference of two
        // entropies has by rounding alone would put images in an order.
        let rounding = 8.0 * f64::EPSILON * predictive_entropy.max(1.0);
        let or_zero = |value: f64| if value > rounding { value } else { 0.0 };
        Ok(Sample {
            guess: PerAverage::each(|average| self.guess(average)),
            predictive_entropy,
            expected_entropy,
            mutual_information: or_zero(predictive_entropy - expected_entropy),
            diversity_kl: or_zero(diversity_kl),
            pairwise_kl: or_zero(pairwise_kl),
            disagreement: pair_disagreement(&mut self.votes),
            energy: -self.mean_logit_log_sum,
            expected_energy: -self.mean_log_sum(predictions),
        })
    }

    /// Returns the scores against `label` of the sample that was read last.
    pub fn outcome(&mut self, predictions: &Predictions, sample: usize, label: usize) -> PerAverage<Outcome> {
        let nll = PerAverage {
            logit: self.mean_logit_log_sum - self.mean_logit[label],
            probability: self.probability_nll(predictions, sample, label),
        };
        PerAverage::each(|average| {
            let (probabilities, order) = self.averaged(average);
            outcome(probabilities, order, label, *nll.of(average))
        })
    }

    /// Returns the probabilities of the sample that was read last, `[C]`.
    pub fn probabilities(&self, average: Average) -> &[f64] {
        self.averaged(average).0
    }

    /// Returns the averaged prediction of the sample that was read last as logits, `[C]`: the mean logits, or the logarithms of the
    /// mean probabilities.
    pub fn logits(&mut self, predictions: &Predictions, sample: usize, average: Average) -> Vec<f64> {
        match average {
            Average::Logit => self.mean_logit.clone(),
            Average::Probability => {
                (0..predictions.classes()).map(|class| -self.probability_nll(predictions, sample, class)).collect()
            }
        }
    }

    /// Returns the classes of the sample that was read last, sorted by probability.
    pub fn ranked(&self, average: Average) -> Ranked {
        let (probabilities, order) = self.averaged(average);
        let mut classes: Vec<usize> = (0..order.len()).collect();
        classes.sort_by(|a, b| order[*b].total_cmp(&order[*a]));
        let probabilities = classes.iter().map(|class| probabilities[*class]).collect();
        Ranked { classes, probabilities }
    }

    /// Returns the mean of the members' log-sum-exp.
    fn mean_log_sum(&self, predictions: &Predictions) -> f64 {
        let weighted = self.log_sums.iter().enumerate().map(|(member, sum)| predictions.weight(member) * sum);
        weighted.sum::<f64>() / predictions.total_weight()
    }

    fn reset(&mut self) {
        for sums in [&mut self.mean_probability, &mut self.mean_log_probability, &mut self.mean_logit] {
            sums.fill(0.0);
        }
        self.votes.clear();
        self.log_sums.clear();
    }

    /// Adds the row of one member, `[C]`, to the sums, and returns Σ_c p_c log p_c.
    fn add_member(&mut self, row: &[f32], weight: f64) -> f64 {
        let scale = self.inverse_temperature.probability;
        for (value, logit) in self.softmax.iter_mut().zip(row) {
            *value = f64::from(*logit) * scale;
        }
        self.votes.push((argmax(&self.softmax), weight));
        let log_sum = softmax_in_place(&mut self.softmax);
        self.log_sums.push(log_sum);
        let sums = self.mean_probability.iter_mut().zip(&mut self.mean_log_probability);
        let inputs = self.softmax.iter().zip(row);
        let mut negative_entropy = 0.0;
        for (((p_sum, log_p_sum), logit_sum), (p, logit)) in sums.zip(&mut self.mean_logit).zip(inputs) {
            let logit = f64::from(*logit);
            let log_p = logit * scale - log_sum;
            *p_sum += weight * p;
            *log_p_sum += weight * log_p;
            *logit_sum += weight * logit;
            negative_entropy += p * log_p;
        }
        negative_entropy
    }

    fn divergences(&self) -> Divergences {
        let (mut entropy, mut cross) = (0.0, 0.0);
        for (p, mean_log_p) in self.mean_probability.iter().zip(&self.mean_log_probability) {
            if *p > 0.0 {
                entropy -= p * p.ln();
                cross += p * mean_log_p;
            }
        }
        Divergences { entropy, from_members: -entropy - cross, cross }
    }

    /// Returns the probabilities, and the values by which classes are ranked. For the logit mean these are the mean
    /// logits themselves, because softmax may round different logits to equal probabilities.
    fn averaged(&self, average: Average) -> (&[f64], &[f64]) {
        match average {
            Average::Logit => (&self.softmax, &self.mean_logit),
            Average::Probability => (&self.mean_probability, &self.mean_probability),
        }
    }

    fn guess(&self, average: Average) -> Guess {
        let (probabilities, order) = self.averaged(average);
        let log_odds = match (order, average) {
            ([first, second], Average::Logit) => Some(second - first),
            _ => log_odds(probabilities),
        };
        let predicted = argmax(order);
        Guess { predicted: predicted as u32, confidence: probabilities[predicted], log_odds }
    }

    /// Returns −log of the mean probability. It is computed from the members' log-probabilities, so that none
    /// underflows.
    fn probability_nll(&mut self, predictions: &Predictions, sample: usize, label: usize) -> f64 {
        let scale = self.inverse_temperature.probability;
        let of_label = |member| f64::from(predictions.logits(member, sample)[label]) * scale;
        self.label_log_probabilities.clear();
        let weigh = |member| predictions.weight(member).ln();
        let values =
            self.log_sums.iter().enumerate().map(|(member, log_sum)| of_label(member) - log_sum + weigh(member));
        self.label_log_probabilities.extend(values);
        predictions.total_weight().ln() - log_sum_exp(&self.label_log_probabilities)
    }
}

impl Sample {
    /// Returns the quantities of probabilities, `[C]`, that do not come from members; both averages are these.
    pub fn of_probabilities(probabilities: &[f64]) -> Sample {
        let entropy = probabilities.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
        let predicted = argmax(probabilities);
        let guess = |_| Guess {
            predicted: predicted as u32,
            confidence: probabilities[predicted],
            log_odds: log_odds(probabilities),
        };
        Sample {
            guess: PerAverage::each(guess),
            predictive_entropy: entropy,
            expected_entropy: entropy,
            mutual_information: 0.0,
            diversity_kl: 0.0,
            pairwise_kl: 0.0,
            disagreement: 0.0,
            energy: 0.0,
            expected_energy: 0.0,
        }
    }
}

/// Returns log p_1 − log p_0 of two classes; `None` for more.
fn log_odds(probabilities: &[f64]) -> Option<f64> {
    let [first, second] = probabilities else { return None };
    Some(second.ln() - first.ln())
}

/// Returns the scores of probabilities, `[C]`, against the label. `order` has the values by which classes are ranked.
pub(super) fn outcome(probabilities: &[f64], order: &[f64], label: usize, nll: f64) -> Outcome {
    let ahead = |(class, value): &(usize, &f64)| **value > order[label] || (**value == order[label] && *class < label);
    let squares: f64 = probabilities.iter().map(|p| p * p).sum();
    let off_label = squares - probabilities[label] * probabilities[label];
    let brier = off_label.max(0.0) + (1.0 - probabilities[label]).powi(2);
    Outcome { label_rank: order.iter().enumerate().filter(ahead).count(), nll: nll.max(0.0), brier }
}

/// Returns the share of unordered pairs with different votes, where a pair has the product of its weights. 0 if there is
/// only one vote with a weight above 0. Sorts `votes`.
fn pair_disagreement(votes: &mut [(usize, f64)]) -> f64 {
    votes.sort_unstable_by_key(|(class, _)| *class);
    let pairs = |votes: &[(usize, f64)]| {
        let (sum, squares) = votes.iter().fold((0.0, 0.0), |(sum, squares), (_, w)| (sum + w, squares + w * w));
        sum * sum - squares
    };
    let equal: f64 = votes.chunk_by(|a, b| a.0 == b.0).map(pairs).sum();
    let all = pairs(votes);
    if all > 0.0 { 1.0 - equal / all } else { 0.0 }
}

/// Returns the index of the largest value. Of equal values, the first counts.
pub fn argmax<T: PartialOrd>(values: &[T]) -> usize {
    values.iter().enumerate().fold(0, |best, (i, value)| if *value > values[best] { i } else { best })
}

/// Turns logits into probabilities and returns their log-sum-exp.
pub fn softmax_in_place(values: &mut [f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter_mut().for_each(|value| *value = (*value - max).exp());
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
    max + sum.ln()
}

pub(super) fn log_sum_exp(values: &[f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + values.iter().map(|value| (value - max).exp()).sum::<f64>().ln()
}
