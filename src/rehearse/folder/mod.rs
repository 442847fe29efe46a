//! Stand-ins of published networks of texts, also of those that see images: folders as transformers writes them, with random
//! weights of about the sizes of trained ones, and a tokenizer that reads any text.

mod tensors;
mod tokenizer;

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tch::Kind;

use crate::base::files::{with_lock, write_atomic};
use crate::base::hash::text_sha256;
use crate::hub::{PREPARATION, TOKENIZER};
use crate::machine::quantised::Scheme;
use crate::model::Normalize;
use crate::model::described::{Described, Published};
use crate::model::families::{architecture, sighted};
use crate::model::kind::{Making, Size, StandIn};
use crate::model::network::Slot;
use crate::model::values::Values;
use tensors::SHARD_BYTES;
use tokenizer::Vocabulary;

/// The name of the file of settings.
const CONFIG: &str = "config.json";

/// The stand-in of a published network of texts.
pub struct FolderStandIn {
    pub published: &'static Published,
    pub size: Size,
    vocabulary: Vocabulary,
    config: Value,
}

impl FolderStandIn {
    /// Describes the stand-in, whose tokenizer has each of `words` as one token.
    ///
    /// # Errors
    /// Fails if the vocabulary of the network is too small for the words.
    pub fn new(published: &'static Published, size: Size, words: &[String]) -> Result<FolderStandIn> {
        let StandIn::Folder { marks, write } = published.kind().entry().stand_in else {
            bail!("{}: no folder stands in for a network of its kind", published.about)
        };
        let vocabulary = Vocabulary::new(words, marks);
        let (tokens, image) = (vocabulary.tokens() as i64, vocabulary.image());
        let mut config = published.config()?;
        write(&mut config, &Making { size, marks, tokens, image }).context(published.about)?;
        let class = config["model_type"].as_str().and_then(architecture);
        let class = class.with_context(|| format!("{}: its class is not known", published.about))?;
        config["architectures"] = json!([class]);
        Ok(FolderStandIn { published, size, vocabulary, config })
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
        Described::new(name, &self.values(), self.published.kind(), tokens, Normalize::CLIP)
    }

    /// Returns the number of pixels per side of an image, if the network sees images.
    pub fn image_size(&self) -> Option<i64> {
        self.described(None).ok()?.network.image_side()
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
        Ok(self.described(None)?.network.published_sizes())
    }

    /// Returns the bytes of the weights.
    ///
    /// # Errors
    /// Fails as [`tensors`](Self::tensors) does.
    pub fn bytes(&self) -> Result<u64> {
        Ok(tensors::bytes(&self.tensors()?, self.stored()))
    }

    /// Returns the most bytes that are in memory while the weights are read, which are stored as `quantize` says one after the other:
    /// all of them, and the largest tensor once more, or what is made of the largest layer that is stored in fewer bits.
    ///
    /// # Errors
    /// Fails as [`tensors`](Self::tensors) does.
    pub fn reading_bytes(&self, quantize: Option<Scheme>) -> Result<u64> {
        let (tensors, kind) = (self.tensors()?, self.stored());
        let largest = tensors.iter().map(|tensor| tensors::bytes(std::slice::from_ref(tensor), kind)).max();
        let described = self.described(None)?;
        // Its values as they are stored, in f32, and rounded.
        const COPIES: i64 = 5;
        let layers = described
            .network
            .slots()
            .into_iter()
            .filter(Slot::is_in_block)
            .map(|slot| COPIES * slot.inputs * slot.outputs);
        let made =
            quantize.and_then(|_| layers.max()).map_or(0, |numbers| numbers as u64 * kind.elt_size_in_bytes() as u64);
        let all = described.stored_base(kind, quantize)?.bytes(kind);
        Ok(all + largest.unwrap_or(0).max(made))
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
            tensors::write(&part, &self.tensors()?, self.stored(), shard_bytes)?;
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
        let family = self.config["model_type"].as_str().and_then(sighted::sighted);
        let preparation = |side| family.map(|family| (PREPARATION, (family.preparation)(side)));
        all.extend(self.image_size().and_then(preparation));
        all
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::data::Prompts;
    use crate::model::families::encoders::ENCODERS;
    use crate::model::families::writers;
    use crate::model::module::Limit;
    use crate::model::{CheckpointKind, Wording};
    use crate::model::{encoder, language, sighted};

    fn stand_in(key: &str, size: Size) -> FolderStandIn {
        FolderStandIn::new(Published::of_key(key).unwrap(), size, &[]).unwrap()
    }

    /// Writes the tiny stand-in into a folder of shards of at most `most` bytes.
    fn written(key: &str, most: u64) -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let made = stand_in(key, Size::Tiny);
        let path = place.path().join(made.name());
        made.write_in_shards(&path, most).unwrap();
        (place, path)
    }

