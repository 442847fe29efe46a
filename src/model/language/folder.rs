//! Reads a language network from a publisher's folder: `config.json`, the weights in one file or in shards, and the
//! tokenizer. Nothing in it is executed. Every tensor must have a place in the network, and every place a tensor.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tch::{Kind, Tensor};

use super::forward::POSITION;
use super::rope::{Rope, Scaling};
use super::{EMBEDDING, Geometry, Language, OUTPUT, OutputMatrix, Tokenizer};
use crate::machine::quantised::Scheme;
use crate::model::families::decoders::{HeadNorms, NormKind, NormPlaces, Traits, View, decoder, decoder_of};
use crate::model::families::{HEAD, Names};
use crate::model::folder::quantised::tensors_of;
use crate::model::folder::{Place, Unread, is_plain, model_type_of, values_of};
use crate::model::network::{Network, Parameters, Slot, Weight, quantisable};
use crate::model::stored::StoredNames;
use crate::model::values::Values;
use crate::model::vit::OwnHead;
use crate::model::{Alike, Setting};

/// The most tokens of a prompt unless the config says otherwise.
pub const TOKENS: i64 = 512;

/// A language network as read from its folder.
pub struct Opened {
    pub language: Language,
    /// The weights on the CPU, in the type in which they are stored.
    pub base: Parameters,
    /// The folder's own classifier of the last token.
    pub head: Option<OwnHead>,
    /// The type in which the folder stores most weights.
    pub stored: Kind,
    /// The names that the parameters have in the folder.
    pub names: StoredNames,
    pub tokenizer: Tokenizer,
}

/// Returns whether the config at a path, a folder or a file of weights, is that of a language network that bella computes.
pub fn is_language(path: &Path) -> bool {
    model_type_of(path).is_some_and(|model_type| decoder(&model_type).is_some())
}

/// Opens the network at `path` for prompts of at most `tokens` tokens; 512 or the context by default. The weights of linear layers are
/// stored as `quantize` says when their turn comes.
///
/// # Errors
/// Fails if the folder is incomplete or damaged, if the config asks for what bella does not compute, if tensors are missing
/// or left over, if weights that are quantised already should be so, or if `tokens` exceeds the network's context.
pub fn open(path: &Path, tokens: Option<i64>, quantize: Option<Scheme>) -> Result<Opened> {
    let place = Place::of(path)?;
    let values = values_of(path)?;
    let mut language = described(&values, tokens)?;
    let tensors = tensors_of(&place, &values, quantize)?;
    let stored = largest_kind(&tensors);
    let Weights { base, head, names } =
        weights(&mut language.geometry, &values, tensors, quantize).with_context(|| path.display().to_string())?;
    let tokenizer = Tokenizer::open(&place.folder, language.geometry.vocabulary, language.tokens as usize)?;
    Ok(Opened { language, base, head, stored, names, tokenizer })
}

/// The weights of a folder.
struct Weights {
    base: Parameters,
    head: Option<OwnHead>,
    names: StoredNames,
}

/// Gives every tensor of a folder its place, those of linear layers in fewer bits if that is asked for. The names of the tensors tell
/// whether the network has an output matrix.
fn weights(
    geometry: &mut Geometry,
    values: &Values,
    mut tensors: Vec<(String, Unread)>,
    quantize: Option<Scheme>,
) -> Result<Weights> {
    let family = geometry.family;
    let names = family.names.stored(tensors.iter().map(|(name, _)| name.as_str()));
    let [score, output] = [HEAD, OUTPUT].map(|layer| names.name_of(&format!("{layer}.weight")));
    let writes = || values.architectures().next().is_none_or(|class| class == family.architecture);
    if score.is_some() || geometry.output == OutputMatrix::Own && output.is_none() && !writes() {
        geometry.output = OutputMatrix::None;
    }
    if score.is_none() && output.is_some() && geometry.output == OutputMatrix::None && !values.classifies_texts() {
        geometry.output = OutputMatrix::Own;
    }
    let at = tensors.iter().position(|(name, _)| score == Some(name.as_str()));
    let head = at.map(|at| tensors.remove(at));
    let head = head.map(|(stored, tensor)| classifier(geometry, values, stored, tensor)).transpose()?;
    Ok(Weights { base: placed(geometry, tensors, quantize)?, head, names })
}

