//! Questions in the Hub's tables: a row has a question, its answers as a list of structs, and its image, which other rows have, too.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Annotation, Answer, Listed, Question, Vqa};
use crate::data::lines::Line;
use crate::data::read::tables::Tables;
use crate::data::{Request, Split, SplitName};

/// The columns that are read beside the image and the answer to learn.
const COLUMNS: [&str; 5] = ["question_id", "image_id", "question", "answer_type", "answers"];

impl Vqa {
    /// Opens the tables of a split; `None` if the root is not in the form of the Hub, or if bella does not know this form.
    pub(super) fn tables(&self, split: SplitName) -> Result<Option<Tables>> {
        self.of.hub.map_or(Ok(None), |hub| hub.open(&self.root, split))
    }

    /// Returns the questions of tables. An image is that of the first row that has its number.
    pub(super) fn of_tables(&self, tables: Tables, split: SplitName, request: &Request) -> Result<Split> {
        let hub = self.of.hub.context("no form of the Hub")?;
        let columns = [&COLUMNS[..], &[hub.label]].concat();
        let (mut all, mut row_of) = (Listed::default(), BTreeMap::new());
        let lines = tables.lines(&columns)?;
        for (row, line) in (0_u32..).zip(&lines) {
            let (question, annotation) = (question(line)?, annotation(line, hub.label)?);
            row_of.entry(question.image_id).or_insert(row);
            if let Some(label) = self.label(&annotation, line)? {
                all.push(question, annotation, label);
            }
        }
        let listed = |numbers: Vec<u64>| {
            let rows: Vec<u32> = numbers.iter().map(|number| row_of[number]).collect();
            let mut listing = tables.listing(hub.image, vec![0; lines.len()])?;
            listing.select(&rows);
            Ok(listing)
        };
        self.split(all, split, listed, request)
    }
}

fn question(line: &Line) -> Result<Question> {
    Ok(Question {
        image_id: number(line, "image_id")?,
        question: line.text("question")?,
        question_id: number(line, "question_id")?,
    })
}

fn annotation(line: &Line, target: &str) -> Result<Annotation> {
    let given = line.get("answers")?.as_array().with_context(|| format!("{line}: `answers` must be a list"))?;
    let answer = |one: &Value| {
        let text = one.get("answer").and_then(Value::as_str);
        let text = text.with_context(|| format!("{line}: `answers` must be structs with a text `answer`"))?;
        Ok(Answer { answer: text.to_string() })
    };
    Ok(Annotation {
        question_id: number(line, "question_id")?,
        answer_type: line.text("answer_type")?,
        multiple_choice_answer: line.find(target).map(|_| line.text(target)).transpose()?,
        answers: given.iter().map(answer).collect::<Result<_>>()?,
    })
}

/// Returns a number, which some tables write as a text.
fn number(line: &Line, column: &str) -> Result<u64> {
    let text = line.text(column)?;
    text.parse().with_context(|| format!("{line}: `{column}` is {text}: must be a whole number"))
}