    /// The counts of transformers 5.23, `sum(p.numel() for p in LlamaForCausalLM(config).parameters())` on the meta device, as in
    /// [`crate::model::described`], and those of 5.24 for text encoders with the layer on the first token; nothing is written.
    #[test]
    fn true_sizes_are_those_of_the_published_networks() {
        for (key, count, bytes) in [
            ("llama-7b", 6_738_415_616, 2),
            ("llama-13b", 13_015_864_320, 2),
            ("llama-3-8b", 8_030_261_248, 2),
            ("mistral-7b", 7_241_732_096, 2),
            ("qwen2.5-7b", 7_615_616_512, 2),
            ("qwen3-8b", 8_190_735_360, 2),
            ("qwen3-0.6b", 596_049_920, 2),
            ("tinyllama-1.1b", 1_100_048_384, 4),
            ("gemma-2-2b", 2_614_341_888, 2),
            ("gemma-3-1b", 999_885_952, 2),
            ("phi-3-mini-4k", 3_821_079_552, 2),
            ("phi-4", 14_659_507_200, 2),
            ("olmo-2-7b", 7_298_617_344, 4),
            ("smollm3-3b", 3_075_098_624, 2),
            ("gpt2-xl", 1_557_611_200, 4),
            ("llava-1.5-7b", 7_063_427_072, 2),
            ("paligemma-3b-224", 2_923_466_480, 4),
            ("paligemma2-3b-224", 3_032_242_416, 2),
            ("bert-base", 109_482_240, 4),
            ("roberta-large", 355_359_744, 4),
            ("xlm-roberta-base", 278_043_648, 4),
            ("distilbert-base", 66_953_472, 4),
            ("electra-small", 13_548_800, 4),
            ("albert-base", 11_683_584, 4),
            ("mpnet-base", 109_486_464, 4),
        ] {
            let made = stand_in(key, Size::Published);
            let found: i64 = made.tensors().unwrap().iter().map(|(_, shape)| shape.iter().product::<i64>()).sum();
            assert_eq!((found, made.bytes().unwrap()), (count, count as u64 * bytes), "{key}");
            let reading = |quantize| made.reading_bytes(quantize).unwrap();
            let whole = made.bytes().unwrap();
            // The largest tensor is there twice; of XLM-RoBERTa that is most of the weights.
            assert!(reading(None) > whole / 2 && reading(None) < 2 * whole, "{key}");
            // ALBERT has the weights of one block, of which the largest is there five times while it is stored anew.
            assert!(key == "albert-base" || reading(Some(Scheme::Nf4)) < reading(None), "{key}");
        }
    }

    #[test]
    fn every_tiny_language_network_is_read_by_bella() {
        for published in writers().filter(|published| published.kind() == CheckpointKind::Language) {
            let (_place, path) = written(published.key, SHARD_BYTES);
            let opened = language::open(&path, None, None).unwrap_or_else(|why| panic!("{}: {why:#}", published.key));
            let made = stand_in(published.key, Size::Tiny);
            assert_eq!(opened.stored, made.stored(), "{}", published.key);
            assert_eq!(opened.language.geometry.blocks, 4, "{}", published.key);
            let prompt = opened.tokenizer.tokens("Question: ψ?\nAnswer:").unwrap();
            assert_eq!((prompt[0], opened.tokenizer.end()), (1, Some(2)));
        }
    }

