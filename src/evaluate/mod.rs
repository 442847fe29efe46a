//! Turns members and an image set into saved predictions, metrics, and rows of the results.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, ensure};

use crate::data::Fingerprint;
use crate::data::batches::{SampleSet, TestImages};
use crate::data::versions::{Mean, Version, means};
use crate::experiment::{Experiment, Group};
use crate::metrics;
use crate::metrics::calibrators::{self, Calibration};
use crate::posterior::Posterior;
use crate::predict::Predictor;
use crate::predictions::Predictions;
use crate::results::experiment_csv;
use crate::results::images::TESTED;
use crate::results::rebuild::mend;
use crate::results::store::{Identity, Row, upsert_measurement};
use crate::run::{Cost, Record, RunFolder};
use crate::session::{Session, prepare};
use crate::tasks::{Batched, Classes, Outcome};

mod asked;
mod attacked;
pub mod attacks;
pub mod comparison;
mod condition;
mod conformal;
mod features;
mod foreign;
mod matched;
mod row;
pub mod score;
mod stored;
mod suite;
mod transfer;
mod uncertainty;

pub use asked::{FittedOn, Foreign, ForeignSet};
pub use attacked::{Adversarial, AttackPlan, UnderAttack};
pub use condition::Condition;
pub use conformal::Conformal;
pub use matched::Matched;
pub use stored::stored_rows;
pub use suite::{Subject, Suite, Tested};
pub use transfer::Source;

/// The cells that identify a row of a results file.
pub const ROW: Identity =
    Identity { keys: &["run", "set", "condition", "predictive"], images: &[TESTED], keeps: Some(agree) };

/// The right of a set to the plain names of predictions files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainName {
    /// They are those of the run's own data.
    Own,
    /// The first set of a name gets them.
    IfFree,
    /// The run has a test set of the same name with other images.
    Reserved,
}

/// The members, the test set and the run of one evaluation.
pub struct Evaluation<'a> {
    pub experiment: &'a Experiment,
    pub session: &'a Session,
    pub run: &'a RunFolder,
    /// The settings of the run without its seed.
    pub group: Group,
    /// The cost of training; absent for a checkpoint without training.
    pub cost: Option<Cost>,
    pub predictor: Predictor<'a>,
    /// The way the posterior predicts: empty for its own members, `soup`, …
    pub predictive: String,
    pub batch_size: usize,
    /// The name of the test set in the results.
    pub set: String,
    pub plain_name: PlainName,
    /// The held-out images on which calibrators and conformal sets were fitted.
    pub fitted_on: Option<Fingerprint>,
    /// The calibrators that were fitted on predictions of the same members on held-out training images.
    pub calibration: Option<Calibration>,
    /// The thresholds of conformal sets, and what was measured of them.
    pub conformal: Option<Conformal>,
}

/// Makes the results file of an experiment anew if another program has changed it. Reading it takes a while, so this is done
/// once before the rows of an evaluation are stored.
fn mend_results(experiment: &Experiment, session: &Session, run: &RunFolder) -> Result<()> {
    if session.group.is_main() && run.trial().is_none() {
        mend(&session.settings.out, &experiment.name)?;
    }
    Ok(())
}

/// Evaluates each test set with each predictive, and returns the rows stored in the results of the run and of the
/// experiment.
///
/// # Errors
/// Fails if images cannot be read, if results cannot be written, or if memory runs out.
pub fn after_training(
    experiment: &Experiment,
    session: &Session,
    run: &RunFolder,
    record: &Record,
    posterior: &Posterior,
    tests: &[(String, TestImages)],
) -> Result<Vec<Row>> {
    let (chunk, batch_size) = (experiment.particle_chunk(), experiment.eval_batch_size());
    let (own, mut rows) = (experiment.predictive(), Vec::new());
    if tests.is_empty() {
        return Ok(rows);
    }
    mend_results(experiment, session, run)?;
    for predictive in posterior.predictives(own) {
        let prepared = prepare(predictive, experiment.post_hoc(), session.subspace()?, posterior, experiment.seed)?;
        let mut evaluation = Evaluation {
            experiment,
            session,
            run,
            group: run.group(experiment.file_hashes()?)?,
            cost: Some(Cost::of(record)),
            predictor: Predictor::new(&session.model, prepared.members(), chunk),
            predictive: predictive.name(own),
            batch_size,
            set: String::new(),
            plain_name: PlainName::Own,
            fitted_on: None,
            calibration: None,
            conformal: None,
        };
        for (set, images) in tests {
            evaluation.set.clone_from(set);
            rows.push(evaluation.row_of(images, &Condition::Clean)?);
        }
    }
    Ok(rows)
}

