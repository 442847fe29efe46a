//! What a metric is, and what its columns hold.

use super::average::Average;
use super::scores::Scores;

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

/// One metric of the registry.
pub struct Metric {
    /// Stem of the column name.
    pub key: &'static str,
    /// What it tells, in a line.
    pub about: &'static str,
    /// The formula and its conventions.
    pub definition: &'static str,
    pub unit: Unit,
    pub better: Better,
    pub scope: Scope,
    /// `None` where it is undefined (top-5 of five classes, MI of one member), never a stand-in number.
    pub eval: fn(&Scores, Average) -> Option<f64>,
}

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

    /// What the metric's columns hold.
    pub fn column(&self) -> Column {
        Column { definition: self.definition, unit: self.unit, better: self.better }
    }
}

/// What a column of results holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub definition: &'static str,
    pub unit: Unit,
    pub better: Better,
}
