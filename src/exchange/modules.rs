//! The packages that exported models are for, and the linear layers of their models that hold a canonical layer, whole or in parts.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::base::small::Usage;
use crate::exchange::outgoing::{HeadOf, Outgoing};
use crate::model::families::{self, Class, IMAGE_SIZE, LastToken, Layers, OUTPUT, Style};
use crate::model::network::Slot;
use crate::model::recognition::{NAMINGS, Package};
use crate::model::stored::{Piece, StoredNames};

/// The rows of a canonical layer that a module of another model holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// Queries, keys or values, of rows that are a third.
    Third(i64),
    /// A gate (0) or what it multiplies (1), one above the other in one module.
    Half(i64),
}

/// A module of a package's model.
#[derive(Clone, Debug, PartialEq)]
pub struct Module {
    /// The path of the tensors of an adapter.
    pub path: String,
    /// The end of that path, which the layer also has where the network is a part of another class.
    pub end: String,
    /// The path that `target_modules` names. PEFT wraps an attention with both of its layers.
    pub wrapped: String,
    pub part: Part,
    /// The number of times that PEFT adds the update. In its wrapper of `nn.MultiheadAttention`, `merge` adds that of `out_proj` itself and
    /// calls `out_proj.merge`, which adds it again (every release up to 0.21; huggingface/peft pull request 3774).
    pub times: f64,
}

/// The end of the path of an attention's second layer in PEFT's wrapper, after that of the attention.
pub const OUT_PROJ: &str = ".base_layer.out_proj";

impl Module {
    fn new(path: String, part: Part) -> Module {
        Module::ending("", path, part)
    }

    fn ending(prefix: &str, end: String, part: Part) -> Module {
        let path = format!("{prefix}{end}");
        Module { wrapped: path.clone(), path, end, part, times: 1.0 }
    }
}

/// Returns the modules that hold the layer `slot` in the target's model.
///
/// # Errors
/// Fails if the checkpoint does not store the layer under a name of its own.
pub fn of(slot: &Slot, target: &Target, names: &StoredNames, gated: bool) -> Result<Vec<Module>> {
    if let Some(class) = target.class {
        let found = of_class(slot, class, target.generation(), gated);
        return found.with_context(|| format!("{} has no layer for {}", class.name, slot.name));
    }
    let pieces = names.modules(&slot.name, slot.outputs);
    let stored = pieces.first().with_context(|| format!("the checkpoint stores {} under no name", slot.name))?;
    // A tower of timm within open_clip has linear layers instead.
    if target.package == Package::OpenClip && [".in_proj", ".out_proj"].iter().any(|end| stored.name.ends_with(end)) {
        let attention = stored.name.trim_end_matches(".out_proj").trim_end_matches(".in_proj").to_string();
        let (path, times) = match slot.target.as_str() {
            "attn.qkv" => (attention.clone(), 1.0),
            _ => (format!("{attention}{OUT_PROJ}"), 2.0),
        };
        return Ok(vec![Module { end: path.clone(), path, wrapped: attention, part: Part::Whole, times }]);
    }
    if pieces.len() == 3 {
        let third = |(index, piece): (usize, &Piece)| Module::new(piece.name.clone(), Part::Third(index as i64));
        return Ok(pieces.iter().enumerate().map(third).collect());
    }
    let fc = names.modules(&format!("blocks.{}.mlp.fc", slot.stage), slot.outputs);
    let is_packed = slot.target == "mlp.gate" && fc.first().is_some_and(|fc| fc.name == stored.name);
    let part = match stored.stored_row {
        0 if is_packed => Part::Half(0),
        0 => Part::Whole,
        _ => Part::Half(1),
    };
    Ok(vec![Module::new(stored.name.clone(), part)])
}

fn of_class(slot: &Slot, class: &Class, generation: usize, gated: bool) -> Option<Vec<Module>> {
    if let Some(outer) = class.around.iter().find(|outer| outer.layer == slot.name) {
        return Some(vec![Module::ending(outer.prefix, outer.end.to_string(), Part::Whole)]);
    }
    let inner = class.inner.and_then(|inner| Some((inner, slot.name.strip_prefix(inner.part)?)));
    let (name, styles, prefix, gated) = match (inner, &class.layers) {
        // The towers inside of other networks have no gates.
        (Some((inner, name)), _) => (name, inner.styles, inner.prefix, false),
        (None, Layers::Styles(styles)) => (slot.name.as_str(), *styles, class.prefix, gated),
        (None, Layers::Named(names)) => {
            return Some(vec![Module::ending(class.prefix[generation], names.path(&slot.name)?, Part::Whole)]);
        }
    };
    let (block, layer) = name.strip_prefix("blocks.")?.split_once('.')?;
    Some(of_style(block, layer, &styles[generation], prefix[generation], gated))
}

