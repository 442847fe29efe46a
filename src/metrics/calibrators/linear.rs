//! The cross-entropy of softmax(W z + b), and its minimum, for the calibrators that are linear in logits.

use std::collections::VecDeque;

use rayon::prelude::*;

use super::fitted::{Averaged, Map, softmax};

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
        if !found.is_reached() {
            tracing::warn!(
                "--calibrate={key}: no minimum of the held-out NLL was found, as where the {} held-out images lack a class or tell \
                 one apart from all others: the map is where the search ended; hold out more, or choose temperature",
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
        let mut map =
            Linear { weight: self.weight, parameters: found.at, normalises: false, is_reached: found.is_reached };
        // A gradient vanishes at infinity, too.
        map.is_reached &= !self.tells_one_apart(&map);
        map
    }

    /// Returns whether a map is sure of all samples whether they are of some class, and right: such a map has a better one, of larger
    /// parameters.
    fn tells_one_apart(&self, map: &Linear) -> bool {
        const SURE: f64 = 1e-3;
        let mut is_apart = vec![true; self.samples.classes];
        for (row, label) in self.samples.rows().zip(self.labels) {
            for (class, probability) in map.probabilities(row).into_iter().enumerate() {
                let truth = f64::from(u8::from(*label as usize == class));
                is_apart[class] &= (probability - truth).abs() < SURE;
            }
        }
        is_apart.contains(&true)
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
        let log_p = super::fitted::log_softmax(&logits);
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
    /// Returns whether the search has found a minimum.
    pub fn is_reached(&self) -> bool {
        self.is_reached
    }

    /// Returns the same map of the logarithms of probabilities.
    pub fn of_log_probabilities(self) -> Linear {
        Linear { normalises: true, ..self }
    }

    /// Returns the mean cross-entropy of labels.
    pub fn nll(&self, samples: &Averaged, labels: &[u32]) -> f64 {
        let one = |(row, label): (&[f64], &u32)| {
            -super::fitted::log_softmax(&apply(self.weight, &self.parameters, row))[*label as usize]
        };
        samples.rows().zip(labels).map(one).sum::<f64>() / labels.len() as f64
    }
}

impl Map for Linear {
    fn probabilities(&self, logits: &[f64]) -> Vec<f64> {
        let apply = |z: &[f64]| softmax(&apply(self.weight, &self.parameters, z));
        if self.normalises { apply(&super::fitted::log_softmax(logits)) } else { apply(logits) }
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

/// The number of pairs of steps and changes of the gradient that approximate the Hessian.
const HISTORY: usize = 20;

/// The most steps.
const STEPS: usize = 2000;

/// The largest entry of the gradient at which the search ends.
const SMALL: f64 = 1e-9;

/// The end of a search.
struct Minimum {
    pub at: Vec<f64>,
    /// Whether the gradient vanished; it does not where the loss has no finite minimum.
    pub is_reached: bool,
}

/// Follows `loss`, which is smooth and convex and returns its value and its gradient, from `start` by L-BFGS (Nocedal & Wright 2006,
/// algorithm 7.4), in f64.
fn minimise(start: Vec<f64>, loss: impl Fn(&[f64]) -> (f64, Vec<f64>)) -> Minimum {
    let (mut at, (mut value, mut gradient)) = (start.clone(), loss(&start));
    let mut pairs: VecDeque<(Vec<f64>, Vec<f64>)> = VecDeque::new();
    for _ in 0..STEPS {
        if gradient.iter().all(|slope| slope.abs() <= SMALL) {
            return Minimum { at, is_reached: true };
        }
        let mut direction = direction(&pairs, &gradient);
        let mut slope = dot(&direction, &gradient);
        if slope >= 0.0 {
            pairs.clear();
            direction = gradient.iter().map(|slope| -slope).collect();
            slope = dot(&direction, &gradient);
        }
        let Some((next, next_value, next_gradient)) = step(&at, value, &direction, slope, &loss) else {
            // Rounding hides any further descent.
            let is_reached = gradient.iter().all(|slope| slope.abs() <= 1e3 * SMALL);
            return Minimum { at, is_reached };
        };
        let moved: Vec<f64> = next.iter().zip(&at).map(|(a, b)| a - b).collect();
        let changed: Vec<f64> = next_gradient.iter().zip(&gradient).map(|(a, b)| a - b).collect();
        if dot(&moved, &changed) > 0.0 {
            pairs.push_back((moved, changed));
        }
        if pairs.len() > HISTORY {
            pairs.pop_front();
        }
        (at, value, gradient) = (next, next_value, next_gradient);
    }
    Minimum { at, is_reached: false }
}

type Point = (Vec<f64>, f64, Vec<f64>);

/// Returns a point along `direction` that falls enough and turns enough (the weak Wolfe conditions, by bisection).
fn step(
    at: &[f64],
    value: f64,
    direction: &[f64],
    slope: f64,
    loss: &impl Fn(&[f64]) -> (f64, Vec<f64>),
) -> Option<Point> {
    let (mut low, mut high, mut length) = (0.0, f64::INFINITY, 1.0);
    for _ in 0..60 {
        let next: Vec<f64> = at.iter().zip(direction).map(|(x, d)| x + length * d).collect();
        let (next_value, gradient) = loss(&next);
        if !next_value.is_finite() || next_value > value + 1e-4 * length * slope {
            high = length;
        } else if dot(direction, &gradient) < 0.9 * slope {
            low = length;
        } else {
            return Some((next, next_value, gradient));
        }
        length = if high.is_finite() { (low + high) / 2.0 } else { 2.0 * length };
    }
    None
}

/// Returns minus the approximate inverse Hessian times the gradient.
fn direction(pairs: &VecDeque<(Vec<f64>, Vec<f64>)>, gradient: &[f64]) -> Vec<f64> {
    let mut q = gradient.to_vec();
    let mut shares = vec![];
    for (moved, changed) in pairs.iter().rev() {
        let share = dot(moved, &q) / dot(moved, changed);
        add(&mut q, -share, changed);
        shares.push(share);
    }
    if let Some((moved, changed)) = pairs.back() {
        let scale = dot(moved, changed) / dot(changed, changed);
        q.iter_mut().for_each(|entry| *entry *= scale);
    }
    for ((moved, changed), share) in pairs.iter().zip(shares.into_iter().rev()) {
        let back = dot(changed, &q) / dot(moved, changed);
        add(&mut q, share - back, moved);
    }
    q.into_iter().map(|entry| -entry).collect()
}

fn add(to: &mut [f64], factor: f64, values: &[f64]) {
    to.iter_mut().zip(values).for_each(|(entry, value)| *entry += factor * value);
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    // (x − 3)² + 10 (y + 1)² + (x − 3)⁴ has its minimum at (3, −1).
    #[test]
    fn a_convex_function_by_hand() {
        let loss = |at: &[f64]| {
            let (x, y) = (at[0] - 3.0, at[1] + 1.0);
            (x * x + 10.0 * y * y + x.powi(4), vec![2.0 * x + 4.0 * x.powi(3), 20.0 * y])
        };
        let found = minimise(vec![0.0, 0.0], loss);
        assert!(found.is_reached && (found.at[0] - 3.0).abs() < 1e-8 && (found.at[1] + 1.0).abs() < 1e-8);
        assert!(
            !minimise(vec![0.0], |at| ((-at[0] / 50.0).exp() * 1e3, vec![-20.0 * (-at[0] / 50.0).exp()])).at.is_empty()
        );
    }
}
