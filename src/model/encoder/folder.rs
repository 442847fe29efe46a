//! Reads a text encoder from a publisher's folder: `config.json`, the weights in one file or in shards, and the tokenizer. Nothing in it
//! is executed. Every tensor must have a place in the network, and every place a tensor; those of other heads are left out.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, normal, stream};
use crate::machine::quantised::Scheme;
use crate::model::encoder::forward::{DISTANCE, DISTANCE_NORM};
use crate::model::encoder::{Encoder, Geometry};
use crate::model::families::encoders::{
    Encoder as Family, Features, Numbering, POOLER, POOLER_NORM, Places, RELATIVE, Traits, encoder,
};
use crate::model::families::{EMBEDDING, HEAD};
use crate::model::folder::quantised::tensors_of;
use crate::model::folder::{Place, Unread, model_type_of, values_of};
use crate::model::language::{Sorted, Stored, largest_kind, sorted};
use crate::model::module::{Limit, Tokenizer};
use crate::model::network::{Network, Parameters, Slot, Weight, block_of};
use crate::model::stored::{Form, StoredNames};
use crate::model::values::Values;
use crate::model::vit::OwnHead;
use crate::model::{Alike, Setting};

/// A text encoder as read from its folder.
pub struct Opened {
    pub encoder: Encoder,
    /// The weights on the CPU, in the type in which they are stored.
    pub base: Parameters,
    /// The folder's own classifier.
    pub head: Option<OwnHead>,
    /// The type in which the folder stores most weights.
    pub stored: Kind,
    /// The names that the parameters have in the folder.
    pub names: StoredNames,
    /// Whether the folder has the layer by which a text is read as a whole; where it has none and features are read by it, its weights
    /// are new.
    pub has_pooler: bool,
    pub tokenizer: Box<Tokenizer>,
}

/// The settings of a config that decide how a folder is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// The features of a text; by default the outputs of the layer in front of a classifier where the weights have it, or else the hidden
    /// state of the first token.
    pub features: Option<Features>,
    /// The fewer bits in which weights are stored.
    pub quantize: Option<Scheme>,
}

/// The weights of a folder.
struct Weights {
    geometry: Geometry,
    base: Parameters,
    head: Option<OwnHead>,
    stored: Kind,
    names: StoredNames,
    has_pooler: bool,
}

/// Returns whether the config at a path, a folder or a file of weights, is that of a text encoder that bella computes.
pub fn is_encoder(path: &Path) -> bool {
    // Beside the archive of a module lies the config of the encoder that it was exported from.
    if path.extension().is_some_and(|ending| ending == "pt") {
        return false;
    }
    model_type_of(path).is_some_and(|model_type| encoder(&model_type).is_some())
}

/// Opens the network at `path` for the texts of a tokenizer.
///
/// # Errors
/// Fails if the folder is incomplete or damaged, if the config asks for what bella does not compute, if tensors are missing or left
/// over, if the tokenizer does not belong to the network, if the limit exceeds the network's positions, or if weights that are
/// quantised already should be so.
pub fn open(path: &Path, tokenizer: &Path, limit: Limit, asked: Asked) -> Result<Opened> {
    let Weights { geometry, base, head, stored, names, has_pooler } = weights(path, asked)?;
    let (context, vocabulary) = (geometry.context(), geometry.vocabulary);
    if let Some(tokens) = limit.tokens {
        ensure!(
            tokens <= context,
            "checkpoint.max_tokens = {tokens}: the network of {} reads at most {context} tokens",
            path.display()
        );
    }
    let mut encoder = Encoder::new(geometry, context);
    let padding = Some(encoder.geometry.padding).filter(|token| *token < vocabulary);
    let unplaced = encoder.geometry.unplaced();
    let limit = Limit { context: Some(context), vocabulary: Some(vocabulary), padding, unplaced, ..limit };
    let tokenizer = Tokenizer::open(tokenizer, limit, encoder.values())?;
    let (said, own) = (encoder.geometry.padding, tokenizer.padding.id);
    ensure!(
        encoder.geometry.family.numbering != Numbering::BehindPadding || said == own,
        "{}: its config says pad_token_id = {said}, behind which positions are counted, but {} pads with the token {own}: they are not of one \
         model: give the tokenizer that was published with the weights, or correct the key",
        path.display(),
        tokenizer.path().display()
    );
    encoder.tokens = tokenizer.tokens;
    Ok(Opened { encoder, base, head, stored, names, has_pooler, tokenizer: Box::new(tokenizer) })
}

