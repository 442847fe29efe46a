//! Reads `config.json`, which contains what names and shapes of the weights do not tell.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::classes::{CLASSES, Class, IMAGE_SIZE, LANGUAGE, NESTED};
use super::looks;
use super::values::Values;
use super::weights::Place;
use crate::base::files::{is_there, read_json};
use crate::model::vit::architecture::{Architecture, architecture};
use crate::model::vit::identify::Fixed;
use crate::model::vit::parts::Resize;
use crate::schema::hint;

/// The file names of configs, in the order of the search.
pub const FILES: [&str; 2] = ["config.json", "open_clip_config.json"];

/// Returns the config of a folder, if it has one.
pub fn file(folder: &Path) -> Option<PathBuf> {
    FILES.iter().map(|name| folder.join(name)).find(|path| is_there(path))
}

/// Returns the height in timm's `input_size = [3, height, width]`, in pixels.
pub fn input_size(config: &Value) -> Option<i64> {
    config.get("input_size")?.get(1)?.as_i64()
}

/// The description of a network that lies beside its weights.
pub struct Config {
    pub kind: Kind,
    /// The table of the image tower.
    pub values: Values,
    /// The table of the text tower, if the config has one besides that of the image tower.
    pub text: Option<Values>,
}

/// The package that wrote a config.
#[derive(Clone, Copy)]
pub enum Kind {
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
        let Some(path) = file(&place.folder) else { return Config::told(place, fixed) };
        let shown = path.display();
        let table = read_json(&path)?;
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
            let known = || CLASSES.iter().map(|class| class.model_type).chain(LANGUAGE);
            let all = known().collect::<Vec<_>>().join(", ");
            let near = hint(inner, known());
            format!(
                "{shown}: model_type = \"{inner}\" is none that bella reads; known: {all}{near}; \
                 scripts/export_torchscript.py huggingface exports others for checkpoint.kind = \"module\""
            )
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
    fn told(place: &Place, fixed: &Fixed) -> Result<Config> {
        let kind = match &fixed.architecture {
            Some(name) => Kind::Timm(architecture(name).context("checkpoint.architecture")?),
            None => Kind::Told,
        };
        let told = fixed.heads.is_some() && fixed.activation.is_some() && fixed.eps.is_some();
        if !told && matches!(kind, Kind::Told) {
            let shown = place.path.display();
            bail!("{shown}: has no {} and no {} beside the weights: {}", FILES[0], FILES[1], looks::advice(place)?);
        }
        Ok(Config { kind, values: Values::new(&place.path, Value::Null), text: None })
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
            Kind::Timm(architecture) | Kind::TimmInOpenClip { architecture, .. } => {
                let said = self.values.get("pretrained_cfg").and_then(input_size);
                Ok(Some(said.unwrap_or(architecture.image_size)))
            }
            Kind::OpenClip => Ok(self.values.get("image_size").and_then(Value::as_i64)),
            Kind::Told => Ok(None),
        }
    }

    /// Returns whether the classifier among the weights is the projection of the features.
    pub fn projects_by_head(&self) -> bool {
        matches!(self.kind, Kind::TimmInOpenClip { projects: true, .. })
    }

    /// Returns timm's architecture, if the image tower is one of timm's.
    pub fn architecture(&self) -> Option<&'static Architecture> {
        match self.kind {
            Kind::Timm(architecture) | Kind::TimmInOpenClip { architecture, .. } => Some(architecture),
            _ => None,
        }
    }
}

/// The arguments of timm's networks that bella reads, or that names and shapes of the weights tell.
const ARGUMENTS: [&str; 27] = [
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

/// Checks that timm builds the network by no other arguments than these and those of training.
fn check_arguments(values: &Values) -> Result<()> {
    let arguments = values.get("model_args").and_then(Value::as_object);
    let odd = arguments.into_iter().flatten().find(|(key, _)| {
        // What happens in training only.
        let dropout = key.contains("drop") || key.contains("weight_init") || key.contains("head_init");
        !ARGUMENTS.contains(&key.as_str()) && !dropout
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
