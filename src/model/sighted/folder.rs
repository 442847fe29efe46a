//! Reads a network that sees images from a publisher's folder, whose tensors have the names of transformers 4 or 5. Nothing in it
//! is executed. Every tensor must have a place in the network, and every place a tensor; those of the tower that take no part are
//! left out.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use tch::{Kind, Tensor};

use super::config::VisionConfig;
use super::forward::VisionTower;
use super::{QuestionTokenizer, Sighted, TOWER, config, published_tower, tower_sizes, tower_wanted};
use crate::machine::quantised::Scheme;
use crate::model::families::sighted::sighted;
use crate::model::folder::quantised::tensors_of;
use crate::model::folder::{Place, Unread, check_preparation, model_type_of, values_of};
use crate::model::language::{Geometry, Language, Rows, Stored, TOKENS, check_shape, largest_kind, placed};
use crate::model::network::{Parameters, block_of, quantisable};
use crate::model::recognition::{Expected, Named, recognise};
use crate::model::stored::{Form, StoredNames};
use crate::model::values::{Values, agree};
use crate::model::vit::forward::Vit;
use crate::model::{Alike, Normalize, Setting, language};

/// The start of the names of a tower that stands alone, by which it is recognised.
const TOWER_NAMES: &str = "vision_model.";

/// A network as read from its folder.
pub struct Opened {
    pub network: Sighted,
    /// The weights on the CPU.
    pub base: Parameters,
    /// The type in which the folder stores most weights.
    pub stored: Kind,
    /// The names that the parameters have in the folder.
    pub names: StoredNames,
    pub tokenizer: QuestionTokenizer,
}

/// Returns whether the config at a path, a folder or a file of weights, is that of a network that sees images.
pub fn is_sighted(path: &Path) -> bool {
    model_type_of(path).is_some_and(|model_type| sighted(&model_type).is_some())
}

/// Opens the network at `path` for prompts of at most `tokens` tokens, those of the image among them; 512 more than these or
/// the context by default. The weights of the language network's linear layers are stored as `quantize` says when their turn comes.
///
/// # Errors
/// Fails if the folder is incomplete or damaged, if the config asks for what bella does not compute, if tensors are missing
/// or left over, or if `tokens` exceeds the network's context.
pub fn open(path: &Path, tokens: Option<i64>, normalize: Normalize, quantize: Option<Scheme>) -> Result<Opened> {
    let place = Place::of(path)?;
    let values = values_of(path)?;
    let network = described(&values, tokens, normalize)?;
    check_preparation(&place)?;
    let tensors = tensors_of(&place, &values, quantize)?;
    let stored = largest_kind(&tensors);
    let (geometry, eyes) = (&network.language.geometry, &network.sight.eyes);
    let (base, names) = assembled(tensors, geometry, eyes, quantize).with_context(|| path.display().to_string())?;
    let tokenizer = network.questions(&place.folder)?;
    Ok(Opened { network, base, stored, names, tokenizer })
}

/// Returns the weights of the network at `path`, which needs no tokenizer.
///
/// # Errors
/// Fails as [`open`] does, apart from the tokenizer.
pub fn parameters(path: &Path, tokens: i64) -> Result<Alike> {
    let place = Place::of(path)?;
    let values = values_of(path)?;
    let (geometry, eyes) = config::read(&values)?;
    let tensors = tensors_of(&place, &values, None)?;
    let (base, _) = assembled(tensors, &geometry, &eyes, None).with_context(|| path.display().to_string())?;
    Ok(Alike { parameters: base, settings: settings(&geometry, &eyes, tokens), head: None })
}

/// Returns what a network computes beyond the names and shapes of its parameters.
pub fn settings(geometry: &Geometry, eyes: &VisionConfig, tokens: i64) -> Vec<Setting> {
    let mut all = language::settings(geometry, tokens);
    all.push(Setting::new("heads, activation and epsilon of the tower", &eyes.traits));
    all.push(Setting::new("way from the tower", &eyes.sight));
    all
}

