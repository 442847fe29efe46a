//! `bella score`: recomputes every metric from saved predictions, without the model.

mod answers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use super::conformal::ConformalArgs;
use super::failure::Usage;
use super::options::TableArgs;
use super::report::print_csv;
use crate::base::outside::print_drawn;
use crate::evaluate::IMAGES;
use crate::metrics::conformal::Coverage;
use crate::metrics::{Scores, Uncertainty, evaluate, ood, temperature};
use crate::predictions::Predictions;
use crate::results::conformal;
use crate::results::store::{Row, Table};
use crate::results::table::{Spec, Surface, render};
use crate::run::{open_answers, open_predictions};

/// Recompute every metric from saved predictions.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella score results/runs/quickstart/*/predictions/*.safetensors\n  \
                        bella score cifar10.safetensors --ood cifar100.safetensors --csv\n  \
                        bella score test.safetensors --validation val.safetensors --conformal 0.1\n  \
                        bella score results/runs/vqa/*/predictions/*.jsonl --levels")]
pub struct ScoreArgs {
    /// Predictions files (logits [m, N, C], labels [N]), or files of answers (.jsonl).
    #[arg(required = true)]
    files: Vec<PathBuf>,

    /// Predictions to separate from those of FILES by uncertainty, without labels; may be repeated.
    #[arg(long, value_name = "FILE", conflicts_with = "validation")]
    ood: Vec<PathBuf>,

    /// Fit temperatures on these validation predictions and add the scaled NLL, ECE and Brier score.
    #[arg(long, value_name = "FILE")]
    validation: Option<PathBuf>,

    /// Print how answers (.jsonl) depend on the agreement of people, and that on the entropy, as CSV.
    #[arg(long)]
    levels: bool,

    #[command(flatten)]
    conformal: ConformalArgs,

    #[command(flatten)]
    table: TableArgs,
}

pub fn run(args: &ScoreArgs) -> Result<()> {
    check_answers(args)?;
    if args.levels {
        return print_csv(&table(&levels(&args.files)?));
    }
    let sets = conformal_sets(args)?;
    if args.table.csv && !sets.is_empty() {
        return print_csv(&table(&sets));
    }
    let rows: Vec<Row> = match args.ood.as_slice() {
        [] => args.files.iter().map(|file| score(file, args.validation.as_deref())).collect::<Result<_>>()?,
        sets => detect(&args.files, sets)?,
    };
    if args.table.csv {
        return print_csv(&table(&rows));
    }
    if args.ood.is_empty() {
        super::report::print_rows(&rows, &args.table)?;
        if args.validation.is_some() {
            print_scaled(&rows);
        }
        if !sets.is_empty() {
            super::report::print_conformal(&sets);
        }
    } else {
        print_ood(&rows);
    }
    Ok(())
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::default();
    rows.iter().for_each(|row| table.append(row));
    table
}

/// Refuses options that mean nothing to answers.
fn check_answers(args: &ScoreArgs) -> Result<()> {
    let count = args.files.iter().filter(|file| answers::is_answers(file)).count();
    let logits = [("--ood", !args.ood.is_empty()), ("--validation", args.validation.is_some())];
    let logits = logits.into_iter().find(|(_, given)| *given && count > 0);
    if let Some((option, _)) = logits {
        return Err(Usage(format!("{option} needs logits of classes, and a file holds answers: leave it out")).into());
    }
    if args.levels && count < args.files.len() {
        return Err(Usage("--levels is for files of answers (.jsonl): name these alone".into()).into());
    }
    Ok(())
}

/// Returns the levels of files of answers.
fn levels(files: &[PathBuf]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for file in files {
        let found = open_answers(file)?;
        rows.extend(answers::levels_of(&cells_of(file, &found.metadata), &found));
    }
    Ok(rows)
}

fn score(file: &Path, validation: Option<&Path>) -> Result<Row> {
    if answers::is_answers(file) {
        let found = open_answers(file)?;
        return Ok(answers::score(cells_of(file, &found.metadata), &found));
    }
    let predictions = open_predictions(file)?;
    let mut row = cells_of(file, predictions.metadata());
    row.push("members", predictions.members().to_string());
    row.push("samples", predictions.samples().to_string());
    row.push("classes", predictions.classes().to_string());
    let scores = Scores::compute(&predictions).with_context(|| file.display().to_string())?;
    for (column, value) in evaluate(&scores) {
        row.push_number(column, value);
    }
    if let Some(validation) = validation {
        let fitted = open_predictions(validation)?;
        let context = || format!("{} with --validation {}", file.display(), validation.display());
        fitted.check_all_finite().with_context(|| validation.display().to_string())?;
        check_run(&fitted, &predictions).with_context(context)?;
        for (column, value) in temperature::scaled_columns(&fitted, &predictions).with_context(context)? {
            row.push_number(column, value);
        }
    }
    Ok(row)
}

/// Returns the rows of the conformal sets of every file, with thresholds from the validation predictions.
fn conformal_sets(args: &ScoreArgs) -> Result<Vec<Row>> {
    let Some(plan) = args.conformal.plan()? else { return Ok(vec![]) };
    let Some(validation) = &args.validation else {
        let why = "--conformal: thresholds need predictions on images that nothing was trained on: name them by \
                   --validation FILE (`bella eval --split val` writes them)";
        return Err(Usage(why.into()).into());
    };
    let held_out = open_predictions(validation)?;
    let names: Vec<String> = (0..held_out.classes())
        .map(|class| held_out.class_names().get(class).cloned().unwrap_or_else(|| class.to_string()))
        .collect();
    plan.check(held_out.labels().unwrap_or_default(), &names)?;
    let calibrated = plan.calibrate(&held_out).with_context(|| validation.display().to_string())?;
    let mut rows = Vec::new();
    for file in &args.files {
        let tested = open_predictions(file)?;
        let context = || format!("{} with --validation {}", file.display(), validation.display());
        check_run(&held_out, &tested).with_context(context)?;
        check_other_images(&held_out, &tested).with_context(context)?;
        let who = cells_of(file, tested.metadata());
        let measured = Coverage::measure(&calibrated, &tested).with_context(context)?;
        let of_file = calibrated.iter().zip(&measured).flat_map(|(one, coverage)| conformal::rows(&who, one, coverage));
        rows.extend(of_file);
    }
    Ok(rows)
}

/// Fails if two files hold predictions on the same images, by the fingerprints of these or by the logits.
fn check_other_images(one: &Predictions, other: &Predictions) -> Result<()> {
    let images = |of: &Predictions| of.metadata().get(IMAGES).filter(|images| !images.is_empty()).cloned();
    let same = match (images(one), images(other)) {
        (Some(one), Some(other)) => one == other,
        _ => one.shape() == other.shape() && one.all_logits() == other.all_logits() && one.weights() == other.weights(),
    };
    ensure!(!same, "both files are of the same images: thresholds must come from others than are tested");
    Ok(())
}

/// Returns the rows of every file against every out-of-distribution set.
fn detect(files: &[PathBuf], sets: &[PathBuf]) -> Result<Vec<Row>> {
    let open = |file: &PathBuf| -> Result<(Predictions, Uncertainty)> {
        let predictions = open_predictions(file)?;
        let uncertainty = Uncertainty::compute(&predictions).with_context(|| file.display().to_string())?;
        Ok((predictions, uncertainty))
    };
    let sets: Vec<_> = sets.iter().map(|file| Ok((file, open(file)?))).collect::<Result<_>>()?;
    let mut rows = vec![];
    for file in files {
        let (inside, inside_uncertainty) = open(file)?;
        for (set, (outside, outside_uncertainty)) in &sets {
            let context = || format!("{} with --ood {}", file.display(), set.display());
            check_run(outside, &inside).with_context(context)?;
            for found in ood::compare(&inside_uncertainty, outside_uncertainty).with_context(context)? {
                let mut row = cells_of(file, inside.metadata());
                row.push("ood_file", set.display().to_string());
                row.push("ood_set", foreign_set(outside));
                row.push("ood_images", outside.metadata().get(IMAGES).cloned().unwrap_or_default());
                row.push("members", inside.members().to_string());
                row.push("samples", inside.samples().to_string());
                row.push("ood_samples", outside.samples().to_string());
                crate::results::ood::describe(&found, &mut row);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Fails if both files name the run they come from and the runs differ.
fn check_run(one: &Predictions, other: &Predictions) -> Result<()> {
    if let (Some(one), Some(other)) = (one.metadata().get("run"), other.metadata().get("run")) {
        ensure!(one == other, "predictions come from the runs {other} and {one}: must be of one run");
    }
    Ok(())
}

/// Returns the name of the out-of-distribution set, if the predictions were saved as those of one, or else of the set.
fn foreign_set(outside: &Predictions) -> String {
    let fact = |key: &str| outside.metadata().get(key).map_or("", String::as_str);
    fact("condition").strip_prefix("ood ").unwrap_or(fact("set")).to_string()
}

/// Returns the cells that distinguish a row from those of other files.
fn cells_of(file: &Path, metadata: &BTreeMap<String, String>) -> Row {
    let mut row = Row::new();
    row.push("file", file.display().to_string());
    for key in ["experiment", "run", "set", "condition", "predictive", IMAGES] {
        row.push(key, metadata.get(key).cloned().unwrap_or_default());
    }
    row
}

/// Prints raw and scaled numbers side by side.
pub(super) fn print_scaled(rows: &[Row]) {
    let mut columns: Vec<String> = ["file", "run", "set", "condition", "predictive"].map(String::from).to_vec();
    for average in ["lm", "pm"] {
        let stems = ["temperature", "nll", "nll_ts", "ece", "ece_ts", "brier", "brier_ts"];
        columns.extend(stems.map(|stem| format!("{stem}_{average}")));
    }
    let spec = Spec { columns, group_by: vec!["set".into(), "condition".into()], surface: Surface::of_stdout() };
    println!("\ntemperature scaling");
    print_drawn(&render(&table(rows), &spec));
}

/// Prints the table and the definitions of its scores and measures.
fn print_ood(rows: &[Row]) {
    super::report::print_ood(rows);
    println!("\npositive = outside, higher score = more outside");
    for score in ood::OOD_SCORES {
        println!("  {}: {}", score.key, score.definition);
    }
    println!("  {}", ood::measure_definitions().replace("; ", "\n  "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictions::Shape;

    /// Saves predictions of two members and two classes, with class 0 at `logit`; labels are all 0, or absent.
    fn save(path: &Path, logits: &[f32], labelled: bool, run: &str) {
        let shape = Shape { members: 2, samples: logits.len(), classes: 2 };
        let rows: Vec<f32> = logits.iter().flat_map(|logit| [*logit, 0.0]).collect();
        let predictions = match labelled {
            true => Predictions::new(shape, rows.repeat(2), vec![0; logits.len()]),
            false => Predictions::unlabelled(shape, rows.repeat(2)),
        };
        let metadata = [("run", run), ("set", run)].map(|(key, text)| (key.to_string(), text.to_string()));
        predictions.unwrap().with_metadata(metadata.into()).unwrap().save(path).unwrap();
    }

    #[test]
    fn an_unlabelled_set_is_told_apart_but_not_scored() {
        let folder = tempfile::tempdir().unwrap();
        let [inside, outside, foreign] = ["a", "b", "c"].map(|name| folder.path().join(name));
        save(&inside, &[5.0, -6.0, 7.0], true, "r1");
        save(&outside, &[0.5, 0.1], false, "r1");
        save(&foreign, &[0.5], false, "r2");
        let rows = detect(std::slice::from_ref(&inside), std::slice::from_ref(&outside)).unwrap();
        let cell = |column: &str| rows[0].get(column).unwrap();
        assert_eq!(
            ["score", "average", "auroc", "fpr95", "ood_samples"].map(cell),
            ["max_probability", "lm", "1", "0", "2"]
        );
        assert!(format!("{:#}", score(&outside, None).unwrap_err()).contains("have no labels"));
        let other = detect(std::slice::from_ref(&inside), &[foreign]).unwrap_err();
        assert!(format!("{other:#}").contains("the runs r1 and r2: must be of one run"), "{other:#}");
    }

    #[test]
    fn rows_of_several_files_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        files.iter().for_each(|file| save(file, &[4.0, -4.0], true, "r1"));
        let rows: Vec<Row> = files.iter().map(|file| score(file, None).unwrap()).collect();
        let table = table(&rows);
        let columns = crate::report::tables::result_columns(&table);
        let shown: Vec<_> = (0..2).map(|row| columns.iter().map(|c| table.get(row, c)).collect::<Vec<_>>()).collect();
        assert!(columns.iter().any(|column| column == "file") && shown[0] != shown[1], "{columns:?}");
        assert_eq!(table.get(1, "file"), files[1].to_str());
        let ood = detect(&files, &files[..1]).unwrap();
        assert_eq!(ood[0].get("ood_file"), files[0].to_str());
        assert!(ood.iter().any(|row| row.get("file") == files[1].to_str()));
    }

    #[test]
    fn sets_are_not_calibrated_on_the_images_that_test_them() {
        let folder = tempfile::tempdir().unwrap();
        let [test, held_out] = ["test", "val"].map(|name| folder.path().join(name));
        save(&test, &[4.0, -4.0], true, "r1");
        save(&held_out, &[2.0, 1.0, 3.0, -1.0, 2.5, 1.5, 2.0, 0.5, 3.5], true, "r1");
        let open = |path: &Path| Predictions::open(path).unwrap();
        assert!(check_other_images(&open(&held_out), &open(&test)).is_ok());
        let refused = check_other_images(&open(&test), &open(&test)).unwrap_err().to_string();
        assert!(refused.starts_with("both files are of the same images"), "{refused}");
    }

    // Three of four are right at logit 4, so T = 4 / log 3 makes the confidence 3/4.
    #[test]
    fn validation_adds_scaled_columns() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        save(&file, &[4.0, 4.0, -4.0, 4.0], true, "r1");
        let row = score(&file, Some(&file)).unwrap();
        let number = |column: &str| row.get(column).unwrap().parse::<f64>().unwrap();
        assert!((number("temperature_lm") - 4.0 / 3f64.ln()).abs() < 1e-6);
        assert!((number("temperature_pm") - 4.0 / 3f64.ln()).abs() < 1e-6);
        assert!(number("ece_ts_lm") < 1e-6 && number("ece_lm") > 0.2);
        assert!(score(&file, None).unwrap().get("temperature_lm").is_none());
    }
}
