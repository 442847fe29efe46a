//! Draws columns as text.
//!
//! Tables become narrower by one heading for the rows of a group, names on several lines, and fewer numbers. One row is drawn
//! with its metrics down the side, and both averages beside each other.

use std::io::{IsTerminal, stdout};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement};

use super::columns::{Kind, Rendered, rendered, units};
use crate::base::small::push_new;
use crate::metrics::Average;
use crate::results::store::Table;

/// Returns pairs of name and text as lines of `name: text`, separated by two spaces, each within the width.
pub fn names(pairs: &[(&str, &str)], surface: Surface) -> String {
    let mut lines: Vec<String> = Vec::new();
    for (name, text) in pairs {
        let pair = format!("{name}: {text}");
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + pair.chars().count() <= surface.limit() => {
                line.push_str("  ");
                line.push_str(&pair);
            }
            _ => lines.push(pair),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

pub fn table<'a>(columns: impl IntoIterator<Item = &'a Rendered>, surface: Surface) -> String {
    let columns: Vec<&Rendered> = columns.into_iter().collect();
    let mut drawn = match surface.is_terminal {
        false => plain(&columns),
        true => ruled(&columns, surface.width),
    };
    drawn.push('\n');
    drawn
}

/// Draws columns with bars between them. A results folder may have 100,000 rows, which go into the text one by one.
fn plain(columns: &[&Rendered]) -> String {
    let rows = columns.first().map_or(0, |column| column.cells.len());
    let widths: Vec<usize> = columns.iter().map(|column| column.width() - 3).collect();
    let length = widths.iter().map(|width| width + 3).sum::<usize>() + 2;
    let mut text = String::with_capacity(length * (rows + 3));
    let heads: Vec<String> = columns.iter().map(|column| column.head()).collect();
    let lines = heads.iter().map(|head| head.lines().count()).max().unwrap_or(1);
    // Titles stand at the bottom of the head.
    let heads = heads.iter().map(|head| "\n".repeat(lines - head.lines().count()) + head);
    push_lines(&mut text, columns, &widths, &heads.collect::<Vec<_>>());
    widths.iter().for_each(|width| text.push_str(&format!("|{}", "-".repeat(width + 2))));
    text.push('|');
    for row in 0..rows {
        text.push('\n');
        let mark = |column: &&Rendered| if column.best[row] { "*" } else { "" };
        let cells = columns.iter().map(|column| format!("{}{}", column.cells[row], mark(column)).replace('\r', " "));
        push_lines(&mut text, columns, &widths, &cells.collect::<Vec<_>>());
        text.pop();
    }
    text
}

/// Adds the lines of cells that may have several.
fn push_lines(text: &mut String, columns: &[&Rendered], widths: &[usize], cells: &[String]) {
    let lines = cells.iter().map(|cell| cell.split('\n').count()).max().unwrap_or(1);
    for line in 0..lines {
        for ((cell, column), width) in cells.iter().zip(columns).zip(widths) {
            let cell = cell.split('\n').nth(line).unwrap_or_default();
            text.push_str(&match column.numeric {
                true => format!("| {cell:>width$} "),
                false => format!("| {cell:width$} "),
            });
        }
        text.push_str("|\n");
    }
}

fn ruled(columns: &[&Rendered], width: Option<u16>) -> String {
    let mut table = comfy_table::Table::new();
    if let Some(width) = width {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
    }
    table.load_style(UTF8_FULL_CONDENSED).force_no_tty();
    if std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        table.enforce_styling();
    }
    let align = |column: &&Rendered| match column.numeric {
        true => CellAlignment::Right,
        false => CellAlignment::Left,
    };
    table.set_header(columns.iter().map(|column| Cell::new(column.head()).set_alignment(align(column))));
    for row in 0..columns.first().map_or(0, |column| column.cells.len()) {
        table.add_row(columns.iter().map(|column| {
            let cell = Cell::new(&column.cells[row]);
            let cell = if column.best[row] { cell.add_attribute(Attribute::Bold) } else { cell };
            cell.set_alignment(align(column))
        }));
    }
    table.trim_fmt()
}

/// The number of columns of numbers for which names are broken into lines.
const WANTED: usize = 3;