    #[test]
    fn every_tiny_encoder_is_read_by_bella() {
        for family in ENCODERS {
            for published in family.published {
                let (_place, path) = written(published.key, SHARD_BYTES);
                let opened = encoder::open(&path, &path, Limit::default(), encoder::Asked::default());
                let opened = opened.unwrap_or_else(|why| panic!("{}: {why:#}", published.key));
                assert_eq!((opened.encoder.geometry.blocks, opened.tokenizer.padding.id), (4, 1));
                let prompts = |text: &str, second: Option<&str>| Prompts {
                    texts: vec![text.into()],
                    seconds: second.map(|second| vec![second.into()]),
                    ..Prompts::default()
                };
                let length = |prompts: Prompts| opened.tokenizer.prompts("made", &prompts).unwrap().longest();
                assert_eq!((length(prompts("yes no", None)), length(prompts("yes", Some("no")))), (4, 6));
            }
        }
    }

    #[test]
    fn shards_hold_what_one_file_would() {
        let (_one, whole) = written("llava-1.5-7b", SHARD_BYTES);
        let (_several, parts) = written("llava-1.5-7b", 100_000);
        assert!(whole.join("model.safetensors").is_file() && !parts.join("model.safetensors").exists());
        let open = |path: &Path| sighted::open(path, None, Normalize::CLIP, None).unwrap();
        let (whole, parts) = (open(&whole), open(&parts));
        assert_eq!(whole.base.count(), parts.base.count());
        assert!(
            whole.base.all().iter().zip(parts.base.all()).all(|(one, other)| one.0 == other.0 && one.1.equal(&other.1))
        );
        // Tensors differ from each other, and have the spread of trained ones.
        let [first, second] =
            ["blocks.0.attn.q.weight", "blocks.1.attn.q.weight"].map(|name| whole.base.get(name).unwrap());
        assert!(!first.equal(second));
        let spread = first.to_kind(Kind::Float).std(true).double_value(&[]);
        assert!((spread - 0.125).abs() < 0.01, "{spread}");
        assert_eq!(
            whole
                .tokenizer
                .prompt("USER: <image>\nwhat?")
                .unwrap()
                .iter()
                .filter(|id| **id == whole.tokenizer.image)
                .count(),
            4
        );
    }

    #[test]
    fn every_tiny_network_that_sees_is_read_by_bella() {
        for published in writers().filter(|published| published.kind() == CheckpointKind::VisionLanguage) {
            let (_place, path) = written(published.key, SHARD_BYTES);
            let asked = crate::model::folder::Preprocessing::of(&path);
            assert_eq!((asked.refused.len(), asked.image_size), (0, Some(16)), "{}", published.key);
            let opened = sighted::open(&path, None, asked.normalize.unwrap(), None);
            let opened = opened.unwrap_or_else(|why| panic!("{}: {why:#}", published.key));
            let ids = opened.tokenizer.prompt("a <image>\nwhat?").unwrap();
            assert_eq!(ids.iter().filter(|id| **id == opened.tokenizer.image).count(), 4, "{}", published.key);
            assert!(ids.contains(&1), "{}: the start token", published.key);
        }
    }

    #[test]
    fn configs_that_select_blocks_find_them() {
        let made = stand_in("llama-13b", Size::TinyBlocks);
        assert_eq!(made.described(None).unwrap().network.blocks(), 40);
        assert_eq!(made.name(), "llama-13b-tiny-blocks");
    }

    #[test]
    fn own_label_words_make_another_folder() {
        let published = Published::of_key("llama-7b").unwrap();
        let name = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            FolderStandIn::new(published, Size::Tiny, &words).unwrap().name()
        };
        assert_eq!(name(&["A", "True"]), "llama-7b-tiny");
        assert!(name(&["zebra"]) != name(&["giraffe"]) && name(&["zebra"]).starts_with("llama-7b-"));
    }
}
