//! The picture of an experiment: one SVG whose small panels compare the runs under each test condition (accuracy, NLL,
//! ECE, mutual information). Marks are means over seeds; whiskers reach from the smallest to the largest value.

mod comparison;
mod measured;
mod notes;

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use self::comparison::Comparison;
use self::measured::{Measured, Quantity};
use self::notes::{group_names, notes};
use crate::base::files::write_atomic;
use crate::plot::{Chart, Entry, Fill, Swatch};
use crate::results::store::Table;

/// Draws the runs of `table` (the rows of a results file) to the SVG file `path`, which is replaced atomically.
///
/// # Errors
/// Fails if `path` does not end in `.svg`, its folder does not exist, the table has no rows or no column `method` or
/// `condition`, a cell is not a finite number, or no row has a metric that could be drawn.
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

/// Returns the picture of `table` as SVG; `None` if no row has a value of what it shows.
///
/// # Errors
/// Fails if a cell is not a finite number.
pub fn of(table: &Table) -> Result<Option<String>> {
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

#[cfg(test)]
mod tests;
