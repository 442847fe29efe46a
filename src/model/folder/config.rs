//! Reads `config.json`, which contains what names and shapes of the weights do not tell.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::model::vit::identify::Fixed;
use crate::model::vit::parts::{Parts, Readout, Resize};
use crate::model::vit::rope::Rope;
use crate::model::vit::{Activation, Geometry, Traits, heads_fit};

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

/// A class of transformers with its defaults, which apply if a key is absent from the config.
struct Class {
    model_type: &'static str,
    heads: i64,
    activation: &'static str,
    eps: f64,
    patch: i64,
}

/// The default of `image_size` in every class, in pixels.
const IMAGE_SIZE: i64 = 224;

/// Every known class (transformers 5.23).
const CLASSES: &[Class] = &[
    class("vit", 12, "gelu", 1e-12, 16),
    class("deit", 12, "gelu", 1e-12, 16),
    class("vit_mae", 12, "gelu", 1e-12, 16),
    class("dinov2", 12, "gelu", 1e-6, 14),
    class("dinov2_with_registers", 12, "gelu", 1e-6, 16),
    class("dinov3_vit", 6, "gelu", 1e-5, 16),
    class("clip_vision_model", 12, "quick_gelu", 1e-5, 32),
    class("siglip_vision_model", 12, "gelu_pytorch_tanh", 1e-6, 16),
    class("siglip2_vision_model", 12, "gelu_pytorch_tanh", 1e-6, 16),
];

const fn class(model_type: &'static str, heads: i64, activation: &'static str, eps: f64, patch: i64) -> Class {
    Class { model_type, heads, activation, eps, patch }
}

/// The model types of configs with two towers, and the class of their image tower.
const NESTED: [(&str, &str); 3] =
    [("clip", "clip_vision_model"), ("siglip", "siglip_vision_model"), ("siglip2", "siglip2_vision_model")];

/// A folder's config.
pub struct Config {
    path: PathBuf,
    kind: Kind,
    /// The table of the image tower.
    values: Value,
    /// The table of the text tower, if the config has one besides that of the image tower.
    text: Option<Value>,
}

enum Kind {
    Transformers(&'static Class),
    /// The name of the architecture, which determines the values that timm's config omits.
    Timm(String),
    /// The towers of open_clip itself.
    OpenClip,
}

impl Config {
    /// Reads the config of a folder.
    ///
    /// # Errors
    /// Fails if the folder has no config, if the config is not JSON, or if its model type is unknown.
    pub fn read(folder: &Path) -> Result<Config> {
        let path = file(folder).with_context(|| {
            format!(
                "{}: has no {} and no {}: give the folder as it was downloaded from its publisher, or a TorchScript \
                 archive (.pt)",
                folder.display(),
                FILES[0],
                FILES[1]
            )
        })?;
        let shown = path.display();
        let text = std::fs::read_to_string(&path).with_context(|| format!("{shown}: cannot read"))?;
        let values: Value = serde_json::from_str(&text).with_context(|| format!("{shown}: no JSON"))?;
        if let Some(model) = values.get("model_cfg") {
            if let Some(name) = model.get("vision_cfg").and_then(|vision| vision.get("timm_model_name")) {
                bail!(
                    "{shown}: its image tower is timm's {name} within open_clip, which bella does not read: give timm's own folder"
                );
            }
            return Ok(Config { path: path.clone(), kind: Kind::OpenClip, values: model.clone(), text: None });
        }
        if let Some(architecture) = values.get("architecture").and_then(Value::as_str) {
            let kind = Kind::Timm(architecture.to_string());
            return Ok(Config { path, kind, values, text: None });
        }
        let model_type = values.get("model_type").and_then(Value::as_str);
        let model_type = model_type.with_context(|| format!("{shown}: has neither `model_type` nor `architecture`"))?;
        let (model_type, tower, text) = match NESTED.iter().find(|(outer, _)| *outer == model_type) {
            Some((_, inner)) => {
                let tower = values.get("vision_config").cloned().unwrap_or(Value::Null);
                (*inner, tower, values.get("text_config").cloned())
            }
            None => (model_type, values.clone(), None),
        };
        let known = CLASSES.iter().find(|class| class.model_type == model_type);
        let class = known.with_context(|| {
            let all: Vec<&str> = CLASSES.iter().map(|class| class.model_type).collect();
            format!("{shown}: model_type = \"{model_type}\" is none that bella reads; known: {}", all.join(", "))
        })?;
        Ok(Config { path, kind: Kind::Transformers(class), values: tower, text })
    }

    /// Returns how the package that wrote the folder resizes position embeddings.
    pub fn resize(&self) -> Resize {
        match self.kind {
            Kind::Transformers(_) => Resize::Plain,
            Kind::Timm(_) | Kind::OpenClip => Resize::Antialiased,
        }
    }

