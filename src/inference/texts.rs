//! The predictions of a run on texts: the classes of prompts, or the texts that the members write after them together.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::written::Texts;
use crate::base::tensor::{ROOM_TO_PREDICT, guarded, host_f32};
use crate::data::lines::read_lines;
use crate::data::{Prompts, Tokens};
use crate::metrics::Uncertainty;
use crate::model::{Input, Wording};
use crate::predict::Predictor;
use crate::predict::generate::Stop;
use crate::predict::inputs::{Columns, Format, Prediction, Record, Writer};
use crate::predictions::Predictions;
use crate::session::Opened;

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
pub fn run(args: &Asked, opened: &Opened, out: Box<dyn Write>) -> Result<()> {
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
        None => classify(args, opened, &predictor, (&names, &prompts), out),
    }
}

/// Writes the predicted class of each prompt.
fn classify(
    args: &Asked,
    opened: &Opened,
    predictor: &Predictor,
    (names, tokens): (&[String], &Tokens),
    out: Box<dyn Write>,
) -> Result<()> {
    let batch = opened.batch_size(args.batch_size).min(names.len());
    let chunker = predictor.plan(batch, batch)?;
    let mut writer = Writer::new(out, args.format, args.columns.clone());
    let all: Vec<u32> = (0..names.len() as u32).collect();
    for (names, chosen) in names.chunks(batch).zip(all.chunks(batch)) {
        let logits = guarded("prediction", ROOM_TO_PREDICT, || {
            let samples = tokens.select(chosen).samples().map(|rows| rows.to_device(opened.session.device));
            host_f32(&predictor.logits(&chunker, &Input::Stored(samples.for_all()))?)
        })?;
        write_classes(&mut writer, &predictor.predictions(logits, None)?, names, opened)?;
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
    let stop = Stop { tokens, end: words.end() };
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
