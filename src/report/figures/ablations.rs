//! Accuracy against the size of the posterior: rank, number of particles, number of trainable parameters.

use anyhow::Result;

use super::drawing::{Drawing, Material};
use super::readings::{Place, Plan, Reading, distinct, ladder, measured, sweeps, unit_of};
use crate::plot::{Axis, Chart, Entry, Joined, Layer, Mean, Panel, Swatch, Ticks};
use crate::report::sources::RowView;

const QUANTITIES: [&str; 2] = ["accuracy_lm", "nll_lm"];

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
                    readings.push(Reading { panel, unit: reading.unit, series: at, place, value: reading.value });
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
    rows.iter().map(|row| RowView::new(&material.sources.results, *row)).filter(|row| row.get("condition") == "clean")
}

pub fn parameters(material: &Material) -> Result<Option<Drawing>> {
    let mut found = vec![];
    for series in 0..material.series.len() {
        for row in clean_rows(material, series) {
            let count = row.number("trainable_parameters").filter(|count| *count >= 1.0);
            if let (Some(count), Some(value)) = (count, row.number("accuracy_lm")) {
                found.push((row.get("set"), series, count, 100.0 * value));
            }
        }
    }
    let panels: Vec<_> =
        distinct(found.iter().map(|one| one.0)).into_iter().filter_map(|set| scatter(set, &found)).collect();
    let mut present = distinct(found.iter().map(|one| one.1));
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

/// The test set, the index of the series, the number of trainable parameters and the accuracy in percent of one row.
type Sized<'a> = (&'a str, usize, f64, f64);

fn scatter(set: &str, found: &[Sized]) -> Option<Panel> {
    let own: Vec<_> = found.iter().filter(|one| one.0 == set).collect();
    let counts = || own.iter().map(|one| one.2);
    let (low, high) = (counts().reduce(f64::min)?, counts().reduce(f64::max)?);
    let mean = |series: usize| {
        let seeds: Vec<_> = own.iter().filter(|one| one.1 == series).collect();
        Mean::of(seeds.first()?.2, &seeds.iter().map(|one| one.3).collect::<Vec<_>>())
    };
    let layer = |series: usize| Some(Layer::Means { paint: series, joined: Joined::Line, points: vec![mean(series)?] });
    Some(Panel {
        title: set.to_string(),
        x: Axis::new("trainable parameters (logarithmic)", Ticks::Log(low / 1.6, high * 1.6)),
        y: Axis::new(unit_of("accuracy_lm"), Ticks::around(own.iter().map(|one| one.3))?),
        layers: distinct(own.iter().map(|one| one.1)).into_iter().filter_map(layer).collect(),
        values: false,
    })
}
