//! The predictions of a run on texts: the classes of prompts, or the texts that the members write after them together.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use tch::Tensor;

use super::numbers::Estimates;
use crate::base::outside::{printed_cell, printed_json};
use crate::base::tensor::{ROOM_TO_PREDICT, guarded, host_f32};
use crate::data::batches::{SampleSet, Samples};
use crate::data::lines::{Line, read_lines};
use crate::data::{Prompts, Tokens};
use crate::evaluate::labelled;
use crate::metrics::Uncertainty;
use crate::model::{Input, Wording};
use crate::predict::Predictor;
use crate::predict::generate::{Stop, Written};
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
    let dataset = &opened.experiment.data.dataset;
    let (mut names, mut prompts) = (Vec::new(), Prompts::default());
    for path in args.paths {
        for line in read_lines(path)? {
            prompts.texts.push(dataset.prompt(&line)?);
            if let Some(second) = dataset.second(&line)? {
                prompts.seconds.get_or_insert_default().push(second);
            }
            names.push(line.to_string());
        }
    }
    let prepared = opened.prepare(opened.experiment.predictive())?;
    let predictor = Predictor::new(&opened.session.model, prepared.members(), opened.chunk());
    prompts.ended = dataset.ends_prompts() && args.generate.is_none();
    let preparation = &opened.session.model.preparation;
    let words = preparation.wording();
    if args.generate.is_some() && words.is_none() {
        bail!("--generate: a text encoder writes no texts: name a run of a language network");
    }
    let prompts = preparation.tokens("the files", &prompts)?.context("this run reads no texts")?;
    match args.generate.zip(words) {
        Some((tokens, words)) => generate(args, opened, &predictor, (&names, &prompts, tokens as usize), (words, out)),
        None if opened.session.model.head.gaussian.is_some() => {
            let mut out = Estimates::new(out, args.format);
            let read = |logits| mixtures(&predictor, &logits);
            in_batches(args, opened, &predictor, (&names, &prompts), read, |names, found| {
                names.iter().zip(&found).try_for_each(|(name, mixture)| out.add(name, mixture))
            })
        }
        None => {
            let mut writer = Writer::new(out, args.format, args.columns.clone());
            in_batches(
                args,
                opened,
                &predictor,
                (&names, &prompts),
                |logits| host_f32(&logits),
                |names, logits| write_classes(&mut writer, &predictor.predictions(logits, None)?, names, opened),
            )
        }
    }
}

/// Hands over the logits of prompts `tokens`, a batch at a time with the names of the prompts.
fn in_batches<T>(
    args: &Asked,
    opened: &Opened,
    predictor: &Predictor,
    (names, tokens): (&[String], &Tokens),
    read: impl Fn(Tensor) -> Result<T>,
    mut write: impl FnMut(&[String], T) -> Result<()>,
) -> Result<()> {
    let batch = opened.batch_size(args.batch_size).min(names.len());
    let chunker = predictor.plan(batch, batch)?;
    let all: Vec<u32> = (0..names.len() as u32).collect();
    for (names, chosen) in names.chunks(batch).zip(all.chunks(batch)) {
        let found = guarded("prediction", ROOM_TO_PREDICT, || {
            let samples = tokens.select(chosen).samples().map(|rows| rows.to_device(opened.session.device));
            read(predictor.logits(&chunker, &Input::Stored(samples.for_all()))?)
        })?;
        write(names, found)?;
    }
    Ok(())
}

/// Writes the predicted class of each of the samples `names`, whose predictions these are.
pub fn write_classes(
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

/// Writes the text that follows each prompt.
fn generate(
    args: &Asked,
    opened: &Opened,
    predictor: &Predictor,
    (names, prompts, tokens): (&[String], &Tokens, usize),
    (words, out): (&dyn Wording, Box<dyn Write>),
) -> Result<()> {
    check_writes(opened, predictor)?;
    let stop = Stop { tokens, ends: words.ends() };
    let batch = opened.batch_size(args.batch_size).min(names.len());
    let all: Vec<u32> = (0..names.len() as u32).collect();
    let mut texts = Texts::new(words, args.format, out);
    for (names, chosen) in names.chunks(batch).zip(all.chunks(batch)) {
        let samples = prompts.select(chosen).samples();
        let found = guarded("generation", ROOM_TO_PREDICT, || predictor.generate(&samples, stop))?;
        names.iter().zip(&found).try_for_each(|(name, written)| texts.push(name, written))?;
    }
    texts.finish()
}

/// Checks that the members of a run can write texts.
pub fn check_writes(opened: &Opened, predictor: &Predictor) -> Result<()> {
    let columns = &opened.session.subspace()?.layout().columns;
    ensure!(
        columns.iter().any(|column| !column.name.starts_with("head.")),
        "--generate: this run trains its head alone, which knows no tokens but the label words: name a run of \
         [subspace.low-rank] or [subspace.full]"
    );
    ensure!(
        predictor.has_weights(),
        "--generate: this run predicts by linearised logits, which write no texts: name a run of another method"
    );
    Ok(())
}

/// Writes a record for each text.
pub struct Texts<'t> {
    words: &'t dyn Wording,
    out: Box<dyn Write>,
    /// The records in CSV; `None` for JSON lines, which are written at once.
    table: Option<csv::Writer<Vec<u8>>>,
}

