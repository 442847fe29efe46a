//! The columns of calibrated numbers.

use anyhow::{Result, ensure};

use super::entries::CALIBRATORS;
use super::fitted::{Calibrated, Calibrator, Fit};
use crate::metrics::scores::labels;
use crate::metrics::temperature::{self, Scaling};
use crate::metrics::{ACCURACY, Average, Column, Metric, PerAverage, Scores};
use crate::predictions::{Predictions, Shape};

/// Calibrators that were fitted on held-out predictions.
pub struct Calibration {
    /// The shape of the held-out predictions.
    shape: Shape,
    fitted: Vec<Columns>,
}

/// What makes the columns of a fitted calibrator.
enum Columns {
    Scaled(Scaling),
    Mapped(&'static Calibrator, PerAverage<Calibrated>),
}

impl Calibration {
    /// Fits calibrators on held-out predictions.
    ///
    /// # Errors
    /// Fails if labels are missing, if a logit is not finite, or if there are too few images.
    pub fn fit(calibrators: &[&'static Calibrator], held_out: &Predictions) -> Result<Calibration> {
        let fit = |calibrator: &'static Calibrator| {
            Ok(match calibrator.fit {
                Fit::Temperature => Columns::Scaled(Scaling::fit(held_out)?),
                Fit::Map(_) => Columns::Mapped(calibrator, calibrator.fit_both(held_out)?),
            })
        };
        let fitted = calibrators.iter().map(|calibrator| fit(calibrator)).collect::<Result<_>>()?;
        Ok(Calibration { shape: held_out.shape(), fitted })
    }

    /// Returns the calibrated columns of `test`: of a temperature `temperature_<average>` and `<metric>_ts_<average>`, of any other
    /// calibrator `<metric>_<suffix>_<average>`, among them the accuracy, which others than a temperature change.
    ///
    /// # Errors
    /// Fails if labels are missing, the numbers of classes or members differ, or a logit is not finite.
    pub fn columns(&self, test: &Predictions) -> Result<Vec<(String, Option<f64>)>> {
        let (a, b) = (self.shape, test.shape());
        ensure!(
            a.classes == b.classes && a.members == b.members,
            "validation predictions have {} members and {} classes, those to scale {} and {}: must be of one predictor",
            a.members,
            a.classes,
            b.members,
            b.classes
        );
        let mut columns = vec![];
        for one in &self.fitted {
            columns.extend(match one {
                Columns::Scaled(scaling) => scaling.columns(test)?,
                Columns::Mapped(calibrator, maps) => mapped(calibrator, maps, test)?,
            });
        }
        Ok(columns)
    }
}

fn mapped(
    calibrator: &Calibrator,
    maps: &PerAverage<Calibrated>,
    test: &Predictions,
) -> Result<Vec<(String, Option<f64>)>> {
    let (classes, labels) = (test.classes(), labels(test)?);
    let of = |map: &Calibrated| -> Result<Scores> {
        Ok(Scores::of_probabilities(classes, &map.probabilities(test)?, labels))
    };
    let scores = PerAverage { logit: of(&maps.logit)?, probability: of(&maps.probability)? };
    let mut columns = vec![];
    for metric in metrics() {
        for average in Average::ALL {
            let value = (metric.eval)(scores.of(average), average);
            columns.push((temperature::column_name(metric, calibrator.suffix, average), value));
        }
    }
    Ok(columns)
}

/// The metrics that are reported after calibration.
pub fn metrics() -> impl Iterator<Item = &'static Metric> {
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

/// Returns the meaning of a column of [`Calibration::columns`].
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
