//! A language network as its config describes it, and the entry of its kind.

use std::path::Path;

use anyhow::Result;

use super::{EMBEDDING, Geometry, Language, OUTPUT, Tokenizer, described, sizes};
use crate::model::families::decoders::decoder;
use crate::model::kind::KindEntry;
use crate::model::network::{Network, Rows};
use crate::model::outline::Outline;
use crate::model::preparation::Preparation;

pub static KIND: KindEntry = KindEntry {
    word: "language",
    reads: |model_type| decoder(model_type).is_some(),
    is_folder: true,
    outline: Ok(|values, tokens, _| Ok(Box::new(described(values, tokens)?))),
    no_stand_in: None,
    bench: &[
        "checkpoint.kind=language",
        "head.label-words={}",
        "data.jsonl={root=\"texts\", prompt=\"{text}\", labels=[\"no\", \"yes\"]}",
    ],
};

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
        self.geometry.tied.then(|| [OUTPUT, EMBEDDING].map(|layer| format!("{layer}.weight")))
    }

    fn most_tokens(&self) -> i64 {
        self.tokens
    }

    fn tokenizer(&self, folder: &Path) -> Result<Box<dyn Preparation>> {
        Ok(Box::new(Tokenizer::open(folder, self.geometry.vocabulary, self.tokens as usize)?))
    }

    fn reading(self: Box<Self>, _: Rows) -> Box<dyn Network> {
        self
    }
}
