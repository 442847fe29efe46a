//! `bella report`: results files as readable tables, and the picture that compares their runs.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::Args;

use crate::results::store::{Row, Table, read};
use crate::results::table::{Spec, Surface, render};

/// Print results as a table, and draw them.
#[derive(Args)]
#[command(after_help = "Example:\n  bella report results/quickstart.csv --picture results/quickstart.svg")]
pub struct ReportArgs {
    /// Results files.
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Draw accuracy, NLL and ECE of every run and condition to this SVG.
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,
}

/// What a reader wants to see first.
const COLUMNS: &[&str] = &[
    "subspace",
    "method",
    "particles",
    "rank",
    "seed",
    "set",
    "condition",
    "accuracy_lm",
    "nll_lm",
    "ece_lm",
    "accuracy_pm",
    "nll_pm",
    "ece_pm",
    "brier_pm",
    "mi_correct_pm",
    "mi_wrong_pm",
    "auroc_mi_error_pm",
    "trainable_parameters",
    "train_wall_seconds",
];

pub fn run(args: &ReportArgs) -> Result<()> {
    let mut all = Table::default();
    for file in &args.files {
        let table = read(file)?;
        for row in &table.rows {
            let mut cells = Row::new();
            table.columns.iter().zip(row).for_each(|(column, value)| cells.push(column, value));
            all.append(&cells);
        }
    }
    ensure!(!all.rows.is_empty(), "no results yet: run `bella train` first");
    print(&all);
    if let Some(picture) = &args.picture {
        crate::results::picture::draw(&all, picture)?;
        tracing::info!("picture: {}", picture.display());
    }
    Ok(())
}

/// Prints rows as they were just computed.
pub fn print_rows(rows: &[Row]) {
    let mut table = Table::default();
    rows.iter().for_each(|row| table.append(row));
    print(&table);
}

fn print(table: &Table) {
    let spec = Spec {
        columns: COLUMNS.iter().map(|column| column.to_string()).collect(),
        group_by: vec!["set".into(), "condition".into()],
        surface: Surface::of_stdout(),
    };
    print!("{}", render(table, &spec));
}
