//! The input and output of `bella predict`: image files from paths, folders and lists, and one record per image as CSV
//! or JSON lines. A missing or damaged file gives a record with its error, and the others continue.

use std::borrow::Cow;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rayon::prelude::*;
use serde::Serialize;

use crate::base::outside::{printed_cell, printed_json};
use crate::data::Decode;
use crate::data::read::class_folders::collect as collect_images;
use crate::metrics::Uncertainty;
use crate::schema::words;

/// The argument that stands for a list of paths on standard input.
pub const LIST: &str = "-";

/// One image to predict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The path as given, or as found in a given folder.
    pub path: PathBuf,
    /// The reason why there is no image, if it is known before reading.
    pub problem: Option<String>,
}

/// Returns all images that `paths` name, in that order. A file is taken as it is. A folder gives the image files below
/// it, sorted, with known extensions, without hidden files and links to folders. `-` gives the paths in `list`: one per
/// line, skipping empty lines, or each ended by NUL if there is any NUL. A path that does not exist gives an input with
/// a problem.
///
/// # Errors
/// Fails if there is no path at all, or if `list` cannot be read.
pub fn collect(paths: &[PathBuf], list: &mut dyn BufRead) -> Result<Vec<Input>> {
    let mut inputs = Vec::new();
    for path in paths {
        if path.as_os_str() == LIST {
            let mut bytes = Vec::new();
            list.read_to_end(&mut bytes).context("cannot read the list of paths on standard input")?;
            listed(&bytes).for_each(|path| add(&path, &mut inputs));
        } else {
            add(path, &mut inputs);
        }
    }
    ensure!(!inputs.is_empty(), "no images to predict: name files or folders, or give - and a list on standard input");
    Ok(inputs)
}

/// Returns the paths in a list.
fn listed(bytes: &[u8]) -> impl Iterator<Item = PathBuf> {
    let end = if bytes.contains(&0) { 0 } else { b'\n' };
    let lines = bytes.split(move |&byte| byte == end);
    let plain = lines.map(move |line| if end == 0 { line } else { line.strip_suffix(b"\r").unwrap_or(line) });
    plain.filter(|line| !line.is_empty()).map(to_path)
}

#[cfg(unix)]
fn to_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(not(unix))]
fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

fn add(path: &Path, inputs: &mut Vec<Input>) {
    let mut problem = |why: String| inputs.push(Input { path: path.to_path_buf(), problem: Some(why) });
    if path.is_dir() {
        let mut found = Vec::new();
        match collect_images(path, &mut found) {
            Err(error) => problem(format!("{error:#}")),
            Ok(()) if found.is_empty() => problem(format!("{}: no image files in this folder", path.display())),
            Ok(()) => inputs.extend(found.into_iter().map(|path| Input { path, problem: None })),
        }
    } else if path.exists() {
        inputs.push(Input { path: path.to_path_buf(), problem: None });
    } else {
        problem(format!("{}: no such file", path.display()));
    }
}

/// Decodes each input to `[3, height, width]` on the rayon pool of the calling thread, or returns the reason why it
/// cannot. An error in one file never stops the others.
pub fn decode(inputs: &[Input], decode: Decode) -> Vec<Result<Vec<u8>, String>> {
    let one = |input: &Input| match &input.problem {
        Some(why) => Err(why.clone()),
        None => decode.file(&input.path).map_err(|error| format!("{error:#}")),
    };
    inputs.par_iter().map(one).collect()
}

/// The prediction of all members for one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The class with the largest mean probability.
    pub class: String,
    /// The mean probability of that class.
    pub probability: f64,
    /// The predictive entropy `H[p̄]` in nats.
    pub predictive_entropy: f64,
    /// The mutual information `H[p̄] − mean_k H[p_k]` in nats; `None` for a single member.
    pub mutual_information: Option<f64>,
    /// The share of member pairs whose predicted classes differ; `None` for a single member.
    pub disagreement: Option<f64>,
}

