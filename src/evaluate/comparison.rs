//! Predictors compared with one on one test set, by their saved predictions.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::Condition;
use crate::base::small::{for_shell, push_new};
use crate::metrics::Average;
use crate::metrics::bootstrap::{Difference, compare};
use crate::metrics::multiple::Correction;
use crate::predictions::{Predictions, numbers};
use crate::run::{IMAGES, RunFolder, open_predictions};
use crate::tasks::has_logits;

/// The settings of a comparison.
pub struct Asked {
    pub averages: Vec<Average>,
    /// The number of paired resamples, and their seed.
    pub resamples: u32,
    pub seed: u64,
    pub correction: Correction,
}

/// The difference of one of several predictors from A.
pub struct Compared {
    /// The place of the predictor among those that are compared with A.
    pub predictor: usize,
    pub difference: Difference,
    /// The p-value, corrected for the number of predictors that are compared by this metric and average.
    pub adjusted: f64,
}

/// Compares the predictions of each of `others` with the predictions A.
///
/// # Errors
/// Fails if a file cannot be read, if a logit is not finite, or if the images are not the same.
pub fn compare_all(a: &Path, others: &[PathBuf], asked: &Asked) -> Result<Vec<Compared>> {
    let mut found = Vec::new();
    let of_a = opened(a)?;
    for (predictor, b) in others.iter().enumerate() {
        let both = || format!("{} and {}", a.display(), b.display());
        let of_b = opened(b)?;
        check_images(&of_a, &of_b).with_context(both)?;
        let differences = compare(&of_a, &of_b, &asked.averages, asked.resamples, asked.seed).with_context(both)?;
        found.extend(differences.into_iter().map(|difference| {
            let adjusted = difference.p;
            Compared { predictor, difference, adjusted }
        }));
    }
    let kind = |one: &Compared| (one.difference.metric.key, one.difference.average.suffix());
    let mut kinds = Vec::new();
    found.iter().for_each(|one| push_new(&mut kinds, kind(one)));
    for own in kinds {
        let family: Vec<usize> = (0..found.len()).filter(|at| kind(&found[*at]) == own).collect();
        let values: Vec<f64> = family.iter().map(|at| found[*at].difference.p).collect();
        family.iter().zip(asked.correction.adjusted(&values)).for_each(|(at, value)| found[*at].adjusted = value);
    }
    Ok(found)
}

/// Reads predictions whose logits are finite.
fn opened(file: &Path) -> Result<Predictions> {
    let predictions = open_predictions(file)?;
    predictions.check_all_finite().with_context(|| file.display().to_string())?;
    Ok(predictions)
}

/// The predictions of a run that are compared.
pub struct Wanted<'a> {
    /// The results folder of the run.
    pub out: &'a Path,
    /// The condition of the images.
    pub condition: &'a str,
    /// The test set, or `None` for that of the run.
    pub test_set: Option<&'a str>,
}

/// Returns a predictions file: the one that is named, or that of a run.
///
/// # Errors
/// Fails if there is no such run, or if it was not evaluated so.
pub fn predictions_file(named: &str, wanted: &Wanted) -> Result<PathBuf> {
    let path = PathBuf::from(named);
    if path.is_file() || path.extension().is_some_and(|ending| ending == "safetensors") {
        return Ok(path);
    }
    let run = RunFolder::find(wanted.out, Some(named))?;
    let label = match wanted.test_set {
        Some(name) => name.to_string(),
        None => run.data()?.label,
    };
    let file = run.predictions(&label, wanted.condition, "");
    let id = run.id();
    ensure!(
        !file.with_extension(numbers::ENDING).is_file(),
        "{id}: predicts a number, and predictions of classes are compared: `bella report` has both runs side by side"
    );
    if !file.is_file() {
        let others = Others::of(&run, &label, wanted.condition)?;
        let without = format!("{id}: no predictions on {label} under the condition `{}`", wanted.condition);
        let Others { sets, conditions } = others;
        ensure!(sets.is_empty(), "{without}: choose another test set: --test-set {}", sets.join(", "));
        let how = if wanted.condition == Condition::Clean.to_string() { "" } else { " with --attack or --corrupt" };
        ensure!(
            conditions.is_empty(),
            "{without}: choose another one by --condition, of which it has {}; or evaluate it so: bella eval {id}{how}",
            conditions.join(", ")
        );
        bail!("{without} ({}): evaluate it first: bella eval {id}", file.display());
    }
    Ok(file)
}