/// Returns the network that a config describes, for prompts of at most `tokens` tokens as [`open`] has them.
///
/// # Errors
/// Fails if the config asks for what bella does not compute, or if `tokens` exceeds the network's context.
pub fn described(values: &Values, tokens: Option<i64>, normalize: Normalize) -> Result<Sighted> {
    let (geometry, eyes) = config::read(values)?;
    let shown = values.path.display();
    let tower = Vit::new(eyes.geometry(&shown.to_string())?, eyes.traits, eyes.parts());
    let sight = VisionTower { eyes, tower, normalize };
    let (patches, context) = (sight.patches(), geometry.context);
    let tokens = tokens.unwrap_or((TOKENS + patches).min(context));
    ensure!(
        (patches..=context).contains(&tokens),
        "checkpoint.max_tokens = {tokens}: must be from {patches}, the tokens of an image, to {context}, the most that the network \
         of {shown} reads"
    );
    Ok(Sighted::new(Language::new(geometry, tokens), sight, Rows::All))
}

/// Returns the names and shapes of all weights of a network, in the order of the forward pass.
pub fn sizes(network: &Sighted) -> Vec<(String, Vec<i64>)> {
    let (eyes, geometry) = (&network.sight.eyes, &network.language.geometry);
    let mut all = tower_sizes(eyes);
    all.extend(projector_sizes(eyes, geometry.width));
    all.extend(language::sizes(geometry));
    all
}

/// The tensors of the parts, by their names there.
#[derive(Default)]
struct Sorted {
    tower: Vec<(String, Tensor)>,
    /// The start of the names that the tower's tensors have in the folder.
    tower_prefix: String,
    projector: Vec<Stored<Tensor>>,
    /// By their names in the folder.
    language: Vec<(String, Unread)>,
}

/// Sorts stored tensors by the part that they belong to.
fn sorted(tensors: Vec<(String, Unread)>) -> Result<Sorted> {
    let mut found = Sorted::default();
    for (stored, tensor) in tensors {
        let name = stored.strip_prefix("model.").unwrap_or(&stored);
        if let Some(name) = name.strip_prefix("vision_tower.") {
            let name = name.strip_prefix("vision_model.").unwrap_or(name);
            found.tower_prefix = stored[..stored.len() - name.len()].to_string();
            // The numbers of positions follow from the config.
            if !name.ends_with("position_ids") {
                found.tower.push((format!("{TOWER_NAMES}{name}"), tensor.tensor()?));
            }
        } else if let Some(name) = name.strip_prefix("multi_modal_projector.") {
            let name = format!("projector.{name}");
            found.projector.push(Stored { name, stored, tensor: tensor.tensor()? });
        } else if name.starts_with("language_model.") || name.starts_with("lm_head") {
            found.language.push((stored, tensor));
        } else {
            bail!("`{stored}` has no place in a network that sees images");
        }
    }
    Ok(found)
}

/// Gives every tensor its place: those of the tower, the projector and the language network, in this order.
fn assembled(
    tensors: Vec<(String, Unread)>,
    geometry: &Geometry,
    eyes: &VisionConfig,
    quantize: Option<Scheme>,
) -> Result<(Parameters, StoredNames)> {
    let Sorted { tower, tower_prefix, projector, language } = sorted(tensors)?;
    check_tower(&tower, &tower_prefix, eyes)?;
    let (mut all, seen) = tower_of(&tower, &tower_prefix, eyes).context("its image tower")?;
    let seen = seen.within(TOWER, |name| name.replacen(TOWER_NAMES, &tower_prefix, 1));
    let between = projector.iter().map(|one| (one.stored.clone(), one.name.clone(), Form::AsIs));
    let names = seen
        .with(StoredNames::of_plain(between))
        .with(geometry.family.names.stored(language.iter().map(|(stored, _)| stored.as_str())));
    drop(tower);
    all.extend(projector_of(projector, eyes, geometry.width)?);
    let mut seeing = Parameters::new(all);
    if let Some(scheme) = quantize {
        // Now, since wide weights of the tower would otherwise be there beside those of the language network.
        let tower = Vit::new(eyes.geometry("config.json")?, eyes.traits, eyes.parts());
        let layers: Vec<String> = quantisable(&tower).into_iter().map(|layer| format!("{TOWER}{layer}")).collect();
        seeing.quantise(&layers, scheme)?;
    }
    Ok((seeing.with(placed(geometry, language, quantize)?), names))
}

/// The parameters of a tower, and the names that these have where it stands alone.
type Seen = (Vec<(String, Tensor)>, StoredNames);

/// Checks that no tensor of the tower is missing that takes part.
fn check_tower(tensors: &[(String, Tensor)], prefix: &str, eyes: &VisionConfig) -> Result<()> {
    ensure!(!tensors.is_empty(), "the weights lack `vision_tower.*`, which config.json asks for");
    let there: HashSet<&str> = tensors.iter().filter_map(|(name, _)| name.strip_prefix(TOWER_NAMES)).collect();
    if let Some(lacking) = tower_wanted(eyes).find(|name| !there.contains(name.as_str())) {
        bail!("the weights lack `{prefix}{lacking}`, which config.json asks for");
    }
    Ok(())
}

