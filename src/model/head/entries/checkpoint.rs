//! `[head.checkpoint]`: the classifier that the checkpoint carries (timm, torchvision, transformers).

use anyhow::{Context, Result, ensure};

use crate::base::tensor::snapshot;
use crate::hub::HEAD_FILE;
use crate::model::folder::home;
use crate::model::folder::texts::expect_order;
use crate::model::head::{Entry, Head, HeadContext, HeadSpec, Training};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "checkpoint",
    about: "the checkpoint's own classifier: trained by `full`, frozen by `low-rank`",
    read: |_| Box::new(Own),
};

settings! {
    struct Own;
}

impl HeadSpec for Own {
    fn build(&self, context: &HeadContext) -> Result<Head> {
        let own = context.own.context(
            "head.checkpoint: this checkpoint has no classifier of its own: use [head.zero-shot] or [head.linear]",
        )?;
        let classes = own.weight.size()[0];
        ensure!(
            classes == context.classes.len() as i64,
            "head.checkpoint: the checkpoint's classifier has {classes} classes, but the data set has {}: use [head.linear]",
            context.classes.len()
        );
        let beside = home(context.checkpoint.path).join(HEAD_FILE);
        if beside.is_file() {
            tracing::warn!(
                "head.checkpoint: reads the classifier among the weights, and not the one in {}, which is the trained one of a model that bella \
                 has exported: `bella import` of this folder with its checkpoint's config takes that one",
                beside.display()
            );
        }
        expect_order("head.checkpoint: ", context.checkpoint.path, context.classes)?;
        Ok(Head::new(snapshot(&own.weight), snapshot(&own.bias), self.training()))
    }

    fn training(&self) -> Training {
        Training::WithBackbone
    }
}
