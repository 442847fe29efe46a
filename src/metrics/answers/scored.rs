//! Answers, and the scores of each.

use super::vqa::{accuracy, evalai_accuracy, human_confidence};
use crate::predictions::{Answers, Reply, Token};

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
pub(super) fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0usize);
    for value in values {
        sum += value;
        count += 1;
    }
    (count > 0).then(|| sum / count as f64)
}
