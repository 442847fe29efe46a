//! Metrics of saved predictions and answers, without the model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::condition::foreign_set;
use super::conformal::Thresholds;
use crate::metrics::answers::{self, Level, Scored};
use crate::metrics::calibrators::{Calibration, Calibrator};
use crate::metrics::conformal::Plan;
use crate::metrics::{Uncertainty, ood};
use crate::predictions::{Answers, Predictions};
use crate::results::store::Row;
use crate::run::{IMAGES, RunFolder, open_answers, open_outcome, open_predictions};
use crate::tasks::{Outcome, has_logits};

/// Returns the file that is named, or all files of a run below `out` with predictions or answers on its test sets. Predictions
/// on sets of other classes have no labels, and are left out, and so are the files `beside` them, with which they are to be put together, and
/// those of other predictives than these. A path that is no folder means a file, also where there is none, so that a mistyped one is told as a
/// file.
///
/// # Errors
/// Fails if there is no such run, if it has no such file, or if a file cannot be read.
pub fn files_of(named: &str, out: &Path, beside: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let path = PathBuf::from(named);
    let is_path = named.contains(std::path::MAIN_SEPARATOR) && !path.is_dir();
    if is_path || path.is_file() || !has_logits(&path) || path.extension().is_some_and(|end| end == "safetensors") {
        return Ok(vec![path]);
    }
    let run = RunFolder::find(out, Some(named))?;
    let places: Vec<PathBuf> = beside.iter().filter_map(|file| file.canonicalize().ok()).collect();
    let way = beside.first().filter(|file| has_logits(file)).map(|file| predictive_of(file)).transpose()?;
    let id = run.id();
    let mut files = Vec::new();
    for file in run.predicted_files()? {
        if file.canonicalize().is_ok_and(|place| places.contains(&place)) {
            continue;
        }
        if has_logits(&file) {
            let is_foreign = |condition: String| foreign_set(&condition).is_some();
            if Predictions::described(&file, "condition")?.is_some_and(is_foreign) {
                continue;
            }
            let own = predictive_of(&file)?;
            if way.as_ref().is_some_and(|way| *way != own) {
                tracing::info!(
                    "{id}: the predictions by `{own}` are left out, as those of the given file are by another predictive"
                );
                continue;
            }
        }
        files.push(file);
    }
    ensure!(!files.is_empty(), "{id}: has no predictions on a test set: evaluate it first: bella eval {id}");
    Ok(files)
}

/// Returns the predictive of predictions, which is empty for a run's own.
fn predictive_of(file: &Path) -> Result<String> {
    Ok(Predictions::described(file, "predictive")?.unwrap_or_default())
}

/// Returns how the answers in files depend on the agreement of people, and that on the entropy.
///
/// # Errors
/// Fails if a file cannot be read, or if files do not fit together.
pub fn levels(files: &[PathBuf]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for file in files {
        let found = open_answers(file)?;
        rows.extend(levels_of(&cells_of(file, &found.metadata), &found));
    }
    Ok(rows)
}

