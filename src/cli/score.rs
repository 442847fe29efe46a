//! `bella score`: every metric again from saved predictions, without the model.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::metrics::{Scores, evaluate};
use crate::predictions::Predictions;
use crate::results::store::Row;

/// Recompute every metric from saved predictions.
#[derive(Args)]
#[command(after_help = "Example:\n  bella score results/runs/quickstart/*/predictions/*.safetensors")]
pub struct ScoreArgs {
    /// Predictions files (logits [m, N, C], labels [N]).
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// CSV on standard output instead of a table.
    #[arg(long)]
    csv: bool,
}

pub fn run(args: &ScoreArgs) -> Result<()> {
    let rows: Vec<Row> = args.files.iter().map(|file| score(file)).collect::<Result<_>>()?;
    if !args.csv {
        super::report::print_rows(&rows);
        return Ok(());
    }
    let mut table = crate::results::store::Table::default();
    rows.iter().for_each(|row| table.append(row));
    let mut writer = csv::Writer::from_writer(std::io::stdout());
    writer.write_record(&table.columns)?;
    for row in &table.rows {
        writer.write_record(row)?;
    }
    Ok(writer.flush()?)
}

fn score(file: &std::path::Path) -> Result<Row> {
    let predictions = Predictions::open(file)?;
    let mut row = Row::new();
    for key in ["experiment", "run", "set", "condition"] {
        row.push(key, predictions.metadata().get(key).cloned().unwrap_or_default());
    }
    row.push("members", predictions.members().to_string());
    row.push("samples", predictions.samples().to_string());
    row.push("classes", predictions.classes().to_string());
    for (column, value) in evaluate(&Scores::compute(&predictions)?) {
        row.push_number(column, value);
    }
    Ok(row)
}
