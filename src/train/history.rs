//! The record of an epoch: a line on the terminal and a row of `train.csv`.

use anyhow::Result;

use super::progress::EpochRow;
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
    crate::base::files::write_atomic(&run.history(), |file| {
        let mut writer = csv::Writer::from_writer(file);
        let mut header: Vec<String> = [
            "epoch",
            "step",
            "rate_factor",
            "train_loss",
            "validation_nll_lm",
            "validation_accuracy_lm",
            "validation_ece_lm",
        ]
        .map(String::from)
        .to_vec();
        if let Some(first) = rows.first() {
            header.extend(first.diagnostics.iter().map(|(name, _)| name.clone()));
        }
        header.extend(["wall_seconds".to_string(), "images_per_second".to_string()]);
        writer.write_record(&header)?;
        for row in rows {
            let optional = |value: Option<f64>| value.map_or(String::new(), |v| v.to_string());
            let mut cells = vec![row.epoch.to_string(), row.step.to_string(), row.rate_factor.to_string()];
            cells.push(row.train_loss.to_string());
            cells.extend([row.validation_nll, row.validation_accuracy, row.validation_ece].map(optional));
            cells.extend(row.diagnostics.iter().map(|(_, value)| value.to_string()));
            cells.extend([row.wall_seconds.to_string(), optional(row.images_per_second)]);
            writer.write_record(&cells)?;
        }
        writer.flush()?;
        Ok(())
    })
}
