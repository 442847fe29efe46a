//! The material that every figure is drawn from, and the drawing that results.

use anyhow::Result;

use super::samples::{Measured, measure};
use crate::plot::Chart;
use crate::report::sources::{OfExperiment, Sources};
use crate::results::series::{Series, without_shared};

/// A picture as SVG with its caption.
pub struct Drawing {
    pub svg: String,
    pub caption: String,
}

impl Drawing {
    pub fn of(chart: &Chart, caption: impl Into<String>) -> Result<Option<Self>> {
        Ok(Some(Self { svg: chart.render(), caption: caption.into() }))
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
