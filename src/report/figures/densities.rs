//! Densities of the uncertainty of right and of wrong predictions. A good measure of uncertainty separates the two.

use anyhow::Result;

use super::density::{density, quantile};
use super::drawing::{Drawing, Material};
use super::readings::distinct;
use super::samples::Measured;
use crate::metrics::{Average, Scores};
use crate::plot::{Axis, Chart, Entry, Layer, Panel, Swatch, Ticks, small_columns};

const RIGHT: usize = 2;
const WRONG: usize = 3;
const POINTS: usize = 110;
/// The number of panels after which further ones are left out, because nobody would look at them.
const MOST_PANELS: usize = 24;

/// The quantile of all values at which the horizontal axes end, so that a few outliers do not squeeze the rest.
const SHOWN_SHARE: f64 = 0.99;

pub fn mutual_information(material: &Material) -> Result<Option<Drawing>> {
    draw(material, "mutual information (nats)", "Mutual information (what the members do not agree on)", |scores| {
        scores.mutual_information()
    })
}

pub fn entropy(material: &Material) -> Result<Option<Drawing>> {
    draw(material, "predictive entropy (nats)", "Entropy of the mean probabilities", |scores| {
        Some(&scores.uncertainty.predictive_entropy)
    })
}

fn draw(
    material: &Material,
    axis: &str,
    subject: &str,
    quantity: for<'a> fn(&'a Scores) -> Option<&'a [f64]>,
) -> Result<Option<Drawing>> {
    let (mut panels, places) = panels_of(material, axis, quantity);
    if panels.is_empty() {
        return Ok(None);
    }
    let mut notes = vec![];
    if panels.len() > MOST_PANELS {
        notes.push(format!("{} further panels are not shown.", panels.len() - MOST_PANELS));
        panels.truncate(MOST_PANELS);
    }
    let entry = |name: &str, paint| Entry { name: name.into(), paint, swatch: Swatch::Area };
    let columns = small_columns(&panels);
    let legend = vec![entry("right predictions", RIGHT), entry("wrong predictions", WRONG)];
    let chart = Chart { legend, panels, columns, plot_height: 150, notes, ..Chart::default() };
    let caption = format!(
        "{subject} over the rightly and the wrongly classified test images (class of the averaged logits), each density \
         with area 1, all seeds of a method together. Gaussian kernel, bandwidth after Silverman, reflected at 0; the \
         axis ends at the {:.0} % quantile of the test condition. From the saved predictions of: {}.",
        100.0 * SHOWN_SHARE,
        places.join("; ")
    );
    Drawing::of(&chart, caption)
}

/// Returns the panels of all test conditions, and the names of these conditions.
fn panels_of(
    material: &Material,
    axis: &str,
    quantity: for<'a> fn(&'a Scores) -> Option<&'a [f64]>,
) -> (Vec<Panel>, Vec<String>) {
    let with: Vec<_> = material.measured.iter().filter(|one| quantity(&one.scores).is_some()).collect();
    let places = distinct(with.iter().map(|one| one.place()));
    let mut panels = vec![];
    for place in &places {
        let here: Vec<_> = with.iter().copied().filter(|one| one.place() == *place).collect();
        let all: Vec<f64> = here.iter().flat_map(|one| quantity(&one.scores).unwrap_or_default()).copied().collect();
        let Some(high) = quantile(&all, SHOWN_SHARE).filter(|high| *high > 0.0) else { continue };
        for series in distinct(here.iter().map(|one| one.series)) {
            let own: Vec<_> = here.iter().copied().filter(|one| one.series == series).collect();
            let name = material.series.get(series).map_or("", |one| one.name.as_str());
            let unit = if places.len() > 1 { format!("density; {place}") } else { "density".to_string() };
            panels.extend(panel(&own, high, [axis, &unit], quantity, name.to_string()));
        }
    }
    (panels, places)
}

/// Returns one panel with the given titles of its axes. `None` if neither the right nor the wrong predictions have a
/// density.
fn panel(
    runs: &[&Measured],
    high: f64,
    [axis, unit]: [&str; 2],
    quantity: for<'a> fn(&'a Scores) -> Option<&'a [f64]>,
    title: String,
) -> Option<Panel> {
    let mut layers = vec![];
    let mut top: f64 = 0.0;
    for (wanted, paint) in [(true, RIGHT), (false, WRONG)] {
        let of_run = |run: &&Measured| {
            let right = &run.scores.averaged(Average::Logit).correct;
            let values = quantity(&run.scores).unwrap_or_default().iter().zip(right);
            values.filter(|(_, right)| **right == wanted).map(|(value, _)| *value).collect::<Vec<_>>()
        };
        let values: Vec<f64> = runs.iter().flat_map(of_run).collect();
        if let Some(points) = density(&values, high, POINTS) {
            top = points.iter().fold(top, |top, (_, height)| top.max(*height));
            layers.push(Layer::Area { paint, points });
        }
    }
    (!layers.is_empty()).then(|| Panel {
        title,
        x: Axis::new(axis, Ticks::between(0.0, high)),
        y: Axis::new(unit, Ticks::between(0.0, top)),
        layers,
        values: false,
    })
}
