//! A language network as its config describes it, the entry of its kind, and what a model takes over of one that has been opened.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    EMBEDDING, Geometry, Language, OUTPUT, Opened, OutputMatrix, Tokenizer, described, is_language, open, parameters,
    settings, sizes,
};
use crate::data::Medium;
use crate::model::backbone::{self, Alike, Backbone, Held, Images, Opening, Parts, Setting, Words};
use crate::model::chat::Chat;
use crate::model::families::decoders::decoder;
use crate::model::kind::{
    END, Foreign, KindEntry, Making, Marks, OF_IMAGES, Outline, START, Size, SizeKeys, StandIn, TextSizes, TokenizerAt,
};
use crate::model::network::{Network, Parameters, Rows};
use crate::model::preparation::Preparation;
use crate::model::values::Values;

pub static KIND: KindEntry = KindEntry {
    word: "language",
    open: opened,
    lies_at: is_language,
    reads: |model_type| decoder(model_type).is_some(),
    is_folder: true,
    outline: Ok(|values, tokens, _| Ok(Box::new(described(values, tokens)?))),
    stand_in: StandIn::Folder {
        marks: Marks::Start,
        write: |config, making| {
            let geometry = described(&Values::new(Path::new("config.json"), config.clone()), None)?.geometry;
            write_made(config, &geometry, making)
        },
    },
    bench: &[
        "checkpoint.kind=language",
        "head.label-words={}",
        "data.jsonl={root=\"texts\", prompt=\"{text}\", labels=[\"no\", \"yes\"]}",
    ],
    medium: |_| Medium::Texts,
    tokenizer: TokenizerAt::Folder,
    foreign: |_| Foreign {
        keys: OF_IMAGES,
        why: "means nothing to a language network, whose config.json says everything: leave it out",
    },
};

/// Opens the language network of a config.
fn opened<'a>(opening: &Opening<'a>) -> Result<backbone::Opened<'a>> {
    let opened = open(opening.path, opening.max_tokens, opening.quantize)?;
    let tokenizer = opened.tokenizer.in_chat(opening.chat.cloned());
    Ok(backbone::Opened::alone(Opened { tokenizer, ..opened }))
}

/// A language network that bella runs itself.
impl Backbone for Opened {
    fn held(&self) -> Held<'_> {
        Held { network: &self.language, base: &self.base, names: Some(&self.names), head: self.head.as_ref() }
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn words(&self) -> Option<Words<'_>> {
        let logit_cap = self.language.geometry.traits.logit_cap;
        Some(Words { tokenizer: &self.tokenizer, base: &self.base, logit_cap })
    }

    fn settings(&self) -> Vec<Setting> {
        settings(&self.language.geometry, self.language.tokens)
    }

    fn read_like(&self, path: &Path) -> Result<Alike> {
        parameters(path, self.language.tokens)
    }

    fn announce(&self) -> Option<f64> {
        let (geometry, tokens) = (&self.language.geometry, self.language.tokens);
        tracing::info!(
            "checkpoint: {} ({}), {} parameters, width {}, {} blocks, {} heads ({} of keys), prompts of at most {tokens} tokens",
            geometry.family.model_type,
            geometry.family.about,
            self.base.count(),
            geometry.width,
            geometry.blocks,
            geometry.heads,
            geometry.key_heads
        );
        None
    }

    fn into_parts(self: Box<Self>, _: &Images) -> Result<Parts> {
        Ok(Parts { network: Box::new(self.language), base: self.base, preparation: Box::new(self.tokenizer) })
    }
}

/// Writes the sizes of a stand-in into the table of a language network. Keys of a tiny one have at least 16 channels, since low-rank
/// updates of usual ranks need as many.
///
/// # Errors
/// Fails if the network knows too few tokens.
pub fn write_made(table: &mut Value, geometry: &Geometry, making: &Making) -> Result<()> {
    let keys = geometry.family.spelling;
    let Geometry { vocabulary, width, mlp, blocks, heads, .. } = *geometry;
    let sizes = TextSizes { vocabulary, width, mlp, blocks, heads }.made(making)?;
    sizes.write(table, &SizeKeys { width: keys.width, mlp: keys.mlp, blocks: keys.blocks, heads: keys.heads });
    let (key_heads, channels) = match making.size {
        Size::Published => (geometry.key_heads, geometry.channels),
        _ => ((sizes.heads * geometry.key_heads / heads).max(2), sizes.width / sizes.heads),
    };
    let some = [(keys.key_heads, key_heads), (keys.channels, channels)];
    let ends = [("bos_token_id", making.marks.id(START)), ("eos_token_id", making.marks.id(END))];
    for (key, value) in some.into_iter().filter_map(|(key, value)| Some((key?, value))).chain(ends) {
        table[key] = json!(value);
    }
    Ok(())
}

/// Returns the names and shapes of the tensors in a publisher's folder, whose names begin with `prefix`.
pub fn published_sizes(geometry: &Geometry, prefix: &str) -> Vec<(String, Vec<i64>)> {
    let names = geometry.family.names;
    let like = [format!("{prefix}{}.weight", names.around[0].0)];
    let stored = |(name, mut shape): (String, Vec<i64>)| {
        if names.is_turned(&name) {
            shape.reverse();
        }
        (names.published(&name, &like), shape)
    };
    sizes(geometry).into_iter().map(stored).collect()
}

impl Outline for Language {
    fn sizes(&self) -> Vec<(String, Vec<i64>)> {
        sizes(&self.geometry)
    }

    fn published_sizes(&self) -> Vec<(String, Vec<i64>)> {
        published_sizes(&self.geometry, self.geometry.family.prefix())
    }

    fn tie(&self) -> Option<[String; 2]> {
        let is_tied = self.geometry.output == OutputMatrix::Embeddings;
        is_tied.then(|| [OUTPUT, EMBEDDING].map(|layer| format!("{layer}.weight")))
    }

    fn most_tokens(&self) -> i64 {
        self.tokens
    }

    fn tokenizer(&self, folder: &Path, chat: Option<&Chat>) -> Result<Box<dyn Preparation>> {
        let tokenizer = Tokenizer::open(folder, self.geometry.vocabulary, self.tokens as usize)?;
        Ok(Box::new(tokenizer.in_chat(chat.cloned())))
    }

    fn reading(self: Box<Self>, _: Rows) -> Box<dyn Network> {
        self
    }
}
