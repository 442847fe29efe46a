//! The material that every figure is drawn from, with the per-sample scores of the predictions that figures show (the clean
//! images and the strongest shifts of each test set), and the drawing that results.

use std::path::Path;

use anyhow::{Context, Result};

use super::readings::distinct;
use crate::metrics::Scores;
use crate::plot::{Canvas, Chart};
use crate::report::sources::{OfExperiment, RowView, Sources};
use crate::results::CLEAN;
use crate::results::names::without_shared;
use crate::results::series::Series;
use crate::run::open_predictions;

/// The number of shifted conditions shown beside the clean one, for each test set.
const MOST_SHIFTS: usize = 2;

/// The scores of one run on one test set under one condition.
pub struct Measured {
    /// The index of the series.
    pub series: usize,
    pub set: String,
    pub condition: String,
    /// The names of the classes, `[C]`.
    pub classes: Vec<String>,
    pub scores: Scores,
}

impl Measured {
    /// Returns whether the images were left unchanged.
    pub fn is_clean(&self) -> bool {
        self.condition == CLEAN
    }

    /// Returns the set and the condition as the title of a panel names them.
    pub fn place(&self) -> String {
        format!("{}, {}", self.set, self.condition)
    }
}

/// Computes the scores of the predictions that figures show. Also returns a line for each file that could not be read.
fn measure(sources: &Sources, series: &[Series]) -> (Vec<Measured>, Vec<String>) {
    let shown = shown(sources);
    let (mut measured, mut problems) = (vec![], vec![]);
    for (at, one) in series.iter().enumerate() {
        let rows = one.rows.iter().map(|row| RowView::new(&sources.results, *row));
        for row in rows.filter(|row| shown.contains(&place(row))) {
            let Some(path) = sources.predictions_of(&row) else { continue };
            match read(&path) {
                Ok((classes, scores)) => {
                    let (set, condition) = place(&row);
                    measured.push(Measured { series: at, set, condition, classes, scores });
                }
                Err(error) => problems.push(format!("{error:#}; left out")),
            }
        }
    }
    (measured, problems)
}

/// Returns the names of the classes of a predictions file, and its scores.
fn read(path: &Path) -> Result<(Vec<String>, Scores)> {
    let predictions = open_predictions(path)?;
    let scores = Scores::compute(&predictions).with_context(|| path.display().to_string())?;
    Ok((predictions.names_or_numbers(), scores))
}

fn place(row: &RowView) -> (String, String) {
    (row.get("set").to_string(), row.get("condition").to_string())
}

/// Returns the sets and conditions that are shown: all clean ones and the most severe corruptions, if their predictions
/// are saved.
fn shown(sources: &Sources) -> Vec<(String, String)> {
    let saved: Vec<_> = sources.result_rows().filter(|row| sources.predictions_of(row).is_some()).collect();
    let mut shown = vec![];
    for set in distinct(saved.iter().map(|row| row.get("set"))) {
        let own = || saved.iter().filter(move |row| row.get("set") == set);
        shown.extend(own().filter(|row| row.is_clean()).map(place));
        let mut shifts: Vec<_> = own().filter(|row| !row.get("corruption").is_empty()).collect();
        shifts.sort_by(|a, b| severity(b).total_cmp(&severity(a)));
        shown.extend(distinct(shifts.into_iter().map(place)).into_iter().take(MOST_SHIFTS));
    }
    distinct(shown)
}

fn severity(row: &RowView) -> f64 {
    row.number("severity").unwrap_or(0.0)
}

/// A picture with its caption.
pub struct Drawing {
    pub picture: Canvas,
    pub caption: String,
}

impl Drawing {
    pub fn of(chart: &Chart, caption: impl Into<String>) -> Result<Option<Self>> {
        Ok(Some(Self { picture: chart.render(), caption: caption.into() }))
    }
}

/// The results of one experiment, which figures are drawn from.
pub struct Material<'a> {
    /// The experiment; empty if all results are of one.
    pub experiment: String,
    pub sources: &'a Sources,
    pub series: Vec<Series<'a>>,
    /// The words that the names of all series share, and the rest of each name, as legends show it.
    pub shared: String,
    pub names: Vec<String>,
    /// The per-sample scores of the predictions that figures show.
    pub measured: Vec<Measured>,
    /// A line for each file that could not be read.
    pub unread: Vec<String>,
}

impl<'a> Material<'a> {
    /// Reads the predictions of each experiment that figures and tables of classes are made from.
    pub fn of(experiments: &'a [OfExperiment]) -> Vec<Self> {
        let of_one = |OfExperiment { experiment, sources }: &'a OfExperiment| {
            let series = sources.series();
            let (measured, unread) = measure(sources, &series);
            let all: Vec<String> = series.iter().map(|one| one.name.clone()).collect();
            let (shared, names) = without_shared(&all);
            Material { experiment: experiment.clone(), sources, series, shared, names, measured, unread }
        };
        experiments.iter().map(of_one).collect()
    }
}
