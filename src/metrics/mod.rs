//! Metrics of all predictions on a test set. A metric is a pure function of [`Scores`] and one line in [`METRICS`];
//! columns, tables and lists all follow from that slice.

pub mod accuracy;
mod agreement;
pub mod answers;
pub mod auroc;
mod average;
mod bins;
pub mod bootstrap;
mod brier;
pub mod by_class;
pub mod calibration;
pub mod calibrators;
pub mod conformal;
mod diversity;
mod entropy;
mod list;
mod metric;
pub mod multiple;
mod nll;
pub mod numbers;
pub mod ood;
mod sample;
pub mod scores;
pub mod selective;
pub mod temperature;
#[cfg(test)]
mod tests;

pub use accuracy::ACCURACY;
pub use average::{Average, PerAverage, UNSCALED};
pub use list::{METRICS, evaluate, value};
pub use metric::{Better, Column, Metric, Resampled, Scope, Shown, Tally, Unit};
pub use nll::NLL;
pub use sample::{argmax, softmax_in_place};
pub use scores::{Averaged, Guesses, Scores, Spread, Uncertainty};

/// Returns the columns of all metrics for which `chosen` names an average, those of averaged logits first.
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

/// Returns the columns of the metrics by which results on one of the sets `named` are published, if they are not in every
/// table.
pub fn columns_of_sets(named: &dyn Fn(&str) -> bool) -> Vec<String> {
    let of_sets = METRICS.iter().filter(|metric| metric.shown.sets.iter().any(|set| named(set)));
    of_sets.flat_map(|metric| metric.columns()).map(|(column, _)| column).collect()
}

/// Returns the meaning of a registered column: a metric (`ece_lm`, `mi`), a metric after temperature scaling
/// (`ece_ts_lm`), a measure of out-of-distribution detection (`fpr95`), one of conformal sets (`mean_set_size`), one of a
/// class (`class_accuracy`), one of answers (`vqa_accuracy`), or one of numbers (`rmse`).
pub fn of_column(column: &str) -> Option<Column> {
    let metric = METRICS.iter().find(|metric| metric.columns().iter().any(|(name, _)| name == column));
    let metric = metric.map(|metric| metric.column());
    metric
        .or_else(|| calibrators::of_column(column))
        .or_else(|| ood::of_column(column))
        .or_else(|| conformal::of_column(column))
        .or_else(|| by_class::of_column(column))
        .or_else(|| answers::of_column(column))
        .or_else(|| numbers::of_column(column))
}

/// Returns a number with so many decimals, as readers see it. Where these would show fewer than two digits of `size`, which
/// is the number itself or the mean that a deviation belongs to, the number has as many as three digits of `size` need.
pub fn rounded(value: f64, decimals: usize, size: f64) -> String {
    let size = size.abs();
    let is_small = size > 0.0 && size < 10f64.powi(1 - decimals as i32);
    match is_small {
        false => format!("{value:.decimals$}"),
        true if size < 1e-6 => format!("{value:.2e}"),
        true => format!("{value:.*}", (2.0 - size.log10().floor()) as usize),
    }
}
