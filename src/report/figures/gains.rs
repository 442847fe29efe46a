//! What a method gains on clean test images: its NLL over what its training costs, and the gain over one network against the diversity
//! of its members.

use anyhow::Result;

use super::material::{Drawing, Material};
use super::readings::{distinct, unit_of};
use crate::plot::{Axis, Chart, Entry, Joined, Layer, Mean, Panel, Swatch, Ticks};
use crate::report::sources::RowView;

const NLL: &str = "nll_pm";
const DIVERSITY: &str = "diversity_kl";

/// The columns of a training's cost with the titles of their axes, the more exact one first.
const COSTS: [(&str, &str); 2] = [
    ("train_processor_seconds", "processor seconds of training (logarithmic)"),
    ("train_wall_seconds", "seconds of training (logarithmic)"),
];

/// The mean of a series at its place on the horizontal axis.
struct Point {
    series: usize,
    mean: Mean,
}

/// Returns the clean rows with an NLL, each with the index of its series.
fn clean<'a>(material: &'a Material) -> Vec<(usize, RowView<'a>)> {
    let mut found = vec![];
    for (series, one) in material.series.iter().enumerate() {
        let rows = one.rows.iter().map(|row| RowView::new(&material.sources.results, *row));
        let is_shown = |row: &RowView| row.is_clean() && row.number(NLL).is_some();
        found.extend(rows.filter(is_shown).map(|row| (series, row)));
    }
    found
}

/// The place of a run in a panel.
struct Reading {
    series: usize,
    x: f64,
    y: f64,
}

/// Returns the series that have readings.
fn series_of(readings: &[Reading]) -> Vec<usize> {
    distinct(readings.iter().map(|reading| reading.series))
}

/// Gathers runs to the means of their series.
fn points(readings: &[Reading]) -> Vec<Point> {
    let of_series = |series: usize| {
        let own: Vec<_> = readings.iter().filter(|reading| reading.series == series).collect();
        let x = own.iter().map(|reading| reading.x).sum::<f64>() / own.len() as f64;
        let mean = Mean::of(x, &own.iter().map(|reading| reading.y).collect::<Vec<_>>())?;
        Some(Point { series, mean })
    };
    series_of(readings).into_iter().filter_map(of_series).collect()
}

fn marks(points: Vec<Point>) -> impl Iterator<Item = Layer> {
    points.into_iter().map(|Point { series, mean }| Layer::Means {
        paint: series,
        joined: Joined::Line,
        points: vec![mean],
    })
}

/// Draws panels of the series `present`, if there is a panel.
fn drawn(material: &Material, panels: Vec<Panel>, present: Vec<usize>, caption: &str) -> Result<Option<Drawing>> {
    if panels.is_empty() {
        return Ok(None);
    }
    let mut present = distinct(present);
    present.sort_unstable();
    let entry = |series: usize| Entry { name: material.names[series].clone(), paint: series, swatch: Swatch::Mark };
    let notes = vec!["Marks are means over the seeds, whiskers reach from the smallest to the largest.".to_string()];
    let legend = present.into_iter().map(entry).collect();
    Drawing::of(&Chart { legend, columns: 1, panels, plot_height: 280, notes, ..Chart::default() }, caption)
}

pub fn pareto(material: &Material) -> Result<Option<Drawing>> {
    let rows = clean(material);
    let (mut panels, mut present) = (vec![], vec![]);
    for set in distinct(rows.iter().map(|(_, row)| row.get("set"))) {
        let own: Vec<_> = rows.iter().filter(|(_, row)| row.get("set") == set).collect();
        let costs = |column: &str| -> Vec<Reading> {
            let one = |(series, row): &&(usize, RowView)| {
                let cost = row.number(column).filter(|cost| *cost > 0.0)?;
                Some(Reading { series: *series, x: cost, y: row.number(NLL)? })
            };
            own.iter().filter_map(one).collect()
        };
        let all = COSTS.map(|(column, title)| (costs(column), title));
        // Costs of two kinds cannot be compared: the kind that most series have is shown.
        let most = all.into_iter().rev().max_by_key(|(readings, _)| series_of(readings).len());
        let Some((readings, title)) = most else { continue };
        let points = points(&readings);
        if points.len() < 2 {
            continue;
        }
        present.extend(points.iter().map(|point| point.series));
        panels.extend(of_costs(set, title, points));
    }
    drawn(
        material,
        panels,
        present,
        "Negative log-likelihood of averaged probabilities on clean test images over the cost of training. The grey line is the front: \
         left of and below it is nothing, and whatever lies above it is dominated by a method that is cheaper and better.",
    )
}