/// Reads the classifier of the last token, which has no bias.
fn classifier(geometry: &Geometry, values: &Values, stored: String, tensor: Unread) -> Result<OwnHead> {
    values.expect_classifier()?;
    let (_, classes) = values.classes()?;
    let (weight, shape) = (tensor.tensor()?.to_kind(Kind::Float), [classes, geometry.width]);
    check_shape(&stored, &weight.size(), &shape)?;
    Ok(OwnHead { weight, bias: Tensor::zeros([classes], tch::kind::FLOAT_CPU) })
}

/// Returns the weights of the network at `path`, and its classifier if it has one. No tokenizer is needed.
///
/// # Errors
/// Fails as [`open`] does, apart from the tokenizer.
pub fn parameters(path: &Path, tokens: i64) -> Result<Alike> {
    let place = Place::of(path)?;
    let values = values_of(path)?;
    let mut language = described(&values, None)?;
    let tensors = tensors_of(&place, &values, None)?;
    let found = weights(&mut language.geometry, &values, tensors, None);
    let Weights { base, head, .. } = found.with_context(|| path.display().to_string())?;
    Ok(Alike { parameters: base, settings: settings(&language.geometry, tokens), head })
}

/// Returns what a network computes beyond the names and shapes of its parameters with texts of at most `tokens` tokens: a wider window is
/// none, and dynamic scaling begins behind the context.
pub fn settings(geometry: &Geometry, tokens: i64) -> Vec<Setting> {
    let Geometry { heads, key_heads, eps, ropes, views, traits, .. } = geometry;
    let view = |view: &View| View { window: view.window.filter(|window| *window < tokens), ..*view };
    let views: Vec<View> = views.iter().map(view).collect();
    let scaling = |scaling: &Scaling| if *scaling == Scaling::Dynamic { Scaling::None } else { scaling.clone() };
    let ropes: Vec<Rope> = ropes.iter().map(|rope| Rope { scaling: scaling(&rope.scaling), ..*rope }).collect();
    vec![
        Setting::new("number of heads", heads),
        Setting::new("number of heads of keys", key_heads),
        Setting::new("epsilon", eps),
        Setting::new("rotary positions", &ropes),
        Setting::new("windows of attention", &views),
        Setting::new("activation, norms and scores", traits),
    ]
}

/// Returns the type of the largest tensor of weights; indices and masks may be larger.
pub fn largest_kind(tensors: &[(String, Unread)]) -> Kind {
    let weights = tensors.iter().filter(|(_, t)| is_plain(t.kind));
    weights.max_by_key(|(_, t)| t.size.iter().product::<i64>()).map_or(Kind::Float, |(_, t)| t.kind)
}

/// Returns the network that a config describes, for prompts of at most `tokens` tokens; 512 or the context by default.
///
/// # Errors
/// Fails if the config asks for what bella does not compute, or if `tokens` exceeds the network's context.
pub fn described(values: &Values, tokens: Option<i64>) -> Result<Language> {
    let shown = values.path.display();
    let geometry = Geometry::read(values, decoder_of(values, "", "model_type")?)?;
    let tokens = tokens.unwrap_or(TOKENS.min(geometry.context));
    ensure!(
        tokens <= geometry.context,
        "checkpoint.max_tokens = {tokens}: the network of {shown} reads at most {} tokens",
        geometry.context
    );
    Ok(Language::new(geometry, tokens))
}

