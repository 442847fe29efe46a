//! Metrics over a setting: the NLL over the learning rate, of runs that differ in it alone and of the trials of searches; the
//! accuracy against the size of the posterior (rank, number of particles, number of trainable parameters).

use anyhow::Result;

use super::material::{Drawing, Material};
use super::readings::{Place, Plan, Reading, Shown, distinct, ladder, measured, single, sweeps, unit_of};
use crate::plot::{Axis, Chart, Entry, Joined, Layer, Mean, Panel, Swatch, Ticks};
use crate::report::sources::{RowView, Search};

const NLL: &str = "nll_lm";

/// The numbers of the colours of trials, of the chosen one, and of runs.
const TRIAL: usize = 1;
const CHOSEN: usize = 3;
const RUN: usize = 2;

pub fn learning_rate(material: &Material) -> Result<Option<Drawing>> {
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

/// The NLL of a run on a test set, by its learning rate.
struct Tried {
    set: String,
    rate: f64,
    nll: f64,
}

/// Returns a panel for each group of series that differ in the learning rate alone, on each test set.
fn of_runs(material: &Material) -> Vec<Panel> {
    let columns = distinct(material.series.iter().flat_map(|one| &one.settings).map(|(column, _)| *column));
    let mut panels = vec![];
    for column in columns.into_iter().filter(|column| column.ends_with(".lr")) {
        for sweep in sweeps(&material.series, column, &[]) {
            let mut found: Vec<Tried> = vec![];
            for (rate, series) in &sweep.steps {
                let rows =
                    material.series[*series].rows.iter().map(|row| RowView::new(&material.sources.results, *row));
                for row in rows.filter(|row| row.is_clean()) {
                    let tried = |nll: Shown| Tried { set: row.get("set").to_string(), rate: *rate, nll: nll.value };
                    found.extend(measured(&row, NLL).map(tried));
                }
            }
            for set in distinct(found.iter().map(|one| one.set.clone())) {
                let own = found.iter().filter(|one| one.set == set);
                let own: Vec<(f64, f64)> = own.map(|one| (one.rate, one.nll)).collect();
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
        y: Axis::new(unit_of(NLL), Ticks::around(points.iter().map(|(_, nll)| *nll))?),
        layers,
        values: false,
    })
}

const QUANTITIES: [&str; 2] = ["accuracy_lm", NLL];

pub fn rank(material: &Material) -> Result<Option<Drawing>> {
    swept(material, "rank", "rank of the updates (not to scale)")
}

pub fn particles(material: &Material) -> Result<Option<Drawing>> {
    swept(material, "particles", "particles (not to scale)")
}

fn swept(material: &Material, column: &str, x_title: &'static str) -> Result<Option<Drawing>> {
    let sweeps = sweeps(&material.series, column, &[]);
    let mut readings = vec![];
    for (at, sweep) in sweeps.iter().enumerate() {
        for (value, series) in &sweep.steps {
            for row in clean_rows(material, *series) {
                for column in QUANTITIES {
                    let Some(reading) = measured(&row, column) else { continue };
                    let panel = format!("{}: {}", row.get("set"), reading.short);
                    let place = Place::number(*value);
                    readings.push(Reading {
                        panel,
                        unit: reading.unit,
                        series: at,
                        place,
                        value: reading.value,
                        interval: None,
                    });
                }
            }
        }
    }
    let names: Vec<_> = sweeps.into_iter().map(|sweep| sweep.name).collect();
    let plan = Plan { x_title, columns: 2, joined: true, notes: vec![] };
    match ladder(&names, &readings, plan) {
        Some(chart) => Drawing::of(&chart, format!("Runs that differ in {column} alone, on clean test images.")),
        None => Ok(None),
    }
}

fn clean_rows<'a>(material: &'a Material, series: usize) -> impl Iterator<Item = RowView<'a>> {
    let rows = material.series.get(series).map_or(&[][..], |one| &one.rows);
    rows.iter().map(|row| RowView::new(&material.sources.results, *row)).filter(|row| row.is_clean())
}

pub fn parameters(material: &Material) -> Result<Option<Drawing>> {
    let mut found = vec![];
    for series in 0..material.series.len() {
        for row in clean_rows(material, series) {
            let count = row.number("trainable_parameters").filter(|count| *count >= 1.0);
            if let (Some(count), Some(value)) = (count, row.number("accuracy_lm")) {
                found.push(Sized { set: row.get("set"), series, count, accuracy: 100.0 * value });
            }
        }
    }
    let panels: Vec<_> =
        distinct(found.iter().map(|one| one.set)).into_iter().filter_map(|set| scatter(set, &found)).collect();
    let mut present = distinct(found.iter().map(|one| one.series));
    present.sort_unstable();
    let entry = |series: usize| Entry { name: material.names[series].clone(), paint: series, swatch: Swatch::Mark };
    if panels.is_empty() {
        return Ok(None);
    }
    let chart = Chart {
        legend: present.into_iter().map(entry).collect(),
        columns: panels.len().min(2),
        panels,
        plot_height: 240,
        ..Chart::default()
    };
    Drawing::of(
        &chart,
        "Accuracy (logits averaged) on clean test images over the number of trained parameters, all particles together. \
         Marks are means over seeds, whiskers reach from the smallest to the largest.",
    )
}

/// A row on a test set.
struct Sized<'a> {
    set: &'a str,
    series: usize,
    /// The number of trainable parameters.
    count: f64,
    /// The accuracy in percent.
    accuracy: f64,
}

fn scatter(set: &str, found: &[Sized]) -> Option<Panel> {
    let own: Vec<_> = found.iter().filter(|one| one.set == set).collect();
    let counts = || own.iter().map(|one| one.count);
    let (low, high) = (counts().reduce(f64::min)?, counts().reduce(f64::max)?);
    let mean = |series: usize| {
        let seeds: Vec<_> = own.iter().filter(|one| one.series == series).collect();
        Mean::of(seeds.first()?.count, &seeds.iter().map(|one| one.accuracy).collect::<Vec<_>>())
    };
    let layer = |series: usize| Some(Layer::Means { paint: series, joined: Joined::Line, points: vec![mean(series)?] });
    Some(Panel {
        title: set.to_string(),
        x: Axis::new("trainable parameters (logarithmic)", Ticks::Log(low / 1.6, high * 1.6)),
        y: Axis::new(unit_of("accuracy_lm"), Ticks::around(own.iter().map(|one| one.accuracy))?),
        layers: distinct(own.iter().map(|one| one.series)).into_iter().filter_map(layer).collect(),
        values: false,
    })
}
