//! `[head.checkpoint]`: the classifier that the checkpoint carries (timm, torchvision, transformers).

use anyhow::{Context, Result, bail, ensure};

use crate::base::tensor::snapshot;
use crate::model::folder::texts::{Agreement, class_names};
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

/// Checks that the classifier's classes are the data set's, as far as the checkpoint's folder names them.
fn check_order(context: &HeadContext) -> Result<()> {
    let (path, data) = (context.checkpoint.path, context.classes);
    let Some(names) = class_names(path).filter(|names| names.len() == data.len()) else { return Ok(()) };
    match Agreement::of(&names, data) {
        Agreement::Same => {}
        Agreement::OtherOrder(ordered) => bail!(
            "head.checkpoint: {} has the data set's classes in another order: set classes = {} in the data set's table (labels in [data.jsonl])",
            path.display(),
            toml::Value::from(ordered)
        ),
        Agreement::OtherNames(class) => tracing::warn!(
            "head.checkpoint: class {class} is `{}` in the checkpoint's folder and `{}` in the data set: they are taken for the same",
            names[class],
            data[class]
        ),
    }
    Ok(())
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
        check_order(context)?;
        Ok(Head::new(snapshot(&own.weight), snapshot(&own.bias), self.training()))
    }

    fn training(&self) -> Training {
        Training::WithBackbone
    }
}
