//! A model card: what a run is, how it was trained, what was measured of it, and how to load it, in Markdown. Its front matter has the
//! results as the Hub reads them: the entry `model-index`, which `huggingface_hub` parses into one `EvalResult` a metric.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::Result;

use super::tables::{RenderedTable, metric_columns};
use crate::base::outside::escape_markdown;
use crate::experiment::Experiment;
use crate::methods::METHODS;
use crate::metrics::{self, Average};
use crate::model::Normalize;
use crate::results::images::distinguish;
use crate::results::runs::{Summary, rows};
use crate::results::store::Table;
use crate::results::table::texts;
use crate::run::Record;

/// The columns that name a row.
const NAMES: [&str; 4] = ["set", "condition", "predictive", "samples"];

/// Tables of settings that a reader wants to see. Folders of this machine are in none of their keys.
const SETTINGS: [&str; 6] = ["seed", "head", "subspace", "method", "optimizer", "train"];

/// What a card is about.
pub struct Card<'a> {
    pub experiment: &'a Experiment,
    pub run: &'a Summary,
    pub record: &'a Record,
    pub classes: &'a [String],
    /// What of the run leaves, where that is not all of it, such as `particle 1`.
    pub part: Option<String>,
}

impl Card<'_> {
    /// Returns the card without the lines that load the model, which come last.
    ///
    /// # Errors
    /// Fails if the results of the run are damaged.
    pub fn text(&self) -> Result<String> {
        let mut table = Table::default();
        rows(&self.run.folder)?.iter().for_each(|row| table.append(row));
        distinguish(&mut [&mut table]);
        let mut text = self.head(&table);
        text += &self.results(&table);
        if self.experiment.task.has_classes() {
            text += &calibration(&table);
        }
        text += &self.training();
        Ok(text)
    }

    fn head(&self, table: &Table) -> String {
        let Experiment { name, checkpoint, data, task, .. } = self.experiment;
        let file = || checkpoint.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let shown = escape_markdown(&checkpoint.path.name().unwrap_or_else(file));
        let key = self.experiment.training.as_ref().map_or("", |training| training.method.key.as_str());
        let about = METHODS.iter().find(|method| method.key == key).map_or("", |method| method.about);
        let (particles, classes) = (self.record.particles, self.classes);
        let pipeline = task.pipeline(checkpoint.medium());
        let learnt = task.learnt(classes.len());
        let index = model_index(table, name, pipeline);
        let mut text =
            format!("---\n# The licence is yours to choose.\nlicense:\npipeline_tag: {pipeline}\n{index}---\n\n");
        let _ = write!(
            text,
            "# {}\n\n{particles} particles of `{shown}` for {learnt}, made by bella {} with `{key}` ({about}). Run `{}`.\n",
            escape_markdown(name),
            self.record.bella_version,
            self.run.folder.id()
        );
        if let Some(part) = &self.part {
            let _ = write!(text, "\nThis is {part}; the numbers below are those of all particles together.\n");
        }
        let sha256 = checkpoint.sha256().map_or("unknown".into(), str::to_string);
        let pixels = checkpoint.normalize.map_or("none: the network reads texts".into(), |Normalize { mean, std }| {
            let (filter, crop_pct) = (checkpoint.interpolation, checkpoint.crop_pct);
            format!("in [0, 1], minus {mean:?}, divided by {std:?}; resized by {filter}, crop_pct {crop_pct}")
        });
        let facts = [
            ("checkpoint", format!("`{shown}`, SHA-256 `{sha256}`")),
            ("data", format!("`{}`", data.label)),
            ("classes", task.names(classes)),
            ("pixels", pixels),
        ];
        text += "\n| | |\n|---|---|\n";
        let line = |(what, fact): &(&str, String)| format!("| {what} | {} |\n", escape_markdown(fact));
        text + &facts.iter().map(line).collect::<String>()
    }

    fn results(&self, table: &Table) -> String {
        if table.rows.is_empty() {
            return "\n## Results\n\nThis run has not been evaluated yet: `bella eval`.\n".to_string();
        }
        let metrics = metric_columns(table, |shown| shown.tables);
        let has_classes = self.experiment.task.has_classes();
        let legend = if has_classes { Average::legend() } else { String::new() };
        format!("\n{}", chosen(table, "Results", &legend, &metrics).to_markdown())
    }

    fn training(&self) -> String {
        let Record { epochs, train_samples, validation_samples, wall_seconds, device, precision, .. } = self.record;
        let medium = self.experiment.checkpoint.medium();
        let mut text = String::from("\n## Training\n\n");
        let _ = match epochs {
            0 => writeln!(text, "The particles were trained elsewhere."),
            _ => writeln!(
                text,
                "{epochs} epochs on {train_samples} {medium} in {wall_seconds:.0} s on {device} ({precision}); {validation_samples} {medium} \
                 were held out. {} parameters of each particle were trained; epoch {} is the one that is kept.",
                self.record.parameters_per_particle, self.record.selected_epoch
            ),
        };
        text += "\n```toml\n";
        let belongs = |key: &str| SETTINGS.contains(&key.split('.').next().unwrap_or_default());
        let settings: BTreeMap<_, _> =
            self.run.settings.iter().filter(|(key, value)| belongs(key) && !is_path(value)).collect();
        text += &settings.iter().map(|(key, value)| format!("{key} = {}\n", quoted(value))).collect::<String>();
        text + "```\n"
    }
}