/// Returns the panel of one test set with the front of its points.
fn of_costs(set: &str, title: &str, points: Vec<Point>) -> Option<Panel> {
    let costs = || points.iter().map(|point| point.mean.x);
    let (low, high) = (costs().reduce(f64::min)? / 1.5, costs().reduce(f64::max)? * 1.5);
    let values: Vec<f64> = points.iter().flat_map(|point| point.mean.ends()).collect();
    let mut layers = vec![];
    let front = front(&points);
    let ends = front.iter().skip(1).map(|(cost, _)| *cost).chain([high]);
    for (((cost, nll), end), below) in front.iter().zip(ends).zip(front.iter().skip(1).map(Some).chain([None])) {
        layers.push(Layer::Reference { from: (*cost, *nll), to: (end, *nll) });
        layers.extend(below.map(|(cost, lower)| Layer::Reference { from: (*cost, *nll), to: (*cost, *lower) }));
    }
    layers.extend(marks(points));
    Some(Panel {
        title: set.to_string(),
        x: Axis::new(title, Ticks::Log(low, high)),
        y: Axis::new(unit_of(NLL), Ticks::around(values.into_iter())?),
        layers,
        values: false,
    })
}

/// Returns the costs and means of the points that no cheaper one equals or beats, from the cheapest on.
fn front(points: &[Point]) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = points.iter().map(|point| (point.mean.x, point.mean.mean)).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mut front: Vec<(f64, f64)> = vec![];
    for point in all {
        if front.last().is_none_or(|last| point.1 < last.1) {
            front.push(point);
        }
    }
    front
}

pub fn diversity(material: &Material) -> Result<Option<Drawing>> {
    let rows = clean(material);
    let (mut panels, mut present) = (vec![], vec![]);
    for set in distinct(rows.iter().map(|(_, row)| row.get("set"))) {
        let own: Vec<_> = rows.iter().filter(|(_, row)| row.get("set") == set).collect();
        // A merge of single networks has their method, and a predictive of its own.
        let is_single = |(_, row): &(usize, RowView)| row.get("method") == "map" && row.get("predictive").is_empty();
        let (singles, others): (Vec<(usize, RowView)>, Vec<_>) = own.into_iter().copied().partition(is_single);
        let reading = |(series, row): &(usize, RowView)| {
            let diversity = row.number(DIVERSITY)?;
            let same = singles.iter().filter(|(_, single)| is_same_task(material, row, single));
            let best = same.filter_map(|(_, single)| single.number(NLL)).reduce(f64::min)?;
            Some(Reading { series: *series, x: diversity, y: best - row.number(NLL)? })
        };
        let points = points(&others.iter().filter_map(reading).collect::<Vec<_>>());
        present.extend(points.iter().map(|point| point.series));
        panels.extend(of_diversity(set, points));
    }
    drawn(
        material,
        panels,
        present,
        "How much lower the negative log-likelihood (averaged probabilities, clean test images) is than that of the best `map` of the same \
         seed, data, layers and epochs, over the diversity of the members: their mean divergence KL(p̄ ‖ p_k).",
    )
}

fn of_diversity(set: &str, points: Vec<Point>) -> Option<Panel> {
    let places: Vec<f64> = points.iter().map(|point| point.mean.x).chain((!points.is_empty()).then_some(0.0)).collect();
    let values: Vec<f64> = points.iter().flat_map(|point| point.mean.ends()).chain([0.0]).collect();
    let x = Axis::new(unit_of(DIVERSITY), Ticks::around(places.into_iter())?);
    let y = Axis::new("NLL of map − NLL (nats)", Ticks::around(values.into_iter())?);
    let end = points.iter().map(|point| point.mean.x).reduce(f64::max)?;
    let layers = [Layer::Reference { from: (0.0, 0.0), to: (end, 0.0) }].into_iter().chain(marks(points)).collect();
    Some(Panel { title: set.to_string(), x, y, layers, values: false })
}

/// Returns whether two rows are of the same seed, data, layers and epochs.
fn is_same_task(material: &Material, one: &RowView, other: &RowView) -> bool {
    let decides = |column: &str| {
        ["checkpoint", "subspace", "rank", "seed", "train.epochs", "data"].contains(&column)
            || column.starts_with("data.")
    };
    let mut columns = material.sources.results.columns.iter().filter(|column| decides(column));
    columns.all(|column| one.get(column) == other.get(column))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_on_the_front_if_no_cheaper_one_is_as_good() {
        let readings =
            [(0, 1.0, 0.9), (0, 3.0, 0.7), (1, 2.5, 0.9), (2, 4.0, 0.5), (3, 4.0, 0.6), (4, 9.0, 0.4), (5, 8.0, 0.55)];
        let points = points(&readings.map(|(series, x, y)| Reading { series, x, y }));
        assert_eq!((points[0].mean.x, points[0].mean.mean), (2.0, 0.8));
        assert_eq!(front(&points), [(2.0, 0.8), (4.0, 0.5), (9.0, 0.4)]);
    }
}