impl<'t> Texts<'t> {
    pub fn new(words: &'t dyn Wording, format: Format, out: Box<dyn Write>) -> Texts<'t> {
        let table = (format == Format::Csv).then(|| csv::Writer::from_writer(Vec::new()));
        Texts { words, out, table }
    }

    /// Takes the text that follows the prompt `path`.
    ///
    /// # Errors
    /// Fails if a token is unknown, or if the record cannot be written.
    pub fn push(&mut self, path: &str, written: &[Written]) -> Result<()> {
        let ids: Vec<u32> = written.iter().map(|one| one.id).collect();
        let text = self.words.text(&ids)?;
        if let Some(table) = &mut self.table {
            return Ok(table.serialize(Summary::of(&printed_cell(path), &printed_cell(&text), written))?);
        }
        let tokens = written.iter().map(|one| token(self.words, one)).collect::<Result<_>>()?;
        let line = serde_json::to_string(&Whole { path, text: &text, tokens })?;
        writeln!(self.out, "{}", printed_json(&line)).context("cannot write the record")
    }

    /// Writes what has not been written yet.
    ///
    /// # Errors
    /// Fails if the records cannot be written.
    pub fn finish(mut self) -> Result<()> {
        if let Some(table) = self.table {
            self.out.write_all(&table.into_inner()?).context("cannot write the records")?;
        }
        self.out.flush().context("cannot write the records")
    }
}

/// A text that was written, in CSV.
#[derive(Serialize)]
struct Summary<'a> {
    path: &'a str,
    text: &'a str,
    tokens: usize,
    mean_entropy: Option<f64>,
    mean_mutual_information: Option<f64>,
}

/// A text that was written, in JSON lines.
#[derive(Serialize)]
struct Whole<'a> {
    path: &'a str,
    text: &'a str,
    tokens: Vec<Token>,
}

#[derive(Serialize)]
struct Token {
    token: String,
    id: u32,
    probability: f64,
    entropy: f64,
    mutual_information: f64,
}

impl<'a> Summary<'a> {
    fn of(path: &'a str, text: &'a str, written: &[Written]) -> Summary<'a> {
        let mean = |of: fn(&Written) -> f64| {
            (!written.is_empty()).then(|| written.iter().map(of).sum::<f64>() / written.len() as f64)
        };
        Summary {
            path,
            text,
            tokens: written.len(),
            mean_entropy: mean(|one| one.entropy),
            mean_mutual_information: mean(|one| one.mutual_information),
        }
    }
}

fn token(words: &dyn Wording, written: &Written) -> Result<Token> {
    let Written { id, probability, entropy, mutual_information, .. } = *written;
    Ok(Token { token: words.text(&[id])?, id, probability, entropy, mutual_information })
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
    let predictor = Predictor::new(&opened.session.model, prepared.members(), opened.chunk());
    let usual = opened.experiment.task.written();
    match args.generate.map(|tokens| tokens as usize).or(usual) {
        Some(tokens) => answer(args, opened, &predictor, &names, &set, tokens, out),
        None => classify_questions(args, opened, &predictor, &names, &set, out),
    }
}

/// Writes the answer to each question.
fn answer(
    args: &Asked,
    opened: &Opened,
    predictor: &Predictor,
    names: &[String],
    set: &SampleSet,
    tokens: usize,
    out: Box<dyn Write>,
) -> Result<()> {
    let words = opened.session.model.preparation.wording();
    let words = words.context("this network answers no questions about images")?;
    check_writes(opened, predictor)?;
    let stop = Stop { tokens, ends: words.ends() };
    let all: Vec<u32> = (0..names.len() as u32).collect();
    let batch = opened.batch_size(args.batch_size).min(names.len());
    let bar = crate::base::logging::bar(all.len() as u64, "answering");
    let found = predictor.shared_texts(&opened.session.group, Samples { set, indices: &all }, batch, stop, &bar)?;
    bar.finish_and_clear();
    let mut texts = Texts::new(words, args.format, out);
    names.iter().zip(&found).try_for_each(|(name, written)| texts.push(name, written))?;
    texts.finish()
}

/// Writes the predicted class of the answer to each question.
fn classify_questions(
    args: &Asked,
    opened: &Opened,
    predictor: &Predictor,
    names: &[String],
    set: &SampleSet,
    out: Box<dyn Write>,
) -> Result<()> {
    let batch = opened.batch_size(args.batch_size).min(names.len());
    let predictions = labelled(&opened.session, predictor, set, batch)?;
    write_classes(&mut Writer::new(out, args.format, args.columns.clone()), &predictions, names, opened)
}
