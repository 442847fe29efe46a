//! A matrix for each method on each clean test set, which shows how often each class is taken for another.

use anyhow::Result;

use super::material::{Drawing, Material};
use super::readings::distinct;
use crate::metrics::Average;
use crate::metrics::by_class::Confusion;
use crate::plot::{Axis, Chart, Layer, Panel, Square, Ticks, WIDTH};

/// The number of classes up to which squares hold their number, and up to which rows and columns are named.
const WITH_NUMBERS: usize = 12;
const WITH_NAMES: usize = 30;

/// The number of panels after which further ones are left out.
const MOST_PANELS: usize = 6;

/// The counts of one series on one clean test set, over all its seeds.
pub struct OfSeries {
    /// The index of the series.
    pub series: usize,
    pub set: String,
    /// The names of the classes, `[C]`.
    pub classes: Vec<String>,
    /// The number of seeds, each of which has predicted the same images.
    pub seeds: u64,
    pub confusion: Confusion,
}

impl Material<'_> {
    /// Returns the counts of every series on every clean test set whose predictions are saved.
    pub fn confusions(&self) -> Vec<OfSeries> {
        let clean: Vec<_> = self.measured.iter().filter(|one| one.is_clean()).collect();
        let cells = distinct(clean.iter().map(|one| (one.series, &one.set, &one.classes)));
        let of_cell = |(series, set, classes): (usize, &String, &Vec<String>)| {
            let mut confusion = Confusion::new(classes.len());
            let own = clean.iter().filter(|one| (one.series, &one.set, &one.classes) == (series, set, classes));
            let seeds = own.map(|one| confusion.add(&one.scores, Average::Logit)).count() as u64;
            OfSeries { series, set: set.clone(), classes: classes.clone(), seeds, confusion }
        };
        cells.into_iter().map(of_cell).collect()
    }
}

pub fn draw(material: &Material) -> Result<Option<Drawing>> {
    let all = material.confusions();
    let several_sets = distinct(all.iter().map(|one| &one.set)).len() > 1;
    let panel = |one: &OfSeries| {
        let place = if several_sets { format!("; {}", one.set) } else { String::new() };
        matrix(one, material.names[one.series].clone(), &place)
    };
    let panels: Vec<Panel> = all.iter().take(MOST_PANELS).map(panel).collect();
    if panels.is_empty() {
        return Ok(None);
    }
    let mut notes = vec![];
    if all.len() > MOST_PANELS {
        notes.push(format!("{} more methods and sets stand in the tables.", all.len() - MOST_PANELS));
    }
    let columns = if panels.len() == 1 { 1 } else { 2 };
    let alone = panels.len() == 1;
    let chart = Chart {
        panels,
        columns,
        plot_width: alone.then_some(WIDTH / 2 + 60),
        plot_height: if alone { WIDTH / 2 } else { 300 },
        notes,
        ..Chart::default()
    };
    Drawing::of(
        &chart,
        "Of the test images of each true class (rows), the share in percent that is taken for each class (columns), by the \
         averaged logits; the diagonal holds the right ones. Clean images, all seeds of a method together.",
    )
}

fn matrix(one: &OfSeries, title: String, place: &str) -> Panel {
    let count = one.classes.len();
    let square = |samples: u64, all: u64| {
        let share = if all > 0 { samples as f64 / all as f64 } else { 0.0 };
        let has_number = count <= WITH_NUMBERS && samples > 0;
        Square { share, text: if has_number { percent(share) } else { String::new() } }
    };
    let row = |class: usize| {
        let (samples, all) = (&one.confusion.counts[class], one.confusion.samples(class));
        samples.iter().map(|samples| square(*samples, all)).collect()
    };
    let is_named = count <= WITH_NAMES;
    // The axis points up, and the first class stands at the top.
    let up: Vec<String> = one.classes.iter().rev().cloned().collect();
    let axis = |title: &str, names: Vec<String>| match is_named {
        true => Axis::new(title, Ticks::Names(names)),
        false => Axis::new(format!("{title} (in the order of the labels)"), Ticks::between(0.0, count as f64)),
    };
    Panel {
        title,
        x: axis("predicted class, in % of the true one", one.classes.clone()),
        y: axis(&format!("true class{place}"), up),
        layers: vec![Layer::Matrix((0..count).map(row).collect())],
        values: false,
    }
}

/// Returns a share in percent, without decimals unless it is below 1 %.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    if percent < 0.95 { format!("{percent:.1}") } else { format!("{percent:.0}") }
}
