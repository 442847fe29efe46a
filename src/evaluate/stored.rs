//! The stored rows of a finished run, which are not computed again unless the user has changed the test data since.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;
use tch::Device;

use crate::data::{Dataset, Fingerprint, Request, SplitName};
use crate::experiment::{DataSpec, Experiment};
use crate::machine::cores;
use crate::results::images::TESTED;
use crate::results::store::{Row, Table, read};
use crate::results::{CLEAN, experiment_csv};
use crate::run::{IMAGES, RunFolder, open_outcome};

/// Returns the rows of all test sets and predictives of a finished run, which the results folder `out` holds; `None` if some
/// are missing, or are of other images than the user's own files list now. A kill may have come between the rows of two predictives.
///
/// # Errors
/// Fails if the results or the posterior cannot be read.
pub fn stored_rows(experiment: &Experiment, out: &Path, run: &RunFolder) -> Result<Option<Vec<Row>>> {
    let csv = experiment_csv(out, &experiment.name);
    if !csv.is_file() {
        return Ok(None);
    }
    let (own, present) = (experiment.predictive(), present_images(&experiment.data));
    let (table, mut rows) = (read(&csv)?, Vec::new());
    for predictive in run.read_posterior(Device::Cpu)?.posterior.predictives(own) {
        for set in experiment.data.test_names() {
            let parts = [&set, CLEAN, &predictive.name(own)];
            let file = run.predicted(&parts, experiment.task.ending());
            if have_changed(&file, present.get(&set)) {
                tracing::info!("{set}: the test data have changed since the run was evaluated: evaluated again");
                return Ok(None);
            }
            let Some(row) = stored_row(&table, run, &file, &set, &predictive.name(own)) else { return Ok(None) };
            rows.push(row);
        }
    }
    Ok(Some(rows))
}

/// Returns the fingerprints of the test sets as the user's own files list them now, by their names in results; none of other sets, nor of
/// sets that cannot be read any more, of which a warning says so.
fn present_images(data: &DataSpec) -> BTreeMap<String, String> {
    if !data.is_own() {
        return BTreeMap::new();
    }
    let listing = Request::listing(cores(), &|_, _| ());
    let images = |set: &dyn Dataset| Fingerprint::of(&set.load(SplitName::Test, &listing)?);
    let of_all = data.each_test_set(|name, set| Ok((name.to_string(), images(set)?.short())));
    of_all.map_or_else(
        |error| {
            tracing::warn!("{error:#}: the test data are not compared with those of the stored results");
            BTreeMap::new()
        },
        |all| all.into_iter().collect(),
    )
}

/// Returns whether stored predictions are of other images than those `present` in the test set, as far as both are known.
fn have_changed(file: &Path, present: Option<&String>) -> bool {
    let of_file = open_outcome(file).ok().and_then(|found| found.metadata().get(IMAGES).cloned());
    present.zip(of_file).is_some_and(|(present, images)| *present != images)
}

/// Returns the row of a test set and a predictive, if it and its predictions are stored.
fn stored_row(table: &Table, run: &RunFolder, file: &Path, set: &str, predictive: &str) -> Option<Row> {
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
