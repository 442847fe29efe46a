//! `[head.answers]`: the whole output matrix of a language network, which learns and writes answers token by token.

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::data::Medium;
use crate::model::head::{Entry, Head, HeadContext, HeadSpec, Training};
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
            "head.answers: this checkpoint reads no questions about images: give a LLaVA folder, or another head"
        );
        let options = (Kind::Float, Device::Cpu);
        // The output matrix stays with the network's weights, so the head has no class of its own.
        let (weight, bias) = (Tensor::zeros([0, context.width], options), Tensor::zeros([0], options));
        Ok(Head { weight, bias, normalised: false, training: self.training(), rows: None, texts: None })
    }

    fn settle(self: Box<Self>, _: &str) -> Box<dyn HeadSpec> {
        self
    }

    fn training(&self) -> Training {
        Training::Tokens
    }

    fn answer_tokens(&self) -> Option<usize> {
        Some(self.tokens)
    }
}