/// The names by which a run has other predictions, sorted.
struct Others {
    /// The test sets under the same condition.
    sets: Vec<String>,
    /// The conditions of the same test set, in quotes for the shell.
    conditions: Vec<String>,
}

impl Others {
    fn of(run: &RunFolder, label: &str, condition: &str) -> Result<Others> {
        let mut others = Others { sets: Vec::new(), conditions: Vec::new() };
        for file in run.predicted_files()?.iter().filter(|file| has_logits(file)) {
            let of = |key: &str| Predictions::described(file, key);
            let (Some(set), Some(under)) = (of("set")?, of("condition")?) else { continue };
            if under == condition {
                push_new(&mut others.sets, set);
            } else if set == label && run.predictions(label, &under, "") == *file {
                push_new(&mut others.conditions, for_shell(&under));
            }
        }
        others.sets.sort();
        others.conditions.sort();
        Ok(others)
    }
}

/// Fails if both files name the images of one condition and these differ. Clean images and a corrupted version of them
/// may be compared.
fn check_images(a: &Predictions, b: &Predictions) -> Result<()> {
    let fact = |of: &Predictions, key: &str| of.metadata().get(key).cloned().unwrap_or_default();
    let [one, other] = [fact(a, IMAGES), fact(b, IMAGES)];
    let comparable = one == other || one.is_empty() || other.is_empty() || fact(a, "condition") != fact(b, "condition");
    ensure!(
        comparable,
        "metadata `{IMAGES}` = {one} and {other}: predictions of different images: must be of one test set; evaluate both \
         runs on the same images"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictions::Shape;

    /// Three predictors are compared with one: each metric's three p-values are a family.
    #[test]
    fn p_values_are_corrected_metric_by_metric() {
        let folder = tempfile::tempdir().unwrap();
        let shape = Shape { members: 1, samples: 40, classes: 2 };
        let file = |name: &str, skill: f32| {
            let path = folder.path().join(name);
            let logits = (0..40).flat_map(|i| [skill * (i as f32 * 1.7).sin() + 0.3 * skill, 0.0]).collect();
            let labels = (0..40).map(|i| (i % 3 == 0) as u32).collect();
            Predictions::new(shape, logits, labels).unwrap().save(&path).unwrap();
            path
        };
        let a = file("a.safetensors", 0.1);
        let others: Vec<PathBuf> =
            [0.5, 1.0, 3.0].iter().enumerate().map(|(at, skill)| file(&format!("{at}.safetensors"), *skill)).collect();
        let asked = |correction| Asked { averages: vec![Average::Logit], resamples: 200, seed: 0, correction };
        let found = compare_all(&a, &others, &asked(Correction::Holm)).unwrap();
        for metric in ["accuracy", "nll"] {
            let own: Vec<&Compared> = found.iter().filter(|one| one.difference.metric.key == metric).collect();
            assert_eq!(own.iter().map(|one| one.predictor).collect::<Vec<_>>(), [0, 1, 2]);
            let values: Vec<f64> = own.iter().map(|one| one.difference.p).collect();
            let adjusted: Vec<f64> = own.iter().map(|one| one.adjusted).collect();
            assert_eq!(adjusted, Correction::Holm.adjusted(&values));
        }
        let alone = compare_all(&a, &others[..1], &asked(Correction::Holm)).unwrap();
        assert!(alone.iter().all(|one| one.adjusted == one.difference.p));
    }

    #[test]
    fn different_images_of_one_condition_are_refused() {
        let shape = Shape { members: 1, samples: 1, classes: 2 };
        let of = |images: &str, condition: &str| {
            let facts =
                [(IMAGES, images), ("condition", condition)].map(|(key, text)| (key.to_string(), text.to_string()));
            Predictions::new(shape, vec![0.0, 1.0], vec![0]).unwrap().with_metadata(facts.into()).unwrap()
        };
        let error = check_images(&of("1f", "clean"), &of("2e", "clean")).unwrap_err().to_string();
        assert!(error.contains("1f and 2e") && error.contains("one test set"), "{error}");
        for (images, condition) in [("1f", "clean"), ("", "clean"), ("2e", "fog:1")] {
            check_images(&of("1f", "clean"), &of(images, condition)).unwrap();
        }
    }
}