/// Returns the row of a file of predictions or answers. With validation predictions, calibrators are fitted on them.
///
/// # Errors
/// Fails if a file cannot be read, or if files do not fit together.
pub fn score(file: &Path, validation: Option<(&Path, &[&'static Calibrator])>) -> Result<Row> {
    let found = open_outcome(file)?;
    let mut row = cells_of(file, found.metadata());
    row.push("members", found.members().to_string());
    row.push("samples", found.samples().to_string());
    if let Some(logits) = found.logits() {
        row.push("classes", logits.classes().to_string());
    }
    for (column, value) in found.metrics().with_context(|| file.display().to_string())? {
        row.push_number(column, value);
    }
    if let (Some(predictions), Some((validation, fitted_by))) = (found.logits(), validation) {
        let fitted = open_predictions(validation)?;
        let context = || format!("{} with --validation {}", file.display(), validation.display());
        fitted.check_all_finite().with_context(|| validation.display().to_string())?;
        check_run(&fitted, predictions).with_context(context)?;
        check_other_images(&fitted, predictions).with_context(context)?;
        let calibration = Calibration::fit(fitted_by, &fitted).with_context(context)?;
        for (column, value) in calibration.columns(predictions).with_context(context)? {
            row.push_number(column, value);
        }
    }
    Ok(row)
}

/// Returns the rows of the conformal sets of every file, with thresholds from the validation predictions.
///
/// # Errors
/// Fails if a file cannot be read, or if files do not fit together.
pub fn conformal_sets(plan: &Plan, validation: &Path, files: &[PathBuf]) -> Result<Vec<Row>> {
    let held_out = open_outcome(validation)?;
    if let Some(predictions) = held_out.logits() {
        plan.check(predictions.labels().unwrap_or_default(), &predictions.names_or_numbers())?;
    }
    let thresholds = Thresholds::of(plan, &*held_out).with_context(|| validation.display().to_string())?;
    let mut rows = Vec::new();
    for file in files {
        let tested = open_outcome(file)?;
        let context = || format!("{} with --validation {}", file.display(), validation.display());
        check_run(&*held_out, &*tested).with_context(context)?;
        check_other_images(&*held_out, &*tested).with_context(context)?;
        let who = cells_of(file, tested.metadata());
        rows.extend(thresholds.measure(&*tested, &who).with_context(context)?.concat());
    }
    Ok(rows)
}

/// Fails if two files hold predictions on the same images, by the fingerprints of these or by what is predicted.
fn check_other_images(one: &dyn Outcome, other: &dyn Outcome) -> Result<()> {
    let images = |of: &dyn Outcome| of.metadata().get(IMAGES).filter(|images| !images.is_empty()).cloned();
    let same = match (images(one), images(other), one.logits(), other.logits()) {
        (Some(one), Some(other), ..) => one == other,
        (.., Some(one), Some(other)) => {
            one.shape() == other.shape() && one.all_logits() == other.all_logits() && one.weights() == other.weights()
        }
        _ => one.numbers().is_some() && one.numbers() == other.numbers(),
    };
    ensure!(!same, "both files are of the same images: what is fitted on some must be tested on others");
    Ok(())
}

/// Returns the rows of every file against every out-of-distribution set.
///
/// # Errors
/// Fails if a file cannot be read, or if files do not fit together.
pub fn detect(files: &[PathBuf], sets: &[PathBuf]) -> Result<Vec<Row>> {
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
            let measured = ood::compare(&inside_uncertainty, outside_uncertainty).with_context(context)?;
            for found in measured.into_iter().chain(ood::features::compare(inside.scores(), outside.scores())) {
                let mut row = cells_of(file, inside.metadata());
                row.push("ood_file", set.display().to_string());
                row.push("ood_set", set_outside(outside));
                row.push("ood_images", outside.metadata().get(IMAGES).cloned().unwrap_or_default());
                row.push("members", inside.members().to_string());
                row.push("samples", inside.samples().to_string());
                row.push("ood_samples", outside.samples().to_string());
                crate::results::uncertainty::describe(&found, &mut row);
                rows.push(row);
            }
        }
    }
    Ok(rows)
}

/// Fails if both files name the run they come from, and the runs differ or predict in different ways.
fn check_run(one: &dyn Outcome, other: &dyn Outcome) -> Result<()> {
    if let (Some(run), Some(run_of_other)) = (one.metadata().get("run"), other.metadata().get("run")) {
        ensure!(run == run_of_other, "predictions come from the runs {run_of_other} and {run}: must be of one run");
        let [way, other] = [one, other].map(|of| of.metadata().get("predictive").map_or("", String::as_str));
        ensure!(
            way == other,
            "predictions of {run} by the predictives `{other}` and `{way}` (empty for its own): must be of one predictive"
        );
    }
    Ok(())
}

/// Returns the name of the out-of-distribution set, if the predictions were saved as those of one, or else of the set.
fn set_outside(outside: &Predictions) -> String {
    let fact = |key: &str| outside.metadata().get(key).map_or("", String::as_str);
    foreign_set(fact("condition")).unwrap_or(fact("set")).to_string()
}

/// Returns the cells that distinguish a row from those of other files.
fn cells_of(file: &Path, metadata: &BTreeMap<String, String>) -> Row {
    let mut row = Row::new();
    row.push("file", file.display().to_string());
    for key in ["experiment", "run", "set", "condition", "predictive", IMAGES] {
        row.push(key, metadata.get(key).cloned().unwrap_or_default());
    }
    // By these, a look at several rows shows the average that was attacked.
    for key in ["attack", "attack_target"] {
        metadata.get(key).iter().for_each(|value| row.push(key, value.as_str()));
    }
    row
}

