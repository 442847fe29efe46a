//! The predictions of a run for each sample of its own test set.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Result, bail};

use super::extremes::{Extremes, Offered};
use crate::data::SplitName;
use crate::evaluate::{Matched, labelled};
use crate::metrics::Uncertainty;
use crate::predict::Predictor;
use crate::predict::inputs::{Prediction, Record, Writer};
use crate::session::Opened;

/// Writes one record per sample of a split: of the test split, those of every test set of the run. Returns their number.
/// `extremes` are offered the images.
///
/// # Errors
/// Fails if the split cannot be read, if the run answers in words or is a trial that was not named by its folder, if memory runs out, or if a record cannot be written.
pub fn run(
    opened: &Opened,
    split: SplitName,
    batch_size: Option<u32>,
    writer: &mut Writer<Box<dyn Write>>,
    mut extremes: Option<&mut Extremes>,
) -> Result<usize> {
    let Opened { experiment, session, .. } = opened;
    if experiment.task.written().is_some() {
        bail!(
            "--set {split}: this run answers in words; its answers on the test set are in {}",
            opened.run.path().display()
        );
    }
    let splits = opened.splits(split)?;
    let prepared = opened.prepare(experiment.predictive())?;
    let matched = Matched::of(opened)?;
    let predictor = matched.predictor(Predictor::new(&session.model, prepared.members(), opened.chunk()));
    let (classes, mut done) = (&matched.names(opened), 0);
    for split in splits {
        let (paths, images) = (
            (0..split.len()).map(|at| split.sample_name(at)).collect::<Vec<PathBuf>>(),
            extremes.as_ref().map(|_| split.inputs.clone()),
        );
        let set = matched.samples(opened, split)?;
        let predictions = labelled(session, &predictor, &set, opened.batch_size(batch_size))?;
        let uncertainty = Uncertainty::compute(&predictions)?;
        for (at, path) in paths.into_iter().enumerate() {
            let prediction = Prediction::of(&predictions, &uncertainty, at, classes)?;
            let label = classes.get(set.split.labels[at] as usize).cloned();
            if let (Some(extremes), Some(images)) = (&mut extremes, &images) {
                let offered = Offered { path: &path, label: label.as_deref(), size: images.size() };
                extremes.offer(offered, &prediction, || images.image(at))?;
            }
            writer.write(&Record { path, label, outcome: Ok(prediction), set: Vec::new() })?;
            done += 1;
        }
    }
    Ok(done)
}
