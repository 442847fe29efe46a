//! A text encoder as its config describes it, the entry of its kind, and what a model takes over of one that has been opened.

use std::path::Path;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::folder::family_of;
use super::{Asked, Encoder, Geometry, Opened, is_encoder, open, parameters, settings, sizes};
use crate::data::Medium;
use crate::model::backbone::{self, Alike, Backbone, Held, Images, Opening, Parts, Setting};
use crate::model::chat::Chat;
use crate::model::families::encoders::{Features, POOLER, encoder};
use crate::model::folder::home;
use crate::model::kind::{
    Foreign, KindEntry, Making, Marks, OF_IMAGES, Outline, PADDING, SizeKeys, StandIn, TextSizes, TokenizerAt,
};
use crate::model::module::{Limit, Tokenizer};
use crate::model::network::{Network, Parameters, Rows};
use crate::model::preparation::Preparation;
use crate::model::values::Values;

pub static KIND: KindEntry = KindEntry {
    word: "encoder",
    open: opened,
    lies_at: is_encoder,
    reads: |model_type| encoder(model_type).is_some(),
    is_folder: true,
    outline: Ok(|values, tokens, _| Ok(Box::new(described(values, tokens)?))),
    stand_in: StandIn::Folder { marks: Marks::Around, write: write_stand_in },
    bench: &[
        "checkpoint.kind=encoder",
        "head.linear={}",
        "data.jsonl={root=\"texts\", prompt=\"{text}\", labels=[\"no\", \"yes\"]}",
    ],
    medium: |_| Medium::Texts,
    tokenizer: TokenizerAt::FolderOrNamed,
    foreign: |_| Foreign {
        keys: OF_IMAGES,
        why: "means nothing to a text encoder, whose config.json says everything: leave it out",
    },
};

/// Opens the text encoder of a config.
fn opened<'a>(opening: &Opening<'a>) -> Result<backbone::Opened<'a>> {
    let limit = Limit { tokens: opening.max_tokens, truncate: opening.truncate, ..Limit::default() };
    let tokenizer = opening.tokenizer.map_or_else(|| home(opening.path), Path::to_path_buf);
    let asked = Asked { features: opening.features, quantize: opening.quantize };
    open(opening.path, &tokenizer, limit, asked).map(backbone::Opened::alone)
}

/// A text encoder that bella runs itself.
impl Backbone for Opened {
    fn held(&self) -> Held<'_> {
        Held { network: &self.encoder, base: &self.base, names: Some(&self.names), head: self.head.as_ref() }
    }

    fn base_mut(&mut self) -> &mut Parameters {
        &mut self.base
    }

    fn settings(&self) -> Vec<Setting> {
        settings(&self.encoder.geometry)
    }

    fn read_like(&self, path: &Path) -> Result<Alike> {
        parameters(path, Some(self.encoder.geometry.features))
    }

    fn new_layer(&self) -> Option<&'static str> {
        (self.encoder.geometry.is_pooled() && !self.has_pooler).then_some(POOLER)
    }

    fn classifies_by(&self) -> Option<String> {
        let Geometry { ref features, family, .. } = self.encoder.geometry;
        let layer = || {
            if self.has_pooler { family.class.classifier.map(str::to_string) } else { Some(family.path_of_pooler()) }
        };
        if *features == Features::Pooled { None } else { layer() }
    }

    fn announce(&self) -> Option<f64> {
        let (geometry, tokens) = (&self.encoder.geometry, self.encoder.tokens);
        tracing::info!(
            "checkpoint: {} ({}), {} parameters, width {}, {} blocks, {} heads, texts of at most {tokens} tokens",
            geometry.family.model_type,
            geometry.family.about,
            self.base.count(),
            geometry.width,
            geometry.blocks,
            geometry.heads
        );
        None
    }

    fn into_parts(self: Box<Self>, _: &Images) -> Result<Parts> {
        Ok(Parts { network: Box::new(self.encoder), base: self.base, preparation: self.tokenizer })
    }
}

/// Writes the sizes of a stand-in into a publisher's config. Positions stay as many as published.
fn write_stand_in(config: &mut Value, making: &Making) -> Result<()> {
    let values = Values::new(Path::new("config.json"), config.clone());
    let Geometry { vocabulary, width, mlp, blocks, heads, positions, kinds, family, .. } =
        described(&values, None)?.geometry;
    let sizes = TextSizes { vocabulary, width, mlp, blocks, heads }.made(making)?;
    let keys = family.spelling;
    sizes.write(config, &SizeKeys { width: keys.width, mlp: keys.mlp, blocks: keys.blocks, heads: keys.heads });
    let padding = making.marks.id(PADDING);
    for (key, value) in [("max_position_embeddings", positions), ("type_vocab_size", kinds), ("pad_token_id", padding)]
    {
        config[key] = json!(value);
    }
    Ok(())
}

/// The most tokens of a text unless the config says otherwise.
const TOKENS: i64 = 512;

/// Returns the network that a config describes, for texts of at most `tokens` tokens; 512 or the context by default. A config does not
/// say whether the weights have the layer on the first token; most have it, so it counts.
///
/// # Errors
/// Fails if the config asks for what bella does not compute, or if `tokens` exceeds the network's positions.
pub fn described(values: &Values, tokens: Option<i64>) -> Result<Encoder> {
    let shown = values.path.display();
    let geometry = Geometry::read(values, family_of(values)?, Features::Pooled)?;
    let context = geometry.context();
    let tokens = tokens.unwrap_or(TOKENS.min(context));
    ensure!(
        tokens <= context,
        "checkpoint.max_tokens = {tokens}: the network of {shown} reads at most {context} tokens"
    );
    Ok(Encoder::new(geometry, tokens))
}

impl Outline for Encoder {
    fn sizes(&self) -> Vec<(String, Vec<i64>)> {
        sizes(&self.geometry, None)
    }

    fn published_sizes(&self) -> Vec<(String, Vec<i64>)> {
        let names = self.geometry.family.names;
        let like = [format!("{}{}.weight", names.prefixes[0], names.around[0].0)];
        Outline::sizes(self).into_iter().map(|(name, shape)| (names.published(&name, &like), shape)).collect()
    }

    fn most_tokens(&self) -> i64 {
        self.tokens
    }

    fn read_by(&mut self, features: Features) {
        *self = Encoder::new(Geometry { features, ..self.geometry.clone() }, self.tokens);
    }

    fn tokenizer(&self, folder: &Path, _: Option<&Chat>) -> Result<Box<dyn Preparation>> {
        let (context, vocabulary) = (Some(self.geometry.context()), Some(self.geometry.vocabulary));
        let (padding, unplaced) = (Some(self.geometry.padding), self.geometry.unplaced());
        let limit = Limit { tokens: Some(self.tokens), context, vocabulary, padding, unplaced, ..Limit::default() };
        Ok(Box::new(Tokenizer::open(folder, limit, self.values())?))
    }

    fn reading(self: Box<Self>, _: Rows) -> Box<dyn Network> {
        self
    }
}
