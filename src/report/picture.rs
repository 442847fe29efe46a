//! The picture of an experiment: its runs and test conditions compared in small panels (accuracy, NLL, ECE, mutual
//! information), as one SVG. Marks are means over seeds, whiskers reach from the smallest to the largest seed.

mod comparison;
mod notes;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::comparison::Comparison;
use self::notes::{group_names, notes};
use crate::base::files::write_atomic;
use crate::metrics::{self, Better};
use crate::plot::text::capital;
use crate::plot::{Axis, Chart, Entry, Fill, Joined, Layer, Mean, Panel, Scale, Swatch, Ticks};
use crate::results::store::Table;

/// Draws the runs of `table` (rows of a results file) to the SVG file `path`, which is replaced atomically.
///
/// Errors: another file extension than `.svg`, a folder that does not exist, no rows, no column `method` or
/// `condition`, a cell that is no finite number, no metric that could be drawn.
pub fn draw(table: &Table, path: &Path) -> Result<()> {
    let name = || format!("picture {}", path.display());
    ensure!(path.extension() == Some(OsStr::new("svg")), "{}: the file name must end in .svg", name());
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        ensure!(folder.is_dir(), "{}: there is no folder {}; create it first", name(), folder.display());
    }
    let comparison = Comparison::of(table).with_context(name)?;
    let svg = chart(&comparison).with_context(name)?.render();
    write_atomic(path, |writer| Ok(writer.write_all(svg.as_bytes())?))
}

/// The quantity that a panel shows.
struct Quantity {
    /// The column that says its name, unit and direction.
    of: &'static str,
    /// Columns with the fill of their marks; two stand side by side, joined by a line.
    columns: &'static [(&'static str, Fill)],
}

/// In the order of the picture, all for the average of logits. Single models have no mutual information.
static QUANTITIES: &[Quantity] = &[
    Quantity { of: "accuracy_lm", columns: &[("accuracy_lm", Fill::Solid)] },
    Quantity { of: "nll_lm", columns: &[("nll_lm", Fill::Solid)] },
    Quantity { of: "ece_lm", columns: &[("ece_lm", Fill::Solid)] },
    Quantity { of: "mi", columns: &[("mi_correct_lm", Fill::Hollow), ("mi_wrong_lm", Fill::Solid)] },
];

/// A quantity with its values: per column, `[series][group][seed]`.
struct Measured {
    quantity: &'static Quantity,
    metric: metrics::Column,
    values: Vec<(Fill, Vec<Vec<Vec<f64>>>)>,
}

/// Fails if no row has a value of any quantity.
fn chart(comparison: &Comparison) -> Result<Chart> {
    let mut measured = vec![];
    for quantity in QUANTITIES {
        measured.extend(Measured::of(quantity, comparison)?);
    }
    let known = || QUANTITIES.iter().flat_map(|one| one.columns).map(|(column, _)| *column).collect::<Vec<_>>();
    ensure!(!measured.is_empty(), "no row has a value of {}", known().join(", "));
    let groups = group_names(&comparison.groups);
    let entry = |(paint, name): (usize, &String)| Entry { name: name.clone(), paint, swatch: Swatch::Mark };
    Ok(Chart {
        legend: comparison.names.iter().enumerate().map(entry).collect(),
        panels: measured.iter().map(|one| one.panel(&groups)).collect(),
        columns: 2,
        plot_height: 190,
        grows: true,
        notes: notes(comparison, &measured),
        ..Chart::default()
    })
}

impl Measured {
    /// `None` where the results hold no value of the quantity.
    fn of(quantity: &'static Quantity, comparison: &Comparison) -> Result<Option<Self>> {
        let metric = metrics::of_column(quantity.of).with_context(|| format!("no metric `{}`", quantity.of))?;
        let mut values = vec![];
        for (column, fill) in quantity.columns {
            values.extend(comparison.values(column, metric.factor())?.map(|seeds| (*fill, seeds)));
        }
        Ok((!values.is_empty()).then_some(Self { quantity, metric, values }))
    }

    /// The numbers of seeds behind the marks.
    fn seeds(&self) -> impl Iterator<Item = usize> {
        self.values.iter().flat_map(|(_, all)| all.iter().flatten()).map(Vec::len).filter(|count| *count > 0)
    }

    /// Whether the quantity is mutual information.
    fn is_information(&self) -> bool {
        self.quantity.columns.len() > 1
    }

    fn panel(&self, groups: &[String]) -> Panel {
        let scale = Scale::around(self.values.iter().flat_map(|(_, all)| all.iter().flatten().flatten().copied()));
        let hint = match self.metric.better {
            Better::Higher => "higher is better",
            Better::Lower => "lower is better",
            Better::Neither => "hollow: correct, filled: wrong predictions",
        };
        let hint = match scale.low {
            0.0 => hint.to_string(),
            low => format!("{hint}, axis from {}", scale.tick(low)),
        };
        let count = self.values[0].1.len();
        let layer = |series: usize| {
            let columns = |group: usize| self.values.iter().map(move |(fill, all)| (*fill, &all[series][group]));
            let means = |group: usize| {
                columns(group).filter_map(move |(fill, seeds)| Some(Mean::of(group as f64, seeds)?.filled(fill)))
            };
            let points = (0..groups.len()).flat_map(means).collect();
            Layer::Means { paint: series, joined: Joined::Apart { rank: series, count }, points }
        };
        Panel {
            title: capital(&self.metric.label()),
            x: Axis::new("", Ticks::Names(groups.to_vec())),
            y: Axis::new(hint, Ticks::Numbers(scale)),
            layers: (0..count).map(layer).collect(),
            values: true,
        }
    }
}

#[cfg(test)]
mod tests;
