//! Two predictors compared on one test set, by their saved predictions.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::IMAGES;
use crate::metrics::Average;
use crate::metrics::bootstrap::{Difference, compare};
use crate::predictions::{Predictions, numbers};
use crate::run::{RunFolder, open_predictions};

/// Compares the predictions B with the predictions A by so many paired resamples.
///
/// # Errors
/// Fails if a file cannot be read, if a logit is not finite, or if the images are not the same.
pub fn compare_files(
    [a, b]: [&Path; 2],
    averages: &[Average],
    (resamples, seed): (u32, u64),
) -> Result<Vec<Difference>> {
    let open = |file: &Path| -> Result<Predictions> {
        let predictions = open_predictions(file)?;
        predictions.check_all_finite().with_context(|| file.display().to_string())?;
        Ok(predictions)
    };
    let both = || format!("{} and {}", a.display(), b.display());
    let (of_a, of_b) = (open(a)?, open(b)?);
    check_images(&of_a, &of_b).with_context(both)?;
    compare(&of_a, &of_b, averages, resamples, seed).with_context(both)
}

/// Returns a predictions file: the one that is named, or that of a run below `out` on its own test set.
///
/// # Errors
/// Fails if there is no such run, or if it was not evaluated under this condition.
pub fn predictions_file(named: &str, out: &Path, condition: &str) -> Result<PathBuf> {
    let path = PathBuf::from(named);
    if path.is_file() || path.extension().is_some_and(|ending| ending == "safetensors") {
        return Ok(path);
    }
    let run = RunFolder::find(out, Some(named))?;
    let settings = run.settings()?;
    let is_label = |key: &str| key.starts_with("data.") && key.split('.').count() == 3 && key.ends_with(".label");
    let label = settings.iter().find(|(key, _)| is_label(key)).map(|(_, label)| label);
    let label = label.with_context(|| format!("{}: names no test set", run.config().display()))?;
    let file = run.predictions(label, condition, "");
    let id = run.id();
    ensure!(
        !file.with_extension(numbers::ENDING).is_file(),
        "{id}: predicts a number, and predictions of classes are compared: `bella report` has both runs side by side"
    );
    ensure!(
        file.is_file(),
        "{id}: no predictions on {label} under the condition `{}` ({}): evaluate it first: bella eval {id}",
        condition,
        file.display()
    );
    Ok(file)
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
