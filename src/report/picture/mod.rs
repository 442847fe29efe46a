//! The picture of an experiment: one SVG whose small panels compare the runs under each test condition (accuracy, NLL,
//! ECE, mutual information). Marks are means over seeds; whiskers reach from the smallest to the largest value.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::base::files::write_atomic;
use crate::base::small::{Usage, capital, push_new};
use crate::metrics::{self, Average, Better};
use crate::plot::{Axis, Canvas, Chart, Entry, Fill, Joined, Layer, Mean, Panel, Scale, Swatch, Ticks};
use crate::results::names::without_shared;
use crate::results::series::{RESULT_KEYS, of_table};
use crate::results::store::Table;

/// Draws the runs of `table` (the rows of a results file) to the SVG file `path`, which is replaced atomically.
///
/// # Errors
/// Fails if `path` does not end in `.svg`, its folder does not exist, the table has no rows or no column `method` or
/// `condition`, a cell is not a finite number, or no row has a metric that could be drawn.
pub fn draw(table: &Table, path: &Path) -> Result<()> {
    let name = || format!("picture {}", path.display());
    let is_svg = path.extension() == Some(OsStr::new("svg"));
    ensure!(is_svg, Usage(format!("{}: the file name must end in .svg", name())));
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        ensure!(folder.is_dir(), "{}: there is no folder {}; create it first", name(), folder.display());
    }
    let comparison = Comparison::of(table).with_context(name)?;
    let svg = chart(&comparison).with_context(name)?.render().svg();
    write_atomic(path, |writer| Ok(writer.write_all(svg.as_bytes())?))
}

/// Draws the picture of `table`; `None` if no row has a value of what it shows.
///
/// # Errors
/// Fails if a cell is not a finite number.
pub fn of(table: &Table) -> Result<Option<Canvas>> {
    let shown = QUANTITIES.iter().flat_map(|one| one.columns).filter_map(|(column, _)| table.index(column));
    let has_values = shown.into_iter().any(|place| table.rows.iter().any(|row| !row[place].is_empty()));
    if !has_values {
        return Ok(None);
    }
    Ok(Some(chart(&Comparison::of(table)?)?.render()))
}

/// The quantities in the order of the picture, all for averaged logits. Single models have no mutual information.
static QUANTITIES: &[Quantity] = &[
    Quantity { of: "accuracy_lm", columns: &[("accuracy_lm", Fill::Solid)] },
    Quantity { of: "nll_lm", columns: &[("nll_lm", Fill::Solid)] },
    Quantity { of: "ece_lm", columns: &[("ece_lm", Fill::Solid)] },
    Quantity { of: "mi", columns: &[("mi_correct_lm", Fill::Hollow), ("mi_wrong_lm", Fill::Solid)] },
];

/// Returns the chart of all quantities that have values. Fails if no row has a value of any of them.
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

/// A test set and a condition as named in the results file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    set: String,
    condition: String,
}

/// The rows of a results file, sorted into series and groups.
#[derive(Debug)]
struct Comparison<'a> {
    table: &'a Table,
    /// The name of each series, in the order of the legend.
    names: Vec<String>,
    /// The words that all series share, which the names do not repeat.
    shared: String,
    groups: Vec<Group>,
    /// The row, the series and the group of each result, as indices.
    places: Vec<(usize, usize, usize)>,
}

impl<'a> Comparison<'a> {
    /// Fails if there are no rows, or if one of the columns `method` and `condition` is missing.
    fn of(table: &'a Table) -> Result<Self> {
        ensure!(!table.rows.is_empty(), "no result rows to draw; evaluate a run first");
        for column in ["method", "condition"] {
            ensure!(table.index(column).is_some(), "the results have no column `{column}`");
        }
        let series = of_table(table, RESULT_KEYS);
        let group =
            |row: usize| Group { set: text(table, row, "set").into(), condition: text(table, row, "condition").into() };
        let mut rows: Vec<_> = series
            .iter()
            .enumerate()
            .flat_map(|(one, series)| series.rows.iter().map(move |row| (*row, one)))
            .collect();
        rows.sort();
        let mut groups = vec![];
        rows.iter().for_each(|(row, _)| push_new(&mut groups, group(*row)));
        let sets: Vec<_> = groups.iter().map(|one| one.set.clone()).collect();
        groups.sort_by_key(|one| (sets.iter().position(|set| *set == one.set), one.condition != "clean"));
        let place =
            |(row, one): &(usize, usize)| Some((*row, *one, groups.iter().position(|other| *other == group(*row))?));
        let places = rows.iter().filter_map(place).collect();
        let all: Vec<String> = series.into_iter().map(|one| one.name).collect();
        let (shared, names) = without_shared(&all);
        Ok(Self { table, names, shared, groups, places })
    }

