//! Renders result rows as readable tables: chosen columns, fractions in percent, numbers right-aligned, and the best
//! value of each group marked in the direction of the metric.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement};
use std::collections::HashMap;
use std::io::{IsTerminal, stdout};

use super::store::Table;
use crate::metrics::{self, Better, Unit};

/// The medium on which a table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Surface {
    /// Plain ASCII text, as wide as needed. The best cell is marked with `*`.
    Plain,
    /// A terminal of `width` columns, with ruled lines and the best cells in bold. Columns that do not fit continue
    /// below.
    Terminal { width: u16 },
}

impl Surface {
    /// Returns the surface of standard output.
    pub fn of_stdout() -> Self {
        // A launcher of several processes inserts a terminal without a size.
        let width = comfy_table::Table::new().width().filter(|width| *width > 0).unwrap_or(80);
        let terminal = stdout().is_terminal() && crate::machine::parallel::processes() == 1;
        if terminal { Surface::Terminal { width } } else { Surface::Plain }
    }
}

/// The columns to render and the surface to render them for.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The columns in order. Columns that the table lacks, or that are empty in every row, are left out.
    pub columns: Vec<String>,
    /// The best cell is determined among rows that agree in these columns, or among all rows if there are none.
    pub group_by: Vec<String>,
    pub surface: Surface,
}

/// Renders `table` as text that ends in a line break. Without rows or columns, the text is a line that says so.
pub fn render(table: &Table, spec: &Spec) -> String {
    let columns: Vec<_> = spec.columns.iter().filter_map(|name| Column::of(table, name)).collect();
    if columns.is_empty() {
        return "no results\n".to_string();
    }
    let groups = group_keys(table, &spec.group_by);
    let columns: Vec<_> = columns.iter().map(|column| column.render(table, &groups)).collect();
    let mut text = String::new();
    for block in blocks(&columns, spec.surface) {
        let mut drawn = draw(&block, table.rows.len(), spec.surface);
        drawn.push('\n');
        // A single block, which may be long, is not copied.
        if text.is_empty() { text = drawn } else { text.push_str(&drawn) }
    }
    text
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

/// Returns the chosen columns of `table` as texts. Columns that it lacks, or that are empty throughout, are left out.
pub fn texts(table: &Table, columns: &[&str]) -> Texts {
    let chosen: Vec<_> = columns.iter().filter_map(|name| Column::of(table, name)).collect();
    let groups = group_keys(table, &[]);
    let columns: Vec<_> = chosen.iter().map(|column| column.render(table, &groups)).collect();
    let titles = columns.iter().map(|column| column.title.clone()).collect();
    let labels = columns.iter().position(|column| column.measured).unwrap_or(columns.len());
    let mut cells: Vec<_> = columns.into_iter().map(|column| column.cells.into_iter()).collect();
    let row = |_| cells.iter_mut().filter_map(Iterator::next).collect();
    Texts { titles, rows: (0..table.rows.len()).map(row).collect(), labels }
}

/// A column to show, with the unit and direction from the metric registry.
struct Column<'a> {
    name: &'a str,
    index: usize,
    numeric: bool,
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
            numeric: filled.all(|cell| cell.parse::<f64>().is_ok()),
            unit: metric.map(|metric| metric.unit),
            better: metric.map_or(Better::Neither, |metric| metric.better),
        })
    }

    fn render(&self, table: &Table, groups: &[Vec<&str>]) -> Rendered {
        let values: Vec<_> = table.rows.iter().map(|row| row[self.index].parse::<f64>().ok()).collect();
        let cells = table.rows.iter().zip(&values);
        let percent = if self.unit == Some(Unit::Fraction) { " [%]" } else { "" };
        Rendered {
            title: format!("{}{percent}", self.name),
            cells: cells.map(|(row, value)| self.format(&row[self.index], *value)).collect(),
            best: best_of_groups(self.better, &values, groups),
            numeric: self.numeric,
            measured: self.unit.is_some(),
        }
    }

    fn format(&self, cell: &str, value: Option<f64>) -> String {
        match (self.unit, value) {
            (Some(Unit::Fraction), Some(value)) => format!("{:.2}", 100.0 * value),
            (Some(_), Some(value)) => format!("{value:.4}"),
            (None, Some(value)) if self.numeric && cell.len() > 9 && value.fract() != 0.0 => {
                format!("{value:.4e}").parse().map_or(cell.to_string(), |short: f64| short.to_string())
            }
            _ => cell.to_string(),
        }
    }
}

