//! The record of an epoch: a line on the terminal and a row of `train.csv`.

use anyhow::Result;

use super::progress::EpochRow;
use crate::base::tensor_file::RUN;
use crate::results::store::{self, Row, Table};
use crate::run::RunFolder;

/// Logs an epoch and the method's warnings about it. Every line begins with `whose`.
pub fn announce(whose: &str, row: &EpochRow, epochs: usize, warnings: &[String]) {
    warnings.iter().for_each(|warning| tracing::warn!("{whose}epoch {}: {warning}", row.epoch));
    tracing::info!("{whose}{}", describe(row, epochs));
    describe_diagnostics(row).iter().for_each(|line| tracing::debug!("{whose}{line}"));
}

/// Returns the line for the terminal.
fn describe(row: &EpochRow, epochs: usize) -> String {
    let mut text = format!("epoch {}/{epochs}  loss {:.4}", row.epoch, row.train_loss);
    if let Some(nll) = row.validation_nll {
        text += &format!("  validation NLL {nll:.4}");
    }
    if let Some(accuracy) = row.validation_accuracy {
        text += &format!(", accuracy {:.2} %", accuracy * 100.0);
    }
    text + &row.images_per_second.map_or(String::new(), |rate| format!("  {rate:.0} images/s"))
}

/// Returns the line of the method's diagnostics, for the run's log; `None` if it has none.
fn describe_diagnostics(row: &EpochRow) -> Option<String> {
    let values: Vec<String> = row.diagnostics.iter().map(|(name, value)| format!("{name} {value:.3e}")).collect();
    (!values.is_empty()).then(|| format!("epoch {}: {}", row.epoch, values.join("  ")))
}

/// Writes the whole of `train.csv`, as happens after every epoch.
pub fn write(run: &RunFolder, rows: &[EpochRow]) -> Result<()> {
    let mut table = Table::default();
    for row in rows {
        let mut cells = cells(row);
        cells.push(RUN, run.id());
        table.append(&cells);
    }
    store::write(&run.history(), &table)
}

/// Returns the row of `train.csv` of an epoch.
fn cells(row: &EpochRow) -> Row {
    let mut cells = Row::new();
    row.values().into_iter().for_each(|(column, value)| cells.push_number(column, value));
    cells
}
