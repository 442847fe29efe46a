//! The cross-entropy of softmax(W z + b), and its minimum, for the calibrators that are linear in logits.

use rayon::prelude::*;

use super::averaged::{Averaged, softmax};
use super::descent::minimise;
use super::fitted::Map;

/// The parts into which samples are cut; sums over them are added in order, so that they do not vary with the threads.
const PARTS: usize = 16;

/// The entries of W that are fitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weight {
    Diagonal,
    Full,
}

/// The factors of the penalties: of the mean squared entry of W off its diagonal, and of the mean squared entry of b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalty {
    pub off_diagonal: f64,
    pub intercept: f64,
}

pub const NO_PENALTY: Penalty = Penalty { off_diagonal: 0.0, intercept: 0.0 };

/// The map z ↦ softmax(W z + b).
pub struct Linear {
    weight: Weight,
    /// The entries of W, `[C]` or `[C, C]`, and behind them those of b, `[C]`.
    parameters: Vec<f64>,
    /// Whether z are the logarithms of probabilities.
    normalises: bool,
    /// Whether the search has found the minimum.
    is_reached: bool,
}

/// A fit: the samples with their labels, and the form and penalty of the map.
pub struct Problem<'a> {
    pub samples: &'a Averaged,
    pub labels: &'a [u32],
    pub weight: Weight,
    pub penalty: Penalty,
}

impl Problem<'_> {
    /// Returns the map with the least cross-entropy and penalty, from the identity. Where the cross-entropy has no finite minimum, which
    /// a warning says, it is the map where the search ended.
    pub fn solve(&self, key: &str) -> Linear {
        let found = self.search();
        if !found.is_reached {
            tracing::warn!(
                "--calibrate={key}: no minimum of the held-out NLL was found, as where the {} held-out images lack a class or tell \
                 all of them apart: the map is where the search ended; hold out more, or choose temperature",
                self.labels.len()
            );
        }
        found
    }

    /// Returns the map where the search ends, and does not say whether it has found the minimum.
    pub fn search(&self) -> Linear {
        let classes = self.samples.classes;
        let ones = (0..classes).map(|i| match self.weight {
            Weight::Diagonal => vec![1.0],
            Weight::Full => (0..classes).map(|j| f64::from(u8::from(i == j))).collect(),
        });
        let start: Vec<f64> = ones.flatten().chain(vec![0.0; classes]).collect();
        let found = minimise(start, |parameters| self.loss(parameters));
        Linear { weight: self.weight, parameters: found.at, normalises: false, is_reached: found.is_reached }
    }

    /// Returns the mean cross-entropy with its penalties, and the gradient.
    fn loss(&self, parameters: &[f64]) -> (f64, Vec<f64>) {
        let (samples, classes) = (self.samples.samples(), self.samples.classes);
        let part = |part: usize| {
            let (mut value, mut gradient) = (0.0, vec![0.0; parameters.len()]);
            for i in part * samples / PARTS..(part + 1) * samples / PARTS {
                value += self.add_sample(i, parameters, &mut gradient);
            }
            (value, gradient)
        };
        let parts: Vec<(f64, Vec<f64>)> = (0..PARTS).into_par_iter().map(part).collect();
        let (mut value, mut gradient) = (0.0, vec![0.0; parameters.len()]);
        for (own, slopes) in parts {
            value += own / samples as f64;
            gradient.iter_mut().zip(slopes).for_each(|(sum, slope)| *sum += slope / samples as f64);
        }
        value += self.add_penalty(parameters, classes, &mut gradient);
        (value, gradient)
    }

    fn add_sample(&self, sample: usize, parameters: &[f64], gradient: &mut [f64]) -> f64 {
        let (z, label) = (self.samples.row(sample), self.labels[sample] as usize);
        let logits = apply(self.weight, parameters, z);
        let log_p = super::averaged::log_softmax(&logits);
        let (of_weight, of_intercept) = gradient.split_at_mut(parameters.len() - z.len());
        for (class, log_p) in log_p.iter().enumerate() {
            let slope = log_p.exp() - f64::from(u8::from(class == label));
            of_intercept[class] += slope;
            match self.weight {
                Weight::Diagonal => of_weight[class] += slope * z[class],
                Weight::Full => {
                    let row = &mut of_weight[class * z.len()..(class + 1) * z.len()];
                    row.iter_mut().zip(z).for_each(|(entry, z)| *entry += slope * z);
                }
            }
        }
        -log_p[label]
    }

    fn add_penalty(&self, parameters: &[f64], classes: usize, gradient: &mut [f64]) -> f64 {
        let Penalty { off_diagonal, intercept } = self.penalty;
        let weights = parameters.len() - classes;
        let mut value = 0.0;
        for (place, parameter) in parameters.iter().enumerate() {
            let factor = match place {
                place if place >= weights => intercept / classes as f64,
                place if self.weight == Weight::Full && place / classes != place % classes => {
                    off_diagonal / (classes * (classes - 1)) as f64
                }
                _ => 0.0,
            };
            value += factor * parameter * parameter;
            gradient[place] += 2.0 * factor * parameter;
        }
        value
    }
}

impl Linear {
    /// Returns the same map of the logarithms of probabilities.
    pub fn of_log_probabilities(self) -> Linear {
        Linear { normalises: true, ..self }
    }

    /// Returns the mean cross-entropy of labels.
    pub fn nll(&self, samples: &Averaged, labels: &[u32]) -> f64 {
        let one = |(row, label): (&[f64], &u32)| {
            -super::averaged::log_softmax(&apply(self.weight, &self.parameters, row))[*label as usize]
        };
        samples.rows().zip(labels).map(one).sum::<f64>() / labels.len() as f64
    }
}

impl Map for Linear {
    fn probabilities(&self, logits: &[f64]) -> Vec<f64> {
        let apply = |z: &[f64]| softmax(&apply(self.weight, &self.parameters, z));
        if self.normalises { apply(&super::averaged::log_softmax(logits)) } else { apply(logits) }
    }
}

/// Returns W z + b.
fn apply(weight: Weight, parameters: &[f64], z: &[f64]) -> Vec<f64> {
    let (weights, intercepts) = parameters.split_at(parameters.len() - z.len());
    let row = |class: usize| match weight {
        Weight::Diagonal => weights[class] * z[class],
        Weight::Full => weights[class * z.len()..(class + 1) * z.len()].iter().zip(z).map(|(w, z)| w * z).sum(),
    };
    (0..z.len()).map(|class| row(class) + intercepts[class]).collect()
}