/// Returns how answers depend on the agreement of people, and that on the entropy, a row for each level.
fn levels_of(who: &Row, found: &Answers) -> Vec<Row> {
    let row = |Level { by, level, questions, accuracy, confidence, entropy }: Level| {
        let mut row = who.clone();
        row.push("by", by);
        row.push("level", level.to_string());
        row.push("questions", questions.to_string());
        row.push_number("vqa_accuracy", accuracy);
        row.push_number("human_confidence", confidence);
        row.push_number("entropy", entropy);
        row
    };
    answers::levels(&Scored::of_all(found)).into_iter().map(row).collect()
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
        let facts = [("run", "r1"), ("set", "r1"), ("predictive", "soup")]
            .map(|(key, text)| (key.to_string(), text.to_string()));
        let soup = Predictions::open(&outside).unwrap().with_metadata(facts.into()).unwrap();
        soup.save(&folder.path().join("d")).unwrap();
        let other = format!("{:#}", detect(&[inside], &[folder.path().join("d")]).unwrap_err());
        assert!(other.contains("by the predictives `` and `soup`"), "{other}");
    }

    /// Rows of attacked images say which average was attacked, which a look at several rows shows.
    #[test]
    fn rows_say_what_was_attacked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        save(&file, &[5.0, -6.0], true, "r1");
        let facts = [("attack", "fgsm"), ("attack_target", "mean-probability")];
        let facts = facts.map(|(key, text)| (key.to_string(), text.to_string()));
        Predictions::open(&file).unwrap().with_metadata(facts.into()).unwrap().save(&file).unwrap();
        let row = score(&file, None).unwrap();
        let mut table = crate::results::store::Table::default();
        table.append(&row);
        assert_eq!(crate::results::table::average_of(&table), Some(crate::metrics::Average::Probability));
    }

    #[test]
    fn a_run_stands_for_its_test_sets() {
        let out = tempfile::tempdir().unwrap();
        let run = out.path().join("runs/mine/low-rank-svgd-s1-0123456789");
        std::fs::create_dir_all(run.join("predictions")).unwrap();
        std::fs::write(run.join("config.toml"), "").unwrap();
        let error = files_of("low-rank", out.path(), &[]).unwrap_err().to_string();
        assert!(error.ends_with("evaluate it first: bella eval low-rank-svgd-s1-0123456789"), "{error}");
        for (name, condition, predictive) in [
            ("b@clean", "clean", ""),
            ("a@fgsm", "fgsm 0.1", ""),
            ("a@ood-c", "ood c", ""),
            ("b@clean@mean", "clean", "mean"),
        ] {
            let shape = Shape { members: 1, samples: 1, classes: 2 };
            let predictions = Predictions::unlabelled(shape, vec![0.0, 1.0]).unwrap();
            let facts = [("condition", condition), ("predictive", predictive)];
            let facts = facts.map(|(key, text)| (key.to_string(), text.to_string()));
            let file = run.join(format!("predictions/{name}.safetensors"));
            predictions.with_metadata(facts.into()).unwrap().save(&file).unwrap();
        }
        let found = files_of("low-rank", out.path(), &[]).unwrap();
        let names: Vec<_> = found.iter().map(|file| file.file_stem().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a@fgsm", "b@clean", "b@clean@mean"]);
        let validation = run.join("predictions/../predictions/b@clean.safetensors");
        let found = files_of("low-rank", out.path(), &[validation]).unwrap();
        assert_eq!(found, [run.join("predictions/a@fgsm.safetensors")], "what others are fitted on is no test set");
        let soup = run.join("predictions/b@clean@mean.safetensors");
        assert!(files_of("low-rank", out.path(), &[soup]).is_err(), "there is no other file of this predictive");
        assert_eq!(files_of("x/absent.safetensors", out.path(), &[]).unwrap(), [PathBuf::from("x/absent.safetensors")]);
    }

    #[test]
    fn rows_of_several_files_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let files = ["a", "b"].map(|name| folder.path().join(name));
        files.iter().for_each(|file| save(file, &[4.0, -4.0], true, "r1"));
        let rows: Vec<Row> = files.iter().map(|file| score(file, None).unwrap()).collect();
        assert_eq!(rows[1].get("file"), files[1].to_str());
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
        let [file, held_out] = ["a", "val"].map(|name| folder.path().join(name));
        save(&file, &[4.0, 4.0, -4.0, 4.0], true, "r1");
        save(&held_out, &[-4.0, 4.0, 4.0, 4.0], true, "r1");
        let temperature = std::slice::from_ref(&crate::metrics::calibrators::DEFAULT);
        let row = score(&file, Some((&held_out, temperature))).unwrap();
        let number = |column: &str| row.get(column).unwrap().parse::<f64>().unwrap();
        assert!((number("temperature_lm") - 4.0 / 3f64.ln()).abs() < 1e-6);
        assert!((number("temperature_pm") - 4.0 / 3f64.ln()).abs() < 1e-6);
        assert!(number("ece_ts_lm") < 1e-6 && number("ece_lm") > 0.2);
        assert!(score(&file, None).unwrap().get("temperature_lm").is_none());
        let itself = format!("{:#}", score(&file, Some((&file, temperature))).unwrap_err());
        assert!(itself.ends_with("what is fitted on some must be tested on others"), "{itself}");
    }
}
