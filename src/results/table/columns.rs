//! The columns of a rendered table: their titles, texts and best cells.

use std::collections::HashMap;

use crate::base::small::push_new;
use crate::data::versions::is_mean;
use crate::metrics::{self, Average, Better, Unit, accuracy, calibrators};
use crate::results::store::Table;

/// The part of a table that a column belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It names the row.
    Label,
    Metric,
    /// Another number beside metrics, such as a time.
    Cost,
}

/// A column with its formatted cells.
pub(super) struct Rendered {
    /// The column's name in files.
    pub name: String,
    pub title: String,
    pub cells: Vec<String>,
    pub best: Vec<bool>,
    pub numeric: bool,
    pub kind: Kind,
    /// The average that a metric is of. `None` for other columns, and metrics that are of no average.
    pub average: Option<Average>,
    /// The metric's name without average, if its unit is the nat.
    pub in_nats: Option<&'static str>,
    /// Whether cells have the 95 % interval of a share of samples.
    pub has_intervals: bool,
}

impl Rendered {
    /// Returns the name without the suffix of an average.
    pub fn stem(&self) -> &str {
        let stem = self.average.and_then(|average| self.name.strip_suffix(average.suffix())?.strip_suffix('_'));
        stem.unwrap_or(&self.name)
    }

    /// Returns the width of the column with its padding and one ruled line.
    pub fn width(&self) -> usize {
        let marked = |(cell, best): (&String, &bool)| widest_line(cell) + usize::from(*best);
        let cells = self.cells.iter().zip(&self.best).map(marked);
        cells.chain([widest_line(&self.head())]).max().unwrap_or(0) + 3
    }

    /// Returns the title, on two lines if the column would be wider than its cells otherwise.
    pub fn head(&self) -> String {
        let cells = self.cells.iter().map(|cell| widest_line(cell) + 1).max().unwrap_or(0);
        match self.title.rsplit_once(' ') {
            Some((start, end)) if self.kind != Kind::Label && self.title.chars().count() > cells => {
                format!("{start}\n{end}")
            }
            _ => self.title.clone(),
        }
    }

    /// Returns whether all rows have the same text, which is not empty.
    pub fn is_constant(&self) -> bool {
        let first = self.cells.first().map_or("", String::as_str);
        !first.is_empty() && self.cells.iter().all(|cell| cell == first)
    }

    /// Returns the title and the text of a row.
    pub fn pair(&self, row: usize) -> (&str, &str) {
        (&self.title, &self.cells[row])
    }
}

fn widest_line(text: &str) -> usize {
    text.split('\n').map(|line| line.chars().count()).max().unwrap_or(0)
}

/// Returns the chosen columns, labels first, then metrics of averaged logits, of no average, and of averaged
/// probabilities, then other numbers. Metrics have short titles; those of which both averages are chosen say which one
/// they are of.
pub(super) fn rendered(table: &Table, chosen: &[String], group_by: &[String]) -> Vec<Rendered> {
    let groups = group_keys(table, group_by);
    let columns: Vec<_> = chosen.iter().filter_map(|name| Column::of(table, name)).collect();
    let first_metric = columns.iter().position(|column| column.unit.is_some()).unwrap_or(columns.len());
    let kind = |(place, column): (usize, &Column)| match (column.unit, place < first_metric) {
        (Some(_), _) => Kind::Metric,
        (None, true) => Kind::Label,
        (None, false) => Kind::Cost,
    };
    let kinds: Vec<Kind> = columns.iter().enumerate().map(kind).collect();
    let of_both = columns.iter().any(|column| column.average() == Some(Average::Logit))
        && columns.iter().any(|column| column.average() == Some(Average::Probability));
    let mut found: Vec<_> =
        columns.iter().zip(kinds).map(|(column, kind)| column.render(table, &groups, kind, of_both)).collect();
    found.sort_by_key(|column| match (column.kind, column.average) {
        (Kind::Label, _) => 0,
        (Kind::Metric, Some(Average::Logit)) => 1,
        (Kind::Metric, None) => 2,
        (Kind::Metric, Some(Average::Probability)) => 3,
        (Kind::Cost, _) => 4,
    });
    found
}

/// A table as plain texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    pub titles: Vec<String>,
    /// The rows, with one text per title.
    pub rows: Vec<Vec<String>>,
    /// The number of columns before the first metric.
    pub labels: usize,
}

