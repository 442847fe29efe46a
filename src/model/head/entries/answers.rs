//! `[head.answers]`: the whole output matrix of a language network, which learns and writes answers token by token.

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::{capped, wide};
use crate::data::Medium;
use crate::model::families::OUTPUT;
use crate::model::head::{Entry, Head, HeadContext, HeadSpec, Training};
use crate::model::network::Weights;
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "answers",
    about: "free answers to questions, learnt and written token by token by the network's own output matrix: adapted by \
            `low-rank` with the target `lm_head`, trained by `full`",
    read: |reader| Box::new(Answers::read(reader)),
};

settings! {
    struct Answers {
        /// Most tokens of an answer that is written.
        tokens: usize = 16, in 1..=4096;
    }
}

impl HeadSpec for Answers {
    fn build(&self, context: &HeadContext) -> Result<Head> {
        ensure!(
            context.medium == Medium::Questions,
            "head.answers: this checkpoint reads no questions about images: give a folder of LLaVA or PaliGemma, or another head"
        );
        let options = (Kind::Float, Device::Cpu);
        // The output matrix stays with the network's weights, so the head has no class of its own.
        let (weight, bias) = (Tensor::zeros([0, context.width], options), Tensor::zeros([0], options));
        let cap = context.words.and_then(|words| words.logit_cap);
        Ok(Head { cap, ..Head::new(weight, bias, self.training()) })
    }

    fn training(&self) -> Training {
        Training::Tokens
    }

    fn answer_tokens(&self) -> Option<usize> {
        Some(self.tokens)
    }
}

/// Returns −log p(answer | question), summed over the tokens of each answer, `[p', B]`, in f32 or wider. `hidden: [p, B, T, d]` are
/// the hidden states at all tokens; `targets: [q, B, A, 2]` are places and the tokens that follow there, of which −1 is none. Logits
/// have the bound `cap`, if there is one.
pub fn tokens_of_answers(weights: &Weights, hidden: &Tensor, targets: &Tensor, cap: Option<f64>) -> Tensor {
    let own = token_log_probabilities(weights, hidden, targets, cap);
    -own.sum_dim_intlist([2i64].as_slice(), false, None::<Kind>)
}

/// Returns the log-probabilities of the tokens of answers, `[p', B, A]`, in f32 or wider; 0 where there is no token.
pub fn token_log_probabilities(weights: &Weights, hidden: &Tensor, targets: &Tensor, cap: Option<f64>) -> Tensor {
    let (places, tokens) = (targets.select(3, 0), targets.select(3, 1));
    let (particles, width) = (hidden.size()[0].max(targets.size()[0]), hidden.size()[3]);
    let index = places.unsqueeze(3).expand([particles, -1, -1, width], false);
    let read = hidden.expand([particles, -1, -1, -1], false).gather(2, &index, false);
    let logits = weights.linear(OUTPUT).forward(&read);
    let logits = cap.map_or_else(|| logits.shallow_clone(), |cap| capped(&logits, cap));
    let kind = wide(logits.kind());
    let all = logits.to_kind(kind).log_softmax(-1, kind);
    let index = tokens.clamp_min(0).unsqueeze(3).expand([all.size()[0], -1, -1, 1], false);
    all.gather(3, &index, false).squeeze_dim(3) * tokens.ge(0)
}
