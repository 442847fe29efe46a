//! `[head.label-words]`: a language network's own output matrix at the tokens of the class names, so that the logits of the
//! classes are those of the words at the last token of the prompt.

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::model::backbone::Words;
use crate::model::head::{Entry, Head, HeadContext, HeadSpec, Training};
use crate::schema::settings;

pub static ENTRY: Entry = Entry {
    key: "label-words",
    about: "a language network's logits of the class names, each of which is one token: trained by `full` and \
            `last-layer`, adapted by `low-rank` with the target `lm_head`",
    read: |reader| Box::new(LabelWords::read(reader)),
};

settings! {
    struct LabelWords {
        /// Whether a space in front belongs to each word, as byte-level tokenizers (Llama 3, Qwen) have it.
        leading_space: bool = false;
    }
}

impl HeadSpec for LabelWords {
    fn build(&self, context: &HeadContext) -> Result<Head> {
        let Words { tokenizer, base, logit_cap } = context.words.context(
            "head.label-words: this checkpoint is no language network: use [head.zero-shot], [head.linear] or \
             [head.checkpoint]",
        )?;
        let mut ids = Vec::new();
        for word in context.classes {
            let shown = if self.leading_space { format!(" {word}") } else { word.clone() };
            let id = tokenizer.token_of(&shown).context("head.label-words")?;
            let twice = ids.iter().position(|known| *known == i64::from(id));
            ensure!(
                twice.is_none(),
                "head.label-words: the label words `{word}` and `{}` are the same token",
                twice.map_or("", |at| &context.classes[at])
            );
            ids.push(i64::from(id));
        }
        let output = base.get("lm_head.weight").context(
            "head.label-words: the network has no output matrix (lm_head): use [head.linear], or [head.checkpoint] where the folder has a classifier",
        )?;
        let rows = Tensor::from_slice(&ids);
        let weight = output.index_select(0, &rows).to_kind(Kind::Float);
        let bias = Tensor::zeros([ids.len() as i64], (Kind::Float, weight.device()));
        Ok(Head { rows: Some(rows), cap: logit_cap, ..Head::new(weight, bias, self.training()) })
    }

    fn training(&self) -> Training {
        Training::OfNetwork
    }
}