/// Returns the chosen columns of `table` as texts, under their names in files. Columns that it lacks, or that are empty
/// throughout, are left out.
pub fn texts(table: &Table, columns: &[&str]) -> Texts {
    let chosen: Vec<_> = columns.iter().filter_map(|name| Column::of(table, name)).collect();
    let labels = chosen.iter().position(|column| column.unit.is_some()).unwrap_or(chosen.len());
    let titles = chosen.iter().map(Column::title).collect();
    let mut cells: Vec<_> = chosen.iter().map(|column| column.texts(table).into_iter()).collect();
    let row = |_| cells.iter_mut().filter_map(Iterator::next).collect();
    Texts { titles, rows: (0..table.rows.len()).map(row).collect(), labels }
}

/// What stands between a mean and its standard deviation in a cell.
pub const SPREAD: &str = " ± ";

/// Returns the number of a cell; that of a mean with its standard deviation is the mean.
fn number(cell: &str) -> Option<f64> {
    cell.split(SPREAD).next()?.parse().ok()
}

/// A column to show, with the meaning that the metric registry gives it.
struct Column<'a> {
    name: &'a str,
    index: usize,
    numeric: bool,
    short: Option<&'static str>,
    unit: Option<Unit>,
    better: Better,
}

impl<'a> Column<'a> {
    /// Returns `None` if the table lacks the column or the column is empty throughout.
    fn of(table: &Table, name: &'a str) -> Option<Self> {
        let index = table.index(name)?;
        let mut filled = table.rows.iter().map(|row| &row[index]).filter(|cell| !cell.is_empty()).peekable();
        filled.peek()?;
        let metric = metrics::of_column(name);
        Some(Self {
            name,
            index,
            numeric: filled.all(|cell| number(cell).is_some()),
            short: metric.map(|metric| metric.short),
            unit: metric.map(|metric| metric.unit),
            better: metric.map_or(Better::Neither, |metric| metric.better),
        })
    }

    fn average(&self) -> Option<Average> {
        self.unit.and_then(|_| of_average(self.name))
    }

    /// Returns the name in files with the unit.
    fn title(&self) -> String {
        let percent = if self.unit == Some(Unit::Fraction) { " [%]" } else { "" };
        format!("{}{percent}", self.name)
    }

    /// Returns the name for readers, with the unit.
    fn short_title(&self, kind: Kind, of_both: bool) -> String {
        let plain = || if kind == Kind::Cost { self.name.replace('_', " ") } else { self.name.to_string() };
        metric_title(self.name, of_both).unwrap_or_else(plain)
    }

    fn texts(&self, table: &Table) -> Vec<String> {
        table.rows.iter().map(|row| self.text(&row[self.index])).collect()
    }

    /// Returns the text of a cell, which may be a mean with its standard deviation. Both then have as many decimals as the
    /// mean.
    fn text(&self, cell: &str) -> String {
        let mean = number(cell).unwrap_or_default();
        let parts: Vec<_> = cell.split(SPREAD).map(|part| self.format(part, part.parse().ok(), mean)).collect();
        parts.join(SPREAD)
    }

    fn render(&self, table: &Table, groups: &[Vec<&str>], kind: Kind, of_both: bool) -> Rendered {
        let values: Vec<_> = table.rows.iter().map(|row| number(&row[self.index])).collect();
        let mut cells = self.texts(table);
        let intervals = self.intervals(table);
        let has_intervals = intervals.iter().any(Option::is_some);
        for (cell, interval) in cells.iter_mut().zip(intervals) {
            if let Some([low, high]) = interval {
                *cell += &format!(" [{:.1}, {:.1}]", 100.0 * low, 100.0 * high);
            }
        }
        Rendered {
            name: self.name.to_string(),
            title: self.short_title(kind, of_both),
            cells,
            best: best_of_groups(self.better, &values, groups),
            numeric: self.numeric,
            kind,
            average: self.average(),
            in_nats: self.short.filter(|_| self.unit == Some(Unit::Nats)),
            has_intervals,
        }
    }

