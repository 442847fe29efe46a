//! The entry of a metric, and the meaning of its columns.

use super::average::Average;
use super::scores::Scores;

/// The direction in which a metric improves.
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

/// The unit of a metric.
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
    /// The meaning of the number, in one line.
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

impl Metric {
    /// The metric's columns with the averaging each stands for; for [`Scope::Shared`] the value is the same for both averages.
    pub fn columns(&self) -> Vec<(String, Average)> {
        match self.scope {
            Scope::Shared => vec![(self.key.to_string(), Average::Probability)],
            Scope::PerAverage => {
                Average::ALL.map(|average| (format!("{}_{}", self.key, average.suffix()), average)).to_vec()
            }
        }
    }

    /// The meaning of the metric's columns.
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
