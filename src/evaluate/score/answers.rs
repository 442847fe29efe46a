//! `bella score` of files of answers.

use crate::metrics::answers::{Level, Scored, levels};
use crate::predictions::Answers;
use crate::results::store::Row;

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