    /// Returns the interval of every cell that is an accuracy over samples whose number the table has. A mean over several
    /// conditions is none.
    fn intervals(&self, table: &Table) -> Vec<Option<[f64; 2]>> {
        let [samples, condition] = ["samples", "condition"].map(|column| table.index(column));
        let is_share = accuracy::is_column(self.name);
        let interval = |row: usize| {
            let value: f64 = table.rows[row][self.index].parse().ok().filter(|_| is_share)?;
            let count: u64 = table.cell(row, samples).parse().ok()?;
            (!is_mean(table.cell(row, condition))).then(|| accuracy::interval(value, count)).flatten()
        };
        (0..table.rows.len()).map(interval).collect()
    }

    /// Returns the text of one number of a cell with the mean `mean`.
    fn format(&self, cell: &str, value: Option<f64>, mean: f64) -> String {
        match (self.unit, value) {
            (Some(Unit::Fraction), Some(value)) => metrics::rounded(100.0 * value, 2, 100.0 * mean),
            (Some(_), Some(value)) => metrics::rounded(value, 4, mean),
            (None, Some(value)) if self.numeric && cell.len() > 9 && value.fract() != 0.0 => {
                format!("{value:.4e}").parse().map_or(cell.to_string(), |short: f64| short.to_string())
            }
            _ => cell.to_string(),
        }
    }
}

/// Returns the average that a metric is of; `None` for those of no average.
fn of_average(metric: &str) -> Option<Average> {
    Average::ALL.into_iter().find(|average| metric.ends_with(&format!("_{}", average.suffix())))
}

/// Returns the averages that metrics are of, in the order of [`Average::ALL`].
pub fn averages_of(metrics: &[String]) -> Vec<Average> {
    let is_there = |average: &Average| metrics.iter().any(|metric| of_average(metric) == Some(*average));
    Average::ALL.into_iter().filter(is_there).collect()
}

/// Returns a metric's name for readers, with the unit, and with the average that it is of if metrics `of_both` stand beside each
/// other; `None` for another column.
pub fn metric_title(column: &str, of_both: bool) -> Option<String> {
    let metric = metrics::of_column(column)?;
    let scaled = calibrators::word(column).map_or(String::new(), |word| format!(" {word}"));
    let average = of_average(column).filter(|_| of_both).map_or(String::new(), |of| format!(" {}", of.suffix()));
    let percent = if metric.unit == Unit::Fraction { " [%]" } else { "" };
    Some(format!("{}{scaled}{average}{percent}", metric.short))
}

fn group_keys<'a>(table: &'a Table, group_by: &[String]) -> Vec<Vec<&'a str>> {
    let key = |row| group_by.iter().map(|name| table.get(row, name).unwrap_or_default()).collect();
    (0..table.rows.len()).map(key).collect()
}

/// Returns for each row whether no row of the same group beats it, and there is another one to compare with.
fn best_of_groups(better: Better, values: &[Option<f64>], groups: &[Vec<&str>]) -> Vec<bool> {
    let beats = |value: f64, other: f64| match better {
        Better::Higher => value >= other,
        Better::Lower => value <= other,
        Better::Neither => false,
    };
    // The best value so far of each group, and how many there are; a value that cannot be compared leaves none the best.
    let mut best: HashMap<&[&str], (f64, usize)> = HashMap::new();
    for (value, group) in values.iter().zip(groups).filter_map(|(value, group)| Some(((*value)?, group))) {
        let (found, count) = best.entry(group.as_slice()).or_insert((value, 0));
        *count += 1;
        if value.is_nan() || beats(value, *found) && !found.is_nan() {
            *found = value;
        }
    }
    let is_best = |(value, group): (&Option<f64>, &Vec<&str>)| {
        let (Some(value), Some((found, count))) = (value, best.get(group.as_slice())) else { return false };
        *count > 1 && beats(*value, *found)
    };
    values.iter().zip(groups).map(is_best).collect()
}

/// Returns lines that say which metrics are in nats, and what stands in brackets.
pub(super) fn units<'a>(shown: impl Iterator<Item = &'a Rendered> + Clone) -> String {
    let (mut text, mut nats) = (String::new(), Vec::new());
    shown.clone().filter_map(|column| column.in_nats).for_each(|name| push_new(&mut nats, name));
    if !nats.is_empty() {
        text.push_str(&format!("In nats: {}.\n", nats.join(", ")));
    }
    if shown.clone().any(|column| column.has_intervals) {
        text.push_str("In brackets: the 95 % interval over the samples (Wilson).\n");
    }
    text
}
