//! The results of a finished run that are stored already.

use std::path::Path;

use anyhow::Result;
use tch::Device;

use super::{IMAGES, experiment_csv};
use crate::experiment::Experiment;
use crate::results::images::TESTED;
use crate::results::store::{Row, Table, read};
use crate::run::{RunFolder, open_outcome};

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
            let file = run.predicted(&[&set, CLEAN, &predictive.name(own)], experiment.task.ending());
            let Some(row) = stored_row(&table, run, &file, (&set, &predictive.name(own))) else { return Ok(None) };
            rows.push(row);
        }
    }
    Ok(Some(rows))
}

/// The condition of test sets as they are.
const CLEAN: &str = "clean";

/// Returns the row of a test set and a predictive, if it and its predictions are stored.
fn stored_row(table: &Table, run: &RunFolder, file: &Path, (set, predictive): (&str, &str)) -> Option<Row> {
    // The predictions say which images are those of the run's own test split.
    let (images, samples) = stored_predictions(file)?;
    let cells =
        [("run", run.id()), ("set", set.into()), ("condition", CLEAN.into()), ("predictive", predictive.into())];
    let of_images = images.map(|images| (TESTED.fingerprint, images));
    let of_number = (TESTED.count, samples.to_string());
    table.find(&cells.into_iter().chain([of_number]).chain(of_images).collect::<Vec<_>>())
}

/// Returns the fingerprint of the images and the number of samples of stored predictions; `None` if there are none.
fn stored_predictions(file: &Path) -> Option<(Option<String>, usize)> {
    match open_outcome(file) {
        Ok(found) => Some((found.metadata().get(IMAGES).cloned(), found.samples())),
        Err(error) => {
            if file.exists() {
                tracing::warn!("{error:#}: evaluated again");
            }
            None
        }
    }
}
