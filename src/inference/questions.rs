//! The predictions of a run on questions about images: the answers that its members write together, or the classes.

use std::io::Write;

use anyhow::{Result, bail};

use super::texts::{Asked, check_writes, write_classes};
use super::written::Texts;
use crate::data::batches::SampleSet;
use crate::data::lines::{Line, read_lines};
use crate::evaluate::labelled;
use crate::model::Preparation;
use crate::predict::Predictor;
use crate::predict::generate::Stop;
use crate::predict::inputs::Writer;
use crate::session::Opened;

/// Writes a record for each line of the files of JSON lines, whose keys `image` and `question` are read.
///
/// # Errors
/// Fails if a line cannot be read, if the run cannot predict it, or if a record cannot be written.
pub fn run(args: &Asked, opened: &Opened, out: Box<dyn Write>) -> Result<()> {
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
        Some(tokens) => answer(args, opened, &predictor, (&names, &set, tokens), out),
        None => classify(args, opened, &predictor, (&names, &set), out),
    }
}

/// Writes the answer to each question.
fn answer(
    args: &Asked,
    opened: &Opened,
    predictor: &Predictor,
    (names, set, tokens): (&[String], &SampleSet, usize),
    out: Box<dyn Write>,
) -> Result<()> {
    let Preparation::Questions(tokenizer) = &opened.session.model.preparation else {
        bail!("this network answers no questions about images")
    };
    check_writes(opened, predictor)?;
    let stop = Stop { tokens, end: tokenizer.tokenizer.end() };
    let all: Vec<u32> = (0..names.len() as u32).collect();
    let batch = opened.batch_size(args.batch_size).min(names.len());
    let bar = crate::base::logging::bar(all.len() as u64, "answering");
    let found = predictor.shared_texts(&opened.session.group, (set, &all), (batch, stop), &bar)?;
    bar.finish_and_clear();
    let mut texts = Texts::new(&tokenizer.tokenizer, args.format, out);
    names.iter().zip(&found).try_for_each(|(name, written)| texts.push(name, written))?;
    texts.finish()
}

/// Writes the predicted class of the answer to each question.
fn classify(
    args: &Asked,
    opened: &Opened,
    predictor: &Predictor,
    (names, set): (&[String], &SampleSet),
    out: Box<dyn Write>,
) -> Result<()> {
    let batch = opened.batch_size(args.batch_size).min(names.len());
    let predictions = labelled(&opened.session, predictor, set, batch)?;
    write_classes(&mut Writer::new(out, args.format, args.columns.clone()), &predictions, names, opened)
}
