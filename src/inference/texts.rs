//! The predictions of a run on texts: the classes of prompts, or the texts that the members write after them together.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tch::Tensor;

use super::numbers::Estimates;
use super::written::Texts;
use crate::base::small::Usage;
use crate::base::tensor::{ROOM_TO_PREDICT, guarded, host_f32};
use crate::data::batches::{SampleSet, Samples};
use crate::data::lines::{Line, read_lines};
use crate::data::{Dataset, Prompts, Tokens};
use crate::evaluate::labelled;
use crate::metrics::Uncertainty;
use crate::model::{Input, Wording};
use crate::predict::Predictor;
use crate::predict::generate::Stop;
use crate::predict::inputs::{Columns, Format, Prediction, Record, Writer};
use crate::predictions::Predictions;
use crate::session::Opened;
use crate::tasks::mixtures;

/// The options of a prediction on texts, or on questions about images.
pub struct Asked<'a> {
    /// Files of JSON lines.
    pub paths: &'a [PathBuf],
    pub format: Format,
    /// The most tokens to write after each prompt; `None` to predict classes.
    pub generate: Option<u32>,
    /// The number of prompts per forward pass; that of the config by default.
    pub batch_size: Option<u32>,
    /// The columns that records of classes have besides the usual ones.
    pub columns: Columns,
}

/// Writes a record for each line of the files of JSON lines.
///
/// # Errors
/// Fails if a line cannot be read, if the run cannot predict it, or if a record cannot be written.
pub fn predict_texts(args: &Asked, opened: &Opened, out: Box<dyn Write>) -> Result<()> {
    let dataset = &*opened.experiment.data.dataset;
    let Lines { names, mut prompts } = Lines::read(args.paths, dataset)?;
    let prepared = opened.prepare(opened.experiment.predictive())?;
    let predictor = &Predictor::new(&opened.session.model, prepared.members(), opened.chunk());
    prompts.ended = dataset.ends_prompts() && args.generate.is_none();
    let preparation = &opened.session.model.preparation;
    let words = preparation.wording();
    if args.generate.is_some() && words.is_none() {
        bail!(Usage("--generate: a text encoder writes no texts: name a run of a language network".into()));
    }
    let prompts = &preparation.tokens("the files", &prompts)?.context("this run reads no texts")?;
    let reading = Reading { args, opened, predictor, names: &names };
    match args.generate.zip(words) {
        Some((tokens, words)) => {
            reading.generate(prompts, Stop { tokens: tokens as usize, ends: words.ends() }, words, out)
        }
        None if opened.session.model.head.gaussian.is_some() => {
            let mut out = Estimates::new(out, args.format);
            let read = |logits| mixtures(predictor, &logits);
            reading.in_batches(prompts, read, |names, found| {
                names.iter().zip(&found).try_for_each(|(name, mixture)| out.add(name, mixture))
            })
        }
        None => {
            let mut writer = Writer::new(out, args.format, args.columns.clone());
            let read = |logits| host_f32(&logits);
            reading.in_batches(prompts, read, |names, logits| {
                write_classes(&mut writer, &predictor.predictions(logits, None)?, names, opened)
            })
        }
    }
}

/// The lines of files, as prompts with their names.
#[derive(Default)]
struct Lines {
    names: Vec<String>,
    prompts: Prompts,
}

impl Lines {
    fn read(paths: &[PathBuf], dataset: &dyn Dataset) -> Result<Lines> {
        let mut lines = Lines::default();
        for path in paths {
            for line in read_lines(path)? {
                lines.prompts.texts.push(dataset.prompt(&line)?);
                if let Some(second) = dataset.second(&line)? {
                    lines.prompts.seconds.get_or_insert_default().push(second);
                }
                lines.names.push(line.to_string());
            }
        }
        Ok(lines)
    }
}

/// Prompts that a run reads.
struct Reading<'a, 'p> {
    args: &'a Asked<'a>,
    opened: &'a Opened,
    predictor: &'a Predictor<'p>,
    /// The names of the prompts.
    names: &'a [String],
}

impl Reading<'_, '_> {
    /// Returns the number of prompts per forward pass.
    fn batch_size(&self) -> usize {
        self.opened.batch_size(self.args.batch_size).min(self.names.len())
    }

    /// Returns the numbers of all prompts.
    fn all(&self) -> Vec<u32> {
        (0..self.names.len() as u32).collect()
    }

