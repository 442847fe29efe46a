//! The predictions of a run for new images, and for each sample of its own test sets.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use tch::Tensor;

use super::extremes::{Extremes, Offered};
use crate::base::small::Usage;
use crate::base::tensor::{ROOM_TO_PREDICT, guarded, host_f32};
use crate::data::fields::{Fields, PIXELS};
use crate::data::{Decode, Resize, SplitName};
use crate::evaluate::{Matched, labelled};
use crate::machine::memory::Chunker;
use crate::metrics::calibrators::{self, Calibrator};
use crate::metrics::conformal::{Calibrated, Plan};
use crate::metrics::{Average, Uncertainty};
use crate::predict::inputs::{Input, Prediction, Record, Writer, decode};
use crate::predict::{Members, Predictor};
use crate::session::Opened;

/// The way in which new images are predicted.
#[derive(Default)]
pub struct Wanted {
    /// The way of resizing images; that of the run's own images by default.
    pub resize: Option<Resize>,
    /// The number of images per forward pass; that of the config by default.
    pub batch_size: Option<u32>,
    /// The set of classes in each record.
    pub conformal: Option<Plan>,
    /// The calibrator of the probabilities, fitted on the images that the run held out.
    pub calibrator: Option<&'static Calibrator>,
    /// Whether the most and the least certain images are kept.
    pub keeps_extremes: bool,
    /// Whether images stay as they are stored, without their EXIF orientation.
    pub as_stored: bool,
}

/// The outcome of predictions.
pub struct Predicted {
    /// The number of images that could not be read.
    pub failed: usize,
    pub extremes: Extremes,
}

/// Writes one record per image.
///
/// # Errors
/// Fails if the run cannot predict images, if memory runs out, or if a record cannot be written. An image that cannot be
/// read is no error; its record says why.
pub fn predict(
    wanted: &Wanted,
    opened: &Opened,
    inputs: &[Input],
    writer: &mut Writer<Box<dyn Write>>,
) -> Result<Predicted> {
    let prepared = opened.prepare(opened.experiment.predictive())?;
    let model = &Predicting::new(wanted, opened, prepared.members(), inputs.len())?;
    let mut extremes = Extremes::default();
    let side = opened.session.model.images()?.size() as usize;
    let how = preparation(wanted, opened, side)?;
    let chunker = model.predictor.plan(model.batch_size, model.batch_size)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(opened.session.settings.workers).build()?;
    let bar = crate::base::logging::bar(inputs.len() as u64, "predicting");
    let (mut failed, mut done) = (0, 0);
    for batch in inputs.chunks(model.batch_size) {
        let decoded = pool.install(|| decode(batch, how));
        let pixels: Vec<&[u8]> = decoded.iter().flatten().map(Vec::as_slice).collect();
        let mut predicted = predict_batch(model, &chunker, &pixels, side, done)?.into_iter();
        done += pixels.len();
        for (input, decoded) in batch.iter().zip(decoded) {
            let (outcome, set) = match decoded {
                Ok(pixels) => {
                    let (prediction, set) = predicted.next().context("an image has no prediction")?;
                    if wanted.keeps_extremes {
                        let offered = Offered { path: &input.path, label: None, size: (side, side) };
                        extremes.offer(offered, &prediction, || Ok(pixels))?;
                    }
                    (Ok(prediction), set)
                }
                Err(why) => (Err(why), Vec::new()),
            };
            failed += usize::from(outcome.is_err());
            writer.write(&Record { path: input.path.clone(), label: None, outcome, set })?;
        }
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(Predicted { failed, extremes })
}

/// The members that predict, with the thresholds of conformal sets.
struct Predicting<'a> {
    opened: &'a Opened,
    predictor: Predictor<'a>,
    batch_size: usize,
    sets: Option<Calibrated>,
    /// The calibrator of the averaged probabilities.
    calibrated: Option<calibrators::Calibrated>,
}

