//! Metrics of free answers to questions that several people have answered: the official accuracy of visual question
//! answering and that of EvalAI, exact match, and how uncertain the network was about right and about wrong answers.

mod list;
mod scored;
mod vqa;

pub use list::{ANSWER_METRICS, AnswerMetric, columns, evaluate, of_column};
pub use scored::{Answered, Level, Scored, levels};
pub use vqa::{accuracy, evalai_accuracy, evalai_wording, human_confidence};
