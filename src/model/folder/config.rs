//! Reads `config.json`, which contains what names and shapes of the weights do not tell.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tch::Tensor;

use super::open_clip::OpenClip;
use super::quantised::expect_plain;
use super::timm;
use super::weights::{FILES, Place, file};
use crate::base::files::read_json;
use crate::model::families::{
    FAMILIES, Family, IMAGE_SIZE, TowerConfig, decoders, family, model_types, types_of_texts, within,
};
use crate::model::recognition::identify::Fixed;
use crate::model::recognition::{Expected, Named, Naming, recognise};
use crate::model::values::Values;
use crate::model::vit::architecture::{Architecture, EXPORT, architecture, of_sizes};
use crate::model::vit::arguments::Arguments;
use crate::model::vit::parts::{Resize, Rope};
use crate::model::vit::required::Required;
use crate::schema::hint;

/// The description of a network that lies beside its weights.
pub struct Config {
    pub kind: Kind,
    /// The table of the image tower, or the whole config of timm.
    pub values: Values,
}

/// The package that wrote a config.
pub enum Kind {
    /// transformers; with the whole config where it holds the tables of two towers.
    Transformers {
        family: &'static Family,
        outer: Option<Values>,
    },
    Timm(Arguments),
    /// timm's tower within open_clip.
    TimmInOpenClip {
        arguments: Arguments,
        model: OpenClip,
    },
    /// The towers of open_clip itself.
    OpenClip(OpenClip),
    /// There is no config: the weights' names, and what the user says.
    Told,
}

impl Config {
    /// Reads the config beside weights, or what the user says in its place.
    ///
    /// # Errors
    /// Fails if the config is not JSON, if its model type or architecture is unknown, if it has a key that bella does not know,
    /// or if there is neither a config nor an architecture nor all of `heads`, `activation` and `eps`.
    pub fn read(place: &Place, fixed: &Fixed) -> Result<Config> {
        let Some(path) = file(&place.path) else { return Config::told(place, fixed) };
        let shown = path.display();
        let table = read_json(&path)?;
        if let Some(model) = table.get("model_cfg") {
            return Config::of_open_clip(&path, model, fixed);
        }
        let values = Values::new(&path, table);
        let is_wrapped = values.text("model_type") == Some("timm_wrapper");
        ensure!(
            !is_wrapped,
            "{shown}: model_type = \"timm_wrapper\" is transformers' wrapper of a network of timm under other names of tensors: \
             save the network itself by timm.models.save_for_hf(model.timm_model, FOLDER), or give timm's own folder"
        );
        if let Some(name) = values.text("architecture") {
            let name = fixed.architecture.as_deref().unwrap_or(name);
            let architecture = architecture(name).with_context(|| shown.to_string())?;
            let arguments = timm::arguments(architecture, &values).with_context(|| shown.to_string())?;
            return Ok(Config { kind: Kind::Timm(arguments), values });
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
        let config = match within(model_type) {
            Some(family) => {
                expect_plain(&values, model_type)?;
                let kind = Kind::Transformers { family, outer: Some(values.clone()) };
                family.check_outer(&values)?;
                Config { kind, values: values.tower("vision") }
            }
            None => {
                let family = family(model_type).with_context(|| unknown(&values, model_type))?;
                expect_plain(&values, model_type)?;
                Config { kind: Kind::Transformers { family, outer: None }, values }
            }
        };
        if let Some(tower) = config.tower() {
            tower.check_keys()?;
        }
        Ok(config)
    }

    fn of_open_clip(path: &Path, model: &Value, fixed: &Fixed) -> Result<Config> {
        let model = OpenClip::read(&Values::new(path, model.clone()))?;
        let values = model.vision.clone();
        let Some(name) = values.text("timm_model_name") else {
            return Ok(Config { kind: Kind::OpenClip(model), values });
        };
        let name = fixed.architecture.as_deref().unwrap_or(name);
        let architecture = architecture(name).with_context(|| path.display().to_string())?;
        let arguments = model.arguments(architecture)?;
        Ok(Config { kind: Kind::TimmInOpenClip { arguments, model }, values })
    }

    /// Returns what the user says about weights without a config.
    fn told(place: &Place, fixed: &Fixed) -> Result<Config> {
        let kind = match &fixed.architecture {
            Some(name) => Kind::Timm(Arguments::of(architecture(name).context("checkpoint.architecture")?)),
            None => Kind::Told,
        };
        let told = fixed.heads.is_some() && fixed.activation.is_some() && fixed.eps.is_some();
        if !told && matches!(kind, Kind::Told) {
            let shown = place.path.display();
            bail!("{shown}: has no {} and no {} beside the weights: {}", FILES[0], FILES[1], advice(place)?);
        }
        Ok(Config { kind, values: Values::new(&place.path, Value::Null) })
    }

    /// Returns the config of a tower of transformers.
    pub fn tower(&self) -> Option<TowerConfig<'_>> {
        match &self.kind {
            Kind::Transformers { family, outer } => {
                Some(TowerConfig { family, values: &self.values, outer: outer.as_ref() })
            }
            _ => None,
        }
    }

