//! Reads a LLaVA network from a publisher's folder, whose tensors have the names of transformers 4 or 5. Nothing in it is
//! executed. Every tensor must have a place in the network, and every place a tensor; those of tower blocks that are not run
//! are left out.

use std::collections::HashSet;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tch::{Kind, Tensor};

use crate::base::files::read_json;
use crate::machine::quantised::Scheme;
use crate::model::families::decoders::LLAVA;
use crate::model::folder::quantised::tensors_of;
use crate::model::folder::{Place, Unread, check_preparation, config_file, home};
use crate::model::language::{Geometry, Language, Rows, TOKENS, Tokenizer, largest_kind, placed};
use crate::model::llava::config::VisionConfig;
use crate::model::llava::forward::VisionTower;
use crate::model::llava::{Llava, PROJECTOR, QuestionTokenizer, TOWER, config};
use crate::model::network::{Parameters, block_of};
use crate::model::recognition::{Expected, Named, recognise};
use crate::model::stored::{Form, StoredNames};
use crate::model::values::{Values, agree};
use crate::model::vit::forward::Vit;
use crate::model::vit::parts::Parts;
use crate::model::{Normalize, language, vit};

/// The start of the names of a tower that stands alone, by which CLIP's is recognised.
const TOWER_NAMES: &str = "vision_model.";

/// A network as read from its folder.
pub struct Opened {
    pub llava: Llava,
    /// The weights on the CPU.
    pub base: Parameters,
    /// The type in which the folder stores most weights.
    pub stored: Kind,
    /// The names that the parameters have in the folder.
    pub names: StoredNames,
    pub tokenizer: QuestionTokenizer,
}

/// Returns whether the config at a path, a folder or a file of weights, is that of a LLaVA network.
pub fn is_llava(path: &Path) -> bool {
    let table = config_file(&home(path)).and_then(|file| read_json(&file).ok());
    table.is_some_and(|table| table.get("model_type").and_then(Value::as_str) == Some(LLAVA))
}

/// Opens the network at `path` for prompts of at most `tokens` tokens, those of the image among them; 512 more than these or
/// the context by default. The weights of the language network's linear layers are stored as `quantize` says when their turn comes.
///
/// # Errors
/// Fails if the folder is incomplete or damaged, if the config asks for what bella does not compute, if tensors are missing
/// or left over, or if `tokens` exceeds the network's context.
pub fn open(path: &Path, tokens: Option<i64>, (normalize, quantize): (Normalize, Option<Scheme>)) -> Result<Opened> {
    let place = Place::of(path)?;
    let file = config_file(&place.folder).context("there is no config.json beside the weights")?;
    let values = Values::new(&file, read_json(&file)?);
    let (geometry, eyes) = config::read(&values)?;
    check_preparation(&place)?;
    let tensors = tensors_of(&place, &values, quantize)?;
    let stored = largest_kind(&tensors);
    let shown = || path.display().to_string();
    let (tower, base, names) = assembled(tensors, (&geometry, &eyes), quantize).with_context(shown)?;
    let sight = VisionTower { eyes, tower, normalize };
    let tokens = limit(&sight, &geometry, tokens, path)?;
    let tokenizer = QuestionTokenizer {
        tokenizer: Tokenizer::open(&place.folder, geometry.vocabulary, tokens as usize)?,
        image: sight.eyes.token as u32,
        patches: sight.patches() as usize,
        image_side: sight.eyes.image_size,
        normalize,
    };
    let llava = Llava { language: Language::new(geometry, tokens), sight, reads: Rows::All };
    Ok(Opened { llava, base, stored, names, tokenizer })
}

/// Returns the weights of the network at `path`, which needs no tokenizer.
///
/// # Errors
/// Fails as [`open`] does, apart from the tokenizer.
pub fn parameters(path: &Path) -> Result<Parameters> {
    let place = Place::of(path)?;
    let file = config_file(&place.folder).context("there is no config.json beside the weights")?;
    let values = Values::new(&file, read_json(&file)?);
    let (geometry, eyes) = config::read(&values)?;
    let tensors = tensors_of(&place, &values, None)?;
    let (_, base, _) = assembled(tensors, (&geometry, &eyes), None).with_context(|| path.display().to_string())?;
    Ok(base)
}

