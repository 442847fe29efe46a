//! The columns of calibrated numbers.

use anyhow::{Result, ensure};

use super::entries::CALIBRATORS;
use super::fitted::{Calibrator, Fit};
use crate::metrics::temperature;
use crate::metrics::{ACCURACY, Average, Column, Metric, PerAverage, Scores};
use crate::predictions::Predictions;

/// Fits calibrators on held-out predictions and returns their columns of `test`: of a temperature `temperature_<average>` and
/// `<metric>_ts_<average>`, of any other one `<metric>_<suffix>_<average>`, among them the accuracy, which others than a temperature change.
///
/// # Errors
/// Fails if labels are missing, the numbers of classes or members differ, a logit is not finite, or there are too few images.
pub fn columns(
    calibrators: &[&'static Calibrator],
    held_out: &Predictions,
    test: &Predictions,
) -> Result<Vec<(String, Option<f64>)>> {
    let (a, b) = (held_out.shape(), test.shape());
    ensure!(
        a.classes == b.classes && a.members == b.members,
        "validation predictions have {} members and {} classes, those to scale {} and {}: must be of one predictor",
        a.members,
        a.classes,
        b.members,
        b.classes
    );
    let mut columns = vec![];
    for calibrator in calibrators {
        match calibrator.fit {
            Fit::Temperature => columns.extend(temperature::scaled_columns(held_out, test)?),
            Fit::Map(_) => columns.extend(mapped(calibrator, held_out, test)?),
        }
    }
    Ok(columns)
}

fn mapped(
    calibrator: &'static Calibrator,
    held_out: &Predictions,
    test: &Predictions,
) -> Result<Vec<(String, Option<f64>)>> {
    let of = |average| -> Result<Scores> { Scores::compute(&calibrator.fit(held_out, average)?.predictions(test)?) };
    let scores = PerAverage { logit: of(Average::Logit)?, probability: of(Average::Probability)? };
    let mut columns = vec![];
    for metric in metrics() {
        for average in Average::ALL {
            // Calibrated predictions are those of one member, of which both averages are the same.
            let value = (metric.eval)(scores.of(average), Average::Logit);
            columns.push((temperature::column_name(metric, calibrator.suffix, average), value));
        }
    }
    Ok(columns)
}

/// The metrics that are reported after calibration.
fn metrics() -> impl Iterator<Item = &'static Metric> {
    std::iter::once(&ACCURACY).chain(temperature::scaled())
}

/// Returns the calibrator that a column comes from, and its metric; `None` for a fitted temperature.
fn parts(column: &str) -> Option<(&'static Calibrator, &'static Metric)> {
    let all = CALIBRATORS.iter().flat_map(|calibrator| metrics().map(move |metric| (*calibrator, metric)));
    let mut named = all.filter(|(calibrator, metric)| {
        let name = |average: &Average| temperature::column_name(metric, calibrator.suffix, *average) == column;
        Average::ALL.iter().any(name)
    });
    named.next()
}

/// Returns whether a column comes from a calibrator.
pub fn is_column(column: &str) -> bool {
    column.starts_with("temperature_") || parts(column).is_some()
}

/// Returns the meaning of a column of [`columns`].
pub fn of_column(column: &str) -> Option<Column> {
    temperature::of_column(column).or_else(|| parts(column).map(|(_, metric)| metric.column()))
}

/// Returns what tables call the numbers of a column: those of a temperature are scaled, those of another calibrator have its name.
pub fn word(column: &str) -> Option<&'static str> {
    parts(column).map(|(calibrator, _)| match calibrator.fit {
        Fit::Temperature => "scaled",
        Fit::Map(_) => calibrator.key,
    })
}