impl Evaluation<'_> {
    /// Predicts classes, saves the predictions and stores the row in the results of the run and the experiment; returns the row
    /// and the predictions.
    pub fn plain(&self, images: &TestImages, condition: &Condition) -> Result<(Row, Predictions)> {
        let started = Instant::now();
        let logits = self.logits(&images.set)?;
        let seconds = started.elapsed().as_secs_f64();
        let predictions = self.predictions(logits, images, condition)?;
        let kept = self.keep(&predictions, images.fingerprint, condition, seconds)?;
        Ok((kept.row, predictions))
    }

    /// Evaluates a test set under a condition by the task of the experiment, and returns the row.
    ///
    /// # Errors
    /// Fails if images cannot be read, if memory runs out, or if results cannot be written.
    pub fn row_of(&self, images: &TestImages, condition: &Condition) -> Result<Row> {
        let started = Instant::now();
        let found = self.predicted(images, condition)?;
        let seconds = started.elapsed().as_secs_f64();
        Ok(self.keep(&*found, images.fingerprint, condition, seconds)?.row)
    }

    /// Returns what the task of the experiment predicts of images under a condition, without storing anything.
    pub fn predicted(&self, images: &TestImages, condition: &Condition) -> Result<Box<dyn Outcome>> {
        let about = self.about(condition, images.fingerprint);
        let (indices, set, group) = (all_of(&images.set), &images.set, &*self.session.group);
        let tests = Batched { group, set, indices: &indices, batch_size: self.batch_size };
        self.experiment.task.predict(&self.predictor, &tests, about)
    }

    /// Returns predictions on held-out images without storing anything.
    pub fn labelled(&self, images: &SampleSet) -> Result<Predictions> {
        labelled(self.session, &self.predictor, images, self.batch_size)
    }

    /// Returns the logits `[m, N, C]` of all members on all images.
    fn logits(&self, images: &SampleSet) -> Result<Vec<f32>> {
        logits(self.session, &self.predictor, images, self.batch_size)
    }

    /// Returns predictions of logits `[m, N, C]` under a condition.
    fn predictions(&self, logits: Vec<f32>, images: &TestImages, condition: &Condition) -> Result<Predictions> {
        let about = self.about(condition, images.fingerprint);
        Classes::predictions(&self.predictor, logits, &images.set.split, about)
    }

    /// Saves what was predicted of images under a condition in so many seconds, scores it, and stores the row.
    fn keep(&self, found: &dyn Outcome, images: Fingerprint, condition: &Condition, seconds: f64) -> Result<Kept> {
        self.expect_unseen(images)?;
        let file = self.save(found)?;
        let mut row = self.describe(found, condition, images);
        found.metrics()?.into_iter().for_each(|(column, value)| row.push_number(column, value));
        if let (Some(predictions), Some(calibration)) = (found.logits(), &self.calibration) {
            for (column, value) in calibration.columns(predictions)? {
                row.push_number(column, value);
            }
        }
        self.measure(found, || self.describe(found, condition, images))?;
        self.add_cost(&mut row, found.samples() as f64 / seconds);
        self.store(&row)?;
        Ok(Kept { row, file })
    }

    /// Checks that images are not those on which calibrators or conformal sets were fitted.
    fn expect_unseen(&self, images: Fingerprint) -> Result<()> {
        ensure!(
            self.fitted_on != Some(images),
            "{}: calibrators and conformal sets were fitted on these very images: name other test images",
            self.set
        );
        Ok(())
    }

    /// Stores a row. Only the first process writes. The results file is as bella wrote it, see [`mend_results`].
    fn store(&self, row: &Row) -> Result<()> {
        if !self.session.group.is_main() {
            return Ok(());
        }
        upsert_measurement(&self.run.metrics(), row, &ROW)?;
        if let Some(sweep) = self.run.trial() {
            tracing::warn!(
                "{}: a trial of the sweep {sweep}: its row stays in {}",
                self.run.id(),
                self.run.metrics().display()
            );
            return Ok(());
        }
        let (out, name) = (&self.session.settings.out, &self.experiment.name);
        let csv = experiment_csv(out, name);
        if let Some(loss) = upsert_measurement(&csv, row, &ROW)?.and_then(|old| loss(&old, row)) {
            tracing::warn!(
                "{}: the row of {}, {}: {loss}",
                csv.display(),
                self.set,
                row.get("condition").unwrap_or("")
            );
        }
        Ok(())
    }

    /// Stores and returns the means over published corrupted versions for which `rows` has every version.
    pub fn means(&self, rows: &[(Version, Row)]) -> Result<Vec<Row>> {
        let evaluated: Vec<Version> = rows.iter().map(|(version, _)| version.clone()).collect();
        let row = |Mean { condition, severity, versions }: Mean| {
            let of: Vec<&Row> = rows.iter().filter(|(v, _)| versions.contains(v)).map(|(_, row)| row).collect();
            let row = self.mean_row(&of, &Condition::Mean { name: condition, severity });
            self.store(&row).map(|()| row)
        };
        means(&evaluated).into_iter().map(row).collect()
    }
}