    /// Returns the number of pixels per side at which the weights were trained.
    ///
    /// # Errors
    /// Fails if the value is not a positive number.
    pub fn image_size(&self) -> Result<Option<i64>> {
        match &self.kind {
            Kind::Transformers(_) => self.integer("image_size", IMAGE_SIZE).map(Some),
            Kind::Timm(_) => Ok(self.values.get("pretrained_cfg").and_then(input_size)),
            Kind::OpenClip => Ok(self.of_tower("vision_cfg", "image_size").and_then(Value::as_i64)),
        }
    }

    /// Returns a value of one of open_clip's towers.
    fn of_tower(&self, tower: &str, key: &str) -> Option<&Value> {
        self.values.get(tower)?.get(key)
    }

    /// Returns the number of heads, the activation and epsilon. Values in `fixed`, from the user's own config, take
    /// precedence.
    ///
    /// # Errors
    /// Fails if the activation is unknown, or if the heads do not divide the width.
    pub fn traits(&self, geometry: &Geometry, fixed: Fixed) -> Result<Traits> {
        let own = match &self.kind {
            Kind::Transformers(class) => Traits {
                heads: self.integer("num_attention_heads", class.heads)?,
                activation: self.activation(class.activation)?,
                eps: self.number("layer_norm_eps", class.eps)?,
            },
            Kind::Timm(architecture) => self.timm(architecture, geometry),
            Kind::OpenClip => {
                let width = self.of_tower("vision_cfg", "head_width").and_then(Value::as_i64).unwrap_or(64).max(1);
                let activation = self.open_clip_activation();
                Traits { heads: (geometry.width / width).max(1), activation, eps: 1e-5 }
            }
        };
        let traits = Traits {
            heads: fixed.heads.unwrap_or(own.heads),
            activation: fixed.activation.unwrap_or(own.activation),
            eps: fixed.eps.unwrap_or(own.eps),
        };
        let (heads, width) = (traits.heads, geometry.width);
        ensure!(heads_fit(heads, width), "{heads} heads do not divide the width {width}");
        Ok(traits)
    }

    fn open_clip_activation(&self) -> Activation {
        match self.values.get("quick_gelu").and_then(Value::as_bool) {
            Some(true) => Activation::QuickGelu,
            _ => Activation::Gelu,
        }
    }

    /// Returns the traits of CLIP's text tower of the given width; `None` if the network has none that bella reads.
    ///
    /// # Errors
    /// Fails if a value is not a positive number, or if the activation is unknown.
    pub fn text(&self, width: i64) -> Result<Option<Traits>> {
        match &self.kind {
            Kind::OpenClip => {
                let heads = self.of_tower("text_cfg", "heads").and_then(Value::as_i64).unwrap_or((width / 64).max(1));
                Ok(Some(Traits { heads, activation: self.open_clip_activation(), eps: 1e-5 }))
            }
            Kind::Transformers(class) if class.model_type == "clip_vision_model" => {
                let Some(values) = self.text.clone() else { return Ok(None) };
                let text = Config { path: self.path.clone(), kind: Kind::Transformers(class), values, text: None };
                let (heads, eps) = (text.integer("num_attention_heads", 8)?, text.number("layer_norm_eps", 1e-5)?);
                Ok(Some(Traits { heads, activation: text.activation("quick_gelu")?, eps }))
            }
            _ => Ok(None),
        }
    }

    /// Returns the rotary positions, if the family has them.
    ///
    /// # Errors
    /// Fails if the base is not a positive number.
    pub fn rope(&self) -> Result<Option<Rope>> {
        match &self.kind {
            Kind::Transformers(class) if class.model_type == "dinov3_vit" => {
                Ok(Some(Rope { theta: self.number("rope_theta", 100.0)? }))
            }
            Kind::Timm(architecture) if architecture.contains("dinov3") => Ok(Some(Rope { theta: 100.0 })),
            _ => Ok(None),
        }
    }

    /// Returns the readout. The names of the weights imply `found`; timm's `global_pool` may refine it.
    ///
    /// # Errors
    /// Fails if bella does not implement the pooling.
    pub fn readout(&self, found: Readout) -> Result<Readout> {
        let Kind::Timm(architecture) = &self.kind else { return Ok(found) };
        let usual = if architecture.contains("dinov3") { "avg" } else { "token" };
        let pool = self.values.get("global_pool").and_then(Value::as_str).unwrap_or(usual);
        match (pool, found) {
            (_, Readout::Map | Readout::Mean | Readout::ClassDistillation) => Ok(found),
            ("token", _) => Ok(found),
            ("avg", _) => Ok(Readout::NormedMean),
            _ => bail!(
                "{}: global_pool = \"{pool}\" is none that bella computes; known: token, avg, map",
                self.path.display()
            ),
        }
    }

