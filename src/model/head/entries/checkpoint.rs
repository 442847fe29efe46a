//! `[head.checkpoint]`: the classifier that the checkpoint carries (timm, torchvision).

use anyhow::{Context, Result, ensure};

use crate::base::tensor::snapshot;
use crate::model::head::{Entry, Head, HeadSpec, Surroundings, Training};

pub static ENTRY: Entry = Entry {
    key: "checkpoint",
    about: "the checkpoint's own classifier: trained by `full`, frozen by `low-rank`",
    read: |_| Box::new(Own),
};

struct Own;

impl HeadSpec for Own {
    fn build(&self, surroundings: &Surroundings) -> Result<Head> {
        let own = surroundings.own.context(
            "head.checkpoint: this checkpoint has no classifier of its own: use [head.zero-shot] or [head.linear]",
        )?;
        let classes = own.weight.size()[0];
        ensure!(
            classes == surroundings.classes.len() as i64,
            "head.checkpoint: the checkpoint's classifier has {classes} classes, but the data set has {}: use [head.linear]",
            surroundings.classes.len()
        );
        Ok(Head {
            weight: snapshot(&own.weight),
            bias: snapshot(&own.bias),
            normalised: false,
            training: self.training(),
            texts: None,
        })
    }

    fn settle(self: Box<Self>, _: &str) -> Box<dyn HeadSpec> {
        self
    }

    fn training(&self) -> Training {
        Training::WithBackbone
    }

    fn resolved(&self) -> toml::Table {
        toml::Table::new()
    }
}
