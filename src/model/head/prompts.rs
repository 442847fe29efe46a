//! A zero-shot head from class names and prompt templates. Each row is the mean of the templates' normalised text
//! embeddings, normalised again, times exp(logit scale) (Radford et al. 2021, arXiv 2103.00020, section 3.1.4).
//!
//! Built heads are cached in the user's cache folder. Each file is written atomically and named by the hash of the content it was
//! built from, so processes may share the cache. Without such a folder there is no cache.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use tch::{Device, Kind, Tensor};

use crate::base::files::create_folder;
use crate::base::tensor::{ROOM_ELSEWHERE, guarded};
use crate::base::tensor_file::State;
use crate::machine::memory::{ChunkSize, MemoryEstimate, Task};
use crate::model::head::names::ClassNames;
use crate::model::head::tokenizer::{Tokenizer, Tokens};
use crate::model::head::{Checkpoint, Texts, built_in, tokens};
use crate::model::recognition::identify::{Evidence, IdentifiedText};
use crate::schema::Reader;

/// The largest number of texts in one forward pass of the text tower.
const BATCH: usize = 256;

/// The templates and class names that make up the prompts.
pub struct Prompts {
    templates: Templates,
    names: ClassNames,
}

enum Templates {
    /// Nothing is set; the data set decides once it is known.
    Usual,
    Known(String),
    Listed(Vec<String>),
}

impl Prompts {
    /// Reads `templates`, `class_names` and `class_names_file`.
    pub fn read(reader: &Reader) -> Prompts {
        Prompts { templates: Templates::read(reader), names: ClassNames::read(reader) }
    }

    /// Gives unset settings the defaults of the data set `data`.
    pub fn settle(&mut self, data: &str) {
        if let Templates::Usual = self.templates {
            self.templates = Templates::Known(built_in::of_data(data).to_string());
        }
        self.names = self.names.settled(data);
    }

    pub fn names(&self) -> &ClassNames {
        &self.names
    }

    pub fn resolved(&self) -> toml::Table {
        let templates = match &self.templates {
            Templates::Usual => built_in::GENERIC.into(),
            Templates::Known(key) => toml::Value::from(key.clone()),
            Templates::Listed(list) => list.clone().into(),
        };
        let (key, names) = self.names.resolved();
        toml::Table::from_iter([("templates".to_string(), templates), (key.to_string(), names)])
    }

    /// Returns the head, built or read from the cache.
    ///
    /// # Errors
    /// Fails if the checkpoint has no text tower, or if the names do not fit the classes.
    pub fn head(&self, checkpoint: &Checkpoint, classes: &[String]) -> Result<TextHead> {
        let texts = self.texts(classes)?;
        let key = cache_key(&(checkpoint.hash)()?, &texts);
        if let Some(head) = read(&key, classes.len()) {
            tracing::info!("zero-shot head: {} classes, from the cache", classes.len());
            return Ok(head);
        }
        let shown = checkpoint.path.display();
        let text = (checkpoint.text)()?.with_context(|| {
            format!(
                "{shown}: has no text tower, so no head can be built from templates: set head.zero-shot.weights to text \
                 embeddings, or checkpoint.path to a full CLIP archive or folder (scripts/export_torchscript.py)"
            )
        })?;
        report(&text, &texts);
        let tokenizer = Tokenizer::of(&text.tower.geometry, checkpoint.path)?;
        let head = guarded("zero-shot head", ROOM_ELSEWHERE, || embed(&text, &tokenizer, &texts, checkpoint.device))?;
        write(&key, &head);
        Ok(head)
    }

    /// Returns the prompts of each class.
    fn texts(&self, classes: &[String]) -> Result<Vec<Vec<String>>> {
        let templates = match &self.templates {
            Templates::Usual => built_in::templates(built_in::GENERIC),
            Templates::Known(key) => built_in::templates(key),
            Templates::Listed(list) => Some(list.as_slice()),
        };
        let templates = templates.context("head.zero-shot.templates: no such templates")?;
        let names = self.names.of(classes)?;
        let fill = |name: &String| templates.iter().map(|t| t.replace(built_in::PLACE, name)).collect();
        Ok(names.iter().map(fill).collect())
    }
}

