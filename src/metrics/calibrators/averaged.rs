//! The averaged predictions that calibrators map.

use anyhow::Result;

use crate::metrics::Average;
use crate::metrics::average::UNSCALED;
use crate::metrics::sample::{each_sample, log_sum_exp};
use crate::predictions::Predictions;

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
        let rows = each_sample(predictions, UNSCALED, |scratch, sample| {
            scratch.read(predictions, sample)?;
            Ok(scratch.logits(predictions, sample, average))
        })?;
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
