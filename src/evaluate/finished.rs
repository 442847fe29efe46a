//! The results of a finished run that are stored already.

use std::path::Path;

use anyhow::Result;
use tch::Device;

use super::IMAGES;
use crate::experiment::Experiment;
use crate::results::experiment_csv;
use crate::results::images::TESTED;
use crate::results::store::{Row, Table, read};
use crate::run::{RunFolder, open_answers, open_predictions};

/// Returns the rows of all test sets and predictives of a finished run, which the results folder `out` holds; `None` if some
/// are missing. A kill may have come between the rows of two predictives.
///
/// # Errors
/// Fails if the results or the posterior cannot be read.
pub fn stored_rows(experiment: &Experiment, out: &Path, run: &RunFolder) -> Result<Option<Vec<Row>>> {
    let csv = experiment_csv(out, &experiment.name);
    if !csv.is_file() {
        return Ok(None);
    }
    let own = experiment.predictive();
    let (table, mut rows) = (read(&csv)?, Vec::new());
    for predictive in run.read_posterior(Device::Cpu)?.posterior.predictives(own) {
        for set in experiment.data.test_names() {
            let Some(row) = stored_row(&table, run, &set, &predictive.name(own)) else { return Ok(None) };
            rows.push(row);
        }
    }
    Ok(Some(rows))
}

/// Returns the row of a test set and a predictive, if it and its predictions are stored.
fn stored_row(table: &Table, run: &RunFolder, set: &str, predictive: &str) -> Option<Row> {
    let condition = "clean";
    // The predictions say which images are those of the run's own test split.
    let (images, samples) = stored_predictions(run, [set, condition, predictive])?;
    let cells =
        [("run", run.id()), ("set", set.into()), ("condition", condition.into()), ("predictive", predictive.into())];
    let of_images = images.map(|images| (TESTED.fingerprint, images));
    let of_number = (TESTED.count, samples.to_string());
    table.find(&cells.into_iter().chain([of_number]).chain(of_images).collect::<Vec<_>>())
}

/// Returns the fingerprint of the images and the number of samples of stored predictions or answers; `None` if there are none.
fn stored_predictions(run: &RunFolder, name: [&str; 3]) -> Option<(Option<String>, usize)> {
    let (file, answers) = (run.predictions_of(&name), run.answers_of(&name));
    let found = match answers.exists() {
        true => open_answers(&answers).map(|of| (of.metadata.get(IMAGES).cloned(), of.replies.len())),
        false => open_predictions(&file).map(|of| (of.metadata().get(IMAGES).cloned(), of.samples())),
    };
    match found {
        Ok(found) => Some(found),
        Err(error) => {
            if file.exists() || answers.exists() {
                tracing::warn!("{error:#}: evaluated again");
            }
            None
        }
    }
}
