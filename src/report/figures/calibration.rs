//! Figures that show whether the confidence can be trusted: reliability diagrams, of all classes together and of single ones, and the
//! error among the most confident predictions.

use anyhow::Result;

use super::material::{Drawing, Material, Measured};
use super::readings::distinct;
use crate::metrics::calibration::{BINS, Bin, reliability as bins_of};
use crate::metrics::selective::risk_coverage as curve_of;
use crate::metrics::{self, Average};
use crate::plot::{Axis, Chart, Entry, Layer, Panel, Swatch, Ticks, Tone};

const ACCURACY: usize = 2;
const TOO_SURE: usize = 3;
const NOT_SURE: usize = 4;
const CURVE_POINTS: usize = 101;

pub fn reliability(material: &Material) -> Result<Option<Drawing>> {
    let clean: Vec<_> = material.measured.iter().filter(|one| one.is_clean()).collect();
    let cells = distinct(clean.iter().map(|one| (&one.set, one.series)));
    let several_sets = distinct(cells.iter().map(|cell| cell.0)).len() > 1;
    let panel = |(set, series): &(&String, usize)| {
        let runs: Vec<_> = clean.iter().copied().filter(|one| one.set == **set && one.series == *series).collect();
        let place = if several_sets { format!("; {set}") } else { String::new() };
        diagram(&runs, material.names[*series].clone(), &place)
    };
    let panels: Vec<_> = cells.iter().map(panel).collect();
    if panels.is_empty() {
        return Ok(None);
    }
    let entry = |name: &str, paint, tone| Entry { name: name.into(), paint, swatch: Swatch::Bar(tone) };
    let legend = vec![
        entry("accuracy", ACCURACY, Tone::Full),
        entry("confidence above it (too sure)", TOO_SURE, Tone::Pale),
        entry("confidence below it (not sure enough)", NOT_SURE, Tone::Full),
    ];
    // The numbers of images need wide bars.
    let columns = panels.len().min(2);
    let chart = Chart { legend, panels, columns, plot_height: 230, ..Chart::default() };
    Drawing::of(
        &chart,
        format!(
            "Accuracy of the predictions in {BINS} equal bins of confidence (largest probability of the averaged \
             logits), and how far the mean confidence lies above or below it; on the diagonal they are equal. The number of \
             images stands above each bin. Clean test images; bins over all seeds together, ECE as the mean over seeds."
        ),
    )
}

/// Returns the bins of several runs together.
fn pooled(runs: &[&Measured]) -> [Bin; BINS] {
    let mut bins = [Bin::default(); BINS];
    for run in runs {
        for (sum, bin) in bins.iter_mut().zip(bins_of(&run.scores, Average::Logit)) {
            let (old, new) = (sum.count as f64, bin.count as f64);
            if bin.count > 0 {
                sum.accuracy = (old * sum.accuracy + new * bin.accuracy) / (old + new);
                sum.confidence = (old * sum.confidence + new * bin.confidence) / (old + new);
                sum.count += bin.count;
            }
        }
    }
    bins
}

fn diagram(runs: &[&Measured], title: String, place: &str) -> Panel {
    let bins = pooled(runs);
    let errors: Vec<_> = runs.iter().filter_map(|run| metrics::value(&run.scores, "ece", Average::Logit)).collect();
    let ece = 100.0 * errors.iter().sum::<f64>() / errors.len().max(1) as f64;
    let (mut layers, mut counts) = (vec![Layer::Reference { from: (0.0, 0.0), to: (1.0, 1.0) }], vec![]);
    for (place, bin) in bins.iter().enumerate().filter(|(_, bin)| bin.count > 0) {
        let edge = |at: f64| (place as f64 + at) / BINS as f64;
        let bar = |paint, low: f64, high: f64, tone| Layer::Bar {
            paint,
            from: (edge(0.08), high),
            to: (edge(0.92), low),
            tone,
        };
        let (low, high) = (bin.accuracy.min(bin.confidence), bin.accuracy.max(bin.confidence));
        layers.push(bar(ACCURACY, 0.0, low, Tone::Full));
        layers.push(match bin.confidence > bin.accuracy {
            true => bar(TOO_SURE, low, high, Tone::Pale),
            false => bar(NOT_SURE, low, high, Tone::Full),
        });
        counts.push((short_count(bin.count), (edge(0.5), high)));
    }
    layers.push(Layer::Texts { points: counts });
    let axis = |title: &str, high| Axis::new(title, Ticks::between(0.0, high));
    let images: usize = bins.iter().map(|bin| bin.count).sum();
    Panel {
        title,
        x: axis("confidence", 1.0),
        y: axis(&format!("accuracy; ECE {ece:.2} %, {images} images{place}"), 1.08),
        layers,
        values: false,
    }
}

