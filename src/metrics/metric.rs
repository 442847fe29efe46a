//! The entry of a metric in the registry, and the meaning of its columns; and the counts of predictions by class, from which the
//! measures of agreement follow that are no mean over samples.

use super::{Average, Scores};
use crate::predictions::{Predictions, Shape};

/// The direction in which a metric improves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
    Neither,
}

/// Whether a metric has one value, or one for each way of averaging members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Two columns, `<key>_lm` and `<key>_pm`.
    PerAverage,
    /// One column, `<key>`.
    Shared,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number in [0, 1], shown in percent in rendered tables and as a fraction in files.
    Fraction,
    Nats,
    /// A plain number.
    One,
}

/// The outputs in which a metric is shown. Files hold every metric for both averages.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The averages for which printed tables of result rows have a column.
    pub tables: &'static [Average],
    /// The averages for which tables over seeds have a column.
    pub seeds: &'static [Average],
    /// Whether the metric is also reported after calibration.
    pub scaled: bool,
    /// The names of the test sets whose results are published by this metric: tables with one of them have its columns.
    pub sets: &'static [&'static str],
}

impl Shown {
    /// The metric is shown only in files.
    pub const IN_FILES: Shown = Shown { tables: &[], seeds: &[], scaled: false, sets: &[] };
}

/// The way `bella compare` recomputes a metric on samples drawn with replacement.
#[derive(Clone, Copy, Debug)]
pub enum Resampled {
    /// The metric is the mean of one number per sample.
    Mean(fn(&Scores, Average) -> Vec<f64>),
    /// Each sample has a bin and a gap. The metric is the sum over bins of |sum of gaps|, divided by the number of
    /// samples.
    Binned(fn(&Scores, Average) -> Vec<(u8, f64)>),
    /// The metric follows from the counts of labels and predictions. Where it is not defined, the resample is left out.
    Tallied(fn(&Tally) -> Option<f64>),
}

/// One metric of the registry.
pub struct Metric {
    /// The stem of the column name.
    pub key: &'static str,
    /// The name in figures.
    pub short: &'static str,
    /// The meaning of the number, in one line.
    pub about: &'static str,
    /// The formula and its conventions.
    pub definition: &'static str,
    pub unit: Unit,
    pub better: Better,
    pub scope: Scope,
    pub shown: Shown,
    /// `None` if `bella compare` leaves the metric out.
    pub resampled: Option<Resampled>,
    /// The value of the metric. `None` if it is undefined (top-5 of five classes, MI of one member); no other number
    /// stands in.
    pub eval: fn(&Scores, Average) -> Option<f64>,
}

impl Metric {
    /// Returns the metric's columns, each with the averaging it stands for. The value of a [`Scope::Shared`] metric is
    /// the same for both averages.
    pub fn columns(&self) -> Vec<(String, Average)> {
        match self.scope {
            Scope::Shared => vec![(self.key.to_string(), Average::Probability)],
            Scope::PerAverage => {
                Average::ALL.map(|average| (format!("{}_{}", self.key, average.suffix()), average)).to_vec()
            }
        }
    }

    /// Returns whether the metric has a value for predictions of so many classes, of which all occur, some right and some wrong.
    pub fn is_defined_for(&self, classes: usize) -> bool {
        // No metric asks for more.
        let classes = classes.clamp(1, 8);
        let shape = Shape { members: 2, samples: 2 * classes, classes };
        // Each class once where it is expected and once where another is; the second member is less certain.
        let logit = |member: usize, sample: usize, class: usize| {
            let expected = (sample / 2 + sample % 2) % classes;
            if class == expected { 2.0 - member as f32 } else { 0.0 }
        };
        let all = (0..2).flat_map(|member| (0..shape.samples).map(move |sample| (member, sample)));
        let logits = all.flat_map(|(member, sample)| (0..classes).map(move |class| logit(member, sample, class)));
        let labels = (0..shape.samples).map(|sample| (sample / 2) as u32).collect();
        let predictions = Predictions::new(shape, logits.collect(), labels);
        let scores = predictions.and_then(|predictions| Scores::compute(&predictions));
        scores.is_ok_and(|scores| (self.eval)(&scores, Average::Logit).is_some_and(f64::is_finite))
    }

    /// Returns the meaning of the metric's columns.
    pub fn column(&self) -> Column {
        Column { short: self.short, definition: self.definition, unit: self.unit, better: self.better }
    }
}

/// The meaning of a column of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The name in figures.
    pub short: &'static str,
    pub definition: &'static str,
    pub unit: Unit,
    pub better: Better,
}

impl Column {
    /// Returns the name with the unit of rendered numbers, such as `NLL (nats)`.
    pub fn label(&self) -> String {
        match self.unit {
            Unit::Fraction => format!("{} (%)", self.short),
            Unit::Nats => format!("{} (nats)", self.short),
            Unit::One => self.short.to_string(),
        }
    }

    /// Returns the factor that converts a number in files to a rendered one.
    pub fn factor(&self) -> f64 {
        if self.unit == Unit::Fraction { 100.0 } else { 1.0 }
    }
}

/// The counts of each class, `[C]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Tally {
    /// The number of samples of the class that are predicted to be of it.
    pub correct: Vec<u64>,
    /// The number of samples that are predicted to be of the class.
    pub predicted: Vec<u64>,
    /// The number of samples of the class.
    pub labelled: Vec<u64>,
}

impl Tally {
    /// Counts the samples at `indices`, given the label and the predicted class of every sample.
    pub fn of_samples(classes: usize, samples: &[[u32; 2]], indices: impl IntoIterator<Item = usize>) -> Tally {
        let zeros = vec![0; classes];
        let mut all = Tally { correct: zeros.clone(), predicted: zeros.clone(), labelled: zeros };
        for [label, predicted] in indices.into_iter().map(|i| samples[i].map(|class| class as usize)) {
            all.labelled[label] += 1;
            all.predicted[predicted] += 1;
            all.correct[label] += u64::from(label == predicted);
        }
        all
    }

    /// Counts all samples.
    pub fn of(scores: &Scores, average: Average) -> Tally {
        let samples = scores.labels_with_guesses(average);
        Tally::of_samples(scores.uncertainty.shape.classes, &samples, 0..samples.len())
    }

    /// Returns the F1 of a class; `None` if it is neither a label nor predicted.
    pub fn f1(&self, class: usize) -> Option<f64> {
        f1(self.correct[class], self.labelled[class], self.predicted[class])
    }
}

/// Returns 2 TP / (2 TP + FP + FN), given TP and the numbers of samples of the class and predicted to be of it; `None` if both are 0.
pub(super) fn f1(correct: u64, labelled: u64, predicted: u64) -> Option<f64> {
    let all = labelled + predicted;
    (all > 0).then(|| 2.0 * correct as f64 / all as f64)
}