/// Returns the weights of the network at `path` for such features, and its classifier if it has one. No tokenizer is needed.
///
/// # Errors
/// Fails as [`open`] does, apart from the tokenizer.
pub fn parameters(path: &Path, features: Option<Features>) -> Result<Alike> {
    let Weights { geometry, base, head, .. } = weights(path, Asked { features, quantize: None })?;
    Ok(Alike { parameters: base, settings: settings(&geometry), head })
}

/// Returns what a network computes beyond the names and shapes of its parameters.
pub fn settings(geometry: &Geometry) -> Vec<Setting> {
    let Geometry { heads, eps, activation, padding, traits, family, .. } = geometry;
    let Traits { norms_first, places, readout, .. } = traits;
    vec![
        Setting::new("number of heads", heads),
        Setting::new("epsilon", eps),
        Setting::new("activation", activation),
        // Elsewhere its place is that of any token, and attention leaves it out.
        Setting::new("token of padding", &(family.numbering == Numbering::BehindPadding).then_some(padding)),
        Setting::new("place of norms", norms_first),
        Setting::new("way in which tokens know their places", places),
        Setting::new("layer in front of the classifier", &geometry.is_pooled().then_some(readout)),
    ]
}

/// Returns the family that a config names.
///
/// # Errors
/// Fails if it is none of text encoders.
pub fn family_of(values: &Values) -> Result<&'static Family> {
    let family = encoder(values.text("model_type").unwrap_or_default());
    family.with_context(|| format!("{}: its model_type is that of no text encoder", values.path.display()))
}

fn weights(path: &Path, Asked { features, quantize }: Asked) -> Result<Weights> {
    let place = Place::of(path)?;
    let values = values_of(path)?;
    let family = family_of(&values)?;
    let tensors = tensors_of(&place, &values, quantize)?;
    let stored = largest_kind(&tensors);
    let no_positions = !Geometry::read(&values, family, Features::Pooled)?.has_positions();
    let is_read = |name: &str| {
        let inner = family.names.prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
        // Folders of networks without a table of positions may store one.
        let idle = no_positions && inner.starts_with("embeddings.position_embeddings.");
        !idle && !family.unread.iter().any(|start| inner.starts_with(start))
    };
    let mut tensors: Vec<(String, Unread)> = tensors.into_iter().filter(|(name, _)| is_read(name)).collect();
    let named = |tensors: &[(String, Unread)]| family.names.stored(tensors.iter().map(|(name, _)| name.as_str()));
    let has_pooler = named(&tensors).name_of(&format!("{POOLER}.weight")).is_some();
    let usual = if has_pooler { Features::Pooled } else { Features::First };
    let features = features.unwrap_or(usual);
    if features != usual {
        // A classifier reads the features with which it was trained.
        let others = [format!("{POOLER}."), format!("{POOLER_NORM}."), format!("{HEAD}.")];
        let is_other = |name: &str| {
            family.names.canonical(name).is_some_and(|own| others.iter().any(|other| own.starts_with(other)))
        };
        tensors.retain(|(name, _)| !is_other(name));
    }
    let names = named(&tensors);
    let geometry = Geometry::read(&values, family, features)?;
    let fresh = if geometry.is_pooled() && !has_pooler { new_pooler(&geometry, &values)? } else { Vec::new() };
    let classes = names.name_of("head.weight").map(|_| values.expect_classifier().and_then(|()| values.classes()));
    let classes = classes.transpose()?.map(|(_, count)| count);
    let as_it_is = |_: &str, weight: Weight| Ok(weight);
    let mut stored_sizes = sizes(&geometry, classes);
    stored_sizes.retain(|(name, _)| fresh.iter().all(|(new, _)| new != name));
    let all = sorted(family.names, "a text encoder", stored_sizes, tensors, &as_it_is);
    let Sorted { mut named, left } = all.with_context(|| path.display().to_string())?;
    if let Some(Stored { stored, .. }) = left.first() {
        anyhow::bail!("{}: `{stored}` has no place in the network that config.json describes", path.display());
    }
    let head = classes.and_then(|_| {
        let bias = named.pop()?.1.into_values().to_kind(Kind::Float);
        Some(OwnHead { weight: named.pop()?.1.into_values().to_kind(Kind::Float), bias })
    });
    let paths = [(POOLER, family.path_of_pooler()), (POOLER_NORM, family.path_of_pooler_norm())];
    let new_names = fresh.iter().filter_map(|(name, _)| {
        let (layer, part) = name.rsplit_once('.')?;
        let (_, path) = paths.iter().find(|(own, _)| *own == layer)?;
        Some((format!("{path}.{part}"), name.clone(), Form::AsIs))
    });
    let names = names.with(StoredNames::of_plain(new_names));
    named.extend(fresh.into_iter().map(|(name, value)| (name, Weight::Plain(value))));
    Ok(Weights { geometry, base: Parameters::of(named), head, stored, names, has_pooler })
}

