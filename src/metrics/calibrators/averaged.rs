//! The averaged predictions that calibrators map.

use anyhow::Result;
use rayon::prelude::*;

use crate::metrics::Average;
use crate::metrics::softmax::log_sum_exp;
use crate::predictions::{Predictions, check_finite};

/// The averaged predictions of all samples as logits, `[N, C]`: the mean logits, or the logarithms of the mean probabilities.
#[derive(Clone, Debug, PartialEq)]
pub struct Averaged {
    pub classes: usize,
    logits: Vec<f64>,
}

impl Averaged {
    /// Takes rows of logits, `[N, C]`.
    pub fn new(classes: usize, logits: Vec<f64>) -> Averaged {
        Averaged { classes, logits }
    }

    /// Averages the members of all samples.
    ///
    /// # Errors
    /// Fails if a logit is NaN or infinite; the message names the member and the sample.
    pub fn of(predictions: &Predictions, average: Average) -> Result<Averaged> {
        let rows: Vec<Vec<f64>> = (0..predictions.samples())
            .into_par_iter()
            .map(|sample| match average {
                Average::Logit => mean_logits(predictions, sample),
                Average::Probability => log_mean_probabilities(predictions, sample),
            })
            .collect::<Result<_>>()?;
        predictions.expect_whole()?;
        Ok(Averaged { classes: predictions.classes(), logits: rows.concat() })
    }

    pub fn samples(&self) -> usize {
        self.logits.len() / self.classes
    }

    /// Returns the logits of one sample, `[C]`.
    pub fn row(&self, sample: usize) -> &[f64] {
        &self.logits[sample * self.classes..(sample + 1) * self.classes]
    }

    pub fn rows(&self) -> impl Iterator<Item = &[f64]> {
        self.logits.chunks_exact(self.classes)
    }

    /// Returns some of the samples.
    pub fn select(&self, samples: &[usize]) -> Averaged {
        let rows: Vec<&[f64]> = samples.iter().map(|sample| self.row(*sample)).collect();
        Averaged { classes: self.classes, logits: rows.concat() }
    }

    /// Returns the logits with the log-sum-exp of each sample subtracted, which are the logarithms of probabilities.
    pub fn normalised(&self) -> Averaged {
        let rows: Vec<Vec<f64>> = self.rows().map(log_softmax).collect();
        Averaged { classes: self.classes, logits: rows.concat() }
    }
}

/// Returns the logarithms of the probabilities of logits, `[C]`.
pub fn log_softmax(logits: &[f64]) -> Vec<f64> {
    let sum = log_sum_exp(logits);
    logits.iter().map(|logit| logit - sum).collect()
}

/// Returns the probabilities of logits, `[C]`.
pub fn softmax(logits: &[f64]) -> Vec<f64> {
    log_softmax(logits).into_iter().map(f64::exp).collect()
}

/// Divides values by their sum; where it is 0, all become equal, as scikit-learn has it.
pub fn normalised(values: Vec<f64>) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    let count = values.len() as f64;
    values.into_iter().map(|value| if sum > 0.0 { value / sum } else { 1.0 / count }).collect()
}

fn mean_logits(predictions: &Predictions, sample: usize) -> Result<Vec<f64>> {
    let mut row = vec![0.0; predictions.classes()];
    for member in 0..predictions.members() {
        let logits = predictions.logits(member, sample);
        check_finite(logits, member, sample)?;
        let weight = predictions.weight(member) / predictions.total_weight();
        row.iter_mut().zip(logits).for_each(|(sum, logit)| *sum += weight * f64::from(*logit));
    }
    Ok(row)
}

/// Returns log mean_k p_kc from the members' log-probabilities, so that none underflows.
fn log_mean_probabilities(predictions: &Predictions, sample: usize) -> Result<Vec<f64>> {
    let mut members = Vec::with_capacity(predictions.members());
    for member in 0..predictions.members() {
        let logits = predictions.logits(member, sample);
        check_finite(logits, member, sample)?;
        let wide: Vec<f64> = logits.iter().map(|logit| f64::from(*logit)).collect();
        let weight = (predictions.weight(member) / predictions.total_weight()).ln();
        members.push(log_softmax(&wide).into_iter().map(|log_p| log_p + weight).collect::<Vec<f64>>());
    }
    let class = |class: usize| log_sum_exp(&members.iter().map(|log_p| log_p[class]).collect::<Vec<_>>());
    Ok((0..predictions.classes()).map(class).collect())
}
