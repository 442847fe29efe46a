//! Reads `config.json`, which contains what names and shapes of the weights do not tell.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::classes::{CLASSES, Class, IMAGE_SIZE, NESTED};
use super::values::Values;
use super::weights::Place;
use crate::model::network::Parameters;
use crate::model::vit::architecture::{Architecture, Pool, architecture};
use crate::model::vit::identify::{Fixed, Source, Sources};
use crate::model::vit::parts::{Parts, Readout, Resize};
use crate::model::vit::rope::Rope;
use crate::model::vit::{Activation, Geometry, Traits, heads_fit, table_heads};
use crate::schema::hint;

/// The file names of configs, in the order of the search.
pub const FILES: [&str; 2] = ["config.json", "open_clip_config.json"];

/// Returns the config of a folder, if it has one.
pub fn file(folder: &Path) -> Option<PathBuf> {
    FILES.iter().map(|name| folder.join(name)).find(|path| path.is_file())
}

/// Returns the height in timm's `input_size = [3, height, width]`, in pixels.
pub fn input_size(config: &Value) -> Option<i64> {
    config.get("input_size")?.get(1)?.as_i64()
}

/// What is known of a network besides its weights.
pub struct Config {
    kind: Kind,
    /// The table of the image tower.
    values: Values,
    /// The table of the text tower, if the config has one besides that of the image tower.
    text: Option<Values>,
}