fn of_style(block: &str, layer: &str, style: &Style, prefix: &str, gated: bool) -> Vec<Module> {
    let module = |layer: &str, part| Module::ending(prefix, format!("{}{block}.{layer}", style.blocks), part);
    let one = |layer: &str| vec![module(layer, Part::Whole)];
    match (layer, style.packed) {
        ("attn.q", _) => one(style.queries[0]),
        ("attn.k", _) => one(style.queries[1]),
        ("attn.v", _) => one(style.queries[2]),
        ("attn.qkv", _) => (0..3).map(|i| module(style.queries[i as usize], Part::Third(i))).collect(),
        ("attn.proj", _) => one(style.attention_proj),
        ("mlp.gate", Some(packed)) => vec![module(packed, Part::Half(0))],
        ("mlp.fc", Some(packed)) if gated => vec![module(packed, Part::Half(1))],
        ("mlp.gate", None) => one(style.gate),
        ("mlp.fc", _) if gated => one("mlp.up_proj"),
        ("mlp.fc", _) => one(style.fc),
        _ if gated => one(style.gated_proj),
        _ => one(style.proj),
    }
}

/// The package that will load an exported model, and the names of parameters there.
#[derive(Debug)]
pub struct Target {
    pub package: Package,
    /// The class that loads it, for a model of transformers.
    pub class: Option<&'static Class>,
}

/// The beginning of the names of an image tower's parameters in open_clip, whether the tower is its own or timm's.
const WITHIN_OPEN_CLIP: &str = "visual.";

/// Returns the packages that load checkpoints with names of the family `naming`, the usual one last; none for a module, which has
/// names of its own.
pub fn packages(naming: &str, names: &StoredNames) -> &'static [Package] {
    let within = names.name_of("patch.weight").is_some_and(|name| name.starts_with(WITHIN_OPEN_CLIP));
    match NAMINGS.iter().find(|known| known.key == naming) {
        Some(_) if within => &[Package::OpenClip],
        Some(known) => known.packages,
        None => &[],
    }
}

impl Target {
    /// Returns the target for a checkpoint with names of the family `naming`; `asked` chooses the package.
    ///
    /// # Errors
    /// Fails if the package has no such models, or if `naming` is that of no package.
    pub fn new(asked: Option<Package>, checkpoint: &Path, naming: &str, names: &StoredNames) -> Result<Target> {
        let shown = checkpoint.display();
        let known = packages(naming, names);
        let package = asked.or(known.last().copied());
        let package = package.with_context(|| format!("{shown}: no package loads a {naming} by its names"))?;
        let words: Vec<String> = known.iter().map(|package| format!("--for {package}")).collect();
        ensure!(
            known.contains(&package),
            Usage(format!("--for {package}: {shown} has {naming} names, which fit {}", words.join(" or ")))
        );
        let class = match package {
            Package::Transformers4 | Package::Transformers5 => {
                let config = super::config::read(checkpoint)?;
                Some(families::class(&config, names).with_context(|| shown.to_string())?)
            }
            _ => None,
        };
        Ok(Target { package, class })
    }

    /// Checks that the package builds the network for images of the size that the run reads.
    ///
    /// # Errors
    /// Fails if the package builds it for another size, whatever its config says, or if that config cannot be read.
    pub fn expect_size(&self, outgoing: &Outgoing) -> Result<()> {
        let config = if self.package == Package::OpenClip { outgoing.config()? } else { None };
        let tower = config.as_ref().map(|config| &config["model_cfg"]["vision_cfg"]);
        let Some(tower) = tower.filter(|tower| tower["timm_model_name"].is_string()) else { return Ok(()) };
        let (own, size) = (tower["image_size"].as_i64().unwrap_or(IMAGE_SIZE), outgoing.image_size()?);
        ensure!(
            own == size,
            "the run reads images of {size} pixels per side, and open_clip builds towers of timm for their own size alone, here {own}: train \
             with checkpoint.image_size = {own}, or export --to onnx or torchscript"
        );
        Ok(())
    }

    /// Checks that adapters fit the package's models.
    ///
    /// # Errors
    /// Fails if no package wraps their layers under names of their own, or if the package's forward goes past the wraps.
    pub fn expect_adapters(&self, names: &StoredNames) -> Result<()> {
        let timm = matches!(self.package, Package::Timm | Package::OpenClip);
        let apart = timm.then(|| names.name_of_stored_end(".attn.q_bias")).flatten();
        ensure!(
            apart.is_none(),
            "{}: timm multiplies by the fused weight of such layers itself (BEiT, EVA), past what PEFT wraps, so an adapter \
             would change nothing there: --to weights exports the whole model, and fine-tuned models can be imported",
            apart.unwrap_or_default()
        );
        ensure!(
            self.package != Package::Torchvision,
            "adapters do not fit the layers of torchvision's models: --to weights, torchscript and onnx export whole models, and \
             fine-tuned models can be imported"
        );
        Ok(())
    }