    /// Returns timm's arguments, if the image tower is one of timm's.
    pub fn arguments(&self) -> Option<&Arguments> {
        match &self.kind {
            Kind::Timm(arguments) | Kind::TimmInOpenClip { arguments, .. } => Some(arguments),
            _ => None,
        }
    }

    /// Returns the key of the naming that the weights have, if the package writes one alone.
    pub fn naming(&self) -> Option<&'static str> {
        match self.kind {
            Kind::Transformers { .. } => Some("transformers"),
            Kind::Timm(_) if self.values.table().is_null() => None,
            Kind::Timm(_) | Kind::TimmInOpenClip { .. } => Some("timm"),
            Kind::OpenClip(_) => Some("clip"),
            Kind::Told => None,
        }
    }

    /// Returns the parameters that the weights must have; `None` where nothing tells.
    ///
    /// # Errors
    /// Fails if the config asks for parts that bella does not compute.
    pub fn required(&self) -> Result<Option<Required>> {
        match &self.kind {
            Kind::Transformers { .. } => self.tower().map(|tower| (tower.family.required)(&tower)).transpose(),
            Kind::Timm(arguments) => timm::required(arguments, &self.values).map(Some),
            Kind::TimmInOpenClip { arguments, model } => model.required_of_timm(arguments).map(Some),
            Kind::OpenClip(model) => model.required().map(Some),
            Kind::Told => Ok(None),
        }
    }

    /// Returns how the package that wrote the folder resizes position embeddings.
    pub fn resize(&self, naming: &Naming) -> Resize {
        match &self.kind {
            Kind::Transformers { family, .. } => family.resize,
            Kind::Told if naming.key == "transformers" => Resize::Plain,
            _ => Resize::Antialiased,
        }
    }

    /// Returns the number of pixels per side at which the weights were trained.
    ///
    /// # Errors
    /// Fails if the value is not a positive number.
    pub fn image_size(&self) -> Result<Option<i64>> {
        match &self.kind {
            Kind::Transformers { .. } => self.values.side("image_size", IMAGE_SIZE).map(Some),
            Kind::Timm(arguments) => timm::image_size(arguments, &self.values).map(Some),
            Kind::TimmInOpenClip { .. } | Kind::OpenClip(_) => self.values.side("image_size", IMAGE_SIZE).map(Some),
            Kind::Told => Ok(None),
        }
    }

    /// Returns why images must have the size of the position embeddings, if they must.
    pub fn fixed_size(&self) -> Option<String> {
        let name = self.architecture()?.name;
        name.contains("flexi").then(|| {
            format!(
                "timm resizes the patches and positions of {name} by a filter of its own, which bella does not compute"
            )
        })
    }

    /// Returns whether the classifier among the weights is the projection of the features.
    pub fn projects_by_head(&self) -> bool {
        matches!(&self.kind, Kind::TimmInOpenClip { model, .. } if model.projects_by_head())
    }

    /// Returns timm's architecture, if the image tower is one of timm's.
    pub fn architecture(&self) -> Option<&'static Architecture> {
        self.arguments().map(|arguments| arguments.architecture)
    }
}

/// The way out for networks of texts that bella does not compute.
const OF_TEXTS: &str = "scripts/export_text_encoder.py exports other text encoders for checkpoint.kind = \"module\"";

/// Returns why the network of a folder, or of a file of weights, is not read: its config is damaged, or its model type unknown; `None` where
/// it is neither.
pub fn stranger(path: &Path) -> Option<String> {
    let path = file(path)?;
    let values = match read_json(&path) {
        Ok(config) => Values::new(&path, config),
        Err(error) => return Some(format!("{error:#}")),
    };
    let model_type = values.text("model_type")?;
    let is_known = within(model_type).is_some() || model_types().contains(&model_type);
    (!is_known).then(|| unknown(&values, model_type))
}