#[derive(Clone, Copy)]
enum Kind {
    Transformers(&'static Class),
    Timm(&'static Architecture),
    /// timm's tower within open_clip. With `projects`, its classifier is the projection.
    TimmInOpenClip {
        architecture: &'static Architecture,
        projects: bool,
    },
    /// The towers of open_clip itself.
    OpenClip,
    /// There is no config: the weights' names, and what the user says.
    Told,
}

impl Config {
    /// Reads the config beside weights, or what the user says in its place.
    ///
    /// # Errors
    /// Fails if the config is not JSON, if its model type or architecture is unknown, or if there is neither a config nor
    /// an architecture nor all of `heads`, `activation` and `eps`.
    pub fn read(place: &Place, fixed: &Fixed) -> Result<Config> {
        let Some(path) = file(&place.folder) else { return Config::told(&place.path, fixed) };
        let shown = path.display();
        let text = std::fs::read_to_string(&path).with_context(|| format!("{shown}: cannot read"))?;
        let table: Value = serde_json::from_str(&text).with_context(|| format!("{shown}: no JSON"))?;
        if let Some(model) = table.get("model_cfg") {
            return Config::of_open_clip(&path, model, fixed);
        }
        let values = Values::new(&path, table);
        if let Some(name) = values.text("architecture") {
            let name = fixed.architecture.as_deref().unwrap_or(name);
            let kind = Kind::Timm(architecture(name).with_context(|| shown.to_string())?);
            check_arguments(&values)?;
            return Ok(Config { kind, values, text: None });
        }
        ensure!(
            fixed.architecture.is_none(),
            "checkpoint.architecture is a name of timm's, but {shown} is not of timm: leave it out"
        );
        Config::of_transformers(values)
    }

    fn of_transformers(values: Values) -> Result<Config> {
        let shown = values.path.display();
        let model_type = values.text("model_type");
        let model_type = model_type.with_context(|| format!("{shown}: has neither `model_type` nor `architecture`"))?;
        let nested = NESTED.iter().find(|(outer, _)| *outer == model_type);
        let inner = nested.map_or(model_type, |(_, inner)| inner);
        let class = CLASSES.iter().find(|class| class.model_type == inner).with_context(|| {
            let known = || CLASSES.iter().map(|class| class.model_type);
            let all = known().collect::<Vec<_>>().join(", ");
            format!("{shown}: model_type = \"{inner}\" is none that bella reads; known: {all}{}", hint(inner, known()))
        })?;
        let of = |key: &str| values.get(key).cloned().map(|table| Values::new(&values.path, table));
        let (tower, text) = match nested {
            Some(_) => (of("vision_config").unwrap_or(Values::new(&values.path, Value::Null)), of("text_config")),
            None => (values.clone(), None),
        };
        Ok(Config { kind: Kind::Transformers(class), values: tower, text })
    }

    fn of_open_clip(path: &Path, model: &Value, fixed: &Fixed) -> Result<Config> {
        let table = |key: &str| Values::new(path, model.get(key).cloned().unwrap_or(Value::Null));
        let (mut vision, text) = (table("vision_cfg"), Values::new(path, model.clone()));
        let Some(name) = vision.text("timm_model_name").map(str::to_string) else {
            return Ok(Config { kind: Kind::OpenClip, values: vision, text: Some(text) });
        };
        let name = fixed.architecture.clone().unwrap_or(name);
        let architecture = architecture(&name).with_context(|| path.display().to_string())?;
        // With `null` or an empty word, timm's classifier is the projection; an absent key means a projection of its own.
        let projects = model.pointer("/vision_cfg/timm_proj").is_some_and(|word| word.is_null() || word == "");
        let pool = vision.text("timm_pool").unwrap_or("avg").to_string();
        let size = vision.side("image_size", IMAGE_SIZE)?;
        vision = Values::new(
            path,
            serde_json::json!({ "global_pool": pool, "pretrained_cfg": { "input_size": [3, size, size] } }),
        );
        Ok(Config { kind: Kind::TimmInOpenClip { architecture, projects }, values: vision, text: Some(text) })
    }

    /// Returns what the user says about weights without a config.
    fn told(path: &Path, fixed: &Fixed) -> Result<Config> {
        let kind = match &fixed.architecture {
            Some(name) => Kind::Timm(architecture(name).context("checkpoint.architecture")?),
            None => Kind::Told,
        };
        let told = fixed.heads.is_some() && fixed.activation.is_some() && fixed.eps.is_some();
        ensure!(
            told || matches!(kind, Kind::Timm(_)),
            "{}: has no {} and no {} beside the weights: put the publisher's config there, or set checkpoint.architecture to timm's name of \
             the network, or all of checkpoint.heads, checkpoint.activation and checkpoint.eps",
            path.display(),
            FILES[0],
            FILES[1]
        );
        Ok(Config { kind, values: Values::new(path, Value::Null), text: None })
    }

    /// Returns how the package that wrote the folder resizes position embeddings.
    pub fn resize(&self, naming: &str) -> Resize {
        match self.kind {
            Kind::Transformers(class) => class.resize,
            Kind::Told if naming == "transformers" => Resize::Plain,
            _ => Resize::Antialiased,
        }
    }

    /// Returns the number of pixels per side at which the weights were trained.
    ///
    /// # Errors
    /// Fails if the value is not a positive number.
    pub fn image_size(&self) -> Result<Option<i64>> {
        match self.kind {
            Kind::Transformers(_) => self.values.side("image_size", IMAGE_SIZE).map(Some),
            Kind::Timm(_) | Kind::TimmInOpenClip { .. } => Ok(self.values.get("pretrained_cfg").and_then(input_size)),
            Kind::OpenClip => Ok(self.values.get("image_size").and_then(Value::as_i64)),
            Kind::Told => Ok(None),
        }
    }

    /// Returns whether the classifier among the weights is the projection of the features.
    pub fn projects_by_head(&self) -> bool {
        matches!(self.kind, Kind::TimmInOpenClip { projects: true, .. })
    }

    fn architecture(&self) -> Option<&'static Architecture> {
        match self.kind {
            Kind::Timm(architecture) | Kind::TimmInOpenClip { architecture, .. } => Some(architecture),
            _ => None,
        }
    }

    /// Returns the number of heads, the activation and epsilon, and where they come from. Values in `fixed`, from the
    /// user's own config, take precedence.
    ///
    /// # Errors
    /// Fails if the activation is unknown, if the heads do not divide the width, or if they contradict the weights.
    pub fn traits(&self, geometry: &Geometry, base: &Parameters, fixed: &Fixed) -> Result<(Traits, Sources)> {
        let (own, sources) = self.own_traits(geometry, fixed)?;
        let traits = Traits {
            heads: fixed.heads.unwrap_or(own.heads),
            activation: fixed.activation.unwrap_or(own.activation),
            eps: fixed.eps.unwrap_or(own.eps),
        };
        let (heads, width) = (traits.heads, geometry.width);
        ensure!(heads_fit(heads, width), "{heads} heads do not divide the width {width}");
        let told = table_heads(base).unwrap_or(heads);
        ensure!(told == heads, "its relative positions are those of {told} heads, but it is said to have {heads}");
        Ok((traits, sources.overridden(fixed)))
    }

    fn own_traits(&self, geometry: &Geometry, fixed: &Fixed) -> Result<(Traits, Sources)> {
        let values = &self.values;
        let said = |key: &str| if values.get(key).is_some() { Source::Config } else { Source::Default };
        Ok(match self.kind {
            Kind::Transformers(class) => {
                let traits = Traits {
                    heads: values.integer("num_attention_heads", class.heads)?,
                    activation: values.activation(class.activation)?,
                    eps: values.number("layer_norm_eps", class.eps)?,
                };
                let activation = if values.is_true("use_swiglu_ffn") { Source::Config } else { said("hidden_act") };
                let (heads, eps) = (said("num_attention_heads"), said("layer_norm_eps"));
                (traits, Sources { heads, activation, eps, rope: said("rope_theta"), readout: Source::Weights })
            }
            Kind::Timm(architecture) | Kind::TimmInOpenClip { architecture, .. } => {
                let own = values.get("model_args").and_then(|arguments| arguments.get("num_heads")?.as_i64());
                let traits = Traits {
                    heads: own.unwrap_or(architecture.heads),
                    activation: architecture.activation,
                    eps: architecture.eps,
                };
                let all = Sources::all(Source::Architecture);
                let heads = if own.is_some() { Source::Config } else { all.heads };
                let readout = if values.get("global_pool").is_some() { Source::Config } else { all.readout };
                (traits, Sources { heads, readout, ..all })
            }
            Kind::OpenClip => {
                let width = values.integer("head_width", 64)?;
                let traits = Traits { heads: (geometry.width / width).max(1), activation: self.open_clip(), eps: 1e-5 };
                let (activation, eps) = (self.text_said("quick_gelu"), Source::Default);
                let (rope, readout) = (Source::Weights, Source::Weights);
                (traits, Sources { heads: said("head_width"), activation, eps, rope, readout })
            }
            Kind::Told => {
                let (Some(heads), Some(activation), Some(eps)) = (fixed.heads, fixed.activation, fixed.eps) else {
                    bail!("set all of checkpoint.heads, checkpoint.activation and checkpoint.eps")
                };
                (Traits { heads, activation, eps }, Sources::all(Source::Weights))
            }
        })
    }

    fn text_said(&self, key: &str) -> Source {
        let said = self.text.as_ref().is_some_and(|text| text.get(key).is_some());
        if said { Source::Config } else { Source::Default }
    }

    /// Returns the activation of open_clip's own towers.
    fn open_clip(&self) -> Activation {
        let quick = self.text.as_ref().is_some_and(|text| text.is_true("quick_gelu"));
        if quick { Activation::QuickGelu } else { Activation::Gelu }
    }

    /// Returns the traits of CLIP's text tower of the given width; `None` if the network has none that bella reads.
    ///
    /// # Errors
    /// Fails if a value is not a positive number, or if the activation is unknown.
    pub fn text(&self, width: i64) -> Result<Option<Traits>> {
        let Some(text) = &self.text else { return Ok(None) };
        match self.kind {
            Kind::OpenClip | Kind::TimmInOpenClip { .. } => {
                let table = Values::new(&text.path, text.get("text_cfg").cloned().unwrap_or(Value::Null));
                let heads = table.integer("heads", (width / 64).max(1))?;
                Ok(Some(Traits { heads, activation: self.open_clip(), eps: 1e-5 }))
            }
            Kind::Transformers(class) if class.model_type == "clip_vision_model" => {
                let (heads, eps) = (text.integer("num_attention_heads", 8)?, text.number("layer_norm_eps", 1e-5)?);
                Ok(Some(Traits { heads, activation: text.activation("quick_gelu")?, eps }))
            }
            _ => Ok(None),
        }
    }

    /// Returns the rotary positions, if the family has them.
    ///
    /// # Errors
    /// Fails if the base is not a positive number, or if nothing tells whether there are rotary positions.
    pub fn rope(&self, parts: &Parts, has_position: bool) -> Result<Option<Rope>> {
        match self.kind {
            Kind::Transformers(class) if class.model_type == "dinov3_vit" => {
                Ok(Some(Rope::Centred { theta: self.values.number("rope_theta", 100.0)? }))
            }
            Kind::Told => {
                // EVA-02 has position embeddings, too; by its names it differs from DINOv2 in the scales that it lacks.
                let sure = has_position && !(parts.block.gated && !parts.block.layer_scale);
                ensure!(
                    sure || parts.relative,
                    "it may have rotary positions, which its weights do not tell: set checkpoint.architecture to timm's \
                     name of the network, or put the publisher's config.json beside the weights"
                );
                Ok(None)
            }
            _ => Ok(self.architecture().and_then(|architecture| architecture.rope)),
        }
    }

    /// Returns the readout. The names of the weights imply `found`; timm's `global_pool` may refine it.
    ///
    /// # Errors
    /// Fails if bella does not implement the pooling.
    pub fn readout(&self, found: Readout) -> Result<Readout> {
        let Some(architecture) = self.architecture() else { return Ok(found) };
        let pool = match self.values.text("global_pool") {
            None => architecture.pool,
            Some(word) => word.parse().ok().with_context(|| {
                format!(
                    "{}: global_pool = \"{word}\" is none that bella computes; known: token, avg, map",
                    self.values.path.display()
                )
            })?,
        };
        Ok(match (pool, found) {
            // The norm that follows a mean also follows the class token, if that is read in its place.
            (Pool::Token, Readout::Mean) => Readout::Class,
            (Pool::Average, Readout::Class | Readout::NormedMean) => Readout::NormedMean,
            _ => found,
        })
    }

    /// Checks that the config does not contradict the weights.
    ///
    /// # Errors
    /// Fails at the first key that contradicts the weights, or if the classifier reads something else than the features.
    pub fn check(&self, geometry: &Geometry, parts: &Parts, classifies: bool) -> Result<()> {
        let Kind::Transformers(class) = self.kind else { return self.check_size(geometry) };
        ensure!(
            !classifies || class.classifies,
            "the classifier of a {} reads what bella does not compute: give the folder of the network without it, and use \
             [head.linear]",
            class.model_type
        );
        let shown = FILES[0];
        let values = &self.values;
        let said = |key: &str| values.get(key).and_then(Value::as_i64);
        let image_size = values.get("image_size").map(|_| values.side("image_size", IMAGE_SIZE)).transpose()?;
        for (key, said, found) in [
            ("hidden_size", said("hidden_size"), geometry.width),
            ("num_hidden_layers", said("num_hidden_layers"), geometry.blocks as i64),
            ("patch_size", Some(values.side("patch_size", class.patch)?), geometry.patch),
            ("image_size", image_size, geometry.image_size()),
        ] {
            ensure!(
                said.is_none_or(|said| said == found),
                "{shown} says {key} = {}, but the weights have {found}: they are not of one model",
                said.unwrap_or_default()
            );
        }
        let registers = said("num_register_tokens").unwrap_or(parts.prefix - 1);
        ensure!(
            registers == parts.prefix - 1 || class.model_type == "deit",
            "{shown} says num_register_tokens = {registers}, but the weights have {}",
            parts.prefix - 1
        );
        Ok(())
    }

    /// Checks that the image size of open_clip's own towers is that of the weights.
    fn check_size(&self, geometry: &Geometry) -> Result<()> {
        let said = if matches!(self.kind, Kind::OpenClip) { self.image_size()? } else { None };
        ensure!(
            said.is_none_or(|said| said == geometry.image_size()),
            "{} says image_size = {}, but the weights have {}: they are not of one model",
            FILES[1],
            said.unwrap_or_default(),
            geometry.image_size()
        );
        Ok(())
    }
}

/// Checks that the arguments by which timm builds a network are those that names and shapes of the weights tell, or that
/// bella reads.
fn check_arguments(values: &Values) -> Result<()> {
    const READ: &[&str] = &[
        "img_size",
        "patch_size",
        "in_chans",
        "embed_dim",
        "depth",
        "num_heads",
        "mlp_ratio",
        "num_classes",
        "global_pool",
        "init_values",
        "class_token",
        "no_embed_class",
        "reg_tokens",
        "num_reg_tokens",
        "qkv_bias",
        "qkv_fused",
        "swiglu_mlp",
        "scale_mlp",
        "scale_attn_inner",
        "dynamic_img_size",
        "fc_norm",
        "use_fc_norm",
        "pre_norm",
        "final_norm",
        "use_abs_pos_emb",
        "use_rel_pos_bias",
        "use_shared_rel_pos_bias",
    ];
    let arguments = values.get("model_args").and_then(Value::as_object);
    let odd = arguments.into_iter().flatten().find(|(key, _)| {
        // What happens in training only.
        let dropout = key.contains("drop") || key.contains("weight_init") || key.contains("head_init");
        !READ.contains(&key.as_str()) && !dropout
    });
    match odd {
        None => Ok(()),
        Some((key, value)) => bail!(
            "{}: model_args has {key} = {value}, which changes the network in a way that bella does not know: export it with \
             scripts/export_torchscript.py",
            values.path.display()
        ),
    }
}
