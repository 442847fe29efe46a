//! Draws columns as text.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Attribute, Cell, CellAlignment, ContentArrangement};

use super::columns::Rendered;
use super::surface::Surface;

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