/// Returns the names and shapes of all parameters, in the order of the forward pass.
pub fn sizes(geometry: &Geometry) -> Vec<(String, Vec<i64>)> {
    let Geometry { vocabulary, width, learned, output, .. } = *geometry;
    let mut all = vec![(format!("{EMBEDDING}.weight"), vec![vocabulary, width])];
    all.extend(learned.map(|positions| (format!("{POSITION}.weight"), vec![positions, width])));
    let slots = Language::new(geometry.clone(), 1).slots();
    for stage in 0..geometry.blocks {
        let own: Vec<&Slot> = slots.iter().filter(|slot| slot.stage == stage && slot.target != OUTPUT).collect();
        all.extend(sizes_of_block(geometry, stage, &own));
    }
    all.extend(sizes_of_norm(geometry, "ln_post", width));
    all.extend((output == OutputMatrix::Own).then(|| (format!("{OUTPUT}.weight"), vec![vocabulary, width])));
    all
}

fn sizes_of_norm(geometry: &Geometry, layer: &str, width: i64) -> Vec<(String, Vec<i64>)> {
    let parts = if geometry.traits.norm == NormKind::Layer { &["weight", "bias"][..] } else { &["weight"] };
    parts.iter().map(|part| (format!("{layer}.{part}"), vec![width])).collect()
}

/// Returns those of a block with these linear layers.
fn sizes_of_block(geometry: &Geometry, stage: usize, slots: &[&Slot]) -> Vec<(String, Vec<i64>)> {
    let Geometry { width, channels, traits, .. } = *geometry;
    let Traits { biases, norms, head_norms, .. } = traits;
    let mut all = Vec::new();
    let around = |all: &mut Vec<_>, layer: &str, places: NormPlaces| {
        if norms == places || norms == NormPlaces::Both {
            all.extend(sizes_of_norm(geometry, &format!("blocks.{stage}.{layer}"), width));
        }
    };
    around(&mut all, "ln_1", NormPlaces::Before);
    for slot in slots {
        let biased = match slot.target.as_str() {
            "attn.q" | "attn.k" | "attn.v" | "attn.qkv" => biases.qkv,
            "attn.proj" => biases.attention_proj,
            _ => biases.mlp,
        };
        all.push((format!("{}.weight", slot.name), vec![slot.outputs, slot.inputs]));
        all.extend(biased.then(|| (format!("{}.bias", slot.name), vec![slot.outputs])));
        let normed = match (slot.target.as_str(), head_norms) {
            ("attn.q" | "attn.k", HeadNorms::Each) => Some(channels),
            ("attn.q" | "attn.k", HeadNorms::Together) => Some(slot.outputs),
            _ => None,
        };
        if let Some(normed) = normed {
            all.extend(sizes_of_norm(geometry, &format!("{}_norm", slot.name), normed));
        }
        if slot.target == "attn.proj" {
            around(&mut all, "ln_1_after", NormPlaces::After);
            around(&mut all, "ln_2", NormPlaces::Before);
        }
    }
    around(&mut all, "ln_2_after", NormPlaces::After);
    all
}

/// Gives every tensor of a language network its place, those of linear layers in fewer bits if `quantize` says so.
///
/// # Errors
/// Fails if a tensor is missing, has another shape than the config says, or has no place.
pub fn placed(geometry: &Geometry, tensors: Vec<(String, Unread)>, quantize: Option<Scheme>) -> Result<Parameters> {
    let layers = quantisable(&Language::new(geometry.clone(), 1));
    let store = |name: &str, weight: Weight| match (name.strip_suffix(".weight"), quantize) {
        (Some(layer), Some(scheme)) if layers.iter().any(|known| known == layer) => {
            weight.quantised(scheme).with_context(|| format!("checkpoint.quantize: {name}"))
        }
        _ => Ok(weight),
    };
    let Sorted { named, left: mut found } =
        sorted(geometry.family.names, "a language network", sizes(geometry), tensors, &store)?;
    let (embedding, tied) = (named.first().map(|(_, weight)| weight), geometry.output == OutputMatrix::Embeddings);
    if let Some(Weight::Plain(embedding)) = embedding.filter(|_| tied) {
        check_tie(embedding, &mut found)?;
    }
    if let Some(Stored { stored, .. }) = found.first() {
        bail!("`{stored}` has no place in the network that config.json describes");
    }
    let all = Parameters::of(named);
    Ok(if tied { all.tie(&format!("{OUTPUT}.weight"), &format!("{EMBEDDING}.weight")) } else { all })
}