impl Prediction {
    /// Returns the prediction for sample `i` by the mean probabilities. `classes` are the class names of the model.
    ///
    /// # Errors
    /// Fails if there is no such sample, or if the predicted class has no name.
    pub fn of(uncertainty: &Uncertainty, i: usize, classes: &[String]) -> Result<Prediction> {
        let (guesses, spread) = (&uncertainty.guesses.probability, uncertainty.spread.as_ref());
        let samples = guesses.predicted.len();
        let class = *guesses.predicted.get(i).with_context(|| format!("sample {i} is asked of {samples}"))?;
        let name = classes.get(class as usize);
        let name = name.with_context(|| format!("class {class} is predicted, but {} have names", classes.len()))?;
        Ok(Prediction {
            class: name.clone(),
            probability: guesses.confidence[i],
            predictive_entropy: uncertainty.predictive_entropy[i],
            mutual_information: spread.map(|spread| spread.mutual_information[i]),
            disagreement: spread.map(|spread| spread.disagreement[i]),
        })
    }
}

/// One image and its prediction or error.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub path: PathBuf,
    /// The prediction, or the reason why there is none.
    pub outcome: Result<Prediction, String>,
    /// The conformal set of class names, the most probable first; empty if there is no prediction. `None` if sets are
    /// not asked for.
    pub set: Option<Vec<String>>,
}

/// The separator between the classes of a set in CSV.
const BETWEEN: &str = "|";

/// The columns of a record. In the record of an error, only `path` and `error` are filled. `S` is a set as the format
/// writes it.
#[derive(Serialize)]
struct Columns<'a, S: Serialize> {
    path: Cow<'a, str>,
    class: Option<Cow<'a, str>>,
    probability: Option<f64>,
    predictive_entropy: Option<f64>,
    mutual_information: Option<f64>,
    disagreement: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set: Option<S>,
    error: Option<Cow<'a, str>>,
}

impl Record {
    /// Returns the columns, with names as `text` writes them.
    fn columns<S: Serialize>(&self, text: fn(&str) -> Cow<str>, set: impl Fn(&[String]) -> S) -> Columns<'_, S> {
        let found = self.outcome.as_ref().ok();
        Columns {
            path: text(&self.path.to_string_lossy()).into_owned().into(),
            class: found.map(|p| text(&p.class)),
            probability: found.map(|p| p.probability),
            predictive_entropy: found.map(|p| p.predictive_entropy),
            mutual_information: found.and_then(|p| p.mutual_information),
            disagreement: found.and_then(|p| p.disagreement),
            set: self.set.as_ref().map(|names| set(names)),
            error: self.outcome.as_ref().err().map(|error| text(error)),
        }
    }
}

words! {
    /// The format of the records.
    pub enum Format {
        Csv = "csv",
        /// One JSON object per line; a missing value is null.
        JsonLines = "jsonl",
    }
}

/// Writes records one by one. Each is flushed before the next image is predicted.
pub struct Writer<W: Write>(Sink<W>);

enum Sink<W: Write> {
    Csv(Box<csv::Writer<W>>),
    JsonLines(W),
}

impl<W: Write> Writer<W> {
    /// Creates a writer to `out`. CSV starts with a header before the first record.
    pub fn new(out: W, format: Format) -> Writer<W> {
        Writer(match format {
            Format::Csv => Sink::Csv(Box::new(csv::Writer::from_writer(out))),
            Format::JsonLines => Sink::JsonLines(out),
        })
    }

    /// Writes one record and flushes it.
    ///
    /// # Errors
    /// Fails if `out` fails, for example on a closed pipe or a full disk.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        let failed = || format!("cannot write the record of {}", record.path.display());
        match &mut self.0 {
            Sink::Csv(out) => {
                let set = |names: &[String]| printed_cell(&names.join(BETWEEN)).into_owned();
                out.serialize(record.columns(printed_cell, set)).with_context(failed)?;
                out.flush().with_context(failed)
            }
            Sink::JsonLines(out) => {
                let line = serde_json::to_string(&record.columns(|text| Cow::Borrowed(text), <[String]>::to_vec))
                    .with_context(failed)?;
                writeln!(out, "{}", printed_json(&line)).and_then(|()| out.flush()).with_context(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests;