/// Returns the parameters of the tower that take part, and the names of all. `prefix` begins the names of its tensors in the folder.
fn tower_of(tensors: &[(String, Tensor)], prefix: &str, eyes: &VisionConfig) -> Result<Seen> {
    let expected = Expected { image_size: Some(eyes.image_size), ..Expected::default() };
    let Named { geometry, base, names, .. } =
        recognise(tensors, expected).map_err(|why| misshapen(tensors, prefix, eyes).unwrap_or(why))?;
    for (key, said, found) in [
        ("hidden_size", eyes.width, geometry.width),
        ("patch_size", eyes.patch, geometry.patch),
        ("image_size", eyes.image_size, geometry.image_size()),
        ("intermediate_size", eyes.mlp, geometry.mlp),
    ] {
        agree("config.json", &format!("vision_config.{key}"), said, found)?;
    }
    let wanted = tower_sizes(eyes);
    let kept = base.all().iter().filter(|(name, _)| takes_part(name, eyes));
    let named: Vec<(String, Tensor)> =
        kept.map(|(name, tensor)| (format!("{TOWER}{name}"), tensor.shallow_clone())).collect();
    for (name, tensor) in &named {
        let own = wanted.iter().find(|(known, _)| known == name);
        let (_, shape) = own.with_context(|| format!("has `{name}`, which {} has not", eyes.tower.name))?;
        ensure!(
            tensor.size() == *shape,
            "`{name}` has the shape {:?}, but config.json asks for {shape:?}",
            tensor.size()
        );
    }
    Ok((named, names))
}

/// Returns the error of the first tensor whose shape is not that for which the config asks, by its name in the folder; `None` if there is
/// none.
fn misshapen(tensors: &[(String, Tensor)], prefix: &str, eyes: &VisionConfig) -> Option<Error> {
    let published = published_tower(eyes);
    tensors.iter().find_map(|(name, tensor)| {
        let name = name.strip_prefix(TOWER_NAMES)?;
        let (_, shape) = published.iter().find(|(known, shape)| known == name && tensor.size() != *shape)?;
        Some(anyhow!(
            "`{prefix}{name}` has the shape {:?}, but config.json asks for {shape:?}: they are not of one model",
            tensor.size()
        ))
    })
}

/// Returns whether a parameter of the tower takes part.
fn takes_part(name: &str, eyes: &VisionConfig) -> bool {
    let behind = ["proj.", "pool.", "head."].iter().any(|part| name.starts_with(part));
    match block_of(name) {
        Some(block) => block < eyes.sight.blocks,
        None if name.starts_with("ln_post.") => eyes.sight.norm,
        None => !behind,
    }
}

/// Returns the names and shapes of the projector's weights, from patches to embeddings of `width`.
fn projector_sizes(eyes: &VisionConfig, width: i64) -> Vec<(String, Vec<i64>)> {
    let layer = |(at, layer): (usize, &&str)| {
        let weight = (format!("{layer}.weight"), vec![width, if at == 0 { eyes.width } else { width }]);
        [Some(weight), eyes.sight.bias.then(|| (format!("{layer}.bias"), vec![width]))]
    };
    eyes.family.projector.iter().enumerate().flat_map(layer).flatten().collect()
}

fn projector_of(mut tensors: Vec<Stored<Tensor>>, eyes: &VisionConfig, width: i64) -> Result<Vec<(String, Tensor)>> {
    let mut named = Vec::new();
    let prefix = tensors.first().map_or("multi_modal_projector.".into(), |Stored { name, stored, .. }| {
        stored.trim_end_matches(name.trim_start_matches("projector.")).to_string()
    });
    for (name, shape) in projector_sizes(eyes, width) {
        let at = tensors.iter().position(|one| one.name == name);
        let theirs = format!("{prefix}{}", name.trim_start_matches("projector."));
        let at = at.with_context(|| format!("the weights lack `{theirs}`, which config.json asks for"))?;
        let Stored { name, stored, tensor } = tensors.swap_remove(at);
        check_shape(&stored, &tensor.size(), &shape)?;
        named.push((name, tensor));
    }
    if let Some(Stored { stored, .. }) = tensors.first() {
        bail!("`{stored}` has no place in the network that config.json describes");
    }
    Ok(named)
}
