//! The predictions of a run that learns numbers, for new images and texts and for its own samples: the mean of each, with what is
//! uncertain about it.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use tch::Tensor;

use super::images::{Wanted, preparation};
use crate::base::outside::{path_text, printed_cell, printed_json};
use crate::base::tensor::{ROOM_TO_PREDICT, guarded};
use crate::data::SplitName;
use crate::data::fields::{Fields, PIXELS};
use crate::metrics::numbers::Mixture;
use crate::predict::Predictor;
use crate::predict::inputs::{Format, Input, decode};
use crate::session::Opened;
use crate::tasks::{About, Batched, mixtures};

/// The share of the central interval in each record.
const LEVEL: f64 = 0.9;

/// A record, of which only the path and the error are filled where a sample cannot be read.
#[derive(Default, Serialize)]
struct Record<'a> {
    path: String,
    /// The true number, where it is known.
    number: Option<f64>,
    mean: Option<f64>,
    /// The standard deviation of the mixture.
    deviation: Option<f64>,
    /// The standard deviation of the noise alone.
    noise: Option<f64>,
    /// The standard deviation of the mean, between members and within those that are Gaussians of means; `None` for one point.
    disagreement: Option<f64>,
    low_90: Option<f64>,
    high_90: Option<f64>,
    error: Option<&'a str>,
}

impl Record<'_> {
    fn of(path: &Path, mixture: &Mixture) -> Record<'static> {
        let ([noise, between], [low, high]) = (mixture.variances(), mixture.central(LEVEL));
        Record {
            path: path_text(path).into_owned(),
            mean: Some(mixture.mean()),
            deviation: Some((noise + between).sqrt()),
            noise: Some(noise.sqrt()),
            disagreement: Some(between.sqrt()).filter(|one| *one > 0.0 || mixture.members() > 1),
            low_90: Some(low),
            high_90: Some(high),
            ..Record::default()
        }
    }
}

/// Writes records one by one.
pub struct Estimates {
    sink: Sink,
}

enum Sink {
    Csv(Box<csv::Writer<Box<dyn Write>>>),
    JsonLines(Box<dyn Write>),
}

impl Estimates {
    pub fn new(out: Box<dyn Write>, format: Format) -> Estimates {
        let sink = match format {
            Format::Csv => Sink::Csv(Box::new(csv::Writer::from_writer(out))),
            Format::JsonLines => Sink::JsonLines(out),
        };
        Estimates { sink }
    }

    /// Writes what is predicted of the sample `name`.
    ///
    /// # Errors
    /// Fails if the record cannot be written.
    pub(super) fn add(&mut self, name: &str, mixture: &Mixture) -> Result<()> {
        self.write(Record::of(Path::new(name), mixture))
    }

    fn write(&mut self, record: Record) -> Result<()> {
        let failed = format!("cannot write the record of {}", record.path);
        match &mut self.sink {
            Sink::Csv(out) => {
                let path = printed_cell(&record.path).into_owned();
                out.serialize(Record { path, ..record }).and_then(|()| Ok(out.flush()?)).context(failed)
            }
            Sink::JsonLines(out) => {
                let line = serde_json::to_string(&record).context(failed.clone())?;
                writeln!(out, "{}", printed_json(&line)).and_then(|()| out.flush()).context(failed)
            }
        }
    }
}

/// Writes one record per image, and returns the number of those that could not be read.
///
/// # Errors
/// Fails if the run cannot predict images, if memory runs out, or if a record cannot be written.
pub fn predict_images(wanted: &Wanted, opened: &Opened, inputs: &[Input], out: &mut Estimates) -> Result<usize> {
    let prepared = opened.prepare(opened.experiment.predictive())?;
    let model = &opened.session.model;
    let predictor = Predictor::new(model, prepared.members(), opened.chunk());
    let batch_size = opened.batch_size(wanted.batch_size).min(inputs.len());
    let side = model.images()?.size();
    let how = preparation(wanted, opened, side as usize)?;
    let chunker = predictor.plan(batch_size, batch_size)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(opened.session.settings.workers).build()?;
    let bar = crate::base::logging::bar(inputs.len() as u64, "predicting");
    let mut failed = 0;
    for batch in inputs.chunks(batch_size) {
        let decoded = pool.install(|| decode(batch, how));
        let pixels: Vec<u8> = decoded.iter().flatten().flatten().copied().collect();
        let mut found = Vec::new().into_iter();
        if !pixels.is_empty() {
            found = guarded("prediction", ROOM_TO_PREDICT, || {
                let bytes = Tensor::from_slice(&pixels).view([1, -1, 3, side, side]).to_device(model.device);
                let samples = crate::model::Input::Stored(Fields::of(PIXELS, bytes));
                mixtures(&predictor, &predictor.logits(&chunker, &samples)?)
            })?
            .into_iter();
        }
        for (input, decoded) in batch.iter().zip(&decoded) {
            out.write(match decoded {
                Ok(_) => Record::of(&input.path, &found.next().context("an image has no prediction")?),
                Err(why) => {
                    failed += 1;
                    let path = path_text(&input.path).into_owned();
                    Record { path, error: Some(why), ..Record::default() }
                }
            })?;
        }
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    Ok(failed)
}

/// Writes one record per sample of a split: of the test split, those of every test set of the run. Returns their number.
///
/// # Errors
/// Fails if the split cannot be read, if the run is a trial that was not named by its folder, if memory runs out, or if a record cannot
/// be written.
pub fn predict_set(opened: &Opened, split: SplitName, batch_size: Option<u32>, out: &mut Estimates) -> Result<usize> {
    let (experiment, session) = (&opened.experiment, &opened.session);
    let splits = opened.splits(split)?;
    let prepared = opened.prepare(experiment.predictive())?;
    let predictor = Predictor::new(&session.model, prepared.members(), opened.chunk());
    let mut done = 0;
    for split in splits {
        let names: Vec<_> = (0..split.len()).map(|at| split.sample_name(at)).collect();
        let set = crate::data::batches::SampleSet::new(split, session.device, session.settings.workers)?;
        let indices: Vec<u32> = (0..names.len() as u32).collect();
        let batch_size = opened.batch_size(batch_size);
        let samples = Batched { group: &session.group, set: &set, indices: &indices, batch_size };
        let about = About { classes: Vec::new(), metadata: Default::default() };
        let found = experiment.task.predict(&predictor, &samples, about)?;
        let Some(predicted) = found.numbers() else { bail!("this run predicts no numbers") };
        let shares = predicted.shares();
        for (at, name) in names.iter().enumerate() {
            let mixture = Mixture::new(&shares, predicted.of_sample(at));
            out.write(Record { number: Some(predicted.numbers()[at]), ..Record::of(name, &mixture) })?;
            done += 1;
        }
    }
    Ok(done)
}
