//! `bella score` of files of answers.

use std::path::Path;

use crate::metrics::answers::{Level, Scored, evaluate, levels};
use crate::predictions::{Answers, answers};
use crate::results::store::Row;

/// Returns whether a file holds answers in words instead of logits.
pub fn is_answers(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == answers::ENDING)
}

/// Returns the row of a file of answers, with `who` at its start.
pub fn score(who: Row, answers: &Answers) -> Row {
    let mut row = who;
    row.push("members", answers.members.to_string());
    row.push("samples", answers.replies.len().to_string());
    for (column, value) in evaluate(&Scored::of_all(answers)) {
        row.push_number(column, value);
    }
    row
}

/// Returns how answers depend on the agreement of people, and that on the entropy, a row for each level.
pub fn levels_of(who: &Row, answers: &Answers) -> Vec<Row> {
    let row = |Level { by, level, questions, accuracy, confidence, entropy }: Level| {
        let mut row = who.clone();
        row.push("by", by);
        row.push("level", level.to_string());
        row.push("questions", questions.to_string());
        row.push_number("vqa_accuracy", accuracy);
        row.push_number("human_confidence", confidence);
        row.push_number("entropy", entropy);
        row
    };
    levels(&Scored::of_all(answers)).into_iter().map(row).collect()
}