/// A column with its formatted cells.
struct Rendered {
    title: String,
    cells: Vec<String>,
    best: Vec<bool>,
    numeric: bool,
    /// Whether the column is a metric. Other columns name the row and are repeated in every block.
    measured: bool,
}

impl Rendered {
    /// Returns the width of the column on a terminal, with its padding and one ruled line.
    fn width(&self) -> usize {
        let cells = self.cells.iter().chain([&self.title]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0) + 3
    }
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

/// Splits the metric columns into as many blocks as the width requires. Each block starts with the columns that name
/// rows.
fn blocks(columns: &[Rendered], surface: Surface) -> Vec<Vec<&Rendered>> {
    let limit = match surface {
        Surface::Plain => usize::MAX,
        Surface::Terminal { width } => usize::from(width),
    };
    let (measured, naming): (Vec<_>, Vec<_>) = columns.iter().partition(|column| column.measured);
    let naming_width = naming.iter().map(|column| column.width()).sum::<usize>() + 1;
    let mut blocks = vec![naming.clone()];
    let mut used = naming_width;
    for column in measured {
        if used + column.width() > limit && used > naming_width {
            blocks.push(naming.clone());
            used = naming_width;
        }
        used += column.width();
        if let Some(block) = blocks.last_mut() {
            block.push(column);
        }
    }
    blocks
}

fn draw(columns: &[&Rendered], rows: usize, surface: Surface) -> String {
    match surface {
        Surface::Plain => draw_plain(columns, rows),
        Surface::Terminal { width } => draw_ruled(columns, rows, width),
    }
}

/// Draws columns with bars between them. A results folder may have 100,000 rows, which go into the text one by one.
fn draw_plain(columns: &[&Rendered], rows: usize) -> String {
    let length = |text: &str| text.chars().count();
    let cell = |column: &Rendered, row: usize| {
        let mark = if column.best[row] { "*" } else { "" };
        format!("{}{mark}", column.cells[row]).replace(['\n', '\r'], " ")
    };
    let width = |column: &&Rendered| {
        let cells = column.cells.iter().zip(&column.best).map(|(cell, best)| length(cell) + usize::from(*best));
        cells.max().unwrap_or(0).max(length(&column.title))
    };
    let widths: Vec<usize> = columns.iter().map(width).collect();
    let line = |text: &mut String, cells: &mut dyn Iterator<Item = String>| {
        for ((cell, column), width) in cells.zip(columns).zip(&widths) {
            text.push_str(&match column.numeric {
                true => format!("| {cell:>width$} "),
                false => format!("| {cell:width$} "),
            });
        }
        text.push('|');
    };
    let length = widths.iter().map(|width| width + 3).sum::<usize>() + 2;
    let mut text = String::with_capacity(length * (rows + 2));
    line(&mut text, &mut columns.iter().map(|column| column.title.clone()));
    text.push('\n');
    widths.iter().for_each(|width| text.push_str(&format!("|{}", "-".repeat(width + 2))));
    text.push('|');
    for row in 0..rows {
        text.push('\n');
        line(&mut text, &mut columns.iter().map(|column| cell(column, row)));
    }
    text
}

fn draw_ruled(columns: &[&Rendered], rows: usize, width: u16) -> String {
    let mut table = comfy_table::Table::new();
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    table.load_style(UTF8_FULL_CONDENSED).force_no_tty().enforce_styling();
    let align = |column: &Rendered| match column.numeric {
        true => CellAlignment::Right,
        false => CellAlignment::Left,
    };
    table.set_header(columns.iter().map(|c| Cell::new(&c.title).set_alignment(align(c))));
    for row in 0..rows {
        table.add_row(columns.iter().map(|column| {
            let cell = Cell::new(&column.cells[row]);
            let cell = if column.best[row] { cell.add_attribute(Attribute::Bold) } else { cell };
            cell.set_alignment(align(column))
        }));
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests;