    /// Returns the values of a column, each multiplied by `factor`. Empty cells are skipped. `None` if no cell has a
    /// value. Shape `[series][group][seed]`.
    fn values(&self, column: &str, factor: f64) -> Result<Option<Vec<Vec<Vec<f64>>>>> {
        let mut values = vec![vec![vec![]; self.groups.len()]; self.names.len()];
        for &(row, series, group) in &self.places {
            let cell = text(self.table, row, column);
            if cell.is_empty() {
                continue;
            }
            let value = cell.parse().ok().filter(|value: &f64| value.is_finite());
            ensure!(value.is_some(), "row {}, column `{column}` = `{cell}`: must be a finite number or empty", row + 1);
            values[series][group].extend(value.map(|value| factor * value));
        }
        Ok(values.iter().flatten().any(|seeds| !seeds.is_empty()).then_some(values))
    }
}

fn text<'a>(table: &'a Table, row: usize, column: &str) -> &'a str {
    table.get(row, column).unwrap_or_default()
}

/// The quantity that a panel shows.
struct Quantity {
    /// The column that defines the name, the unit and the direction of the quantity.
    of: &'static str,
    /// The columns that are drawn, each with the fill of its marks. Two columns stand side by side, joined by a line.
    columns: &'static [(&'static str, Fill)],
}

/// A quantity with its values. Each column of `values` has shape `[series][group][seed]`.
struct Measured {
    quantity: &'static Quantity,
    metric: metrics::Column,
    values: Vec<(Fill, Vec<Vec<Vec<f64>>>)>,
}

impl Measured {
    /// Returns `None` if the results hold no value of the quantity.
    fn of(quantity: &'static Quantity, comparison: &Comparison) -> Result<Option<Self>> {
        let metric = metrics::of_column(quantity.of).with_context(|| format!("no metric `{}`", quantity.of))?;
        let mut values = vec![];
        for (column, fill) in quantity.columns {
            values.extend(comparison.values(column, metric.factor())?.map(|seeds| (*fill, seeds)));
        }
        Ok((!values.is_empty()).then_some(Self { quantity, metric, values }))
    }

    /// Returns the number of seeds behind each mark.
    fn seeds(&self) -> impl Iterator<Item = usize> {
        self.values.iter().flat_map(|(_, all)| all.iter().flatten()).map(Vec::len).filter(|count| *count > 0)
    }

    /// Returns whether the quantity is mutual information.
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

/// Returns the name of each group: the condition, then the test set on a line of its own if there are several sets. If
/// all images are clean, the test set alone is the name. If all conditions share an origin in brackets, it is left out
/// here and named in the notes.
fn group_names(groups: &[Group]) -> Vec<String> {
    let (sets, shared) = (several_sets(groups), shared_origin(groups).is_some());
    let all_clean = groups.iter().all(|group| group.condition == "clean");
    let name = |group: &Group| {
        let condition = if shared { split_origin(&group.condition).0 } else { &group.condition };
        match (sets, all_clean) {
            (true, true) => group.set.clone(),
            (true, false) => format!("{condition}\n{}", group.set),
            (false, _) => condition.to_string(),
        }
    };
    groups.iter().map(name).collect()
}

fn several_sets(groups: &[Group]) -> bool {
    groups.windows(2).any(|pair| pair[0].set != pair[1].set)
}

/// Splits the origin from a condition: `gaussian-noise:3 (bella)` is `gaussian-noise:3` from `bella`.
fn split_origin(condition: &str) -> (&str, Option<&str>) {
    match condition.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) {
        Some((name, origin)) => (name, Some(origin)),
        None => (condition, None),
    }
}

fn shared_origin(groups: &[Group]) -> Option<&str> {
    let mut origins = groups.iter().filter_map(|group| split_origin(&group.condition).1);
    let first = origins.next()?;
    origins.all(|origin| origin == first).then_some(first)
}

/// Returns the notes below the picture, one line each.
fn notes(comparison: &Comparison, measured: &[Measured]) -> Vec<String> {
    let mut about = vec![];
    about.extend(Some(&comparison.shared).filter(|shared| !shared.is_empty()).cloned());
    let groups = &comparison.groups;
    if let Some(group) = groups.first().filter(|group| !several_sets(groups) && !group.set.is_empty()) {
        about.push(format!("test set {}", group.set));
    }
    about.extend(shared_origin(groups).map(|origin| format!("corruption:severity by {origin}")));
    about.push(format!("predictions: {}", Average::Logit.words()));
    let mut notes = vec![about.join("  ·  ")];
    let seeds: Vec<usize> = measured.iter().flat_map(Measured::seeds).collect();
    let (least, most) = (seeds.iter().min(), seeds.iter().max());
    if let Some(most) = most.filter(|most| **most > 1) {
        let up_to = if least == Some(most) { "" } else { "up to " };
        notes.push(format!("mean of {up_to}{most} seeds, whiskers min to max, small dots single seeds"));
    }
    if measured.iter().any(Measured::is_information) {
        notes.push("MI: mutual information, which one member alone does not have".to_string());
    }
    notes
}

#[cfg(test)]
mod tests;
