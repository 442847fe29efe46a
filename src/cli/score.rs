//! `bella score`: recomputes every metric from saved predictions, without the model.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::conformal::ConformalArgs;
use super::options::{TableArgs, expect_distinct};
use super::report::print_csv;
use crate::base::small::Usage;
use crate::evaluate::score::{conformal_sets, detect, files_of, levels, score};
use crate::metrics::calibrators::{self, CALIBRATORS, Calibrator, DEFAULT};
use crate::metrics::ood::features::FEATURE_SCORES;
use crate::metrics::{Average, ood};
use crate::results::store::{Row, Table};
use crate::schema::{find, keys};
use crate::tasks::{has_logits, is_answers};

/// Recompute every metric from saved predictions.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella score low-rank-svgd-s1\n  bella score results/runs/quickstart/*/predictions/*.safetensors\n  \
                        bella score cifar10.safetensors --ood cifar100.safetensors --csv\n  \
                        bella score test.safetensors --validation val.safetensors --conformal 0.1\n  \
                        bella score results/runs/vqa/*/predictions/*.jsonl --levels"
)]
pub struct ScoreArgs {
    /// Predictions files (logits [m, N, C], labels [N]), files of answers (.jsonl), or runs, of which all test sets count.
    #[arg(required = true, value_name = "FILE | RUN", add = super::completions::of_runs())]
    named: Vec<String>,

    /// Predictions to separate from those of FILES by uncertainty, without labels; may be repeated.
    #[arg(long, value_name = "FILE", conflicts_with = "validation")]
    ood: Vec<PathBuf>,

    /// Fit calibrators on these validation predictions and add the calibrated numbers.
    #[arg(long, value_name = "FILE")]
    validation: Option<PathBuf>,

    #[arg(help = format!("Calibrators that are fitted on the validation predictions: {} (see `bella list metrics`) [default: {}]", keys(CALIBRATORS), DEFAULT.key))]
    #[arg(long, value_name = "KEY", value_delimiter = ',', requires = "validation", value_parser = |text: &str| find(CALIBRATORS, text))]
    calibrate: Vec<&'static Calibrator>,

    /// Print how answers (.jsonl) depend on the agreement of people, and that on the entropy, as CSV.
    #[arg(long, conflicts_with_all = ["conformal", "columns", "wide"])]
    levels: bool,

    #[command(flatten)]
    conformal: ConformalArgs,

    /// Results folder.
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    out: PathBuf,

    #[command(flatten)]
    table: TableArgs,
}

pub fn run(args: &ScoreArgs) -> Result<()> {
    expect_distinct("--calibrate", &args.calibrate, |calibrator| calibrator.key)?;
    let beside: Vec<PathBuf> = args.validation.iter().chain(&args.ood).cloned().collect();
    let of_one = |named: &String| files_of(named, &args.out, &beside);
    let files = args.named.iter().map(of_one).collect::<Result<Vec<_>>>()?.concat();
    check_answers(args, &files)?;
    if args.levels {
        return print_csv(&table(&levels(&files)?));
    }
    let sets = match args.conformal.plan()? {
        None => Vec::new(),
        Some(plan) => conformal_sets(&plan, args.calibration()?, &files)?,
    };
    if args.table.csv && !sets.is_empty() && !args.calibrate.is_empty() {
        let why = "--csv prints one table, here that of conformal sets: leave out --calibrate or --conformal";
        return Err(Usage(why.into()).into());
    }
    if args.table.csv && !sets.is_empty() {
        return print_csv(&table(&sets));
    }
    let rows: Vec<Row> = match args.ood.as_slice() {
        [] => files
            .iter()
            .map(|file| score(file, args.validation.as_deref().map(|validation| (validation, args.calibrators()))))
            .collect::<Result<_>>()?,
        sets => detect(&files, sets)?,
    };
    match (args.table.csv, args.ood.is_empty()) {
        (true, _) => print_csv(&table(&rows)),
        (false, true) => print_scores(args, &rows, &sets),
        (false, false) => {
            super::report::check_columns(&[&super::report::table_of(&rows)], &args.table)?;
            print_ood(&rows, &args.table)
        }
    }
}

/// Prints the metrics of predictions, and what their conformal sets are.
fn print_scores(args: &ScoreArgs, rows: &[Row], sets: &[Row]) -> Result<()> {
    let all = [rows, sets].map(super::report::table_of);
    super::report::check_columns(&all.each_ref(), &args.table)?;
    super::report::Kind::Results.print(&all[0], &args.table)?;
    if args.validation.is_some() {
        print_calibrated(rows, &args.table);
    }
    if !sets.is_empty() {
        println!();
        super::report::print_conformal(sets, &args.table)?;
    }
    Ok(())
}

impl ScoreArgs {
    /// Returns the calibrators that are fitted where there are validation predictions.
    fn calibrators(&self) -> &[&'static Calibrator] {
        if self.calibrate.is_empty() { std::slice::from_ref(&DEFAULT) } else { &self.calibrate }
    }

    /// Returns the predictions from which conformal sets take their thresholds.
    fn calibration(&self) -> Result<&Path> {
        self.validation.as_deref().ok_or_else(|| {
            let why = "--conformal: thresholds need predictions on images that nothing was trained on: name them by \
                       --validation FILE (`bella eval --split val` writes them)";
            Usage(why.into()).into()
        })
    }
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::default();
    rows.iter().for_each(|row| table.append(row));
    table
}

/// Refuses options that mean nothing to answers or to numbers.
fn check_answers(args: &ScoreArgs, files: &[PathBuf]) -> Result<()> {
    let count = files.iter().filter(|file| is_answers(file)).count();
    let logits = [("--ood", !args.ood.is_empty()), ("--validation", args.validation.is_some())];
    let logits = logits.into_iter().find(|(_, given)| *given && count > 0);
    if let Some((option, _)) = logits {
        return Err(Usage(format!("{option} needs logits of classes, and a file holds answers: leave it out")).into());
    }
    let fits = args.validation.is_some() && !args.conformal.is_asked();
    if fits && files.iter().any(|file| !has_logits(file)) {
        let why = "--validation fits calibrators of classes, and a file holds numbers: give --conformal, too, or leave it out";
        return Err(Usage(why.into()).into());
    }
    if args.levels && count < files.len() {
        return Err(Usage("--levels is for files of answers (.jsonl): name these alone".into()).into());
    }
    Ok(())
}

/// Prints raw and calibrated numbers side by side, a table for each calibrator. Of several rows, one average is enough for a look.
pub(super) fn print_calibrated(rows: &[Row], how: &TableArgs) {
    let table = table(rows);
    let averages = &Average::ALL.map(|average| average.suffix())[..if rows.len() > 1 && !how.wide { 1 } else { 2 }];
    for calibrator in CALIBRATORS {
        let numbers =
            calibrated_columns(calibrator, averages, |column| table.columns.iter().any(|known| known == column));
        if numbers.is_empty() {
            continue;
        }
        let mut columns: Vec<String> = ["file", "run", "set", "condition", "predictive"].map(String::from).to_vec();
        columns.extend(numbers);
        println!("\n{}", calibrator.title());
        super::report::draw(&table, columns, &["set", "condition"], how);
    }
}

/// Returns the columns of the metrics that are reported after calibration, each raw and calibrated, as far as the rows have them.
fn calibrated_columns(calibrator: &Calibrator, averages: &[&str], has: impl Fn(&str) -> bool) -> Vec<String> {
    let mut columns = Vec::new();
    for average in averages {
        let mut own = Vec::new();
        for metric in calibrators::metrics() {
            let calibrated = format!("{}_{}_{average}", metric.key, calibrator.suffix);
            if has(&calibrated) {
                own.extend([format!("{}_{average}", metric.key), calibrated]);
            }
        }
        if calibrator.key == "temperature" && !own.is_empty() {
            columns.push(format!("temperature_{average}"));
        }
        columns.extend(own);
    }
    columns
}

/// Prints the table and the definitions of its scores and measures.
fn print_ood(rows: &[Row], how: &TableArgs) -> Result<()> {
    super::report::print_ood(rows, how)?;
    println!("\npositive = outside, higher score = more outside");
    for score in ood::OOD_SCORES {
        println!("  {}: {}", score.key, score.definition);
    }
    let is_shown =
        |key: &str| rows.iter().any(|row| row.get("score").is_some_and(|score| ood::features::key_of(score) == key));
    for score in FEATURE_SCORES.iter().filter(|score| is_shown(score.key)) {
        println!("  {}: {}", score.key, score.definition);
    }
    println!("  {}", ood::measure_definitions().replace("; ", "\n  "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_several_files_are_told_apart() {
        let row = |file: &str| {
            let mut row = Row::new();
            row.push("file", file);
            row.push("set", "r1");
            row.push_number("accuracy_lm", Some(0.5));
            row
        };
        let table = table(&[row("a"), row("b")]);
        let columns = crate::report::tables::result_columns(&table);
        let shown: Vec<_> = (0..2).map(|row| columns.iter().map(|c| table.get(row, c)).collect::<Vec<_>>()).collect();
        assert!(columns.iter().any(|column| column == "file") && shown[0] != shown[1], "{columns:?}");
        assert_eq!(table.get(1, "file"), Some("b"));
    }
}