/// Returns whether a setting names a place on this machine.
fn is_path(value: &str) -> bool {
    value.contains('/') || value.contains('\\')
}

/// Returns a setting as TOML writes it.
fn quoted(value: &str) -> String {
    let plain = value.parse::<f64>().is_ok() || ["true", "false"].contains(&value) || value.starts_with(['[', '{']);
    if plain { value.to_string() } else { format!("{value:?}") }
}

/// Returns what temperatures make of calibration.
fn calibration(table: &Table) -> String {
    let scaled = |name: &&String| metrics::calibrators::is_column(name);
    let scaled: Vec<String> = table.columns.iter().filter(scaled).cloned().collect();
    let filled = |row: usize, column: &str| table.get(row, column).is_some_and(|cell| !cell.is_empty());
    let fitted = |row: usize| scaled.iter().any(|column| filled(row, column));
    let mut own = table.clone();
    let mut row = 0;
    own.rows.retain(|_| {
        row += 1;
        fitted(row - 1)
    });
    if own.rows.is_empty() {
        return "\n## Calibration\n\nThe numbers above are those of the model as it is; no calibrator was fitted (`bella eval \
                --calibrate`).\n"
            .to_string();
    }
    let caption = "Numbers as they are, and with what was fitted on held-out images: a temperature (`ts`) or another calibrator (`vs`, `ms`, `dir`, `iso`, `hist`).";
    let raw = Average::ALL.map(|average| format!("ece_{}", average.suffix()));
    let columns: Vec<String> = raw.into_iter().chain(scaled).collect();
    format!("\n{}", chosen(&own, "Calibration", caption, &columns).to_markdown())
}

/// Returns the columns that name rows, and some more, as a table.
fn chosen(table: &Table, title: &str, caption: &str, columns: &[String]) -> RenderedTable {
    let all: Vec<&str> = NAMES.into_iter().chain(columns.iter().map(String::as_str)).collect();
    let texts = texts(table, &all);
    RenderedTable::of_texts(&title.to_lowercase(), title, caption, texts)
}

/// The metrics of classes that are listed, of averaged probabilities; those of numbers are listed as tables show them.
const INDEXED: [&str; 3] = ["accuracy", "nll", "ece"];

/// Returns the lines of `model-index` for the rows of a run; empty without rows that have one of the metrics.
fn model_index(table: &Table, name: &str, task: &str) -> String {
    let results: String = (0..table.rows.len()).map(|row| index_entry(table, row, task)).collect();
    if results.is_empty() {
        return String::new();
    }
    format!("model-index:\n- name: {}\n  results:\n{results}", json_text(name))
}

/// Returns the entry of a row: task, data set with its condition as the config, and metrics.
fn index_entry(table: &Table, row: usize, task: &str) -> String {
    let cell = |column: &str| table.get(row, column).unwrap_or_default();
    let (set, condition) = (cell("set"), cell("condition"));
    let mut metrics = String::new();
    let of_classes =
        INDEXED.map(|key| (key, format!("{key}_{}", Average::Probability.suffix()), "of averaged probabilities"));
    let of_numbers = metrics::numbers::shown_columns().map(|key| (key, key.to_string(), "of the mixture of members"));
    for (key, column, of) in of_classes.into_iter().chain(of_numbers) {
        let Some(value) = cell(&column).parse::<f64>().ok().filter(|value| value.is_finite()) else { continue };
        let short = metrics::of_column(&column).map_or(key, |column| column.short);
        let words = [short, of, cell("predictive")].join(" ");
        let _ = write!(metrics, "    - type: {key}\n      value: {value:?}\n      name: {}\n", json_text(words.trim()));
    }
    if metrics.is_empty() {
        return metrics;
    }
    let named = if condition.is_empty() { set.to_string() } else { format!("{set} ({condition})") };
    format!(
        "  - task:\n      type: {task}\n    dataset:\n      name: {}\n      type: {}\n      config: {}\n    metrics:\n{metrics}",
        json_text(&named),
        json_text(set),
        json_text(condition)
    )
}

/// Returns a text in double quotes, as YAML and JSON have it.
fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::store::Row;

    /// `huggingface_hub.ModelCard(card).data.eval_results` (2.4.0) has these three results with task, data set, config, metric and value.
    #[test]
    fn a_row_is_what_the_hub_reads() {
        let mut table = Table::default();
        for (condition, accuracy) in [("clean", "0.9"), ("fgsm \"0.1\"", "")] {
            let mut row = Row::new();
            let cells = [("set", "digits"), ("condition", condition), ("accuracy_pm", accuracy), ("ece_pm", "0.02")];
            cells.into_iter().for_each(|(column, cell)| row.push(column, cell));
            table.append(&row);
        }
        let expected =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/model_index.yaml")).unwrap();
        assert_eq!(model_index(&table, "my: run", "image-classification"), expected);
        assert_eq!(model_index(&Table::default(), "x", "image-classification"), "");
    }
}
