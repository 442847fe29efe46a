//! Networks whose weights have sizes and no values, so that their memory and their operations can be counted: language networks, also
//! those that see images, as `config.json` describes them, from a folder or as published; and models of any such network.

use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};
use tch::{Device, Kind};

use crate::base::files::read_json;
use crate::base::tensor::wide;
use crate::machine::quantised::Scheme;
use crate::model::families::encoders::Features;
use crate::model::folder::config_file;
use crate::model::head::Head;
use crate::model::network::{Network, Parameters, quantisable};
use crate::model::values::Values;
use crate::model::{AsStored, CheckpointKind, Model, Normalize, Outline};
use crate::schema::Choice;

pub use crate::model::families::Published;

impl Published {
    /// Returns the network for prompts of at most `tokens` tokens.
    ///
    /// # Errors
    /// Fails if `tokens` exceeds the tokens that the network reads.
    pub fn described(&self, tokens: Option<i64>, normalize: Normalize) -> Result<Described> {
        Described::new(format!("the shape of {}", self.about), &self.values()?, self.kind(), tokens, normalize)
    }

    /// Returns the forward pass of this network.
    ///
    /// # Panics
    /// Panics if a published network is of no kind.
    pub fn kind(&self) -> CheckpointKind {
        let values = self.values();
        let model_type = values.as_ref().ok().and_then(|values| values.text("model_type")).unwrap_or_default();
        let mut kinds = CheckpointKind::CHOICES.iter().map(|(_, kind)| *kind);
        kinds.find(|kind| (kind.entry().reads)(model_type)).expect("every published network is of a kind")
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
    pub network: Box<dyn Outline>,
    /// The number of bytes of a stored weight.
    pub stored: u64,
}

impl Described {
    /// Returns the network at `path`, of which `config.json` is enough, or the published one of its name, for prompts of at most
    /// `tokens` tokens.
    ///
    /// # Errors
    /// Fails if there is neither, or if the config asks for an operation that bella does not compute.
    pub fn of(path: &Path, kind: CheckpointKind, tokens: Option<i64>, normalize: Normalize) -> Result<Described> {
        if let Some(file) = config_file(path).filter(|_| path.exists()) {
            let (name, values) = (path.display().to_string(), Values::new(&file, read_json(&file)?));
            return Described::new(name, &values, kind, tokens, normalize);
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
    /// Fails if the config asks for an operation that bella does not compute, or if `tokens` exceeds the tokens that the network reads.
    pub fn new(
        name: String,
        values: &Values,
        kind: CheckpointKind,
        tokens: Option<i64>,
        normalize: Normalize,
    ) -> Result<Described> {
        let outline = kind.entry().outline.map_err(|why| anyhow!("checkpoint.kind = \"{}\": {why}", kind.word()))?;
        let network = outline(values, tokens, normalize)?;
        Ok(Described { name, network, stored: stored(values) })
    }

    /// Returns the network with the features of a text that a config names, if it names some.
    pub fn read_by(mut self, features: Option<Features>) -> Described {
        if let Some(features) = features {
            self.network.read_by(features);
        }
        self
    }

    /// Returns the weights in a type, those of blocks' linear layers as `quantize` says; they take no memory.
    ///
    /// # Errors
    /// Fails if such a weight is no matrix.
    pub fn stored_base(&self, kind: Kind, quantize: Option<Scheme>) -> Result<Parameters> {
        let mut base = self.base(kind);
        if let Some(scheme) = quantize {
            base.lay_out_quantised(&quantisable(&*self.network), scheme)?;
        }
        Ok(base)
    }

    /// Returns the weights in a type, which take no memory.
    pub fn base(&self, kind: Kind) -> Parameters {
        let base = Parameters::without_memory(self.network.sizes(), kind);
        match self.network.tie() {
            Some([name, first]) => base.tie(&name, &first),
            None => base,
        }
    }
}

/// Returns the bytes of a weight in the type that a config names; those of f32 where it names none.
fn stored(values: &Values) -> u64 {
    let named = values.text("torch_dtype").or(values.text("dtype"));
    if named.is_some_and(|name| name.ends_with("16")) { 2 } else { 4 }
}

/// Returns a model of a network whose weights have sizes alone, with a head of zeros, which plans memory for
/// `device` and computes nothing.
pub fn laid_out(network: Box<dyn Network>, base: Parameters, head: Head, device: Device, kind: Kind) -> Model {
    let head = head.to(Device::Cpu, wide(kind));
    Model { network, base, head, preparation: Box::new(AsStored), device, kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::families::writers;
    use crate::model::sighted;

    fn of(path: &str) -> Described {
        let path = Path::new(path);
        let kind = Published::of_path(path).unwrap().kind();
        Described::of(path, kind, None, Normalize::CLIP).unwrap()
    }

    /// The counts of transformers 5.23 and 5.24, `sum(p.numel() for p in LlamaForCausalLM(config).parameters())` on the meta device. Of
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
            ("gemma-2b", 2_506_172_416),
            ("gemma-7b-it", 8_537_680_896),
            ("gemma-2-2b", 2_614_341_888),
            ("gemma-2-9b", 9_241_705_984),
            ("gemma-3-1b-it", 999_885_952),
            ("gemma-3-270m", 268_098_176),
            ("Phi-3-mini-4k-instruct", 3_821_079_552),
            ("OLMo-2-0425-1B", 1_484_916_736),
            ("OLMo-2-1124-7B", 7_298_617_344),
            ("SmolLM3-3B", 3_075_098_624),
            ("gpt2", 124_439_808),
            ("gpt2-xl", 1_557_611_200),
            ("llava-1.5-7b-hf", 7_063_427_072 - 12_596_224 - 2_048),
            ("paligemma-3b-pt-224", 2_923_466_480),
            ("google/paligemma2-3b-mix-224", 3_032_242_416),
        ] {
            assert_eq!(of(path).base(Kind::BFloat16).count(), count, "{path}");
        }
    }

    #[test]
    fn every_published_network_is_found_by_its_key() {
        for published in writers() {
            // The folders of some have no name of their own.
            let named = published.files.first().map(|file| Published::of_path(Path::new(file)).unwrap().key);
            assert!(named.is_none_or(|key| key == published.key), "{}", published.key);
            assert_eq!(Published::of_key(published.key).map(|found| found.key), Some(published.key));
            let described = published.described(None, Normalize::CLIP).unwrap();
            assert!(described.network.blocks() >= 12, "{}", published.key);
        }
        assert!(Published::of_path(Path::new("models/my-own")).is_none());
    }

    #[test]
    fn llava_sees_576_patches_and_leaves_512_tokens_for_the_prompt() {
        let published = Published::of_path(Path::new("llava-1.5-7b-hf")).unwrap();
        let llava = sighted::described(&published.values().unwrap(), None, Normalize::CLIP).unwrap();
        assert_eq!((llava.sight.patches(), llava.sight.eyes.sight.blocks, llava.language.tokens), (576, 23, 1088));
    }
}