/// Returns new parameters of the layer by which a text is read as a whole, as transformers draws them: weights from a Gaussian with the
/// deviation `initializer_range`, and biases of 0. They are the same ones each time.
fn new_pooler(geometry: &Geometry, values: &Values) -> Result<Vec<(String, Tensor)>> {
    let std = values.number("initializer_range", 0.02)?;
    let mut rng = stream(0, Purpose::Init, &[]);
    let new = |(name, shape): (String, Vec<i64>)| {
        let options = (Kind::Float, tch::Device::Cpu);
        let value = match (name.ends_with(".weight"), shape.len()) {
            (true, 2) => {
                let drawn: Vec<f32> =
                    (0..shape.iter().product()).map(|_: i64| (std * normal(&mut rng)) as f32).collect();
                Tensor::from_slice(&drawn).view(&shape[..])
            }
            (true, _) => Tensor::ones(&shape[..], options),
            (false, _) => Tensor::zeros(&shape[..], options),
        };
        (name, value)
    };
    let is_new = |name: &str| name.starts_with(&format!("{POOLER}.")) || name.starts_with(&format!("{POOLER_NORM}."));
    Ok(sizes(geometry, None).into_iter().filter(|(name, _)| is_new(name)).map(new).collect())
}

/// Returns the names and shapes of all parameters, in the order of the forward pass; those of a classifier of `classes` come last.
pub fn sizes(geometry: &Geometry, classes: Option<i64>) -> Vec<(String, Vec<i64>)> {
    let &Geometry { vocabulary, width, heads, positions, kinds, ref traits, .. } = geometry;
    let pooled = geometry.is_pooled();
    let embedded = traits.embedded.unwrap_or(width);
    let biases = traits.biases;
    let mut all = Listed::default();
    all.put(EMBEDDING, &[vocabulary, embedded], false);
    if geometry.has_positions() {
        all.put("position", &[positions, embedded], false);
    }
    if kinds > 0 {
        all.put("kind", &[kinds, embedded], false);
    }
    all.put("ln_pre", &[embedded], biases.norms);
    if let Places::Relative { rows, .. } = traits.places {
        all.put(RELATIVE, &[rows, heads], false);
    }
    if let Places::Disentangled { distances, .. } = traits.places {
        all.put(DISTANCE, &[2 * distances.span(), width], false);
        if distances.normed {
            all.put(DISTANCE_NORM, &[width], true);
        }
    }
    for slot in Encoder::new(geometry.clone(), 1).slots() {
        all.put_layer(&slot, width, traits);
    }
    if traits.norms_first && !pooled {
        all.put("ln_post", &[width], biases.norms);
    }
    if pooled && traits.readout.normed {
        all.put(POOLER_NORM, &[width], biases.norms);
    }
    if let Some(classes) = classes {
        all.put("head", &[classes, width], true);
    }
    all.0
}

/// The names and shapes of parameters.
#[derive(Default)]
struct Listed(Vec<(String, Vec<i64>)>);

impl Listed {
    fn put(&mut self, layer: &str, shape: &[i64], biased: bool) {
        self.0.push((format!("{layer}.weight"), shape.to_vec()));
        self.0.extend(biased.then(|| (format!("{layer}.bias"), vec![shape[0]])));
    }

    /// Adds a linear layer, and the norms of `width` that stand beside it.
    fn put_layer(&mut self, slot: &Slot, width: i64, traits: &Traits) {
        let biases = traits.biases;
        let (target, block) = (slot.target.as_str(), block_of(&slot.name).unwrap_or_default());
        let norm = |number: u8| format!("blocks.{block}.ln_{number}");
        let before = match target {
            "attn.qkv" if block > 0 => Some(norm(1)),
            "mlp.gate_fc" => Some(norm(2)),
            "pooler" => Some("ln_post".to_string()),
            _ => None,
        };
        if let Some(norm) = before.filter(|_| traits.norms_first) {
            self.put(&norm, &[width], biases.norms);
        }
        let biased = match target {
            "pooler" => biases.readout,
            _ if target.starts_with("attn.") => biases.attention,
            _ => biases.mlp,
        };
        self.put(&slot.name, &[slot.outputs, slot.inputs], biased);
        match target {
            "attn.proj" if !traits.norms_first => self.put(&norm(1), &[width], biases.norms),
            "mlp.proj" if !traits.norms_first => self.put(&norm(2), &[width], biases.norms),
            _ => {}
        }
    }
}
