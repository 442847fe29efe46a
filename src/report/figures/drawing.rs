//! The material that every figure is drawn from, and the drawing that results.

use anyhow::Result;

use super::samples::Measured;
use crate::plot::Chart;
use crate::report::sources::Sources;
use crate::results::series::Series;

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

/// The results that all figures are drawn from.
pub struct Material<'a> {
    pub sources: &'a Sources,
    pub series: Vec<Series<'a>>,
    /// The per-sample scores of the predictions that figures show.
    pub measured: Vec<Measured>,
}