impl Templates {
    fn read(reader: &Reader) -> Templates {
        const ABOUT: &str =
            "Texts with `{}` for the class name: a list, or a key of `bella list`; by default those of the data set.";
        if !reader.has("templates") {
            return Templates::Usual;
        }
        if !reader.is_list("templates") {
            let key = reader.string("templates").about(ABOUT).or_else(|| built_in::GENERIC.to_string());
            if built_in::templates(&key).is_none() {
                let known = built_in::keys().join(", ");
                let example = "a list of your own such as [\"a photo of a {}.\"]";
                reader.problem("templates", format!("must be {example}, or one of {known}"));
            }
            return Templates::Known(key);
        }
        let list = reader.strings("templates").about(ABOUT).or_else(Vec::new);
        if let Some(without) = list.iter().find(|template| !template.contains(built_in::PLACE)) {
            let place = built_in::PLACE;
            reader.problem("templates", format!("`{without}` must have a {place} where the class name goes"));
        }
        Templates::Listed(list)
    }
}

/// Logs how the text tower was checked, and the number of prompts.
fn report(text: &IdentifiedText, texts: &[Vec<String>]) {
    match &text.evidence {
        Evidence::SelfCheck { difference, .. } => {
            tracing::debug!("text tower: self-check, relative difference {:.1e}", difference.relative);
        }
        Evidence::Config { .. } => {}
        Evidence::Code { reason } => {
            tracing::warn!(
                "the archive's own encode_text does not run here, so the native one is not checked ({reason})"
            );
        }
    }
    let count: usize = texts.iter().map(Vec::len).sum();
    tracing::info!("zero-shot head: {} classes, {count} prompts", texts.len());
}

/// Returns the head of the texts of each class. Its logits are exp(logit scale) · cosine + logit bias.
pub fn embed(text: &IdentifiedText, tokenizer: &Tokenizer, texts: &[Vec<String>], device: Device) -> Result<TextHead> {
    let _guard = tch::no_grad_guard();
    let geometry = &text.tower.geometry;
    let all = tokenise(tokenizer, texts, geometry.context as usize)?;
    let weights = text.weights.to(device);
    let zeros = |width: i64| Tensor::zeros([texts.len() as i64, width], (Kind::Float, device));
    let (mut sum, mut inputs, mut inverse_norms) = (zeros(geometry.output), zeros(geometry.width), zeros(1));
    let bar = crate::base::logging::bar(all.len() as u64, "prompts");
    for batch in all.chunks(texts_at_once(text, device)?) {
        let (classes, rows): (Vec<i64>, Vec<Vec<i64>>) = batch.iter().cloned().unzip();
        let classes = Tensor::from_slice(&classes).to_device(device);
        let read = text.tower.read(&weights.parameters, &tokens::matrix(&rows).to_device(device));
        let features = text.tower.project(&weights.parameters, &read);
        let inverse_norm = norm(&features).reciprocal();
        sum = sum.index_add(0, &classes, &normalised(&features));
        inputs = inputs.index_add(0, &classes, &(read * &inverse_norm));
        inverse_norms = inverse_norms.index_add(0, &classes, &inverse_norm);
        bar.inc(batch.len() as u64);
    }
    bar.finish_and_clear();
    let counts: Vec<f32> = texts.iter().map(|prompts| prompts.len() as f32).collect();
    let counts = Tensor::from_slice(&counts).to_device(device).unsqueeze(1);
    let weight = (normalised(&(sum / &counts)) * text.weights.logit_scale).to_device(Device::Cpu);
    let bias = Tensor::full([texts.len() as i64], text.weights.logit_bias, tch::kind::FLOAT_CPU);
    let projection = text.weights.parameters.get("proj.weight").context("the text tower has no projection")?;
    let offsets = match weights.parameters.get("proj.bias") {
        Some(bias) => inverse_norms / &counts * bias,
        None => zeros(geometry.output),
    };
    let host = |tensor: Tensor| tensor.to_device(Device::Cpu);
    let texts = Texts { inputs: host(inputs / &counts), offsets: host(offsets), projection: projection.copy() };
    Ok(TextHead { weight, bias, texts })
}

/// Returns the number of texts that go through the text tower at once.
fn texts_at_once(text: &IdentifiedText, device: Device) -> Result<usize> {
    let geometry = &text.tower.geometry;
    // The number of values in use at once within a block, as in the image tower.
    let numbers = geometry.context * (4 * geometry.mlp + 6 * geometry.width);
    let need =
        MemoryEstimate { image: numbers as u64 * Kind::Float.elt_size_in_bytes() as u64, ..MemoryEstimate::default() };
    let whole = ChunkSize { members: 1, images: BATCH };
    let task = Task {
        what: "zero-shot head",
        coming: 0,
        need,
        whole,
        at_most: None,
        members: None,
        device,
        advice: ROOM_ELSEWHERE,
    };
    Ok(task.plan()?.cut().images)
}