impl<'a> Predicting<'a> {
    /// Takes the members for `images` images, and the thresholds from the images that the run held out.
    fn new(wanted: &Wanted, opened: &'a Opened, members: Members<'a>, images: usize) -> Result<Predicting<'a>> {
        let predictor = Predictor::new(&opened.session.model, members, opened.chunk());
        let batch_size = opened.batch_size(wanted.batch_size);
        let (mut sets, mut calibrated) = (None, None);
        if wanted.conformal.is_some() || wanted.calibrator.is_some() {
            let held_out = opened.validation()?.set;
            if let Some(plan) = &wanted.conformal {
                plan.check(&held_out.split.labels, &opened.session.classes)?;
            }
            let predictions = labelled(&opened.session, &predictor, &held_out, batch_size)?;
            // Records hold the classes and probabilities of the averaged probabilities.
            let own = |plan: &Plan| plan.calibrate(&predictions);
            let all = wanted.conformal.as_ref().map(own).transpose()?.unwrap_or_default();
            sets = all.into_iter().find(|one| one.average == Average::Probability);
            calibrated = wanted.calibrator.map(|one| one.fit(&predictions, Average::Probability)).transpose()?;
        }
        Ok(Predicting { opened, predictor, batch_size: batch_size.min(images), sets, calibrated })
    }
}

/// Returns how images become squares of `side` pixels.
pub(super) fn preparation(wanted: &Wanted, opened: &Opened, side: usize) -> Result<Decode> {
    let interpolation = opened.session.model.images()?.interpolation();
    let resize = wanted.resize.unwrap_or_else(|| opened.experiment.data.photos());
    let checkpoint = &opened.experiment.checkpoint;
    let (shorter_side, centre) = (resize.shorter_side(side, checkpoint.crop_pct), checkpoint.usual.centre);
    let turns = !wanted.as_stored && opened.experiment.data.dataset.turns();
    Ok(Decode { resize, interpolation, height: side, width: side, shorter_side, centre, turns })
}

/// Returns the predictions for decoded images `[3, side, side]` and their sets of classes, which are empty unless sets are
/// asked for. `first` images were predicted before.
fn predict_batch(
    model: &Predicting,
    chunker: &Chunker,
    images: &[&[u8]],
    side: usize,
    first: usize,
) -> Result<Vec<(Prediction, Vec<String>)>> {
    let Predicting { opened, predictor, sets, calibrated, .. } = model;
    if images.is_empty() {
        return Ok(Vec::new());
    }
    let (network, side) = (&opened.session.model, side as i64);
    let logits = guarded("prediction", ROOM_TO_PREDICT, || {
        let bytes = Tensor::from_slice(&images.concat()).view([-1, 3, side, side]).to_device(network.device);
        host_f32(&predictor.logits(chunker, &crate::model::Input::Stored(Fields::of(PIXELS, bytes.unsqueeze(0))))?)
    })?;
    let predictions = predictor.predictions(logits, None)?;
    let (uncertainty, names) = (Uncertainty::compute(&predictions)?, &opened.session.classes);
    let classes = match sets {
        Some(calibrated) => calibrated.sets(&predictions, first)?,
        None => vec![Vec::new(); images.len()],
    };
    let named = |set: &Vec<usize>| set.iter().map(|class| names[*class].clone()).collect();
    let mut found: Vec<Prediction> =
        (0..images.len()).map(|i| Prediction::of(&predictions, &uncertainty, i, names)).collect::<Result<_>>()?;
    if let Some(calibrated) = calibrated {
        let probabilities = calibrated.probabilities(&predictions)?;
        let pairs = found.into_iter().zip(probabilities);
        found = pairs.map(|(one, probabilities)| one.calibrated(probabilities, names)).collect::<Result<_>>()?;
    }
    Ok(found.into_iter().zip(classes.iter().map(named)).collect())
}

/// Writes one record per sample of a split: of the test split, those of every test set of the run. Returns their number.
/// `extremes` are offered the images.
///
/// # Errors
/// Fails if the split cannot be read, if the run answers in words or is a trial that was not named by its folder, if memory runs out, or if a record cannot be written.
pub fn predict_set(
    opened: &Opened,
    split: SplitName,
    batch_size: Option<u32>,
    writer: &mut Writer<Box<dyn Write>>,
    mut extremes: Option<&mut Extremes>,
) -> Result<usize> {
    let Opened { experiment, session, .. } = opened;
    if experiment.task.written().is_some() {
        bail!(Usage(format!(
            "--set {split}: this run answers in words; its answers on the test set are in {}",
            opened.run.path().display()
        )));
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