    /// Checks that the config does not contradict the weights. Classifiers are accepted only for classes that bella
    /// implements, because those of CLIP and SigLIP read other tokens than the features do.
    ///
    /// # Errors
    /// Fails at the first key that contradicts the weights, or if the classifier is of another class.
    pub fn check(&self, geometry: &Geometry, parts: &Parts, classifies: bool) -> Result<()> {
        const CLASSIFIERS: [&str; 4] = ["vit", "deit", "dinov2", "dinov2_with_registers"];
        let Kind::Transformers(class) = self.kind else { return Ok(()) };
        ensure!(
            !classifies || CLASSIFIERS.contains(&class.model_type),
            "the classifier of a {} reads what bella does not compute: give the folder of the network without it, and use \
             [head.linear]",
            class.model_type
        );
        let shown = FILES[0];
        let patch = self.integer("patch_size", class.patch)?;
        let found = [
            ("hidden_size", geometry.width),
            ("num_hidden_layers", geometry.blocks as i64),
            ("patch_size", geometry.patch),
            ("image_size", geometry.image_size()),
        ];
        for (key, found) in found {
            let said = match key {
                "patch_size" => Some(patch),
                _ => self.values.get(key).and_then(Value::as_i64),
            };
            ensure!(
                said.is_none_or(|said| said == found),
                "{shown} says {key} = {}, but the weights have {found}: they are not of one model",
                said.unwrap_or_default()
            );
        }
        let registers = self.values.get("num_register_tokens").and_then(Value::as_i64).unwrap_or(parts.prefix - 1);
        ensure!(
            registers == parts.prefix - 1 || class.model_type == "deit",
            "{shown} says num_register_tokens = {registers}, but the weights have {}",
            parts.prefix - 1
        );
        Ok(())
    }

    fn integer(&self, key: &str, default: i64) -> Result<i64> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => match value.as_i64() {
                Some(number) if number > 0 => Ok(number),
                _ => bail!("{}: {key} = {value}: must be a whole number above 0", self.path.display()),
            },
        }
    }

    fn number(&self, key: &str, default: f64) -> Result<f64> {
        match self.values.get(key) {
            None | Some(Value::Null) => Ok(default),
            Some(value) => match value.as_f64() {
                Some(number) if number > 0.0 => Ok(number),
                _ => bail!("{}: {key} = {value}: must be a number above 0", self.path.display()),
            },
        }
    }

    fn activation(&self, default: &str) -> Result<Activation> {
        let word = match self.values.get("hidden_act") {
            None | Some(Value::Null) => default,
            Some(value) => value.as_str().unwrap_or_default(),
        };
        // DINOv2's giant model has a gate, whose activation the config does not state.
        if self.values.get("use_swiglu_ffn").and_then(Value::as_bool) == Some(true) {
            return Ok(Activation::Silu);
        }
        match word {
            "gelu" => Ok(Activation::Gelu),
            "gelu_pytorch_tanh" | "gelu_new" => Ok(Activation::GeluTanh),
            "quick_gelu" => Ok(Activation::QuickGelu),
            "silu" | "swish" => Ok(Activation::Silu),
            _ => bail!(
                "{}: hidden_act = \"{word}\" is none that bella computes; known: gelu, gelu_pytorch_tanh, quick_gelu, silu",
                self.path.display()
            ),
        }
    }

    /// Returns the traits that timm's architecture name and arguments imply.
    fn timm(&self, architecture: &str, geometry: &Geometry) -> Traits {
        let arguments = self.values.get("model_args");
        let argument = |key: &str| arguments.and_then(|arguments| arguments.get(key)?.as_i64());
        let usual = match geometry.width {
            1152 | 1280 | 1408 | 1536 | 1664 if !architecture.contains("dinov3") => 16,
            4096 => 32,
            width => (width / 64).max(1),
        };
        let has = |part: &str| architecture.contains(part);
        let tanh = has("siglip") && (has("so400m_patch16") || has("patch32_256") || has("large_patch16_siglip_512"));
        let activation = match (has("quickgelu"), tanh || has("siglip_gap") || has("giantopt")) {
            (true, _) => Activation::QuickGelu,
            (_, true) => Activation::GeluTanh,
            _ => Activation::Gelu,
        };
        let eps = if has("_clip_") || has("dinov3") || has("_pe_") { 1e-5 } else { 1e-6 };
        Traits { heads: argument("num_heads").unwrap_or(usual), activation, eps }
    }
}
