//! Metrics of free answers to questions that several people have answered: the official accuracy of visual question
//! answering and that of EvalAI, exact match, and how uncertain the network was about right and about wrong answers. Beside
//! them, how the scores depend on the agreement of people, and people's confidence on the network's entropy (Figure 6 of Bella).

mod vqa;

use std::collections::BTreeSet;

use crate::metrics::{Better, Column, Unit};
use crate::predictions::{Answers, Reply, Token};

pub use vqa::{accuracy, evalai_accuracy, human_confidence};

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

/// A question with its answer and those of people.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answered {
    /// The type of the answer that people gave, such as `yes/no`.
    pub kind: String,
    pub answer: String,
    /// The answers of people, ten of them in the published sets.
    pub people: Vec<String>,
    /// The mean over the answer's tokens of the entropy of the next token, in nats; `None` if it is not known.
    pub entropy: Option<f64>,
    /// The mean over the answer's tokens of the mutual information between token and member, in nats; `None` for one member.
    pub mutual_information: Option<f64>,
}

impl Answered {
    /// Takes an answer of a file; the mutual information means something for several members only.
    fn of(reply: &Reply, several: bool) -> Answered {
        let mean = |of: fn(&Token) -> f64| mean(reply.tokens.iter().map(of));
        Answered {
            kind: reply.answer_type.clone(),
            answer: reply.answer.clone(),
            people: reply.people.clone(),
            entropy: mean(|token| token.entropy),
            mutual_information: mean(|token| token.mutual_information).filter(|_| several),
        }
    }
}

/// The scores of one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    pub kind: String,
    /// The official accuracy.
    pub accuracy: f64,
    /// The accuracy after EvalAI's change of the wording.
    pub evalai: f64,
    /// The share of people who gave the most common answer.
    pub confidence: f64,
    pub entropy: Option<f64>,
    pub mutual_information: Option<f64>,
}

impl Scored {
    /// Scores all answers of a file.
    pub fn of_all(answers: &Answers) -> Vec<Scored> {
        let several = answers.members > 1;
        answers.replies.iter().map(|reply| Scored::of(&Answered::of(reply, several))).collect()
    }

    /// Scores an answer.
    pub fn of(answered: &Answered) -> Scored {
        let Answered { kind, answer, people, entropy, mutual_information } = answered;
        Scored {
            kind: kind.clone(),
            accuracy: accuracy(answer, people),
            evalai: evalai_accuracy(answer, people),
            confidence: human_confidence(people),
            entropy: *entropy,
            mutual_information: *mutual_information,
        }
    }

    /// Returns whether the answer is right: its official accuracy is 1.
    pub fn is_right(&self) -> bool {
        self.accuracy > 1.0 - 1e-9
    }
}

/// Returns the mean; `None` of no values.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0usize);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}

/// The numbers of the answers on one level.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The quantity that the level bounds: `agreement`, `entropy up to` or `entropy above`.
    pub by: &'static str,
    /// The share of people who gave the most common answer, or a threshold of the entropy in nats.
    pub level: f64,
    pub questions: usize,
    /// The mean official accuracy; `None` without answers.
    pub accuracy: Option<f64>,
    /// The mean share of people who gave the most common answer.
    pub confidence: Option<f64>,
    /// The mean entropy.
    pub entropy: Option<f64>,
}

/// Returns the levels of agreement 0.1, 0.2, … 1, then the answers up to and above the thresholds 0.1 … 0.8 of the entropy.
/// Answers whose entropy is not known are on no level of it.
pub fn levels(all: &[Scored]) -> Vec<Level> {
    let tenth = |number: u32| f64::from(number) / 10.0;
    let agreeing = |level: f64| move |one: &Scored| (one.confidence - level).abs() < 0.05;
    let mut found: Vec<Level> = (1..=10).map(|n| Level::of("agreement", tenth(n), all, agreeing(tenth(n)))).collect();
    for threshold in (1..=8).map(tenth) {
        let up_to = |one: &Scored| one.entropy.is_some_and(|entropy| entropy <= threshold);
        let above = |one: &Scored| one.entropy.is_some_and(|entropy| entropy > threshold);
        found.push(Level::of("entropy up to", threshold, all, up_to));
        found.push(Level::of("entropy above", threshold, all, above));
    }
    found
}

impl Level {
    fn of(by: &'static str, level: f64, all: &[Scored], here: impl Fn(&Scored) -> bool) -> Level {
        let some: Vec<&Scored> = all.iter().filter(|one| here(one)).collect();
        Level {
            by,
            level,
            questions: some.len(),
            accuracy: mean(some.iter().map(|one| one.accuracy)),
            confidence: mean(some.iter().map(|one| one.confidence)),
            entropy: mean(some.iter().filter_map(|one| one.entropy)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parted_by_agreement_and_by_entropy() {
        let one = |accuracy: f64, confidence: f64, entropy: f64| Scored {
            kind: String::new(),
            accuracy,
            evalai: accuracy,
            confidence,
            entropy: Some(entropy),
            mutual_information: None,
        };
        let found = levels(&[one(1.0, 1.0, 0.05), one(0.3, 0.4, 0.3), one(0.9, 0.4, 0.9)]);
        let at = |by: &str, level: f64| found.iter().find(|one| one.by == by && one.level == level).unwrap();
        assert_eq!((at("agreement", 0.4).questions, at("agreement", 0.4).accuracy), (2, Some(0.6)));
        assert_eq!((at("agreement", 0.5).questions, at("agreement", 0.5).accuracy), (0, None));
        assert_eq!(at("entropy up to", 0.3).confidence, Some(0.7));
        assert_eq!((at("entropy above", 0.3).confidence, at("entropy above", 0.3).entropy), (Some(0.4), Some(0.9)));
    }
}
