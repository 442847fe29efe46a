//! Training curves of the runs: the loss, the validation metrics and the diagnostics of the particles by epoch.

use anyhow::Result;

use super::material::{Drawing, Material};
use super::readings::distinct;
use crate::metrics::Average;
use crate::plot::{Axis, Chart, Entry, Joined, Layer, Mean, Panel, Swatch, Ticks, small_columns};
use crate::report::sources::RunFiles;
use crate::results::store::Table;

/// A number of an epoch.
struct Quantity {
    /// Its column of `train.csv`.
    column: &'static str,
    /// The title and the unit of its panel.
    title: &'static str,
    unit: &'static str,
    /// The factor that converts to this unit.
    factor: f64,
    /// Whether it follows from the average of the particles' logits where runs learn classes.
    of_average: bool,
}

impl Quantity {
    const fn new(column: &'static str, title: &'static str, unit: &'static str) -> Quantity {
        Quantity { column, title, unit, factor: 1.0, of_average: false }
    }
}

/// The column that runs fill which learn classes.
const ACCURACY: &str = "validation_accuracy_lm";

const QUANTITIES: [Quantity; 8] = [
    Quantity::new("train_loss", "Training loss", "nats"),
    Quantity { of_average: true, ..Quantity::new("validation_nll_lm", "Validation NLL", "nats") },
    Quantity { factor: 100.0, of_average: true, ..Quantity::new(ACCURACY, "Validation accuracy", "%") },
    Quantity::new("mean_distance", "Distance between particles", "mean over pairs, in weights"),
    Quantity::new("mean_kernel", "Kernel between particles", "mean over pairs"),
    Quantity::new("bandwidth", "Bandwidth", "mean over layers"),
    Quantity::new("repulsion_ratio", "Repulsion beside drive", "ratio of norms"),
    Quantity::new("drive_cosine", "Drive beside own gradient", "cosine, mean over particles"),
];

/// The training curve of one run and the colour index of its series.
struct Trained<'a> {
    paint: usize,
    history: &'a Table,
}

impl Trained<'_> {
    /// Returns a number of an epoch's row, if the cell holds one.
    fn number(&self, row: usize, column: &str) -> Option<f64> {
        self.history.get(row, column)?.parse().ok().filter(|value: &f64| value.is_finite())
    }

    fn learns_classes(&self) -> bool {
        (0..self.history.rows.len()).any(|row| self.number(row, ACCURACY).is_some())
    }
}

pub fn draw(material: &Material) -> Result<Option<Drawing>> {
    let mut legend: Vec<Entry> = vec![];
    let mut runs = vec![];
    let mut unfinished = material.series.len();
    for files in &material.sources.runs {
        let Some(history) = files.history.as_ref().filter(|history| !history.rows.is_empty()) else { continue };
        let (paint, name) = match series_of(material, files) {
            Some(series) => (series, material.names[series].clone()),
            None => {
                unfinished += 1;
                (unfinished - 1, format!("{} (no results yet)", files.run))
            }
        };
        if !legend.iter().any(|entry| entry.paint == paint) {
            legend.push(Entry { name, paint, swatch: Swatch::Line });
        }
        runs.push(Trained { paint, history });
    }
    legend.sort_by_key(|entry| entry.paint);
    let panels: Vec<_> = QUANTITIES.iter().filter_map(|quantity| panel(quantity, &runs)).collect();
    if panels.is_empty() {
        return Ok(None);
    }
    let columns = small_columns(&panels);
    let chart = Chart { legend, panels, columns, plot_height: 150, ..Chart::default() };
    Drawing::of(
        &chart,
        "By epoch, a line for each run (seeds of a method share its colour), from train.csv of the runs.",
    )
}

fn series_of(material: &Material, files: &RunFiles) -> Option<usize> {
    let cell = |row: usize, column: &str| material.sources.results.get(row, column).unwrap_or_default();
    let own = |row: usize| {
        cell(row, "run") == files.run && [files.experiment.as_str(), ""].contains(&cell(row, "experiment"))
    };
    // Rows of the plain members are preferred: a soup of the run has the same training curve.
    let plain = |row: usize| own(row) && cell(row, "predictive").is_empty();
    let position =
        |fits: &dyn Fn(usize) -> bool| material.series.iter().position(|one| one.rows.iter().any(|row| fits(*row)));
    position(&plain).or_else(|| position(&own))
}

fn panel(quantity: &Quantity, runs: &[Trained]) -> Option<Panel> {
    let Quantity { column, title, unit, factor, of_average } = quantity;
    let curve = |run: &Trained| {
        let point = |row: usize| Some((run.number(row, "epoch")?, factor * run.number(row, column)?));
        (0..run.history.rows.len()).filter_map(point).collect::<Vec<(f64, f64)>>()
    };
    let unit = match *of_average && runs.iter().any(Trained::learns_classes) {
        true => format!("{unit}, {}", Average::Logit.behind()),
        false => unit.to_string(),
    };
    let curves: Vec<_> =
        runs.iter().map(|run| (run.paint, curve(run))).filter(|(_, curve)| !curve.is_empty()).collect();
    let points = || curves.iter().flat_map(|(_, curve)| curve);
    let last = points().map(|point| point.0).reduce(f64::max)?;
    let ticks = ticks_of(distinct(points().map(|point| point.0 as i64)), last);
    let first = points().map(|point| point.0).reduce(f64::min)?;
    let place = |epoch: f64| if matches!(ticks, Ticks::Names(_)) { epoch - first } else { epoch };
    let layers = curves.iter().flat_map(|(paint, curve)| {
        let points: Vec<_> = curve.iter().map(|(epoch, value)| (place(*epoch), *value)).collect();
        // A curve with one point would be invisible, so it is drawn as a mark.
        let dot = points.first().filter(|_| points.len() == 1).and_then(|point| Mean::of(point.0, &[point.1]));
        let dot = dot.map(|mean| Layer::Means { paint: *paint, joined: Joined::Line, points: vec![mean] });
        std::iter::once(Layer::Curve { paint: *paint, points }).chain(dot)
    });
    let layers = layers.collect();
    Some(Panel {
        title: title.to_string(),
        x: Axis::new("epoch", ticks),
        y: Axis::new(unit, Ticks::around(points().map(|point| point.1))?),
        layers,
        values: false,
    })
}

/// Returns the ticks of epochs up to the last one: each by its number where they are few.
fn ticks_of(mut epochs: Vec<i64>, last: f64) -> Ticks {
    if epochs.len() > 12 {
        return Ticks::between(1.0, last);
    }
    epochs.sort_unstable();
    Ticks::Names(epochs.iter().map(i64::to_string).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_of_numbers_is_of_no_averaged_logits() {
        let unit = |accuracy: &str| {
            let mut history = Table::new(["epoch", "validation_nll_lm", ACCURACY]);
            history.rows = vec![vec!["1".into(), "0.5".into(), accuracy.into()]];
            panel(&QUANTITIES[1], &[Trained { paint: 0, history: &history }]).unwrap().y.title
        };
        assert_eq!([unit("0.9"), unit("")], ["nats, logits averaged", "nats"]);
    }
}
