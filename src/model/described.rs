//! Language networks, also those that see images, without their weights: what `config.json` says of them, from a folder or as
//! published.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use tch::Kind;

use crate::base::files::read_json;
pub use crate::model::families::Published;
use crate::model::families::decoders;
use crate::model::folder::{config_file, home};
use crate::model::head::Training;
use crate::model::language::{self, EMBEDDING, Language, OUTPUT};
use crate::model::llava::{self, Llava};
use crate::model::network::{Network, Parameters};
use crate::model::values::Values;
use crate::model::{CheckpointKind, Normalize};
use crate::schema::Choice;

impl Published {
    /// Returns the network for prompts of at most `tokens` tokens.
    ///
    /// # Errors
    /// Fails if `tokens` exceeds what the network reads.
    pub fn described(&self, tokens: Option<i64>, normalize: Normalize) -> Result<Described> {
        Described::new(format!("the shape of {}", self.about), &self.values()?, (self.kind(), tokens, normalize))
    }

    /// Returns the forward pass of this network.
    pub fn kind(&self) -> CheckpointKind {
        let sees = self.values().is_ok_and(|values| values.text("model_type") == Some(decoders::LLAVA));
        if sees { CheckpointKind::VisionLanguage } else { CheckpointKind::Language }
    }

    /// Checks that a config asks for the forward pass of this network.
    ///
    /// # Errors
    /// Fails if it asks for another one.
    pub fn check_kind(&self, kind: CheckpointKind) -> Result<()> {
        let own = self.kind();
        ensure!(own == kind, "checkpoint.kind = \"{}\": {} is of kind \"{}\"", kind.word(), self.about, own.word());
        Ok(())
    }
}

/// A network whose weights have sizes and no values.
pub struct Described {
    /// The folder, or the published name.
    pub name: String,
    pub network: Text,
    /// The number of bytes of a stored weight.
    pub stored: u64,
}

/// A language network, or one that sees images.
pub enum Text {
    Language(Box<Language>),
    Llava(Box<Llava>),
}

impl Described {
    /// Returns the network at `path`, of which `config.json` is enough, or the published one of its name, for prompts of at most
    /// `tokens` tokens.
    ///
    /// # Errors
    /// Fails if there is neither, or if the config asks for what bella does not compute.
    pub fn of(path: &Path, kind: CheckpointKind, tokens: Option<i64>, normalize: Normalize) -> Result<Described> {
        if let Some(file) = config_file(&home(path)).filter(|_| path.exists()) {
            let (name, values) = (path.display().to_string(), Values::new(&file, read_json(&file)?));
            return Described::new(name, &values, (kind, tokens, normalize));
        }
        let Some(published) = Published::of_path(path) else {
            bail!(
                "checkpoint.path: {}: has no config.json, and its name is that of no published shape: put it there, or name it \
                 as one of {}",
                path.display(),
                Published::keys().join(", ")
            )
        };
        published.check_kind(kind)?;
        published.described(tokens, normalize)
    }

    /// Returns the network that the values of a `config.json` describe, for prompts of at most `tokens` tokens.
    ///
    /// # Errors
    /// Fails if the config asks for what bella does not compute, or if `tokens` exceeds what the network reads.
    pub fn new(
        name: String,
        values: &Values,
        (kind, tokens, normalize): (CheckpointKind, Option<i64>, Normalize),
    ) -> Result<Described> {
        let network = match kind {
            CheckpointKind::VisionLanguage => Text::Llava(Box::new(llava::described(values, tokens, normalize)?)),
            _ => Text::Language(Box::new(language::described(values, tokens)?)),
        };
        Ok(Described { name, network, stored: stored(values) })
    }

    /// Returns the weights in a type, which take no memory.
    pub fn base(&self, kind: Kind) -> Parameters {
        let sizes = match &self.network {
            Text::Language(language) => language::sizes(&language.geometry),
            Text::Llava(llava) => llava::sizes(llava),
        };
        let base = Parameters::without_memory(sizes, kind);
        let tied = self.network.language().geometry.tied;
        if tied { base.tie(&format!("{OUTPUT}.weight"), &format!("{EMBEDDING}.weight")) } else { base }
    }
}

/// Returns the bytes of a weight in the type that a config names; those of f32 where it names none.
fn stored(values: &Values) -> u64 {
    let named = values.text("torch_dtype").or(values.text("dtype"));
    if named.is_some_and(|name| name.ends_with("16")) { 2 } else { 4 }
}

impl Text {
    /// Returns the language network, also that of one that sees images.
    pub fn language(&self) -> &Language {
        match self {
            Text::Language(language) => language,
            Text::Llava(llava) => &llava.language,
        }
    }
}

impl Text {
    /// Returns the network under a head of which a subspace trains `training`.
    pub fn under(self, training: Training) -> Box<dyn Network> {
        match self {
            Text::Language(language) => language,
            Text::Llava(mut llava) => {
                llava.reads = training.rows();
                llava
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Described {
        let path = Path::new(path);
        let kind = Published::of_path(path).unwrap().kind();
        Described::of(path, kind, None, Normalize::CLIP).unwrap()
    }

    /// The counts of transformers 5.23, `sum(p.numel() for p in LlamaForCausalLM(config).parameters())` on the meta device. Of
    /// LLaVA the last block of the tower and the norm behind it are left out, 12,596,224 and 2,048 of them.
    #[test]
    fn published_networks_have_their_numbers_of_parameters() {
        for (path, count) in [
            ("models/Llama-2-7b-hf", 6_738_415_616),
            ("Llama-2-13b-hf", 13_015_864_320),
            ("Meta-Llama-3-8B-Instruct", 8_030_261_248),
            ("Mistral-7B-v0.1", 7_241_732_096),
            ("Qwen2.5-7B", 7_615_616_512),
            ("Qwen3-8B", 8_190_735_360),
            ("Qwen3-0.6B", 596_049_920),
            ("TinyLlama-1.1B-Chat-v1.0", 1_100_048_384),
            ("llava-1.5-7b-hf", 7_063_427_072 - 12_596_224 - 2_048),
        ] {
            assert_eq!(of(path).base(Kind::BFloat16).count(), count, "{path}");
        }
    }

    #[test]
    fn every_published_network_is_found_by_its_key() {
        for published in decoders::published() {
            assert_eq!(Published::of_path(Path::new(published.key)).map(|found| found.key), Some(published.key));
            assert!(of(published.key).network.language().geometry.blocks >= 22, "{}", published.key);
        }
        assert!(Published::of_path(Path::new("models/my-own")).is_none());
    }

    #[test]
    fn llava_sees_576_patches_and_leaves_512_tokens_for_the_prompt() {
        let Text::Llava(llava) = of("llava-1.5-7b-hf").network else { panic!("no eyes") };
        assert_eq!((llava.sight.patches(), llava.sight.eyes.blocks, llava.language.tokens), (576, 23, 1088));
    }
}