/// The least width to which names are broken.
const NARROWEST: usize = 24;

/// Returns the columns with a heading above the rows of each group instead of the columns that tell the groups, which
/// come first. Without groups of several rows, or without another label, the columns stay.
pub fn with_headings(mut labels: Vec<Rendered>, mut values: Vec<Rendered>, group_by: &[String]) -> [Vec<Rendered>; 2] {
    let is_of_group = |label: &Rendered| group_by.contains(&label.name);
    let (of_group, others): (Vec<_>, Vec<_>) = (0..labels.len()).partition(|label| is_of_group(&labels[*label]));
    let heading = |row: usize| {
        let cells = of_group.iter().map(|label| labels[*label].cells[row].as_str());
        cells.filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join(", ")
    };
    let rows = labels.first().or(values.first()).map_or(0, |column| column.cells.len());
    let headings: Vec<String> = (0..rows).map(heading).collect();
    let starts: Vec<usize> = (0..rows).filter(|row| *row == 0 || headings[*row] != headings[*row - 1]).collect();
    let Some(first) = others.first().copied() else { return [labels, values] };
    // A heading of one row says no more than a cell of that row.
    if of_group.is_empty() || 2 * starts.len() > rows {
        return [labels, values];
    }
    for column in labels.iter_mut().chain(&mut values) {
        column.cells = with_gaps(std::mem::take(&mut column.cells), &starts);
        column.best = with_gaps(std::mem::take(&mut column.best), &starts);
    }
    let named = &mut labels[first];
    named.numeric = false;
    named.cells.iter_mut().filter(|cell| !cell.is_empty()).for_each(|cell| *cell = format!("  {cell}"));
    for (inserted, row) in starts.iter().enumerate() {
        named.cells[row + inserted].clone_from(&headings[*row]);
    }
    let mut kept = (0..labels.len()).map(|label| others.contains(&label));
    labels.retain(|_| kept.next().unwrap_or(true));
    [labels, values]
}

/// Returns the items with a default before each of the places `starts`, which are sorted.
fn with_gaps<T: Default>(items: Vec<T>, starts: &[usize]) -> Vec<T> {
    let mut starts = starts.iter().peekable();
    let mut found = Vec::with_capacity(items.len() + starts.len());
    for (place, item) in items.into_iter().enumerate() {
        if starts.next_if(|start| **start == place).is_some() {
            found.push(T::default());
        }
        found.push(item);
    }
    found
}

/// Breaks the cells of the widest label into lines between words, if this makes room for some numbers.
pub fn break_names(labels: &mut [Rendered], values: &[Rendered], limit: usize) {
    let of_values = values.iter().take(WANTED).map(Rendered::width).sum::<usize>();
    let used = labels.iter().map(Rendered::width).sum::<usize>() + of_values + 1;
    let Some(widest) = labels.iter_mut().filter(|label| !label.numeric).max_by_key(|label| label.width()) else {
        return;
    };
    if used > limit && !values.is_empty() {
        let room = (widest.width() - 3).saturating_sub(used - limit).max(NARROWEST);
        widest.cells.iter_mut().for_each(|cell| *cell = broken(cell, room));
    }
}

/// Returns a text with line breaks between words, so that lines have at most `room` characters if words permit. Further
/// lines start with two more spaces than the first.
fn broken(text: &str, room: usize) -> String {
    let indent = text.len() - text.trim_start().len();
    let mut lines = vec![" ".repeat(indent)];
    // A single word that is too long, such as the id of a run, is cut.
    let cut = |word: &str| -> Vec<String> {
        let letters: Vec<char> = word.chars().collect();
        letters.chunks(room.saturating_sub(indent + 2).max(1)).map(|piece| piece.iter().collect()).collect()
    };
    for word in text.split_whitespace().flat_map(cut) {
        let last = lines.len() - 1;
        let is_empty = lines[last].trim().is_empty();
        if is_empty || lines[last].chars().count() + 1 + word.chars().count() <= room {
            let space = if is_empty { "" } else { " " };
            lines[last] += &format!("{space}{word}");
        } else {
            lines.push(format!("{}{word}", " ".repeat(indent + 2)));
        }
    }
    lines.join("\n")
}