    /// Hands over the logits of prompts `tokens`, a batch at a time with the names of the prompts.
    fn in_batches<T>(
        &self,
        tokens: &Tokens,
        read: impl Fn(Tensor) -> Result<T>,
        mut write: impl FnMut(&[String], T) -> Result<()>,
    ) -> Result<()> {
        let batch = self.batch_size();
        let chunker = self.predictor.plan(batch, batch)?;
        for (names, chosen) in self.names.chunks(batch).zip(self.all().chunks(batch)) {
            let found = guarded("prediction", ROOM_TO_PREDICT, || {
                let device = self.opened.session.device;
                let samples = tokens.select(chosen).samples().map(|rows| rows.to_device(device));
                read(self.predictor.logits(&chunker, &Input::Stored(samples.for_all()))?)
            })?;
            write(names, found)?;
        }
        Ok(())
    }

    /// Writes the text that follows each prompt.
    fn generate(&self, prompts: &Tokens, stop: Stop, words: &dyn Wording, out: Box<dyn Write>) -> Result<()> {
        check_writes(self.opened, self.predictor)?;
        let batch = self.batch_size();
        let mut texts = Texts::new(words, self.args.format, out);
        for (names, chosen) in self.names.chunks(batch).zip(self.all().chunks(batch)) {
            let samples = prompts.select(chosen).samples();
            let found = guarded("generation", ROOM_TO_PREDICT, || self.predictor.generate(&samples, stop))?;
            names.iter().zip(&found).try_for_each(|(name, written)| texts.push(name, written))?;
        }
        texts.finish()
    }

    /// Writes the answer of at most `tokens` tokens to each question.
    fn answer(&self, set: &SampleSet, tokens: usize, out: Box<dyn Write>) -> Result<()> {
        let words = self.opened.session.model.preparation.wording();
        let words = words.context("this network answers no questions about images")?;
        check_writes(self.opened, self.predictor)?;
        let (stop, all) = (Stop { tokens, ends: words.ends() }, self.all());
        let (group, samples) = (&self.opened.session.group, Samples { set, indices: &all });
        let bar = crate::base::logging::bar(all.len() as u64, "answering");
        let found = self.predictor.shared_texts(group, samples, self.batch_size(), stop, &bar)?;
        bar.finish_and_clear();
        let mut texts = Texts::new(words, self.args.format, out);
        self.names.iter().zip(&found).try_for_each(|(name, written)| texts.push(name, written))?;
        texts.finish()
    }

    /// Writes the predicted class of the answer to each question.
    fn classify(&self, set: &SampleSet, out: Box<dyn Write>) -> Result<()> {
        let predictions = labelled(&self.opened.session, self.predictor, set, self.batch_size())?;
        let mut writer = Writer::new(out, self.args.format, self.args.columns.clone());
        write_classes(&mut writer, &predictions, self.names, self.opened)
    }
}

/// Writes the predicted class of each of the samples `names`, whose predictions these are.
fn write_classes(
    writer: &mut Writer<Box<dyn Write>>,
    predictions: &Predictions,
    names: &[String],
    opened: &Opened,
) -> Result<()> {
    let uncertainty = Uncertainty::compute(predictions)?;
    for (at, name) in names.iter().enumerate() {
        let outcome = Ok(Prediction::of(predictions, &uncertainty, at, &opened.session.classes)?);
        writer.write(&Record { path: Path::new(name).to_path_buf(), label: None, outcome, set: Vec::new() })?;
    }
    Ok(())
}

/// Checks that the members of a run can write texts.
fn check_writes(opened: &Opened, predictor: &Predictor) -> Result<()> {
    let columns = &opened.session.subspace()?.layout().columns;
    ensure!(
        columns.iter().any(|column| !column.name.starts_with("head.")),
        Usage(
            "--generate: this run trains its head alone, which knows no tokens but the label words: name a run of \
         [subspace.low-rank] or [subspace.full]"
                .into()
        )
    );
    ensure!(
        predictor.has_weights(),
        Usage(
            "--generate: this run predicts by linearised logits, which write no texts: name a run of another method"
                .into()
        )
    );
    Ok(())
}

/// Writes a record for each line of the files of JSON lines, whose keys `image` and `question` are read.
///
/// # Errors
/// Fails if a line cannot be read, if the run cannot predict it, or if a record cannot be written.
pub fn predict_questions(args: &Asked, opened: &Opened, out: Box<dyn Write>) -> Result<()> {
    let mut lines: Vec<Line> = Vec::new();
    for path in args.paths {
        lines.extend(read_lines(path)?);
    }
    let names: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let set = opened.session.asked(&opened.experiment, &lines)?;
    let prepared = opened.prepare(opened.experiment.predictive())?;
    let predictor = &Predictor::new(&opened.session.model, prepared.members(), opened.chunk());
    let reading = Reading { args, opened, predictor, names: &names };
    let usual = opened.experiment.task.written();
    match args.generate.map(|tokens| tokens as usize).or(usual) {
        Some(tokens) => reading.answer(&set, tokens, out),
        None => reading.classify(&set, out),
    }
}
