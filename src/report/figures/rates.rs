//! The NLL over the learning rate: of runs that differ in it alone, and of the trials of searches for settings.

use anyhow::Result;

use super::drawing::{Drawing, Material};
use super::readings::{distinct, measured, single, sweeps};
use crate::plot::{Axis, Chart, Entry, Joined, Layer, Mean, Panel, Swatch, Ticks};
use crate::report::sources::{RowView, Search};

/// The numbers of the colours of trials, of the chosen one, and of runs.
const TRIAL: usize = 1;
const CHOSEN: usize = 3;
const RUN: usize = 2;

pub fn draw(material: &Material) -> Result<Option<Drawing>> {
    let mut panels: Vec<Panel> = material.sources.searches.iter().flat_map(of_search).collect();
    panels.extend(of_runs(material));
    if panels.is_empty() {
        return Ok(None);
    }
    let entry = |name: &str, paint| Entry { name: name.into(), paint, swatch: Swatch::Mark };
    let kinds =
        [entry("runs, on test images", RUN), entry("trials, on held-out images", TRIAL), entry("chosen trial", CHOSEN)];
    let is_there = |paint: usize| {
        panels
            .iter()
            .flat_map(|panel| &panel.layers)
            .any(|layer| matches!(layer, Layer::Means { paint: own, .. } if *own == paint))
    };
    let legend = kinds.into_iter().filter(|entry| is_there(entry.paint)).collect();
    let columns = panels.len().min(2);
    let chart = Chart { legend, panels, columns, plot_height: 220, ..Chart::default() };
    Drawing::of(
        &chart,
        "Negative log-likelihood (logits averaged) over the learning rate: of the trials of `bella sweep` on held-out images, \
         each a mark, and of runs that differ in the rate alone on clean test images (means over seeds, whiskers from the \
         smallest to the largest).",
    )
}

/// Returns a panel for the learning rate of a search, if it tried several.
fn of_search(search: &Search) -> Option<Panel> {
    let table = &search.trials;
    let rate = table.columns.iter().find(|column| column.ends_with(".lr") || *column == "lr")?;
    let number = |row: usize, column: &str| table.get(row, column).and_then(single);
    let point = |row: usize| {
        let mean = Mean::of(number(row, rate)?, &[number(row, "validation_nll_lm")?])?;
        Some((table.get(row, "state") == Some("chosen"), mean))
    };
    let points: Vec<(bool, Mean)> = (0..table.rows.len()).filter_map(point).collect();
    let of_kind = |chosen: bool| points.iter().filter(|(is, _)| *is == chosen).map(|(_, mean)| mean.clone()).collect();
    // Trials at one rate stand above each other, and no line joins them.
    let marks = |paint, points: Vec<Mean>| {
        points.into_iter().map(move |point| Layer::Means { paint, joined: Joined::Line, points: vec![point] })
    };
    let layers = marks(TRIAL, of_kind(false)).chain(marks(CHOSEN, of_kind(true))).collect();
    panel(format!("search {}", search.name), rate, points.iter().map(|(_, mean)| (mean.x, mean.mean)).collect(), layers)
}

/// Returns a panel for each group of series that differ in the learning rate alone, on each test set.
fn of_runs(material: &Material) -> Vec<Panel> {
    let columns = distinct(material.series.iter().flat_map(|one| &one.settings).map(|(column, _)| *column));
    let mut panels = vec![];
    for column in columns.into_iter().filter(|column| column.ends_with(".lr")) {
        for sweep in sweeps(&material.series, column, &[]) {
            let mut found: Vec<(String, f64, f64)> = vec![];
            for (rate, series) in &sweep.steps {
                let rows =
                    material.series[*series].rows.iter().map(|row| RowView::new(&material.sources.results, *row));
                for row in rows.filter(|row| row.get("condition") == "clean") {
                    found.extend(measured(&row, "nll_lm").map(|nll| (row.get("set").to_string(), *rate, nll.value)));
                }
            }
            for set in distinct(found.iter().map(|(set, _, _)| set.clone())) {
                let own: Vec<(f64, f64)> = found.iter().filter(|one| one.0 == set).map(|one| (one.1, one.2)).collect();
                let mut rates = distinct(own.iter().map(|(rate, _)| *rate));
                rates.sort_by(f64::total_cmp);
                let mean = |rate: &f64| {
                    Mean::of(*rate, &own.iter().filter(|one| one.0 == *rate).map(|one| one.1).collect::<Vec<_>>())
                };
                let points = rates.iter().filter_map(mean).collect();
                let layers = vec![Layer::Means { paint: RUN, joined: Joined::Line, points }];
                panels.extend(panel(format!("{}, {set}", sweep.name), column, own, layers));
            }
        }
    }
    panels
}

/// Returns a panel over rates on a logarithmic axis. `None` if there is only one rate.
fn panel(title: String, rate: &str, points: Vec<(f64, f64)>, layers: Vec<Layer>) -> Option<Panel> {
    let rates = || points.iter().map(|(rate, _)| *rate);
    let (low, high) = (rates().reduce(f64::min)?, rates().reduce(f64::max)?);
    (low > 0.0 && high > low).then_some(())?;
    Some(Panel {
        title,
        x: Axis::new(format!("{rate} (logarithmic)"), Ticks::Log(low / 1.3, high * 1.3)),
        y: Axis::new("NLL (nats), logits averaged", Ticks::around(points.iter().map(|(_, nll)| *nll))?),
        layers,
        values: false,
    })
}
