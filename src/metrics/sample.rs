//! The quantities of one sample, from its m rows of logits.
//!
//! With log p_kc from log-sum-exp, S_c = Σ_k p_kc and T_c = Σ_k log p_kc, the divergences take one pass over the
//! members: Σ_{k≠l} KL(p_k‖p_l) = m Σ_kc p_kc log p_kc − Σ_c S_c T_c, and mean_k KL(p̄‖p_k) = Σ_c p̄_c (log p̄_c − T_c/m).

use anyhow::Result;

use super::scores::Average;
use crate::predictions::{Predictions, check_finite};

/// One averaged prediction for one sample.
pub(super) struct Point {
    pub predicted: u32,
    pub confidence: f64,
    /// Number of classes ahead of the label; 0 means correct.
    pub label_rank: usize,
    pub nll: f64,
    pub brier: f64,
}

pub(super) struct Sample {
    probability: Point,
    logit: Point,
    pub predictive_entropy: f64,
    pub expected_entropy: f64,
    pub mutual_information: f64,
    pub diversity_kl: f64,
    pub pairwise_kl: f64,
    pub disagreement: f64,
}

impl Sample {
    pub fn point(&self, average: Average) -> &Point {
        match average {
            Average::Probability => &self.probability,
            Average::Logit => &self.logit,
        }
    }
}

/// Buffers of one worker thread, each `[C]` except the two per member.
pub(super) struct Scratch {
    softmax: Vec<f64>,
    mean_probability: Vec<f64>,
    mean_log_probability: Vec<f64>,
    mean_logit: Vec<f64>,
    votes: Vec<usize>,
    label_log_probabilities: Vec<f64>,
}

impl Scratch {
    pub fn new(classes: usize) -> Self {
        let zeros = || vec![0.0; classes];
        Self {
            softmax: zeros(),
            mean_probability: zeros(),
            mean_log_probability: zeros(),
            mean_logit: zeros(),
            votes: vec![],
            label_log_probabilities: vec![],
        }
    }

    pub fn score(&mut self, predictions: &Predictions, sample: usize) -> Result<Sample> {
        let label = predictions.labels()[sample] as usize;
        let members = predictions.members() as f64;
        self.reset();
        let mut negative_entropies = 0.0;
        for member in 0..predictions.members() {
            let row = predictions.logits(member, sample);
            check_finite(row, member, sample)?;
            negative_entropies += self.add_member(row, label);
        }
        for sums in [&mut self.mean_probability, &mut self.mean_log_probability, &mut self.mean_logit] {
            sums.iter_mut().for_each(|sum| *sum /= members);
        }
        let (predictive_entropy, diversity_kl, cross) = self.divergences();
        let expected_entropy = -negative_entropies / members;
        // Σ_kc p_kc log p_kc − (1/m) Σ_c S_c T_c, over m − 1: the mean over the m (m − 1) ordered pairs.
        let pairwise_kl = (negative_entropies - members * cross) / (members - 1.0).max(1.0);
        // Each of the three is ≥ 0 in exact arithmetic; max takes off the rounding of equal members.
        Ok(Sample {
            probability: self.probability_point(label),
            logit: self.logit_point(label),
            predictive_entropy,
            expected_entropy,
            mutual_information: (predictive_entropy - expected_entropy).max(0.0),
            diversity_kl: diversity_kl.max(0.0),
            pairwise_kl: pairwise_kl.max(0.0),
            disagreement: pair_disagreement(&mut self.votes),
        })
    }

    fn reset(&mut self) {
        for sums in [&mut self.mean_probability, &mut self.mean_log_probability, &mut self.mean_logit] {
            sums.fill(0.0);
        }
        self.votes.clear();
        self.label_log_probabilities.clear();
    }

    /// Adds one member's row `[C]` to the sums; returns Σ_c p_c log p_c.
    fn add_member(&mut self, row: &[f32], label: usize) -> f64 {
        for (value, logit) in self.softmax.iter_mut().zip(row) {
            *value = f64::from(*logit);
        }
        self.votes.push(argmax(&self.softmax));
        let log_sum = softmax_in_place(&mut self.softmax);
        self.label_log_probabilities.push(f64::from(row[label]) - log_sum);
        let sums = self.mean_probability.iter_mut().zip(&mut self.mean_log_probability);
        let inputs = self.softmax.iter().zip(row);
        let mut negative_entropy = 0.0;
        for (((p_sum, log_p_sum), logit_sum), (p, logit)) in sums.zip(&mut self.mean_logit).zip(inputs) {
            let logit = f64::from(*logit);
            let log_p = logit - log_sum;
            *p_sum += p;
            *log_p_sum += log_p;
            *logit_sum += logit;
            negative_entropy += p * log_p;
        }
        negative_entropy
    }

    /// `H[p̄]`, mean_k KL(p̄‖p_k), and Σ_c p̄_c mean_k log p_kc.
    fn divergences(&self) -> (f64, f64, f64) {
        let (mut entropy, mut cross) = (0.0, 0.0);
        for (p, mean_log_p) in self.mean_probability.iter().zip(&self.mean_log_probability) {
            if *p > 0.0 {
                entropy -= p * p.ln();
                cross += p * mean_log_p;
            }
        }
        (entropy, -entropy - cross, cross)
    }

    fn probability_point(&self, label: usize) -> Point {
        let members = self.label_log_probabilities.len() as f64;
        let nll = members.ln() - log_sum_exp(&self.label_log_probabilities);
        point(&self.mean_probability, &self.mean_probability, label, nll)
    }

    /// Ranks by the mean logits themselves: their softmax may round different logits to equal probabilities.
    fn logit_point(&mut self, label: usize) -> Point {
        self.softmax.copy_from_slice(&self.mean_logit);
        let log_sum = softmax_in_place(&mut self.softmax);
        point(&self.softmax, &self.mean_logit, label, log_sum - self.mean_logit[label])
    }
}

fn point(probabilities: &[f64], order: &[f64], label: usize, nll: f64) -> Point {
    let predicted = argmax(order);
    let ahead = |(class, value): &(usize, &f64)| **value > order[label] || (**value == order[label] && *class < label);
    let squares: f64 = probabilities.iter().map(|p| p * p).sum();
    let off_label = squares - probabilities[label] * probabilities[label];
    let brier = off_label.max(0.0) + (1.0 - probabilities[label]).powi(2);
    Point {
        predicted: predicted as u32,
        confidence: probabilities[predicted],
        label_rank: order.iter().enumerate().filter(ahead).count(),
        nll: nll.max(0.0),
        brier,
    }
}

/// Index of the largest value, the first of equals.
fn argmax(values: &[f64]) -> usize {
    values.iter().enumerate().fold(0, |best, (i, value)| if *value > values[best] { i } else { best })
}

/// Turns logits into probabilities; returns their log-sum-exp.
fn softmax_in_place(values: &mut [f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    values.iter_mut().for_each(|value| *value = (*value - max).exp());
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
    max + sum.ln()
}

fn log_sum_exp(values: &[f64]) -> f64 {
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + values.iter().map(|value| (value - max).exp()).sum::<f64>().ln()
}

/// Share of unordered pairs with different votes; 0 for a single one. Sorts `votes`.
fn pair_disagreement(votes: &mut [usize]) -> f64 {
    votes.sort_unstable();
    let pairs = |count: usize| (count * count.saturating_sub(1)) as f64;
    let equal: f64 = votes.chunk_by(|a, b| a == b).map(|same| pairs(same.len())).sum();
    match votes.len() {
        0 | 1 => 0.0,
        members => 1.0 - equal / pairs(members),
    }
}
