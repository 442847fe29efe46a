//! The thresholds of conformal sets and intervals, and the coverages that were measured with them.

use std::cell::RefCell;

use anyhow::{Result, bail};

use crate::base::small::Usage;
use crate::metrics::conformal::{Calibrated, Coverage, Plan};
use crate::metrics::numbers::conformal::Interval;
use crate::results::store::Row;
use crate::results::uncertainty::{interval_row, rows};
use crate::tasks::Outcome;

/// Thresholds, and the rows that were measured with them.
pub struct Conformal {
    pub thresholds: Thresholds,
    measured: RefCell<Vec<Row>>,
}

impl Conformal {
    pub fn new(thresholds: Thresholds) -> Conformal {
        Conformal { thresholds, measured: RefCell::default() }
    }

    /// Returns the rows that were measured so far, in order.
    pub fn measured(&self) -> Vec<Row> {
        self.measured.borrow().clone()
    }

    /// Adds rows that were measured.
    pub(super) fn add(&self, rows: Vec<Row>) {
        self.measured.borrow_mut().extend(rows);
    }
}

/// The thresholds for the predictions of a task.
pub enum Thresholds {
    /// The thresholds of sets of classes.
    Sets(Vec<Calibrated>),
    /// The thresholds of intervals of a number.
    Intervals(Vec<Interval>),
}

const NEITHER: &str = "conformal prediction is of classes or of numbers, and a file holds answers";

impl Thresholds {
    /// Takes the thresholds from the predictions of calibration samples.
    ///
    /// # Errors
    /// Fails if there are too few samples for a level, if an option is of classes alone and numbers are predicted, or if answers are.
    pub fn of(plan: &Plan, held_out: &dyn Outcome) -> Result<Thresholds> {
        if let Some(predictions) = held_out.logits() {
            return Ok(Thresholds::Sets(plan.calibrate(predictions)?));
        }
        let Some(numbers) = held_out.numbers() else { bail!(NEITHER) };
        check_options(plan)?;
        Ok(Thresholds::Intervals(Interval::all(&plan.alphas, numbers)?))
    }

    /// Returns the rows of each measurement of a test set, with `who` at the start of each.
    ///
    /// # Errors
    /// Fails if what was predicted is of another kind than the calibration, or of other classes.
    pub fn measure(&self, found: &dyn Outcome, who: &Row) -> Result<Vec<Vec<Row>>> {
        Ok(match (self, found.logits(), found.numbers()) {
            (Thresholds::Sets(all), Some(predictions), _) => {
                let measured = Coverage::measure(all, predictions)?;
                all.iter().zip(&measured).map(|(one, coverage)| rows(who, one, coverage)).collect()
            }
            (Thresholds::Intervals(all), _, Some(numbers)) => {
                all.iter().map(|one| vec![interval_row(who, one, one.measure(numbers))]).collect()
            }
            _ => bail!("thresholds of classes and predicted numbers, or the reverse: both files must be of one run"),
        })
    }
}

/// Checks that no option is given that is of sets of classes alone.
///
/// # Errors
/// Fails, as bad usage, if one is.
pub fn check_options(plan: &Plan) -> Result<()> {
    let Some(option) = plan.of_classes else { return Ok(()) };
    Err(Usage(format!("{option} is of sets of classes, and a number is predicted: leave it out")).into())
}
