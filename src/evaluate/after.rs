//! The evaluation that follows training: the run's own test sets, with every predictive that its posterior offers.

use anyhow::Result;

use super::Evaluation;
use crate::data::batches::TestImages;
use crate::experiment::Experiment;
use crate::posterior::Posterior;
use crate::predict::Predictor;
use crate::results::store::Row;
use crate::run::{Record, RunFolder};
use crate::session::{Session, prepare};

/// Evaluates each test set with each predictive, and returns the rows stored in the results of the run and of the
/// experiment.
///
/// # Errors
/// Fails if images cannot be read, if results cannot be written, or if memory runs out.
pub fn after_training(
    experiment: &Experiment,
    session: &Session,
    (run, record): (&RunFolder, &Record),
    posterior: &Posterior,
    tests: &[(String, TestImages)],
) -> Result<Vec<Row>> {
    let (chunk, batch_size) = (experiment.particle_chunk(), experiment.eval_batch_size());
    let (own, mut rows) = (experiment.predictive(), Vec::new());
    if tests.is_empty() {
        return Ok(rows);
    }
    for predictive in posterior.predictives(own) {
        let prepared = prepare(predictive, experiment.post_hoc(), session.subspace()?, posterior, experiment.seed)?;
        let mut evaluation = Evaluation {
            experiment,
            session,
            run,
            group: run.group(experiment.file_hashes()?)?,
            record: Some(record),
            predictor: Predictor::new(&session.model, prepared.members(), chunk),
            predictive: predictive.name(own),
            batch_size,
            set: String::new(),
            names_files: true,
            validation: None,
            conformal: None,
        };
        for (set, images) in tests {
            evaluation.set.clone_from(set);
            rows.push(evaluation.row_of(images)?);
        }
    }
    Ok(rows)
}
