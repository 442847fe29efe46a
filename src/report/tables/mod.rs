//! The tables of a report: each published table with our results below every row, and plain tables of the contents of
//! the results folder.

pub mod classes;
mod matching;
mod methods;
mod ours;
mod overview;
mod rendered;

use anyhow::{Result, bail};

use super::aggregate::{Summary, seed_warning};
use super::paper::{self, Cell, Origin, PaperTable, Unit};
use super::sources::Sources;
use crate::base::small::push_new;
use crate::metrics::Average;
use matching::{Found, Matcher};

pub use methods::methods;
pub use ours::{
    conformal, conformal_columns, metric_columns, of_all_images, ood, ood_columns, result_columns, results, seed_notes,
    seeds, seeds_csv,
};
pub use overview::{intervals, overview, overview_labels, seeds_overview};
pub use rendered::{NOT_RUN, RenderedTable, escape_latex, with_code};
use rendered::{NOTHING, OURS, PUBLISHED};

/// The tables of our results, which come before those of the papers.
const OWN: &[&str] = &["results", "methods", "ood", "conformal"];

/// Returns all names that `--table` accepts.
pub fn keys() -> Vec<&'static str> {
    OWN.iter().copied().chain(paper::keys()).collect()
}

/// Returns the published tables with our matching results.
///
/// # Errors
/// Fails if the published numbers cannot be read.
pub fn papers(sources: &Sources) -> Result<Vec<RenderedTable>> {
    let matcher = Matcher::new(sources);
    Ok(paper::tables()?.iter().map(|table| of_paper(table, &matcher)).collect())
}

/// Returns the tables of our results.
pub fn own(sources: &Sources) -> Vec<RenderedTable> {
    vec![results(sources), methods(sources), ood(sources), conformal(sources)]
}

/// Returns all tables, starting with those of our results.
///
/// # Errors
/// Fails if the published numbers cannot be read.
pub fn all(sources: &Sources) -> Result<Vec<RenderedTable>> {
    let mut tables = own(sources);
    tables.extend(papers(sources)?);
    Ok(tables)
}

/// Returns the tables with the given keys. The key `all` selects every table.
///
/// # Errors
/// Fails for an unknown key and lists the known ones.
pub fn named(sources: &Sources, wanted: &[String]) -> Result<Vec<RenderedTable>> {
    let known = keys();
    for key in wanted {
        if key != "all" && !known.contains(&key.as_str()) {
            bail!("unknown table `{key}`; known: all, {}", known.join(", "));
        }
    }
    let every = wanted.iter().any(|key| key == "all");
    Ok(all(sources)?.into_iter().filter(|table| every || wanted.contains(&table.key)).collect())
}

/// Returns a published table with our matching results.
fn of_paper(table: &PaperTable, matcher: &Matcher) -> RenderedTable {
    let found: Vec<Vec<Found>> = table.cells.iter().map(|cell| matcher.find(cell)).collect();
    let grid = Grid::of(table, &found);
    let unit = |column: &str| {
        let units: Vec<Unit> = table.cells.iter().filter(|cell| cell.column == *column).map(|cell| cell.unit).collect();
        units.first().filter(|first| units.iter().all(|unit| unit == *first)).map_or("", |unit| unit.label())
    };
    let title = |column: &&String| match unit(column) {
        "" => column.to_string(),
        unit => format!("{column} [{unit}]"),
    };
    let heads = ["row", "source"].map(String::from);
    let mut rendered = RenderedTable {
        key: table.key.clone(),
        title: table.title.clone(),
        caption: format!("{}.", table.source),
        columns: heads.into_iter().chain(grid.columns.iter().map(title)).collect(),
        labels: 2,
        rows: vec![],
        notes: vec![],
        matched: found.iter().filter(|found| !found.is_empty()).count(),
    };
    for row in &grid.rows {
        rendered.rows.push(grid.published(row));
        rendered.rows.extend(grid.checkpoints_of(row).into_iter().map(|checkpoint| grid.ours(row, checkpoint)));
    }
    rendered.notes = grid.notes();
    rendered
}

/// A published table laid out in rows and columns.
struct Grid<'a> {
    table: &'a PaperTable,
    found: &'a [Vec<Found>],
    rows: Vec<&'a String>,
    columns: Vec<&'a String>,
    /// The checkpoints for which we have a result in this table.
    checkpoints: Vec<&'a String>,
}

impl<'a> Grid<'a> {
    fn of(table: &'a PaperTable, found: &'a [Vec<Found>]) -> Self {
        let (mut rows, mut columns, mut checkpoints) = (vec![], vec![], vec![]);
        for cell in &table.cells {
            push_new(&mut rows, &cell.row);
            push_new(&mut columns, &cell.column);
        }
        found.iter().flatten().for_each(|one| push_new(&mut checkpoints, &one.checkpoint));
        Self { table, found, rows, columns, checkpoints }
    }

