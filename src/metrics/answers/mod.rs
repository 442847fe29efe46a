//! Metrics of free answers to questions that several people have answered: the official accuracy of visual question
//! answering and that of EvalAI, exact match, and how uncertain the network was about right and about wrong answers.

mod levels;
mod list;
mod vqa;
mod words;

pub use levels::{Level, levels};
pub use list::{ANSWER_METRICS, AnswerMetric, columns, evaluate, of_column};
pub use vqa::{accuracy, evalai_accuracy, evalai_wording, human_confidence};

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
