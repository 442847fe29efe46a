//! The record of an epoch: a line on the terminal and a row of `train.csv`.

use anyhow::Result;

use super::progress::EpochRow;
use crate::results::store::{self, Row, Table};
use crate::run::RunFolder;

/// Returns the line for the terminal.
pub fn describe(row: &EpochRow, epochs: usize) -> String {
    let mut text = format!("epoch {}/{epochs}  loss {:.4}", row.epoch, row.train_loss);
    if let (Some(nll), Some(accuracy)) = (row.validation_nll, row.validation_accuracy) {
        text += &format!("  validation NLL {nll:.4}, accuracy {:.2} %", accuracy * 100.0);
    }
    for (name, value) in &row.diagnostics {
        text += &format!("  {name} {value:.3e}");
    }
    text + &row.images_per_second.map_or(String::new(), |rate| format!("  {rate:.0} images/s"))
}

/// Writes the whole of `train.csv`, as happens after every epoch.
pub fn write(run: &RunFolder, rows: &[EpochRow]) -> Result<()> {
    let mut table = Table::default();
    rows.iter().for_each(|row| table.append(&cells(row)));
    store::write(&run.history(), &table)
}

fn cells(row: &EpochRow) -> Row {
    let mut cells = Row::new();
    cells.push("epoch", row.epoch.to_string());
    cells.push("step", row.step.to_string());
    cells.push_number("rate_factor", Some(row.rate_factor));
    cells.push_number("train_loss", Some(row.train_loss));
    cells.push_number("validation_nll_lm", row.validation_nll);
    cells.push_number("validation_accuracy_lm", row.validation_accuracy);
    cells.push_number("validation_ece_lm", row.validation_ece);
    row.diagnostics.iter().for_each(|(name, value)| cells.push_number(name, Some(*value)));
    cells.push_number("wall_seconds", Some(row.wall_seconds));
    cells.push_number("images_per_second", row.images_per_second);
    cells
}