/// Returns the class and tokens of each text, short texts first, since a batch is as long as its longest text.
fn tokenise(tokenizer: &Tokenizer, texts: &[Vec<String>], context: usize) -> Result<Vec<(i64, Vec<i64>)>> {
    let mut all = Vec::new();
    for (class, prompts) in texts.iter().enumerate() {
        for prompt in prompts {
            let Tokens { numbers, is_cut } = tokenizer.tokens(prompt, context)?;
            if is_cut {
                tracing::warn!("a prompt is longer than {context} tokens and is cut: {prompt}");
            }
            all.push((class as i64, numbers));
        }
    }
    all.sort_by_key(|(_, found)| found.len());
    Ok(all)
}

fn normalised(features: &Tensor) -> Tensor {
    features / norm(features)
}

fn norm(features: &Tensor) -> Tensor {
    features.norm_scalaropt_dim(2.0, [-1], true)
}

/// Returns a cache key for the head of these texts and this checkpoint.
fn cache_key(checkpoint: &str, texts: &[Vec<String>]) -> String {
    /// Changes where texts are prepared in another way than before.
    const PREPARATION: &str = "texts of folders as their package reads them";
    let mut hash = Sha256::new();
    hash.update(PREPARATION);
    hash.update(checkpoint);
    for prompt in texts.iter().flat_map(|prompts| prompts.iter().map(String::as_str).chain(["\n"])) {
        hash.update((prompt.len() as u64).to_le_bytes());
        hash.update(prompt);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The version in each file name. It changes whenever heads are built differently.
const VERSION: u32 = 3;

/// A head made of texts.
pub struct TextHead {
    /// The weight, `[C, d]`, in f32 on the CPU.
    pub weight: Tensor,
    /// The bias, `[C]`, likewise: the same for all classes.
    pub bias: Tensor,
    /// The texts in front of the projection, likewise.
    pub texts: Texts,
}

/// Reads a cached head. A damaged file gives a warning and counts as missing.
pub fn read(key: &str, classes: usize) -> Option<TextHead> {
    let path = path(key)?;
    if !path.is_file() {
        return None;
    }
    match checked(&path, classes) {
        Ok(head) => Some(head),
        Err(error) => {
            tracing::warn!("{}: built again, for the cached head is damaged ({error:#})", path.display());
            None
        }
    }
}

fn checked(path: &std::path::Path, classes: usize) -> Result<TextHead> {
    let state = State::read(path)?;
    let read = |name: &str, axes: usize| -> Result<Tensor> {
        let tensor = state.get(name)?;
        let of_classes = name == "projection" || tensor.size().first() == Some(&(classes as i64));
        let fits = tensor.dim() == axes && of_classes;
        ensure!(tensor.kind() == Kind::Float && fits, "its {name} is another one");
        ensure!(tensor.isfinite().all().int64_value(&[]) == 1, "its {name} is not finite");
        Ok(tensor.copy())
    };
    let texts = Texts { inputs: read("inputs", 2)?, offsets: read("offsets", 2)?, projection: read("projection", 2)? };
    Ok(TextHead { weight: read("weight", 2)?, bias: read("bias", 1)?, texts })
}

/// Stores a head. If the folder cannot be written to, this only warns, since it only costs the next run some time.
pub fn write(key: &str, head: &TextHead) {
    let Some(path) = path(key) else { return };
    let mut state = State::default();
    state.put("weight", &head.weight);
    state.put("bias", &head.bias);
    state.put("inputs", &head.texts.inputs);
    state.put("offsets", &head.texts.offsets);
    state.put("projection", &head.texts.projection);
    let folder = path.parent().map_or_else(PathBuf::new, |parent| parent.to_path_buf());
    if let Err(error) = create_folder(&folder).and_then(|()| state.write(&path)) {
        tracing::warn!(
            "the zero-shot head is not cached: {error:#}; set BELLA_CACHE to a folder that can be written to"
        );
    }
}

fn path(key: &str) -> Option<PathBuf> {
    let folder = crate::base::small::folder()?;
    Some(folder.join("heads").join(format!("v{VERSION}-{key}.safetensors")))
}