    /// Returns the checkpoints for which we have a result in this row, or one empty name if there are none.
    fn checkpoints_of(&self, row: &str) -> Vec<&str> {
        let in_row = |found: &(&Cell, &Vec<Found>)| found.0.row == row;
        let of_row: Vec<_> =
            self.table.cells.iter().zip(self.found).filter(in_row).flat_map(|(_, found)| found).collect();
        let has = |checkpoint: &&&String| of_row.iter().any(|one| one.checkpoint == ***checkpoint);
        let names: Vec<_> = self.checkpoints.iter().filter(has).map(|name| name.as_str()).collect();
        if names.is_empty() { vec![""] } else { names }
    }

    fn place(&self, row: &str, column: &str) -> Option<usize> {
        self.table.cells.iter().position(|cell| cell.row == row && cell.column == column)
    }

    fn published(&self, row: &str) -> Vec<String> {
        let cell = |column: &&String| match self.place(row, column).map(|place| &self.table.cells[place]) {
            Some(cell) if !cell.printed.is_empty() => match cell.sd {
                Some(sd) => format!("{} ± {}", cell.printed, cell.unit.show(sd)),
                None => cell.printed.clone(),
            },
            _ => NOTHING.to_string(),
        };
        [row.to_string(), PUBLISHED.to_string()].into_iter().chain(self.columns.iter().map(cell)).collect()
    }

    fn ours(&self, row: &str, checkpoint: &str) -> Vec<String> {
        let cell = |column: &&String| {
            self.place(row, column).map_or(NOTHING.to_string(), |place| self.our_cell(place, checkpoint))
        };
        let source = match checkpoint {
            "" => OURS.trim_end_matches(": ").to_string(),
            name => format!("{OURS}{name}"),
        };
        [row.to_string(), source].into_iter().chain(self.columns.iter().map(cell)).collect()
    }

    fn our_cell(&self, place: usize, checkpoint: &str) -> String {
        let cell = &self.table.cells[place];
        if !cell.is_comparable() {
            return NOTHING.to_string();
        }
        if cell.origin == Origin::MeanOfCells {
            let mean = self.mean_of_cells(cell, checkpoint);
            return mean.map_or(NOT_RUN.to_string(), |mean| cell.unit.show(mean));
        }
        let found: Vec<_> = self.found[place].iter().filter(|one| one.checkpoint == checkpoint).collect();
        let several = found.len() > 1;
        let text = |one: &&Found| {
            let text = Summary::of(&one.values).map_or(NOT_RUN.to_string(), |summary| show(&summary, cell.unit));
            // The paper's table does not distinguish these settings, so each is shown and none is chosen.
            if several { format!("{text} [{}]", one.series) } else { text }
        };
        match found.is_empty() {
            true => NOT_RUN.to_string(),
            false => found.iter().map(text).collect::<Vec<_>>().join("; "),
        }
    }

    /// Returns the mean over the cells of the same model, for an average column. `None` unless each of these cells has
    /// exactly one series.
    fn mean_of_cells(&self, average: &Cell, checkpoint: &str) -> Option<f64> {
        let mut means = vec![];
        for (cell, found) in self.table.cells.iter().zip(self.found) {
            if cell.origin == Origin::Rows && cell.is_same_model(average) {
                let mut own = found.iter().filter(|one| one.checkpoint == checkpoint);
                let (Some(one), None) = (own.next(), own.next()) else { return None };
                means.push(Summary::of(&one.values)?.mean);
            }
        }
        Some(Summary::of(&means)?.mean)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![self.table.note.clone()];
        if self.found.iter().flatten().any(|one| one.values.len() > 1) {
            notes.push("Ours: mean ± standard deviation over seeds.".to_string());
        }
        for (cell, found) in self.table.cells.iter().zip(self.found) {
            let set = cell.demands.iter().find(|demand| demand.column == "set");
            if let Some(paper::Wanted::OneOf(sets)) = set.map(|demand| &demand.wanted) {
                let warnings = found.iter().filter_map(|one| seed_warning(sets.first()?, one.values.len()));
                warnings.for_each(|warning| push_new(&mut notes, format!("Warning: {warning}.")));
            }
        }
        if self.found.iter().any(|found| !found.is_empty()) {
            let measured = |average: &Average| {
                let suffix = format!("_{}", average.suffix());
                self.table
                    .cells
                    .iter()
                    .zip(self.found)
                    .any(|(c, found)| !found.is_empty() && c.metric.ends_with(&suffix))
            };
            let words: Vec<_> = Average::ALL.into_iter().filter(measured).map(Average::words).collect();
            if !words.is_empty() {
                notes.push(format!("Ours: predictions are the {}.", words.join(" or, by column, the ")));
            }
        }
        notes.retain(|note| !note.is_empty());
        notes
    }
}

/// Returns the mean, spread and number of seeds in the unit of the table, such as `68.37 ± 0.22 (2 seeds)`.
fn show(summary: &Summary, unit: Unit) -> String {
    let mean = unit.show(summary.mean);
    match summary.spread {
        // Quantities that are equal by construction, such as costs, need no spread.
        Some(spread) if spread.sd == 0.0 => format!("{mean} ({} seeds)", summary.count),
        Some(spread) => format!("{mean} ± {} ({} seeds)", unit.show(spread.sd), summary.count),
        None => mean,
    }
}

#[cfg(test)]
mod tests;
