//! Makes tables narrower: one heading for the rows of a group, names on several lines, and fewer numbers.

use super::columns::Rendered;

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