/// Returns predictions on labelled images without storing anything.
///
/// # Errors
/// Fails if images cannot be read, if memory runs out, or if a logit is not finite.
pub fn labelled(
    session: &Session,
    predictor: &Predictor,
    images: &SampleSet,
    batch_size: usize,
) -> Result<Predictions> {
    predictor.predictions(logits(session, predictor, images, batch_size)?, Some(images.split.labels.clone()))
}

/// Returns the logits `[m, N, C]` of all members on all images.
fn logits(session: &Session, predictor: &Predictor, images: &SampleSet, batch_size: usize) -> Result<Vec<f32>> {
    let batched = Batched { group: &session.group, set: images, indices: &all_of(images), batch_size };
    Classes::all_logits(predictor, &batched)
}

/// Returns the indices of all samples of a set.
fn all_of(set: &SampleSet) -> Vec<u32> {
    (0..set.samples() as u32).collect()
}

/// The results of one evaluation.
struct Kept {
    row: Row,
    /// The path of the file of predictions; `None` in processes that do not write.
    file: Option<PathBuf>,
}

/// The largest relative difference of two metrics of the same predictions, which may be added in another order.
const ROUNDING: f64 = 1e-6;

/// Returns whether two rows of one measurement come from the same predictions, so that what one of them computed besides
/// holds of the other.
fn agree(old: &Row, new: &Row) -> bool {
    let same = |column: &str| old.get(column).unwrap_or_default() == new.get(column).unwrap_or_default();
    let close = |(column, cell): &(String, String)| {
        let (Ok(a), Some(Ok(b))) = (cell.parse::<f64>(), old.get(column).map(str::parse::<f64>)) else {
            return same(column);
        };
        (a - b).abs() <= ROUNDING * (1.0 + a.abs().max(b.abs()))
    };
    let measured =
        |(column, _): &&(String, String)| metrics::of_column(column).is_some() && !calibrators::is_column(column);
    same("precision") && same("members") && new.cells().iter().filter(measured).all(close)
}

/// Describes what is lost when a new row of the same images replaces an old one; `None` if nothing is.
fn loss(old: &Row, new: &Row) -> Option<String> {
    let cell = |row: &Row, column: &str| row.get(column).unwrap_or_default().to_string();
    let computed = |row: &Row| format!("{} on {}", cell(row, "precision"), cell(row, "device"));
    let filled = old.cells().iter().filter(|(column, value)| !value.is_empty() && cell(new, column).is_empty());
    let gone = !agree(old, new);
    let calibrated = filled.filter(|_| gone).filter(|(column, _)| calibrators::is_column(column)).count();
    match (computed(old) == computed(new), calibrated) {
        (true, 0) => None,
        (true, _) => {
            Some("the calibrated numbers of the replaced row are gone; --calibrate=KEY fits them again".to_string())
        }
        (false, _) => Some(format!("computed in {}, it replaces one computed in {}", computed(new), computed(old))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_with_a_replaced_row_is_said() {
        let row = |precision: &str, temperature: &str| {
            let mut row = Row::new();
            let cells = [("precision", precision), ("device", "cpu"), ("temperature_lm", temperature)];
            cells.into_iter().for_each(|(column, cell)| row.push(column, cell));
            row
        };
        let said = |old, new| loss(&old, &new).unwrap_or_default();
        assert_eq!(said(row("f32", ""), row("f32", "")), "");
        assert_eq!(said(row("f32", ""), row("f32", "1.5")), "");
        assert_eq!(said(row("f32", "1.5"), row("f32", "")), "", "the same predictions: the temperature is kept");
        let changed = |nll: &str, temperature: &str| {
            let mut row = row("f32", temperature);
            row.push("nll_lm", nll);
            row
        };
        let lost = said(changed("0.5", "1.5"), changed("0.6", ""));
        assert!(lost.contains("--calibrate=KEY fits them again"), "{lost}");
        let other = said(row("bf16", ""), row("f64", ""));
        assert_eq!(other, "computed in f64 on cpu, it replaces one computed in bf16 on cpu");
    }
}
