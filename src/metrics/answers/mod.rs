//! Metrics of free answers to questions that several people have answered: the official accuracy of visual question
//! answering and that of EvalAI, exact match, and how uncertain the network was about right and about wrong answers.

mod scored;
mod vqa;

use std::collections::BTreeSet;

use scored::mean;

use crate::metrics::{Better, Column, Unit};

pub use scored::{Answered, Level, Scored, levels};
pub use vqa::{accuracy, evalai_accuracy, evalai_wording, human_confidence};

/// A metric of answers.
pub struct AnswerMetric {
    /// The column over all questions; `_` and the type of answers follow for one type.
    pub key: &'static str,
    /// The name in figures.
    pub short: &'static str,
    /// The formula and its conventions.
    pub definition: &'static str,
    pub unit: Unit,
    pub better: Better,
    /// The value; `None` if no question defines it.
    pub eval: fn(&[&Scored]) -> Option<f64>,
}

/// Every metric of answers.
pub static ANSWER_METRICS: &[AnswerMetric] = &[
    AnswerMetric {
        key: "vqa_accuracy",
        short: "VQA accuracy",
        definition: "official accuracy: mean over ten subsets of nine people of min(1, k / 3) for k equal answers",
        unit: Unit::Fraction,
        better: Better::Higher,
        eval: |all| mean(all.iter().map(|one| one.accuracy)),
    },
    AnswerMetric {
        key: "evalai_accuracy",
        short: "EvalAI accuracy",
        definition: "the same after EvalAI's change of every wording, also where people agree",
        unit: Unit::Fraction,
        better: Better::Higher,
        eval: |all| mean(all.iter().map(|one| one.evalai)),
    },
    AnswerMetric {
        key: "exact_match",
        short: "Exact match",
        definition: "share of right answers, whose official accuracy is 1",
        unit: Unit::Fraction,
        better: Better::Higher,
        eval: |all| mean(all.iter().map(|one| f64::from(u8::from(one.is_right())))),
    },
    AnswerMetric {
        key: "entropy_right",
        short: "Entropy of right answers",
        definition: "mean over right answers of the mean entropy of their tokens",
        unit: Unit::Nats,
        better: Better::Lower,
        eval: |all| mean(all.iter().filter(|one| one.is_right()).filter_map(|one| one.entropy)),
    },
    AnswerMetric {
        key: "entropy_wrong",
        short: "Entropy of wrong answers",
        definition: "mean over other answers of the mean entropy of their tokens",
        unit: Unit::Nats,
        better: Better::Higher,
        eval: |all| mean(all.iter().filter(|one| !one.is_right()).filter_map(|one| one.entropy)),
    },
    AnswerMetric {
        key: "mi_right",
        short: "MI of right answers",
        definition: "mean over right answers of the mean mutual information of their tokens; empty for one member",
        unit: Unit::Nats,
        better: Better::Lower,
        eval: |all| mean(all.iter().filter(|one| one.is_right()).filter_map(|one| one.mutual_information)),
    },
    AnswerMetric {
        key: "mi_wrong",
        short: "MI of wrong answers",
        definition: "mean over other answers of the mean mutual information of their tokens; empty for one member",
        unit: Unit::Nats,
        better: Better::Higher,
        eval: |all| mean(all.iter().filter(|one| !one.is_right()).filter_map(|one| one.mutual_information)),
    },
];

/// Returns the columns of all metrics over all answers, then those of each type of answers, with their values.
pub fn evaluate(all: &[Scored]) -> Vec<(String, Option<f64>)> {
    let kinds: BTreeSet<&str> = all.iter().map(|one| one.kind.as_str()).filter(|kind| !kind.is_empty()).collect();
    let mut found = values("", &all.iter().collect::<Vec<_>>());
    for kind in kinds {
        let of_kind: Vec<&Scored> = all.iter().filter(|one| one.kind == kind).collect();
        found.extend(values(kind, &of_kind));
    }
    found
}

fn values(kind: &str, of: &[&Scored]) -> Vec<(String, Option<f64>)> {
    let questions = (column("questions", kind), Some(of.len() as f64));
    let values = ANSWER_METRICS.iter().map(|metric| (column(metric.key, kind), (metric.eval)(of)));
    if kind.is_empty() { values.collect() } else { std::iter::once(questions).chain(values).collect() }
}

/// Returns the columns over all answers.
pub fn columns() -> Vec<&'static str> {
    ANSWER_METRICS.iter().map(|metric| metric.key).collect()
}

/// Returns the column of a metric for one type of answers, such as `exact_match_yes_no`.
fn column(key: &str, kind: &str) -> String {
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' };
    if kind.is_empty() { key.to_string() } else { format!("{key}_{}", kind.chars().map(plain).collect::<String>()) }
}

/// Returns the meaning of a column of answers.
pub fn of_column(name: &str) -> Option<Column> {
    let fits = |metric: &&AnswerMetric| {
        name.strip_prefix(metric.key).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    };
    let AnswerMetric { short, definition, unit, better, .. } = *ANSWER_METRICS.iter().find(fits)?;
    Some(Column { short, definition, unit, better })
}
