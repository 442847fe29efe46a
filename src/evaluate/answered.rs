//! The evaluation of free answers: members write them together, they are saved with those of people, and scored.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{Condition, Evaluation, IMAGES};
use crate::data::batches::{SampleSet, TestImages};
use crate::metrics::answers::{Scored, evaluate};
use crate::model::Preparation;
use crate::model::language::Tokenizer;
use crate::predict::generate::{Stop, Written};
use crate::predictions::{Answers, Reply, Token};
use crate::results::store::Row;
use crate::run::open_answers;

impl Evaluation<'_> {
    /// Writes an answer to every question, saves the answers, and stores and returns the row of their scores.
    ///
    /// # Errors
    /// Fails if the members write no texts, if images cannot be read, if memory runs out, or if results cannot be written.
    pub fn answered(&self, images: &TestImages) -> Result<Row> {
        let started = Instant::now();
        let replies = self.replies(&images.set)?;
        let seconds = started.elapsed().as_secs_f64();
        let facts = [
            ("experiment", self.experiment.name.clone()),
            ("run", self.run.id()),
            ("set", self.set.clone()),
            ("condition", Condition::Clean.to_string()),
            ("predictive", self.predictive.clone()),
            (IMAGES, images.fingerprint.short()),
        ];
        let metadata = facts.map(|(key, value)| (key.to_string(), value)).into();
        let answers = Answers { members: self.predictor.members(), metadata, replies };
        if self.session.group.is_main() {
            answers.save(&self.answers_file(&answers))?;
        }
        let mut row = self.who();
        row.push("set", &self.set);
        Condition::Clean.describe(&mut row);
        row.push("members", answers.members.to_string());
        row.push("samples", answers.replies.len().to_string());
        row.push("images", images.fingerprint.short());
        for (column, value) in evaluate(&Scored::of_all(&answers)) {
            row.push_number(column, value);
        }
        self.add_cost(&mut row, answers.replies.len() as f64 / seconds);
        self.store(&row)?;
        Ok(row)
    }

    /// Returns the plain path, or, if that is taken by answers to other questions, one with the fingerprint of these.
    fn answers_file(&self, answers: &Answers) -> PathBuf {
        let fact = |of: &Answers, key: &str| of.metadata.get(key).cloned().unwrap_or_default();
        let [set, condition, predictive, images] =
            ["set", "condition", "predictive", IMAGES].map(|key| fact(answers, key));
        let plain = self.run.answers_of(&[&set, &condition, &predictive]);
        let taken = |path: &Path| open_answers(path).is_ok_and(|other| other.metadata != answers.metadata);
        let free = self.names_files || plain.is_file();
        if free && !taken(&plain) {
            return plain;
        }
        self.run.answers_of(&[&set, &condition, &predictive, &format!("images-{images}")])
    }

    /// Returns the answers to all questions, in order.
    fn replies(&self, set: &SampleSet) -> Result<Vec<Reply>> {
        let Preparation::Questions(tokenizer) = &self.session.model.preparation else {
            bail!("{}: this network answers no questions", self.set)
        };
        if !self.predictor.has_weights() {
            bail!("linearised logits write no answers: choose another predictive");
        }
        let tokens = self.experiment.head.spec.answer_tokens().context("this head writes no answers")?;
        let stop = Stop { tokens, end: tokenizer.tokenizer.end() };
        let all: Vec<u32> = (0..set.samples() as u32).collect();
        let bar = crate::base::logging::bar(all.len() as u64, "answering");
        let texts = self.predictor.shared_texts(&self.session.group, (set, &all), (self.batch_size, stop), &bar)?;
        bar.finish_and_clear();
        let one =
            |(index, written): (&u32, Vec<Written>)| self.reply(set, *index as usize, &written, &tokenizer.tokenizer);
        all.iter().zip(texts).map(one).collect()
    }

    fn reply(&self, set: &SampleSet, index: usize, written: &[Written], tokenizer: &Tokenizer) -> Result<Reply> {
        let (answers, label) = (&set.split.answers[index], set.split.labels[index] as usize);
        let ids: Vec<u32> = written.iter().map(|one| one.id).collect();
        let token = |one: &Written| -> Result<Token> {
            let Written { id, probability, entropy, mutual_information, ref top } = *one;
            let (token, top) = (tokenizer.text(&[id])?, top.clone());
            Ok(Token { token, id, probability, entropy, mutual_information, top })
        };
        Ok(Reply {
            question_id: answers.question,
            answer: tokenizer.text(&ids)?.trim().to_string(),
            answer_type: self.session.classes.get(label).cloned().unwrap_or_default(),
            people: answers.people.clone(),
            tokens: written.iter().map(token).collect::<Result<_>>()?,
        })
    }
}