/// Returns the most tokens of a prompt with its image, as [`open`] has them, for the network of a folder or a config at `path`.
fn limit(sight: &VisionTower, geometry: &Geometry, tokens: Option<i64>, path: &Path) -> Result<i64> {
    let tokens = tokens.unwrap_or((TOKENS + sight.patches()).min(geometry.context));
    ensure!(
        (sight.patches()..=geometry.context).contains(&tokens),
        "checkpoint.max_tokens = {tokens}: must be from {}, the tokens of an image, to {}, the most that the network at {} reads",
        sight.patches(),
        geometry.context,
        path.display()
    );
    Ok(tokens)
}

/// Returns the network that a config describes, for prompts of at most `tokens` tokens as [`open`] has them.
///
/// # Errors
/// Fails if the config asks for what bella does not compute, or if `tokens` exceeds the network's context.
pub fn described(values: &Values, tokens: Option<i64>, normalize: Normalize) -> Result<Llava> {
    let (geometry, eyes) = config::read(values)?;
    let tower = Vit::new(config::tower(values, &eyes)?, eyes.traits, Parts::PLAIN);
    let sight = VisionTower { eyes, tower, normalize };
    let tokens = limit(&sight, &geometry, tokens, &values.path)?;
    Ok(Llava { language: Language::new(geometry, tokens), sight, reads: Rows::All })
}

/// Returns the names and shapes of all weights of a network, in the order of the forward pass.
pub fn sizes(llava: &Llava) -> Vec<(String, Vec<i64>)> {
    let VisionTower { eyes, tower, .. } = &llava.sight;
    let geometry = &llava.language.geometry;
    let seen = vit::architecture::sizes(&tower.geometry).into_iter().filter(|(name, _)| is_run(name, eyes.blocks));
    let mut all: Vec<_> = seen.map(|(name, shape)| (format!("{TOWER}{name}"), shape)).collect();
    all.extend(projector_sizes(tower.geometry.width, geometry.width, eyes));
    all.extend(language::sizes(geometry));
    all
}

/// The tensors of the parts, by their names there.
#[derive(Default)]
struct Sorted {
    tower: Vec<(String, Tensor)>,
    /// The start of the names that the tower's tensors have in the folder.
    tower_prefix: String,
    /// With their names in the folder.
    projector: Vec<(String, String, Tensor)>,
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
            found.projector.push((format!("projector.{name}"), stored, tensor.tensor()?));
        } else if name.starts_with("language_model.") || name.starts_with("lm_head") {
            found.language.push((stored, tensor));
        } else {
            bail!("`{stored}` has no place in a LLaVA network");
        }
    }
    Ok(found)
}

/// Gives every tensor its place: those of the tower, the projector and the language network, in this order.
fn assembled(
    tensors: Vec<(String, Unread)>,
    (geometry, eyes): (&Geometry, &VisionConfig),
    quantize: Option<Scheme>,
) -> Result<(Vit, Parameters, StoredNames)> {
    let Sorted { tower, tower_prefix, projector, language } = sorted(tensors)?;
    check_tower(&tower, &tower_prefix, eyes)?;
    let (vit, mut all, seen) = tower_of(&tower, eyes).context("its image tower")?;
    let seen = seen.within(TOWER, |name| name.replacen(TOWER_NAMES, &tower_prefix, 1));
    let between = projector.iter().map(|(name, stored, _)| (stored.clone(), name.clone(), Form::AsIs));
    let names = seen
        .with(StoredNames::of_plain(between))
        .with(geometry.family.names.stored(language.iter().map(|(stored, _)| stored.as_str())));
    all.extend(projector_of(projector, vit.geometry.width, geometry.width, eyes)?);
    let base = Parameters::new(all).with(placed(geometry, language, quantize)?);
    Ok((vit, base, names))
}

/// A tower, its parameters, and the names that these have where it stands alone.
type Seen = (Vit, Vec<(String, Tensor)>, StoredNames);

