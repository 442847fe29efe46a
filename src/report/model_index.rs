//! The results of a card as the Hub reads them: the entry `model-index` of its front matter, which `huggingface_hub` parses into one
//! `EvalResult` a metric.

use std::fmt::Write;

use crate::metrics::{self, Average};
use crate::results::store::Table;

/// The metrics of classes that are listed, of averaged probabilities; those of numbers are listed as tables show them.
const METRICS: [&str; 3] = ["accuracy", "nll", "ece"];

/// Returns the lines of `model-index` for the rows of a run; empty without rows that have one of the metrics.
pub fn of(table: &Table, name: &str, task: &str) -> String {
    let results: String = (0..table.rows.len()).map(|row| result(table, row, task)).collect();
    if results.is_empty() {
        return String::new();
    }
    format!("model-index:\n- name: {}\n  results:\n{results}", quoted(name))
}

/// Returns the entry of a row: task, data set with its condition as the config, and metrics.
fn result(table: &Table, row: usize, task: &str) -> String {
    let cell = |column: &str| table.get(row, column).unwrap_or_default();
    let (set, condition) = (cell("set"), cell("condition"));
    let mut metrics = String::new();
    let of_classes =
        METRICS.map(|key| (key, format!("{key}_{}", Average::Probability.suffix()), "of averaged probabilities"));
    let of_numbers = metrics::numbers::shown_columns().map(|key| (key, key.to_string(), "of the mixture of members"));
    for (key, column, of) in of_classes.into_iter().chain(of_numbers) {
        let Some(value) = cell(&column).parse::<f64>().ok().filter(|value| value.is_finite()) else { continue };
        let short = metrics::of_column(&column).map_or(key, |column| column.short);
        let words = [short, of, cell("predictive")].join(" ");
        let _ = write!(metrics, "    - type: {key}\n      value: {value:?}\n      name: {}\n", quoted(words.trim()));
    }
    if metrics.is_empty() {
        return metrics;
    }
    let named = if condition.is_empty() { set.to_string() } else { format!("{set} ({condition})") };
    format!(
        "  - task:\n      type: {task}\n    dataset:\n      name: {}\n      type: {}\n      config: {}\n    metrics:\n{metrics}",
        quoted(&named),
        quoted(set),
        quoted(condition)
    )
}

/// Returns a text in double quotes, as YAML and JSON have it.
fn quoted(text: &str) -> String {
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
        assert_eq!(of(&table, "my: run", "image-classification"), expected);
        assert_eq!(of(&Table::default(), "x", "image-classification"), "");
    }
}