/// Says why a model type is not read, and what to do.
fn unknown(values: &Values, model_type: &str) -> String {
    let shown = values.path.display();
    let mut strangers = FAMILIES.iter().flat_map(|family| family.strangers);
    if let Some((_, why)) = strangers.find(|(start, _)| model_type.starts_with(start)) {
        return format!(
            "{shown}: model_type = \"{model_type}\" {why}; {EXPORT} huggingface exports others for checkpoint.kind = \"module\""
        );
    }
    if let Err(why) = decoders::check_dense(&shown.to_string(), "model_type", model_type) {
        return why.to_string();
    }
    // A network of texts has a vocabulary and no patches.
    if values.has("vocab_size") && !values.has("patch_size") && !values.has("image_size") {
        let known = types_of_texts();
        let near = hint(model_type, known.iter().copied());
        return format!(
            "{shown}: model_type = \"{model_type}\" is no network of texts that bella reads; known: {}{near}; {OF_TEXTS}",
            known.join(", ")
        );
    }
    let known = model_types();
    let near = hint(model_type, known.iter().copied());
    format!(
        "{shown}: model_type = \"{model_type}\" is none that bella reads; known: {}{near}; {EXPORT} huggingface exports others \
         for checkpoint.kind = \"module\"",
        known.join(", ")
    )
}

/// The most architectures that a message names.
const NAMED: usize = 4;

/// Networks that are no vision transformers, by parts of names that only their weights have.
const OTHERS: [(&str, &[&str]); 5] = [
    ("a Swin transformer", &["layers.0.blocks.0.", "features.1.0.attn.relative"]),
    ("a ConvNeXt", &["dwconv.weight", "conv_dw.weight", "block.0.weight"]),
    ("a ResNet", &["layer1.0.conv1.weight", "layers.0.layer.0.convolution.weight"]),
    ("a convolutional network", &["running_mean"]),
    ("a language model", &["embed_tokens.weight", "wte.weight", "word_embeddings.weight"]),
];

/// Says what weights without a config look like and what to do, for the message that refuses them.
///
/// # Errors
/// Fails if the weights cannot be read.
fn advice(place: &Place) -> Result<String> {
    let tensors = place.read()?;
    let has = |part: &str| tensors.iter().any(|(name, _)| name.contains(part));
    if has("lora_A") {
        return Ok(
            "its tensors look like a PEFT adapter, which belongs on another network: `bella import` reads it".into()
        );
    }
    Ok(match recognise(&tensors, Expected { image_size: Some(IMAGE_SIZE), ..Expected::default() }) {
        Ok(named) => transformer(&named),
        Err(why) => other(&tensors, &why),
    })
}

fn transformer(named: &Named) -> String {
    let naming = named.naming.key;
    let [width, blocks, patch] = [named.geometry.width, named.geometry.blocks as i64, named.geometry.patch];
    let looks = format!(
        "its tensors look like a vision transformer's of width {width}, {blocks} blocks and patch {patch} under the names of \
         {naming}, but nothing beside them tells its heads, activation and epsilon"
    );
    let known: Vec<&str> = of_sizes(width, blocks, patch)
        .filter(|known| positions_fit(Arguments::of(known).rope().ok().flatten(), named))
        .map(|known| known.name)
        .collect();
    let first = known[..known.len().min(NAMED)].join(", ");
    let more = if known.len() > NAMED { ", …" } else { "" };
    let those = if known.is_empty() { String::new() } else { format!(" (of these sizes are {first}{more})") };
    let config = named.naming.config;
    format!(
        "{looks}: put the publisher's {config} there, or set checkpoint.architecture to timm's name of the network{those}, \
         or all of checkpoint.heads, checkpoint.activation and checkpoint.eps"
    )
}

/// Returns whether the weights may have these rotary positions: DINOv3's are without learnt ones, and EVA-02's are those of
/// gated blocks without scales.
fn positions_fit(rope: Option<Rope>, named: &Named) -> bool {
    let (learnt, parts) = (named.base.get("position").is_some(), named.parts.block);
    match rope {
        Some(Rope::Centred { .. }) => !learnt,
        Some(Rope::Indexed { .. }) => learnt && parts.gated && !parts.layer_scale,
        None => (learnt || named.parts.relative) && (!parts.gated || parts.layer_scale),
    }
}

fn other(tensors: &[(String, Tensor)], why: &anyhow::Error) -> String {
    let has = |part: &&str| tensors.iter().any(|(name, _)| name.contains(part));
    match OTHERS.iter().find(|(_, parts)| parts.iter().any(has)) {
        Some((kind @ "a language model", _)) => {
            format!(
                "its tensors look like {kind}'s: bella reads those of model_type {} from a folder with the publisher's \
                 config.json; {OF_TEXTS}",
                types_of_texts().join(", ")
            )
        }
        Some((kind, _)) => format!(
            "its tensors look like {kind}'s, which trains by its own forward: write it with {EXPORT} timm NAME --weights \
             FILE (or torchvision, huggingface), and set checkpoint.kind = \"module\""
        ),
        None => format!(
            "{why:#}: {EXPORT} timm NAME --weights FILE (or torchvision, huggingface, open_clip) writes other networks, \
             which train with checkpoint.kind = \"module\""
        ),
    }
}
