//! Numbers from all predictions of a test set at once. A metric is a pure function of [`Scores`] and one line in
//! [`METRICS`]; columns, tables and lists all follow from that slice.

mod accuracy;
mod auroc;
mod average;
pub mod bootstrap;
mod brier;
pub mod calibration;
mod diversity;
mod entropy;
mod nll;
pub mod ood;
pub mod ranking;
mod sample;
mod scores;
pub mod selective;
pub mod temperature;
pub mod uncertainty;

pub use average::{Average, PerAverage};
pub use sample::argmax;
pub use scores::{Averaged, Scores};
pub use uncertainty::{Guesses, Spread, Uncertainty};

/// Which way is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Higher,
    Lower,
    Neither,
}

/// Whether a metric has one value, or one per way of averaging members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Two columns, `<key>_lm` and `<key>_pm`.
    PerAverage,
    /// One column, `<key>`.
    Shared,
}

/// What the number is counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// In [0, 1]; percent in rendered tables, fraction in files.
    Fraction,
    Nats,
    /// A plain number.
    One,
}

/// Where a metric is shown; files hold every metric, by every average.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// The averages whose columns printed tables of result rows have.
    pub tables: &'static [Average],
    /// The averages whose columns tables over seeds have.
    pub seeds: &'static [Average],
    /// Whether it is reported after temperature scaling too.
    pub scaled: bool,
}

impl Shown {
    /// In files alone.
    pub const IN_FILES: Shown = Shown { tables: &[], seeds: &[], scaled: false };
}

/// How `bella compare` takes a metric again on samples drawn with replacement.
#[derive(Clone, Copy, Debug)]
pub enum Resampled {
    /// The mean of a number of every sample.
    Mean(fn(&Scores, Average) -> Vec<f64>),
    /// A bin and a gap of every sample; the sum over bins of |sum of gaps|, divided by the number of samples.
    Binned(fn(&Scores, Average) -> Vec<(u8, f64)>),
}

/// One metric of the registry.
pub struct Metric {
    /// Stem of the column name.
    pub key: &'static str,
    /// The name in figures.
    pub short: &'static str,
    /// What it tells, in a line.
    pub about: &'static str,
    /// The formula and its conventions.
    pub definition: &'static str,
    pub unit: Unit,
    pub better: Better,
    pub scope: Scope,
    pub shown: Shown,
    /// `None`: `bella compare` leaves it out.
    pub resampled: Option<Resampled>,
    /// `None` where it is undefined (top-5 of five classes, MI of one member), never a stand-in number.
    pub eval: fn(&Scores, Average) -> Option<f64>,
}

/// All metrics, in the order of the columns.
pub static METRICS: &[&Metric] = &[
    &accuracy::ACCURACY,
    &accuracy::TOP5,
    &nll::NLL,
    &brier::BRIER,
    &calibration::ECE,
    &calibration::MCE,
    &calibration::ACE,
    &calibration::RMSCE,
    &entropy::PREDICTIVE,
    &entropy::EXPECTED,
    &entropy::MI,
    &entropy::MI_CORRECT,
    &entropy::MI_WRONG,
    &entropy::ENTROPY_CORRECT,
    &entropy::ENTROPY_WRONG,
    &diversity::DIVERSITY_KL,
    &diversity::PAIRWISE_KL,
    &diversity::DISAGREEMENT,
    &auroc::MI_ERROR,
    &auroc::ENTROPY_ERROR,
    &selective::AURC,
    &selective::AUGRC,
    &selective::ACCURACY_AT_80,
    &selective::ACCURACY_AT_90,
    &selective::COVERAGE_AT_5,
];

impl Metric {
    /// The metric's columns with the averaging each stands for; for [`Scope::Shared`] the averaging is of no effect.
    pub fn columns(&self) -> Vec<(String, Average)> {
        match self.scope {
            Scope::Shared => vec![(self.key.to_string(), Average::Probability)],
            Scope::PerAverage => {
                Average::ALL.map(|average| (format!("{}_{}", self.key, average.suffix()), average)).to_vec()
            }
        }
    }

    /// The meaning of the metric's columns.
    fn column(&self) -> Column {
        Column { short: self.short, definition: self.definition, unit: self.unit, better: self.better }
    }
}

/// The columns of all metrics for which `chosen` names an average, those of averaged logits first.
pub fn columns_where(chosen: fn(&Shown) -> &'static [Average]) -> Vec<String> {
    let mut columns = vec![];
    for average in Average::ALL {
        for metric in METRICS {
            let own = metric.columns().into_iter().filter(|(_, of)| *of == average);
            columns.extend(own.filter(|(_, of)| chosen(&metric.shown).contains(of)).map(|(column, _)| column));
        }
    }
    columns
}

/// All columns and their values, in registry order; undefined ones are `None`.
pub fn evaluate(scores: &Scores) -> Vec<(String, Option<f64>)> {
    let columns = METRICS.iter().flat_map(|metric| {
        let values = metric.columns().into_iter();
        values.map(|(column, average)| (column, (metric.eval)(scores, average)))
    });
    columns.collect()
}

/// One metric by its key; `None` where it is unknown or undefined.
pub fn value(scores: &Scores, key: &str, average: Average) -> Option<f64> {
    METRICS.iter().find(|metric| metric.key == key).and_then(|metric| (metric.eval)(scores, average))
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
    /// The name with the unit of rendered numbers: `NLL (nats)`.
    pub fn label(&self) -> String {
        match self.unit {
            Unit::Fraction => format!("{} (%)", self.short),
            Unit::Nats => format!("{} (nats)", self.short),
            Unit::One => self.short.to_string(),
        }
    }

    /// The factor from a number in files to a rendered one.
    pub fn factor(&self) -> f64 {
        if self.unit == Unit::Fraction { 100.0 } else { 1.0 }
    }
}

/// What is known of a column: a metric's (`ece_lm`, `mi`), one after temperature scaling (`ece_ts_lm`), or a measure
/// of out-of-distribution detection (`fpr95`).
pub fn of_column(column: &str) -> Option<Column> {
    let metric = METRICS.iter().find(|metric| metric.columns().iter().any(|(name, _)| name == column));
    let metric = metric.map(|metric| metric.column());
    metric.or_else(|| temperature::of_column(column)).or_else(|| ood::of_column(column))
}

#[cfg(test)]
mod tests;
