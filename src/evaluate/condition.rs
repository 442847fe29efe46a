//! The condition under which the images of a test set are seen: unchanged, corrupted or attacked. It is a cell that
//! distinguishes the rows of one run and set, and it also fills the tidy columns beside that cell.

use std::fmt;

use crate::data::corruptions::Applied;
use crate::data::versions::Version;
use crate::evaluate::attacks::{Resolution, Target};
use crate::results::store::Row;
use crate::results::{CLEAN, FOREIGN_CONDITION};

/// The change made to the images.
#[derive(Clone, Debug)]
pub enum Condition {
    Clean,
    /// A corruption applied by bella.
    Corrupted(Applied),
    /// A published corrupted version.
    Published(Version),
    /// The mean over published corrupted versions: `mean-15:3` at one severity, `mean-15` over all.
    Mean {
        name: String,
        severity: Option<u8>,
    },
    Attacked(Attacked),
    /// The images of a set of other classes.
    Foreign(String),
}

/// Returns the set of other classes that a condition names, if it names one.
pub fn foreign_set(condition: &str) -> Option<&str> {
    condition.strip_prefix(FOREIGN_CONDITION)
}

/// An attack and its budget.
#[derive(Clone, Debug)]
pub struct Attacked {
    pub attack: &'static str,
    /// The L∞ budget, for pixels in [0, 1].
    pub epsilon: f64,
    /// The settings that distinguish it from other attacks at the same budget.
    pub settings: String,
    /// The settings that distinguish it from other attacks at any budget.
    pub variant: String,
    pub target: Target,
    pub resolution: Resolution,
    /// The id of the run on whose members it was made, if these are not those that are evaluated.
    pub source: Option<String>,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::Clean => f.write_str(CLEAN),
            Condition::Corrupted(applied) => write!(f, "{applied} (bella)"),
            Condition::Published(version) => write!(f, "{version}"),
            Condition::Mean { name, .. } => f.write_str(name),
            Condition::Attacked(attacked) => attacked.fmt(f),
            Condition::Foreign(set) => write!(f, "{FOREIGN_CONDITION}{set}"),
        }
    }
}

impl fmt::Display for Attacked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Attacked { attack, epsilon, settings, target, resolution, source, .. } = self;
        write!(f, "{attack} {epsilon}{settings}")?;
        if *target != Target::MeanProbability {
            write!(f, " {target}")?;
        }
        if *resolution != Resolution::Model {
            write!(f, " {resolution}")?;
        }
        source.as_ref().map_or(Ok(()), |run| write!(f, " from {run}"))
    }
}

impl Condition {
    /// Adds the condition and its parts as columns.
    pub fn describe(&self, row: &mut Row) {
        row.push("condition", self.to_string());
        match self {
            Condition::Clean | Condition::Foreign(_) => {}
            Condition::Corrupted(applied) => shift(row, applied.key(), Some(applied.severity()), "bella"),
            Condition::Published(version) => shift(row, &version.corruption, Some(version.severity), "published"),
            Condition::Mean { name, severity } => {
                shift(row, name.split(':').next().unwrap_or(name), *severity, "published");
            }
            Condition::Attacked(Attacked { attack, epsilon, variant, target, resolution, source, .. }) => {
                row.push("attack", *attack);
                row.push("epsilon", epsilon.to_string());
                row.push("attack_target", target.to_string());
                row.push("attack_resolution", resolution.to_string());
                row.push("attack_variant", variant);
                if let Some(run) = source {
                    row.push("attack_source", run);
                }
            }
        }
    }
}

fn shift(row: &mut Row, corruption: &str, severity: Option<u8>, source: &str) {
    row.push("corruption", corruption);
    row.push("severity", severity.map_or(String::new(), |severity| severity.to_string()));
    row.push("shift_source", source);
}
