//! Tasks: the loss by which a model learns the labels of samples, the measures of how well it has learnt them, and the part of its
//! predictions that is kept. [`of`]
//! gives the task of a head. Training, evaluation, exports and estimates know the trait [`Task`], and no task by name.

mod answers;
mod classes;
mod numbers;
mod task;

use crate::model::head::HeadSpec;

pub use answers::Answers;
pub use classes::{Classes, MixedLabels, Recipe};
pub use numbers::{Numbers, mixtures};
pub use task::{About, Batched, Loss, Outcome, Task, Validated, has_logits, is_answers, open};

/// Returns the task of a head.
pub fn of(head: &dyn HeadSpec) -> Box<dyn Task> {
    match head.answer_tokens() {
        Some(tokens) => Box::new(Answers { tokens }),
        None if head.noise().is_some() => Box::new(Numbers),
        None => Box::new(Classes),
    }
}
