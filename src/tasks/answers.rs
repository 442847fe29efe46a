//! Free answers to questions: learnt token by token, and written by all members together.

use anyhow::{Context, Result, bail};
use tch::Tensor;

use super::{About, Batched, Loss, Outcome, Task, Validated};
use crate::base::logging;
use crate::data::batches::{SampleSet, Samples};
use crate::metrics::Metric;
use crate::model::head::{Head, tokens_of_answers};
use crate::model::network::{Prompted, Weights};
use crate::model::{Input, Wording};
use crate::predict::Predictor;
use crate::predict::generate::{Stop, Written};
use crate::predictions::answers::ENDING;
use crate::predictions::{Answers as Saved, Reply, Token};

/// The bytes of an answer in the saved predictions: ten answers of people, and about three tokens with their numbers and the most
/// probable ones.
const BYTES: u64 = 1_000;

/// Answers of at most `tokens` tokens.
pub struct Answers {
    pub tokens: usize,
}

impl Loss for Answers {
    /// Returns −log p(answer | question) for answers `[q, B, A, 2]`, from hidden states `[p, B, T, d]`.
    fn losses(&self, head: &Head, weights: &Weights, features: &Tensor, labels: &Tensor) -> Tensor {
        tokens_of_answers(weights, features, labels, head.cap)
    }
}

impl Task for Answers {
    fn learnt(&self, _: usize) -> String {
        "free answers".to_string()
    }

    fn names(&self, _: &[String]) -> String {
        "none: it writes answers".to_string()
    }

    /// Returns the NLL of averaged probabilities alone, which is all that compares epochs of answers.
    fn validate(&self, predictor: &Predictor, held_out: &Batched, _: &Metric) -> Result<Validated> {
        let Batched { group, set, indices, batch_size } = *held_out;
        let nll = predictor.answer_loss(group, set, indices, batch_size)?;
        Ok(Validated { nll: Some(nll), criterion: Some(nll), ..Validated::default() })
    }

    fn predict(&self, predictor: &Predictor, tests: &Batched, about: About) -> Result<Box<dyn Outcome>> {
        let words = predictor.model.preparation.wording().context("this network answers no questions")?;
        if !predictor.has_weights() {
            bail!("linearised logits write no answers: choose another predictive");
        }
        let Batched { group, set, indices, batch_size } = *tests;
        let stop = Stop { tokens: self.tokens, ends: words.ends() };
        let bar = logging::bar(indices.len() as u64, "answering");
        let texts = predictor.shared_texts(group, Samples { set, indices }, batch_size, stop, &bar)?;
        bar.finish_and_clear();
        let one = |(index, written): (&u32, Vec<Written>)| {
            let label = set.split.labels[*index as usize] as usize;
            let kind = about.classes.get(label).cloned().unwrap_or_default();
            reply(set, *index as usize, kind, &written, words)
        };
        let replies = indices.iter().zip(texts).map(one).collect::<Result<_>>()?;
        Ok(Box::new(Saved { members: predictor.members(), metadata: about.metadata, replies }))
    }

    /// Returns the logits of all tokens after each prompt, `[m, B, V]`.
    fn logits(&self, predictor: &Predictor, input: &Input) -> Result<Tensor> {
        let model = predictor.model;
        let writer = model.network.autoregressive().context("this network writes no tokens")?;
        let prompts = model.prepared(input)?;
        let one = |member: usize| {
            let weights = predictor.weights(member..member + 1)?;
            let Prompted { features, .. } = writer.read(&weights, &prompts, 0);
            Ok(writer.token_logits(&weights, &features))
        };
        let all = (0..predictor.members()).map(one).collect::<Result<Vec<_>>>()?;
        Ok(Tensor::cat(&all, 0))
    }

    fn ending(&self) -> &'static str {
        ENDING
    }

    fn written(&self) -> Option<usize> {
        Some(self.tokens)
    }

    fn has_classes(&self) -> bool {
        false
    }

    fn only_clean(&self) -> Option<&'static str> {
        Some("this set has questions")
    }

    fn saved_bytes(&self, _: u64, _: u64) -> u64 {
        BYTES
    }
}

/// Returns the texts that were written after a question, whose answer is of the type `kind`.
fn reply(set: &SampleSet, index: usize, kind: String, written: &[Written], words: &dyn Wording) -> Result<Reply> {
    let answers = &set.split.answers[index];
    let ids: Vec<u32> = written.iter().map(|one| one.id).collect();
    let token = |one: &Written| -> Result<Token> {
        let Written { id, probability, entropy, mutual_information, ref top } = *one;
        let (token, top) = (words.text(&[id])?, top.clone());
        Ok(Token { token, id, probability, entropy, mutual_information, top })
    };
    Ok(Reply {
        question_id: answers.question,
        answer: words.text(&ids)?.trim().to_string(),
        answer_type: kind,
        people: answers.people.clone(),
        tokens: written.iter().map(token).collect::<Result<_>>()?,
    })
}
