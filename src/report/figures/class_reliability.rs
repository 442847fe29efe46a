//! Reliability of single classes: how often images are of a class that has got a probability.

use anyhow::Result;

use super::material::{Drawing, Material, Measured};
use super::readings::distinct;
use crate::metrics::Average;
use crate::metrics::calibration::BINS;
use crate::plot::{Axis, Chart, Entry, Layer, Panel, Swatch, Ticks};

/// The most classes that have panels, those with the largest error first.
const MOST_CLASSES: usize = 9;

/// The fewest images of a point.
const FEWEST: u32 = 10;

pub fn draw(material: &Material) -> Result<Option<Drawing>> {
    let clean: Vec<&Measured> = material.measured.iter().filter(|one| one.is_clean()).collect();
    let sets = distinct(clean.iter().map(|one| &one.set));
    let mut panels = Vec::new();
    for set in &sets {
        let here: Vec<&Measured> = clean.iter().copied().filter(|one| one.set == **set).collect();
        let place = if sets.len() > 1 { format!(", {set}") } else { String::new() };
        panels.extend(worst(&here).into_iter().filter_map(|class| panel(&here, class, &place)));
    }
    if panels.is_empty() {
        return Ok(None);
    }
    let mut present = distinct(clean.iter().map(|one| one.series));
    present.sort_unstable();
    let entry = |series: usize| Entry { name: material.names[series].clone(), paint: series, swatch: Swatch::Line };
    let legend = present.into_iter().map(entry).collect();
    let columns = panels.len().min(3);
    let chart = Chart { legend, panels, columns, plot_height: 200, ..Chart::default() };
    Drawing::of(
        &chart,
        format!(
            "Share of images of a class among those to which it was given about one probability (averaged logits, {BINS} equal bins, \
             points of at least {FEWEST} images); on the diagonal they are equal, below it the class is named too surely. At most \
             {MOST_CLASSES} classes of a test set, those with the largest class-wise ECE first. Clean test images, all seeds together."
        ),
    )
}

/// Returns the classes with the largest error over all runs.
fn worst(runs: &[&Measured]) -> Vec<usize> {
    let classes = runs.iter().map(|run| run.classes.len()).min().unwrap_or(0);
    let error =
        |class: usize| -> f64 { runs.iter().map(|run| run.scores.class_gaps.of(Average::Logit).error_of(class)).sum() };
    let mut order: Vec<(usize, f64)> = (0..classes).map(|class| (class, error(class))).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    order.truncate(MOST_CLASSES);
    order.into_iter().map(|(class, _)| class).collect()
}

/// Draws a class; `None` if no run has a point of it.
fn panel(runs: &[&Measured], class: usize, place: &str) -> Option<Panel> {
    let mut layers = vec![Layer::Reference { from: (0.0, 0.0), to: (1.0, 1.0) }];
    let lines = layers.len();
    for series in distinct(runs.iter().map(|run| run.series)) {
        let own: Vec<&&Measured> = runs.iter().filter(|run| run.series == series).collect();
        let point = |bin: usize| {
            let bins = own.iter().map(|run| run.scores.class_gaps.of(Average::Logit).bin(class, bin));
            let (samples, hits, sum) = bins.fold((0, 0, 0.0), |(samples, hits, sum), bin| {
                (samples + bin.samples, hits + bin.hits, sum + bin.probability)
            });
            (samples >= FEWEST).then(|| (sum / f64::from(samples), f64::from(hits) / f64::from(samples)))
        };
        let points: Vec<(f64, f64)> = (0..BINS).filter_map(point).collect();
        if !points.is_empty() {
            layers.push(Layer::Dots { paint: series, points: points.clone() });
            layers.push(Layer::Curve { paint: series, points });
        }
    }
    (layers.len() > lines).then(|| Panel {
        title: format!("class {}{place}", runs[0].classes[class]),
        x: Axis::new("probability given to the class", Ticks::between(0.0, 1.0)),
        y: Axis::new("share of the class among them", Ticks::between(0.0, 1.0)),
        layers,
        values: false,
    })
}
