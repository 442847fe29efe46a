//! Records of the predictions for images, one per image, as CSV or JSON lines.

use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::base::outside::{path_text, printable, printed_cell, printed_json};
use crate::metrics::scores::distribution;
use crate::metrics::{Average, Uncertainty, argmax};
use crate::predictions::Predictions;
use crate::schema::words;

/// The prediction of all members for one image.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The class with the largest mean probability.
    pub class: String,
    /// The mean probability of that class.
    pub probability: f64,
    /// The predictive entropy `H[p̄]` in nats.
    pub predictive_entropy: f64,
    /// The mean entropy of the members, `mean_k H[p_k]`, in nats.
    pub expected_entropy: f64,
    /// The mutual information `H[p̄] − mean_k H[p_k]` in nats; `None` for a single member.
    pub mutual_information: Option<f64>,
    /// The share of member pairs whose predicted classes differ; `None` for a single member.
    pub disagreement: Option<f64>,
    /// The mean probabilities of all classes, `[C]`.
    pub probabilities: Vec<f64>,
}

/// Returns the name of a predicted class.
fn name_of(class: usize, classes: &[String]) -> Result<String> {
    let name = classes.get(class).cloned();
    name.with_context(|| format!("class {class} is predicted, but {} have names", classes.len()))
}

impl Prediction {
    /// Returns the prediction for sample `i` by the mean probabilities. `classes` are the class names of the model.
    ///
    /// # Errors
    /// Fails if there is no such sample, or if the predicted class has no name.
    pub fn of(
        predictions: &Predictions,
        uncertainty: &Uncertainty,
        i: usize,
        classes: &[String],
    ) -> Result<Prediction> {
        let (guesses, spread) = (&uncertainty.guesses.probability, uncertainty.spread.as_ref());
        let probabilities = distribution(predictions, i, Average::Probability)?;
        Ok(Prediction {
            class: name_of(guesses.predicted[i] as usize, classes)?,
            probability: guesses.confidence[i],
            predictive_entropy: uncertainty.predictive_entropy[i],
            expected_entropy: uncertainty.expected_entropy[i],
            mutual_information: spread.map(|spread| spread.mutual_information[i]),
            disagreement: spread.map(|spread| spread.disagreement[i]),
            probabilities,
        })
    }

    /// Returns the prediction with calibrated probabilities, `[C]`, of which the largest decides the class. The entropies and the
    /// disagreement stay those of the members.
    ///
    /// # Errors
    /// Fails if the predicted class has no name.
    pub fn calibrated(self, probabilities: Vec<f64>, classes: &[String]) -> Result<Prediction> {
        let class = argmax(&probabilities);
        let probability = probabilities[class];
        Ok(Prediction { class: name_of(class, classes)?, probability, probabilities, ..self })
    }

    /// Returns the `count` most probable classes with their probabilities, the most probable first.
    fn top(&self, count: usize) -> Vec<(usize, f64)> {
        let mut ranked: Vec<(usize, f64)> = self.probabilities.iter().copied().enumerate().collect();
        ranked.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        ranked.truncate(count);
        ranked
    }
}

/// One image and its prediction or error.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub path: PathBuf,
    /// The name of the true class, where records have it.
    pub label: Option<String>,
    /// The prediction, or the reason why there is none.
    pub outcome: Result<Prediction, String>,
    /// The conformal set of class names, the most probable first; empty if there is no prediction.
    pub set: Vec<String>,
}

/// The separator between the classes of a set in CSV.
const BETWEEN: &str = "|";

/// The columns that records have besides the usual ones.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// The class names of the model.
    pub classes: Vec<String>,
    /// Whether the true class is known.
    pub label: bool,
    /// The number of most probable classes; 0 for the first alone.
    pub top: usize,
    /// Whether the probabilities of all classes are written.
    pub all: bool,
    /// Whether there are conformal sets.
    pub set: bool,
}