/// Checks that no tensor of the tower's blocks that are run is missing, nor one before them.
fn check_tower(tensors: &[(String, Tensor)], prefix: &str, eyes: &VisionConfig) -> Result<()> {
    const BEFORE: [&str; 5] = [
        "embeddings.class_embedding",
        "embeddings.patch_embedding.weight",
        "embeddings.position_embedding.weight",
        "pre_layrnorm.weight",
        "pre_layrnorm.bias",
    ];
    const LAYERS: [&str; 8] = [
        "layer_norm1",
        "self_attn.q_proj",
        "self_attn.k_proj",
        "self_attn.v_proj",
        "self_attn.out_proj",
        "layer_norm2",
        "mlp.fc1",
        "mlp.fc2",
    ];
    ensure!(!tensors.is_empty(), "the weights lack `vision_tower.*`, which config.json asks for");
    let there: HashSet<&str> = tensors.iter().map(|(name, _)| name.as_str()).collect();
    let layers = (0..eyes.blocks).flat_map(|block| LAYERS.map(|layer| format!("encoder.layers.{block}.{layer}")));
    let layers = layers.flat_map(|layer| ["weight", "bias"].map(|end| format!("{layer}.{end}")));
    let mut wanted = BEFORE.iter().map(|name| name.to_string()).chain(layers);
    if let Some(lacking) = wanted.find(|name| !there.contains(format!("vision_model.{name}").as_str())) {
        bail!("the weights lack `{prefix}{lacking}`, which config.json asks for");
    }
    Ok(())
}

/// Returns CLIP's tower with the parameters of the blocks that are run, and the names of all.
fn tower_of(tensors: &[(String, Tensor)], eyes: &VisionConfig) -> Result<Seen> {
    let Named { mut geometry, parts, base, names, .. } =
        recognise(tensors, Expected { image_size: Some(eyes.image_size), ..Expected::default() })?;
    ensure!(
        geometry.blocks >= eyes.blocks,
        "config.json runs {} blocks, but the weights have {}: they are not of one model",
        eyes.blocks,
        geometry.blocks
    );
    for (key, said, found) in [
        ("hidden_size", eyes.width, geometry.width),
        ("patch_size", eyes.patch, geometry.patch),
        ("image_size", eyes.image_size, geometry.image_size()),
        ("intermediate_size", eyes.mlp, geometry.mlp),
    ] {
        agree("config.json", &format!("vision_config.{key}"), said, found)?;
    }
    let run = eyes.blocks;
    let kept = base.all().iter().filter(|(name, _)| is_run(name, run));
    let named = kept.map(|(name, tensor)| (format!("{TOWER}{name}"), tensor.shallow_clone())).collect();
    geometry.blocks = run + 1;
    Ok((Vit::new(geometry, eyes.traits, parts), named, names))
}

/// Returns whether a parameter of CLIP's tower takes part where `blocks` blocks are run.
fn is_run(name: &str, blocks: usize) -> bool {
    match block_of(name) {
        Some(block) => block < blocks,
        None => !name.starts_with("ln_post.") && !name.starts_with("proj."),
    }
}

/// Returns the names and shapes of the projector's weights, from patches of `inputs` values to embeddings of `width`.
fn projector_sizes(inputs: i64, width: i64, eyes: &VisionConfig) -> Vec<(String, Vec<i64>)> {
    let layer = |(layer, inputs): (&str, i64)| {
        let weight = (format!("{layer}.weight"), vec![width, inputs]);
        [Some(weight), eyes.bias.then(|| (format!("{layer}.bias"), vec![width]))]
    };
    PROJECTOR.into_iter().zip([inputs, width]).flat_map(layer).flatten().collect()
}

fn projector_of(
    mut tensors: Vec<(String, String, Tensor)>,
    inputs: i64,
    width: i64,
    eyes: &VisionConfig,
) -> Result<Vec<(String, Tensor)>> {
    let mut named = Vec::new();
    let prefix = tensors.first().map_or("multi_modal_projector.".into(), |(name, stored, _)| {
        stored.trim_end_matches(name.trim_start_matches("projector.")).to_string()
    });
    for (name, shape) in projector_sizes(inputs, width, eyes) {
        let at = tensors.iter().position(|(known, ..)| *known == name);
        let theirs = format!("{prefix}{}", name.trim_start_matches("projector."));
        let at = at.with_context(|| format!("the weights lack `{theirs}`, which config.json asks for"))?;
        let (name, stored, tensor) = tensors.swap_remove(at);
        ensure!(
            tensor.size() == shape,
            "`{stored}` has the shape {:?}, but config.json asks for {shape:?}: they are not of one model",
            tensor.size()
        );
        named.push((name, tensor));
    }
    if let Some((_, stored, _)) = tensors.first() {
        bail!("`{stored}` has no place in the network that config.json describes");
    }
    Ok(named)
}
