//! Stand-ins of published language networks, also of those that see images: folders as transformers writes them, with random
//! weights of about the sizes of trained ones, and a tokenizer that reads any text.

mod config;
mod shards;
mod tensors;
mod tokenizer;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tch::Kind;

use crate::base::files::{with_lock, write_atomic};
use crate::base::hash::text_sha256;
use crate::model::Normalize;
use crate::model::described::{Described, Published};
use crate::model::folder::{PREPARATION, TOKENIZER};
use crate::model::values::Values;
pub use config::Size;
use shards::SHARD_BYTES;
use tokenizer::Vocabulary;

/// The name of the file of settings.
const CONFIG: &str = "config.json";

/// The stand-in of a published language network.
pub struct LanguageFolder {
    pub published: &'static Published,
    pub size: Size,
    vocabulary: Vocabulary,
    config: Value,
}

impl LanguageFolder {
    /// Describes the stand-in, whose tokenizer has each of `words` as one token.
    ///
    /// # Errors
    /// Fails if the vocabulary of the network is too small for the words.
    pub fn new(published: &'static Published, size: Size, words: &[String]) -> Result<LanguageFolder> {
        let sees = published.config()?.get("vision_config").is_some();
        let vocabulary = Vocabulary::new(words, sees);
        let config = config::of(published, size, &vocabulary)?;
        Ok(LanguageFolder { published, size, vocabulary, config })
    }

    /// Returns the name of the folder. Words that are not in every tokenizer make it another folder.
    pub fn name(&self) -> String {
        let size = match self.size {
            Size::Published => "",
            Size::Tiny => "-tiny",
            Size::TinyBlocks => "-tiny-blocks",
        };
        let own = self.vocabulary.own();
        let words = if own.is_empty() { String::new() } else { format!("-{}", &text_sha256(&own.join("\n"))[..8]) };
        format!("{}{words}{size}", self.published.key)
    }

    fn values(&self) -> Values {
        Values::new(Path::new(CONFIG), self.config.clone())
    }

    /// Returns the network without its weights, for prompts of at most `tokens` tokens.
    ///
    /// # Errors
    /// Fails if `tokens` exceeds what the network reads.
    pub fn described(&self, tokens: Option<i64>) -> Result<Described> {
        let name = format!("the shape of {}", self.published.about);
        Described::new(name, &self.values(), (self.published.kind(), tokens, Normalize::CLIP))
    }

    /// Returns the number of pixels per side of an image, if the network sees images.
    pub fn image_size(&self) -> Option<i64> {
        self.config.get("vision_config")?.get("image_size")?.as_i64()
    }

    /// Returns the type in which the publisher stores weights.
    pub fn stored(&self) -> Kind {
        match self.values().text("torch_dtype") {
            Some("float16") => Kind::Half,
            Some("bfloat16") => Kind::BFloat16,
            _ => Kind::Float,
        }
    }

    /// Returns the names and shapes of the stored tensors.
    ///
    /// # Errors
    /// Fails if the config is none of a network that bella computes.
    pub fn tensors(&self) -> Result<Vec<(String, Vec<i64>)>> {
        Ok(tensors::of(&self.described(None)?.network))
    }

    /// Returns the bytes of the weights.
    ///
    /// # Errors
    /// Fails as [`tensors`](Self::tensors) does.
    pub fn bytes(&self) -> Result<u64> {
        Ok(shards::bytes(&self.tensors()?, self.stored()))
    }

    /// Returns the most bytes that are in memory while the weights are read: the tensors so far, and the file that holds the
    /// latest ones.
    ///
    /// # Errors
    /// Fails as [`tensors`](Self::tensors) does.
    pub fn reading_bytes(&self) -> Result<u64> {
        let (tensors, kind) = (self.tensors()?, self.stored());
        let shards = shards::split(&tensors, kind, SHARD_BYTES);
        let step = |(before, most): (u64, u64), shard: &&[(String, Vec<i64>)]| {
            let own = shards::bytes(shard, kind);
            (before + own, most.max(before + 2 * own))
        };
        Ok(shards.iter().fold((0, 0), step).1)
    }

    /// Writes the folder, unless it is there. Only a complete one has its name.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        self.write_in_shards(path, SHARD_BYTES)
    }

    fn write_in_shards(&self, path: &Path, shard_bytes: u64) -> Result<()> {
        with_lock(path, || {
            if path.is_dir() {
                return Ok(());
            }
            let part = path.with_file_name(format!("{}.part", self.name()));
            let shown = || part.display().to_string();
            if part.exists() {
                std::fs::remove_dir_all(&part).with_context(shown)?;
            }
            std::fs::create_dir_all(&part).with_context(shown)?;
            for (name, content) in self.texts() {
                write_atomic(&part.join(name), |file| Ok(serde_json::to_writer_pretty(file, &content)?))?;
            }
            shards::write(&part, &self.tensors()?, self.stored(), shard_bytes)?;
            std::fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))
        })
    }

    /// Returns the names of the files beside the weights, with their content.
    fn texts(&self) -> Vec<(&'static str, Value)> {
        let [tokenizer, settings] = TOKENIZER;
        let mut all = vec![
            (CONFIG, self.config.clone()),
            (tokenizer, self.vocabulary.json()),
            (settings, self.vocabulary.settings()),
        ];
        all.extend(self.image_size().map(|side| (PREPARATION, preparation(side))));
        all
    }
}

/// Returns what says how images are prepared: as CLIP's are.
fn preparation(side: i64) -> Value {
    let Normalize { mean, std } = Normalize::CLIP;
    json!({
        "image_processor_type": "CLIPImageProcessor", "do_resize": true, "do_center_crop": true, "do_rescale": true,
        "do_normalize": true, "do_convert_rgb": true, "resample": 3, "rescale_factor": 1.0 / 255.0,
        "size": { "shortest_edge": side }, "crop_size": { "height": side, "width": side }, "image_mean": mean, "image_std": std,
    })
}

#[cfg(test)]
mod tests;