/// The content of one column. In the record of an error, only `path`, `label` and `error` are filled.
#[derive(Serialize)]
#[serde(untagged)]
enum Value<'a> {
    Text(Option<Cow<'a, str>>),
    Number(Option<f64>),
    Names(Vec<Cow<'a, str>>),
    Ranked(Vec<Ranked<'a>>),
    ByClass(Object<'a>),
}

/// A class with its probability.
#[derive(Serialize)]
struct Ranked<'a> {
    class: &'a str,
    probability: f64,
}

/// Names with values, in order.
struct Object<'a>(Vec<(Cow<'a, str>, Value<'a>)>);

impl Serialize for Object<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Columns {
    /// Returns the number of classes that are written beside the most probable one.
    fn ranks(&self) -> usize {
        self.top.min(self.classes.len())
    }

    /// Returns the columns of CSV in order, which may hold texts and numbers alone.
    fn flat<'a>(&'a self, record: &'a Record) -> Object<'a> {
        let found = record.outcome.as_ref().ok();
        let ranked = found.map_or(Vec::new(), |prediction| prediction.top(self.ranks()));
        let mut columns = self.usual(record, printed_cell);
        for rank in 1..self.ranks() {
            let class = ranked.get(rank).map(|(class, _)| printed_cell(&self.classes[*class]));
            columns.push((format!("class_{}", rank + 1).into(), Value::Text(class)));
            let probability = ranked.get(rank).map(|(_, probability)| *probability);
            columns.push((format!("probability_{}", rank + 1).into(), Value::Number(probability)));
        }
        for (class, name) in self.classes.iter().enumerate().filter(|_| self.all) {
            let probability = found.map(|prediction| prediction.probabilities[class]);
            columns.push((format!("p_{}", printable(name)).into(), Value::Number(probability)));
        }
        if self.set {
            let names = record.set.join(BETWEEN);
            columns.push(("set".into(), Value::Text(Some(printed_cell(&names).into_owned().into()))));
        }
        columns.push(("error".into(), Value::Text(record.outcome.as_ref().err().map(|error| printed_cell(error)))));
        Object(columns)
    }

    /// Returns the columns of an object of JSON.
    fn nested<'a>(&'a self, record: &'a Record) -> Object<'a> {
        let found = record.outcome.as_ref().ok();
        let mut columns = self.usual(record, |text| Cow::Borrowed(text));
        let name = |class: usize| self.classes[class].as_str();
        if self.top > 0 {
            let ranked = found.map_or(Vec::new(), |prediction| prediction.top(self.ranks()));
            let ranked =
                ranked.into_iter().map(|(class, probability)| Ranked { class: name(class), probability }).collect();
            columns.push(("top".into(), Value::Ranked(ranked)));
        }
        if self.all {
            let all = found.map_or(&[][..], |prediction| &prediction.probabilities).iter().enumerate();
            let all = all.map(|(class, p)| (name(class).into(), Value::Number(Some(*p)))).collect();
            columns.push(("probabilities".into(), Value::ByClass(Object(all))));
        }
        if self.set {
            let names = record.set.iter().map(|name| name.as_str().into()).collect();
            columns.push(("set".into(), Value::Names(names)));
        }
        let error = record.outcome.as_ref().err().map(|error| error.as_str().into());
        columns.push(("error".into(), Value::Text(error)));
        Object(columns)
    }

    /// Returns the columns that all records have, without the last one; `text` writes names.
    fn usual<'a>(&self, record: &'a Record, text: fn(&str) -> Cow<str>) -> Vec<(Cow<'a, str>, Value<'a>)> {
        let found = record.outcome.as_ref().ok();
        let number = |get: fn(&Prediction) -> Option<f64>| Value::Number(found.and_then(get));
        let path = text(&path_text(&record.path)).into_owned();
        let mut columns = vec![("path".into(), Value::Text(Some(path.into())))];
        if self.label {
            columns.push(("label".into(), Value::Text(record.label.as_deref().map(text))));
        }
        columns.extend([
            ("class".into(), Value::Text(found.map(|prediction| text(&prediction.class)))),
            ("probability".into(), number(|prediction| Some(prediction.probability))),
            ("predictive_entropy".into(), number(|prediction| Some(prediction.predictive_entropy))),
            ("expected_entropy".into(), number(|prediction| Some(prediction.expected_entropy))),
            ("mutual_information".into(), number(|prediction| prediction.mutual_information)),
            ("disagreement".into(), number(|prediction| prediction.disagreement)),
        ]);
        columns
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
pub struct Writer<W: Write> {
    sink: Sink<W>,
    columns: Columns,
}

enum Sink<W: Write> {
    Csv { out: Box<csv::Writer<W>>, has_header: bool },
    JsonLines(W),
}

impl<W: Write> Writer<W> {
    /// Creates a writer to `out`. CSV starts with a header before the first record.
    pub fn new(out: W, format: Format, columns: Columns) -> Writer<W> {
        let sink = match format {
            Format::Csv => Sink::Csv { out: Box::new(csv::Writer::from_writer(out)), has_header: false },
            Format::JsonLines => Sink::JsonLines(out),
        };
        Writer { sink, columns }
    }

    /// Writes one record and flushes it.
    ///
    /// # Errors
    /// Fails if `out` fails, for example on a closed pipe or a full disk.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        let failed = || format!("cannot write the record of {}", record.path.display());
        let columns = &self.columns;
        match &mut self.sink {
            Sink::Csv { out, has_header } => {
                let Object(cells) = columns.flat(record);
                if !std::mem::replace(has_header, true) {
                    out.write_record(cells.iter().map(|(name, _)| name.as_ref())).with_context(failed)?;
                }
                let values: Vec<&Value> = cells.iter().map(|(_, value)| value).collect();
                out.serialize(values).with_context(failed)?;
                out.flush().with_context(failed)
            }
            Sink::JsonLines(out) => {
                let line = serde_json::to_string(&columns.nested(record)).with_context(failed)?;
                writeln!(out, "{}", printed_json(&line)).and_then(|()| out.flush()).with_context(failed)
            }
        }
    }
}