/// A stored tensor of a network.
pub struct Stored<T> {
    /// Its name here.
    pub name: String,
    /// Its name in the folder.
    pub stored: String,
    pub tensor: T,
}

/// A function that returns the form in which a weight is kept, given its name here.
pub type Store<'a> = &'a dyn Fn(&str, Weight) -> Result<Weight>;

/// Tensors by the parameters of a network.
pub struct Sorted {
    /// The wanted parameters, in their order.
    pub named: Vec<(String, Weight)>,
    /// The tensors that are left over.
    pub left: Vec<Stored<Unread>>,
}

/// Gives every wanted parameter its tensor, which is read and kept as `store` returns it. `what` is the network, for messages.
///
/// # Errors
/// Fails if a tensor is missing, has another shape than is wanted, or has a name that the family does not have.
pub fn sorted(
    names: &Names,
    what: &str,
    wanted: Vec<(String, Vec<i64>)>,
    tensors: Vec<(String, Unread)>,
    store: Store,
) -> Result<Sorted> {
    let stored_names: Vec<String> = tensors.iter().map(|(stored, _)| stored.clone()).collect();
    let mut found = Vec::new();
    for (stored, tensor) in tensors {
        // Folders of early transformers also hold what follows from the config.
        if !names.is_read(&stored) {
            continue;
        }
        let name = names.canonical(&stored).with_context(|| format!("`{stored}` has no place in {what}"))?;
        found.push(Stored { name, stored, tensor });
    }
    let mut named = Vec::new();
    for (name, shape) in wanted {
        let at = found.iter().position(|one| one.name == name);
        let at = at.with_context(|| {
            format!("the weights lack `{}`, which config.json asks for", names.published(&name, &stored_names))
        })?;
        let Stored { stored, tensor, .. } = found.swap_remove(at);
        let weight = match tensor.weight()? {
            Weight::Plain(tensor) if names.is_turned(&name) && tensor.dim() == 2 => Weight::Plain(tensor.tr()),
            // Quantised matrices are stored as `[out, in]` in all families.
            weight => weight,
        };
        check_shape(&stored, &weight.size(), &shape)?;
        let weight = store(&name, weight)?;
        named.push((name, weight));
    }
    Ok(Sorted { named, left: found })
}

/// Checks that a stored tensor has the shape that the config asks for.
///
/// # Errors
/// Fails if it has another, and names the tensor as it is stored.
pub fn check_shape(stored: &str, found: &[i64], wanted: &[i64]) -> Result<()> {
    ensure!(
        found == wanted,
        "`{stored}` has the shape {found:?}, but config.json asks for {wanted:?}: they are not of one model"
    );
    Ok(())
}

/// Drops the output matrix of a tied network where it is stored as well.
fn check_tie(embedding: &Tensor, found: &mut Vec<Stored<Unread>>) -> Result<()> {
    let Some(at) = found.iter().position(|one| one.name == format!("{OUTPUT}.weight")) else { return Ok(()) };
    let Stored { stored, tensor, .. } = found.swap_remove(at);
    let output = tensor.tensor()?;
    ensure!(
        output.size() == embedding.size() && output.equal(embedding),
        "config.json says tie_word_embeddings = true, but `{stored}` differs from the embeddings: set it to false there"
    );
    Ok(())
}