    /// Returns the target with the class that classifies the last token of a text, where every model is a decoder with updates of blocks and a
    /// classifier for which that class has a place: one without a bias.
    ///
    /// # Errors
    /// Fails if the config of the checkpoint cannot be read.
    pub fn classifying(&self, outgoing: &Outgoing) -> Result<Target> {
        let Target { package, class } = *self;
        let writes = outgoing.subspace.layout().blocks.iter().any(|block| block.name == OUTPUT);
        let fits = || (0..outgoing.count()).all(|model| outgoing.head(model).fits_without_bias());
        let classifies = self.decoder().is_some() && !writes && outgoing.session.model.head.cap.is_none() && fits();
        let other =
            if classifies { outgoing.config()?.and_then(|config| families::classifying(&config)) } else { None };
        Ok(Target { package, class: other.or(class) })
    }

    /// Returns the class of a decoder with what it makes of the last token of a text; `None` for other networks.
    pub fn decoder(&self) -> Option<(&'static Class, LastToken)> {
        self.class.and_then(|class| Some((class, class.last_token?)))
    }

    /// Returns 0 for transformers 4 and 1 for later versions.
    pub fn generation(&self) -> usize {
        usize::from(self.package != Package::Transformers4)
    }

    /// Returns the classifier of the package's model that is a trained head; `None` where the head stays beside it.
    pub fn classifier(&self) -> Option<&'static str> {
        match self.package {
            Package::Timm => Some("head"),
            Package::Torchvision => Some("heads.head"),
            Package::OpenClip => None,
            Package::Transformers4 | Package::Transformers5 => self.class.and_then(|class| class.classifier),
        }
    }
}

/// The place of the head of an exported adapter.
pub enum HeadPlace {
    /// In the package's model as it is loaded.
    Own,
    /// In the adapter, as the trained layer of this name.
    Saved(&'static str, HeadOf),
    /// In `head.safetensors`, for features.
    Beside { normalised: bool },
}

/// Returns where the head of a model is.
///
/// # Errors
/// Fails if it has no place: the package's model neither has such a classifier nor returns features.
pub fn head_place(outgoing: &Outgoing, target: &Target, model: usize) -> Result<HeadPlace> {
    let head = outgoing.head(model);
    let (width, read) = (outgoing.width(), head.weight.size()[1]);
    if outgoing.head_is_output(&head) {
        return Ok(HeadPlace::Own);
    }
    if let Some((_, LastToken::Classes(layer))) = target.decoder()
        && head.fits_without_bias()
    {
        return Ok(HeadPlace::Saved(layer, head));
    }
    match target.classifier() {
        Some(classifier) if head.trained && !head.normalised => {
            let wanted = target.class.map_or(read, |class| class.reads * width);
            ensure!(
                read <= wanted,
                "the head reads {read} features, but {} has a classifier of {wanted}: export it by --to weights",
                target.class.map_or("timm's model", |class| class.name)
            );
            // The classifier of DINOv2 also reads the mean of the patches, which this head does not.
            let weight = head.weight.constant_pad_nd([0, wanted - read]);
            Ok(HeadPlace::Saved(classifier, HeadOf { weight, ..head }))
        }
        Some(_) if outgoing.experiment.checkpoint.unit_features => bail!(
            "checkpoint.unit_features = true: {} does not divide its features by their norm in front of its classifier: export by --to \
             torchscript or --to onnx",
            target.class.map_or("the package's model", |class| class.name)
        ),
        Some(_) if outgoing.experiment.head.key == "checkpoint" => Ok(HeadPlace::Own),
        Some(_) if target.class.is_some() => bail!(
            "the head [head.{}] has no place in {}, which does not return its features: export to another package",
            outgoing.experiment.head.key,
            target.class.map_or("", |class| class.name)
        ),
        // The classifier of a decoder has no bias, so a trained one stays beside it.
        _ if target.decoder().is_some() && outgoing.experiment.head.key == "checkpoint" && !head.trained => {
            Ok(HeadPlace::Own)
        }
        _ => beside(outgoing, &head),
    }
}

/// Returns the place of a head in a file beside a model, whose logits are not bounded.
fn beside(outgoing: &Outgoing, head: &HeadOf) -> Result<HeadPlace> {
    ensure!(
        outgoing.session.model.head.cap.is_none(),
        "the logits of this network are bounded (final_logit_softcapping), but those of a head beside a model are not: export it \
         by --to torchscript or --to onnx"
    );
    Ok(HeadPlace::Beside { normalised: head.normalised })
}
