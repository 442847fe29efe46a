//! Reads from a config what names and shapes of the weights do not tell, with its sources.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::classes::Class;
use super::config::{Config, Kind};
use super::values::Values;
use crate::model::network::Parameters;
use crate::model::vit::architecture::{Architecture, Pool};
use crate::model::vit::identify::{Fixed, Source, Sources};
use crate::model::vit::parts::{Parts, Readout};
use crate::model::vit::rope::Rope;
use crate::model::vit::text::TextStyle;
use crate::model::vit::{Activation, Geometry, Traits, heads_fit, table_heads};

impl Config {
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
        match self.kind {
            Kind::Transformers(class) => self.of_class(class),
            Kind::Timm(architecture) | Kind::TimmInOpenClip { architecture, .. } => {
                Ok(self.of_architecture(architecture))
            }
            Kind::OpenClip => self.of_tower(geometry.width),
            Kind::Told => {
                let (Some(heads), Some(activation), Some(eps)) = (fixed.heads, fixed.activation, fixed.eps) else {
                    bail!("set all of checkpoint.heads, checkpoint.activation and checkpoint.eps")
                };
                Ok((Traits { heads, activation, eps }, Sources::all(Source::Weights)))
            }
        }
    }

    /// Returns where the value of a key of the image tower comes from.
    fn said(&self, key: &str) -> Source {
        if self.values.get(key).is_some() { Source::Config } else { Source::Default }
    }

    fn of_class(&self, class: &Class) -> Result<(Traits, Sources)> {
        let values = &self.values;
        let traits = Traits {
            heads: values.integer("num_attention_heads", class.heads)?,
            activation: values.activation(class.activation)?,
            eps: values.number("layer_norm_eps", class.eps)?,
        };
        let activation = if values.is_true("use_swiglu_ffn") { Source::Config } else { self.said("hidden_act") };
        let (heads, eps) = (self.said("num_attention_heads"), self.said("layer_norm_eps"));
        Ok((traits, Sources { heads, activation, eps, rope: self.said("rope_theta"), readout: Source::Weights }))
    }

    fn of_architecture(&self, architecture: &Architecture) -> (Traits, Sources) {
        let Architecture { activation, eps, .. } = *architecture;
        let own = self.values.get("model_args").and_then(|arguments| arguments.get("num_heads")?.as_i64());
        let all = Sources::all(Source::Architecture);
        let heads = if own.is_some() { Source::Config } else { all.heads };
        let readout = if self.values.get("global_pool").is_some() { Source::Config } else { all.readout };
        let traits = Traits { heads: own.unwrap_or(architecture.heads), activation, eps };
        (traits, Sources { heads, readout, ..all })
    }

    fn of_tower(&self, width: i64) -> Result<(Traits, Sources)> {
        let head_width = self.values.integer("head_width", 64)?;
        let traits = self.open_clip(&self.values, (width / head_width).max(1))?;
        let (heads, activation, eps) =
            (self.said("head_width"), self.text_said("quick_gelu"), self.said("norm_kwargs"));
        let (rope, readout) = (Source::Weights, Source::Weights);
        Ok((traits, Sources { heads, activation, eps, rope, readout }))
    }

    fn text_said(&self, key: &str) -> Source {
        let said = self.text.as_ref().is_some_and(|text| text.get(key).is_some());
        if said { Source::Config } else { Source::Default }
    }

    /// Returns the traits of one of open_clip's own towers, whose table is `tower`.
    fn open_clip(&self, tower: &Values, heads: i64) -> Result<Traits> {
        let within = |key: &str| Values::new(&tower.path, tower.get(key).cloned().unwrap_or(Value::Null));
        let quick = self.text.as_ref().is_some_and(|text| text.is_true("quick_gelu"));
        let activation = match within("act_kwargs").text("approximate") {
            _ if quick => Activation::QuickGelu,
            None | Some("none") => Activation::Gelu,
            Some("tanh") => Activation::GeluTanh,
            Some(word) => bail!("{}: approximate = \"{word}\" is none that bella computes", tower.path.display()),
        };
        Ok(Traits { heads, activation, eps: within("norm_kwargs").number("eps", 1e-5)? })
    }

    /// Returns the traits of open_clip's text tower, whose weights have the given style.
    fn open_clip_text(&self, tower: &Values, style: TextStyle) -> Result<Traits> {
        let (sees_all, read) = match style {
            TextStyle::Clip => (false, "argmax"),
            TextStyle::Siglip => (true, "last"),
        };
        let pool = tower.text("pool_type").unwrap_or("argmax");
        ensure!(
            tower.is_true("no_causal_mask") == sees_all && pool == read,
            "{}: no_causal_mask = {} with pool_type = \"{pool}\" is neither CLIP's text tower nor SigLIP's: set \
             head.zero-shot.weights instead",
            tower.path.display(),
            tower.is_true("no_causal_mask")
        );
        self.open_clip(tower, tower.integer("heads", 8)?)
    }

    /// Returns the traits of the text tower; `None` if the network has none that bella reads.
    ///
    /// # Errors
    /// Fails if a value is not a positive number, if the activation is unknown, or if open_clip's tower is none of CLIP's or
    /// SigLIP's.
    pub fn text(&self, style: TextStyle) -> Result<Option<Traits>> {
        let Some(text) = &self.text else { return Ok(None) };
        match self.kind {
            Kind::OpenClip | Kind::TimmInOpenClip { .. } => {
                let tower = Values::new(&text.path, text.get("text_cfg").cloned().unwrap_or(Value::Null));
                self.open_clip_text(&tower, style).map(Some)
            }
            Kind::Transformers(class) if class.model_type == "clip_vision_model" => {
                let (heads, eps) = (text.integer("num_attention_heads", 8)?, text.number("layer_norm_eps", 1e-5)?);
                Ok(Some(Traits { heads, activation: text.activation("quick_gelu")?, eps }))
            }
            Kind::Transformers(class) if class.model_type.starts_with("siglip") => {
                let heads = text.integer("num_attention_heads", class.heads)?;
                let eps = text.number("layer_norm_eps", class.eps)?;
                Ok(Some(Traits { heads, activation: text.activation(class.activation)?, eps }))
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
                let sure = has_position && (!parts.block.gated || parts.block.layer_scale);
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
}