/// Returns the number of columns that fit into `room` characters, at least one if there are any.
pub fn fitting(values: &[Rendered], room: usize) -> usize {
    let mut used = 0;
    let fit = values.iter().take_while(|value| {
        used += value.width();
        used <= room
    });
    fit.count().max(1).min(values.len())
}

/// Renders the only row of `table`. Of a metric that has a value for each average, both are shown.
pub fn render(table: &Table, columns: &[Rendered], surface: Surface) -> String {
    let is_label = |column: &&Rendered| column.kind == Kind::Label && !column.cells[0].is_empty();
    let labels: Vec<_> = columns.iter().filter(is_label).map(|label| label.pair(0)).collect();
    let lines = lines(table, columns);
    let title_width = lines.iter().map(|line| line.title.chars().count()).max().unwrap_or(0);
    let has_averages = lines.iter().any(|line| line.values[1].is_some());
    let titles = Average::ALL.map(Average::title);
    let widest = |place: usize| lines.iter().filter_map(|line| line.values[place].as_ref()).map(String::len).max();
    let width = |place: usize| widest(place).unwrap_or(0).max(if has_averages { titles[place].len() } else { 10 });
    let widths = [0, 1].map(width);
    let mut text = names(&labels, surface);
    text.push('\n');
    if has_averages {
        let [first, second] = widths;
        text.push_str(&format!("{:title_width$}  {:>first$}  {:>second$}\n", "", titles[0], titles[1]));
    }
    for line in &lines {
        let values = line
            .values
            .iter()
            .zip(widths)
            .flat_map(|(value, width)| value.as_ref().map(|value| format!("  {value:>width$}")));
        text.push_str(&format!("{:title_width$}{}\n", line.title, values.collect::<String>()));
    }
    text + &units(columns.iter())
}

/// A metric or a cost with its value, or one for each average.
struct Line {
    title: String,
    values: [Option<String>; 2],
}

/// Returns a line for every metric and every cost.
fn lines(table: &Table, columns: &[Rendered]) -> Vec<Line> {
    let mut stems: Vec<&str> = Vec::new();
    columns.iter().filter(|column| column.kind != Kind::Label).for_each(|column| push_new(&mut stems, column.stem()));
    stems.into_iter().map(|stem| line(table, stem)).collect()
}

fn line(table: &Table, stem: &str) -> Line {
    let mut line = Line { title: String::new(), values: [None, None] };
    let names = Average::ALL.map(|average| format!("{stem}_{}", average.suffix()));
    for name in names.into_iter().chain([stem.to_string()]) {
        if let Some(column) = rendered(table, &[name], &[]).pop() {
            let place = usize::from(column.average == Some(Average::Probability));
            line.values[place] = column.cells.into_iter().next();
            line.title = column.title.replace('_', " ");
        }
    }
    line
}

/// The width of a table that is not written to a terminal, such as one in a file or a log.
const USUAL_WIDTH: u16 = 100;

/// The medium on which a table is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Surface {
    /// The number of characters in a line; `None` for lines as long as the table needs.
    pub width: Option<u16>,
    /// Whether lines are ruled and the best cells bold, as on a terminal. Otherwise the text is ASCII, and the best cells
    /// are marked with `*`.
    pub is_terminal: bool,
}

impl Surface {
    /// Plain text with lines as long as needed.
    pub const PLAIN: Surface = Surface { width: None, is_terminal: false };

    /// Returns the surface of standard output.
    pub fn of_stdout() -> Self {
        // A launcher of several processes inserts a terminal without a size.
        let is_terminal = stdout().is_terminal() && crate::machine::parallel::processes() == 1;
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let found = if is_terminal { comfy_table::Table::new().width() } else { columns };
        Surface { width: Some(found.filter(|width| *width > 0).unwrap_or(USUAL_WIDTH)), is_terminal }
    }

    /// Returns the same surface with lines as long as needed.
    pub fn without_limit(self) -> Self {
        Surface { width: None, ..self }
    }

    /// Returns whether the surface shows colours: a terminal does unless the variable `NO_COLOR` forbids it.
    pub fn has_color(self) -> bool {
        self.is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
    }

    pub(super) fn limit(self) -> usize {
        self.width.map_or(usize::MAX, usize::from)
    }
}