/// Returns a number of images in at most four letters: 12345 becomes `12k`.
fn short_count(count: usize) -> String {
    if count < 10_000 { count.to_string() } else { format!("{}k", (count + 500) / 1000) }
}

pub fn risk_coverage(material: &Material) -> Result<Option<Drawing>> {
    let places = distinct(material.measured.iter().map(Measured::place));
    let mut panels = vec![];
    for place in &places {
        let here: Vec<_> = material.measured.iter().filter(|one| one.place() == *place).collect();
        let mut layers = vec![];
        let mut top: f64 = 0.0;
        for series in distinct(here.iter().map(|one| one.series)) {
            let curves: Vec<_> = here.iter().filter(|one| one.series == series).map(|one| curve(one)).collect();
            let points = mean_curve(&curves);
            top = points.iter().fold(top, |top, (_, risk)| top.max(*risk));
            layers.push(Layer::Curve { paint: series, points });
        }
        panels.push(Panel {
            title: place.clone(),
            x: Axis::new(
                "coverage: share of predictions kept, the most confident first (%)",
                Ticks::between(0.0, 100.0),
            ),
            y: Axis::new("error among those kept (%)", Ticks::between(0.0, top.max(0.1))),
            layers,
            values: false,
        });
    }
    if panels.is_empty() {
        return Ok(None);
    }
    let mut present = distinct(material.measured.iter().map(|one| one.series));
    present.sort_unstable();
    let entry = |series: usize| Entry { name: material.names[series].clone(), paint: series, swatch: Swatch::Line };
    let legend = present.into_iter().map(entry).collect();
    let columns = panels.len().min(2);
    let chart = Chart { legend, panels, columns, plot_height: 240, ..Chart::default() };
    Drawing::of(
        &chart,
        "Share of wrong predictions among the most confident ones (largest probability of the averaged logits), over the \
         share that is kept; lower is better. Means over seeds, from the saved predictions.",
    )
}

/// Returns the risk-coverage curve of one run as points `(coverage, risk)`, in percent.
fn curve(one: &Measured) -> Vec<(f64, f64)> {
    let curve = curve_of(&one.scores, Average::Logit, CURVE_POINTS);
    curve.into_iter().map(|(coverage, risk)| (100.0 * coverage, 100.0 * risk)).collect()
}

/// Returns the pointwise mean of curves that share one grid.
fn mean_curve(curves: &[Vec<(f64, f64)>]) -> Vec<(f64, f64)> {
    let length = curves.iter().map(Vec::len).min().unwrap_or(0);
    let mean = |at: usize, part: fn(&(f64, f64)) -> f64| {
        curves.iter().map(|curve| part(&curve[at])).sum::<f64>() / curves.len() as f64
    };
    (0..length).map(|at| (mean(at, |point| point.0), mean(at, |point| point.1))).collect()
}

/// The most classes that have panels, those with the largest error first.
const MOST_CLASSES: usize = 9;

/// The fewest images of a point.
const FEWEST: u32 = 10;

pub fn class_reliability(material: &Material) -> Result<Option<Drawing>> {
    let clean: Vec<&Measured> = material.measured.iter().filter(|one| one.is_clean()).collect();
    let sets = distinct(clean.iter().map(|one| &one.set));
    let mut panels = Vec::new();
    for set in &sets {
        let here: Vec<&Measured> = clean.iter().copied().filter(|one| one.set == **set).collect();
        let place = if sets.len() > 1 { format!(", {set}") } else { String::new() };
        panels.extend(worst_classes(&here).into_iter().filter_map(|class| class_panel(&here, class, &place)));
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
fn worst_classes(runs: &[&Measured]) -> Vec<usize> {
    let classes = runs.iter().map(|run| run.classes.len()).min().unwrap_or(0);
    let error =
        |class: usize| -> f64 { runs.iter().map(|run| run.scores.class_gaps.of(Average::Logit).error_of(class)).sum() };
    let mut order: Vec<(usize, f64)> = (0..classes).map(|class| (class, error(class))).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1));
    order.truncate(MOST_CLASSES);
    order.into_iter().map(|(class, _)| class).collect()
}

/// Draws a class; `None` if no run has a point of it.
fn class_panel(runs: &[&Measured], class: usize, place: &str) -> Option<Panel> {
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
