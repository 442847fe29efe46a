//! Reads from a config what names and shapes of the weights do not tell, with its sources, and checks that it does not contradict
//! them.

use anyhow::{Context, Result, bail, ensure};

use crate::model::families::Family;
use crate::model::folder::config::{Config, Kind};
use crate::model::folder::timm;
use crate::model::network::Parameters;
use crate::model::recognition::Named;
use crate::model::recognition::complete::table_heads;
use crate::model::recognition::identify::{Fixed, Source, Sources};
use crate::model::recognition::text::TextExpected;
use crate::model::vit::architecture::Pool;
use crate::model::vit::arguments::Arguments;
use crate::model::vit::parts::{Parts, Readout, Rope};
use crate::model::vit::text::{TextGeometry, TextStyle};
use crate::model::vit::{Geometry, Traits, heads_fit};

/// Traits, and where they come from.
pub struct Stated {
    pub traits: Traits,
    pub sources: Sources,
}

impl Config {
    /// Returns the number of heads, the activation and epsilon, and where they come from. Values in `fixed`, from the
    /// user's own config, take precedence.
    ///
    /// # Errors
    /// Fails if the activation is unknown, if the heads do not divide the width, or if they contradict the weights.
    pub fn traits(&self, geometry: &Geometry, base: &Parameters, fixed: &Fixed) -> Result<Stated> {
        let Stated { traits: own, sources } = self.own_traits(fixed)?;
        let traits = Traits {
            heads: fixed.heads.unwrap_or(own.heads),
            activation: fixed.activation.unwrap_or(own.activation),
            eps: fixed.eps.unwrap_or(own.eps),
        };
        let (heads, width) = (traits.heads, geometry.width);
        ensure!(heads_fit(heads, width), "{heads} heads do not divide the width {width}");
        let told = table_heads(base).unwrap_or(heads);
        ensure!(told == heads, "its relative positions are those of {told} heads, but it is said to have {heads}");
        Ok(Stated { traits, sources: sources.overridden(fixed) })
    }

    fn own_traits(&self, fixed: &Fixed) -> Result<Stated> {
        match &self.kind {
            Kind::Transformers { family, .. } => self.of_family(family),
            Kind::Timm(arguments) | Kind::TimmInOpenClip { arguments, .. } => self.of_timm(arguments),
            Kind::OpenClip(model) => {
                let activation = if model.says_activation() { Source::Config } else { Source::Default };
                let (heads, eps) = (self.said("head_width"), self.said("norm_kwargs"));
                let (rope, readout) = (Source::Weights, Source::Weights);
                let sources = Sources { heads, activation, eps, rope, readout };
                Ok(Stated { traits: model.traits()?, sources })
            }
            Kind::Told => {
                let (Some(heads), Some(activation), Some(eps)) = (fixed.heads, fixed.activation, fixed.eps) else {
                    bail!("set all of checkpoint.heads, checkpoint.activation and checkpoint.eps")
                };
                Ok(Stated { traits: Traits { heads, activation, eps }, sources: Sources::all(Source::Weights) })
            }
        }
    }

    /// Returns where the value of a key of the image tower comes from.
    fn said(&self, key: &str) -> Source {
        if self.values.get(key).is_some() { Source::Config } else { Source::Default }
    }

    fn of_family(&self, family: &Family) -> Result<Stated> {
        let values = &self.values;
        let traits = Traits {
            heads: values.integer("num_attention_heads", family.heads)?,
            activation: values.activation(family.activation)?,
            eps: values.number("layer_norm_eps", family.eps)?,
        };
        let activation = if values.is_true("use_swiglu_ffn") { Source::Config } else { self.said("hidden_act") };
        let (heads, eps) = (self.said("num_attention_heads"), self.said("layer_norm_eps"));
        let sources = Sources { heads, activation, eps, rope: self.said("rope_theta"), readout: Source::Weights };
        Ok(Stated { traits, sources })
    }

    fn of_timm(&self, arguments: &Arguments) -> Result<Stated> {
        let all = Sources::all(Source::Architecture);
        let of = |is_said: bool| if is_said { Source::Config } else { Source::Architecture };
        let traits =
            Traits { heads: arguments.heads()?, activation: arguments.activation()?, eps: arguments.architecture.eps };
        let readout = of(arguments.has_own("global_pool") || self.values.get("global_pool").is_some());
        let activation = of(arguments.has_own("act_layer") || arguments.has_own("swiglu_mlp"));
        let sources = Sources { heads: of(arguments.has_own("num_heads")), activation, readout, ..all };
        Ok(Stated { traits, sources })
    }

    /// Returns what the config says of a text tower's parameters; `None` if it has none that bella reads.
    pub fn text_expected(&self) -> Option<TextExpected> {
        match &self.kind {
            Kind::OpenClip(model) | Kind::TimmInOpenClip { model, .. } => Some(model.text_expected()),
            Kind::Transformers { family, outer: Some(_) } => {
                let style = family.text?;
                Some(TextExpected { style, logit_bias: style == TextStyle::Siglip })
            }
            _ => None,
        }
    }

    /// Returns the traits of the text tower, whose weights have this geometry; `None` if the network has none that bella reads.
    ///
    /// # Errors
    /// Fails if a value is not a positive number, if the activation is unknown, if a key may change the features in a way that
    /// bella does not know, or if the weights have other sizes.
    pub fn text(&self, geometry: &TextGeometry) -> Result<Option<Traits>> {
        match &self.kind {
            Kind::OpenClip(model) | Kind::TimmInOpenClip { model, .. } => model.text_traits(geometry).map(Some),
            Kind::Transformers { family, outer: Some(outer) } => family.text_traits(outer, geometry).map(Some),
            _ => Ok(None),
        }
    }

    /// Returns the rotary positions, if the family has them.
    ///
    /// # Errors
    /// Fails if the base is not a positive number, or if nothing tells whether there are rotary positions.
    pub fn rope(&self, parts: &Parts, has_position: bool) -> Result<Option<Rope>> {
        match &self.kind {
            Kind::Transformers { family, .. } => match family.rope_theta {
                Some(usual) => Ok(Some(Rope::Centred { theta: self.values.number("rope_theta", usual)? })),
                None => Ok(None),
            },
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
            Kind::Timm(arguments) | Kind::TimmInOpenClip { arguments, .. } => arguments.rope(),
            Kind::OpenClip(_) => Ok(None),
        }
    }

    /// Returns the readout. The names of the weights imply `found`; timm's pooling may refine it.
    ///
    /// # Errors
    /// Fails if bella does not implement the pooling.
    pub fn readout(&self, found: Readout) -> Result<Readout> {
        let Some(arguments) = self.arguments() else { return Ok(found) };
        let pool = arguments.pool().with_context(|| self.values.path.display().to_string())?;
        Ok(match (pool, found) {
            // The norm that follows a mean also follows the class token, if that is read in its place.
            (Pool::Token, Readout::Mean) => Readout::Class,
            (Pool::Average, Readout::Class | Readout::NormedMean) => Readout::NormedMean,
            _ => found,
        })
    }
}

impl Config {
    /// Checks that the config does not contradict the weights. A network whose heads are in `fixed` may have
    /// other sizes than the architecture of timm that it follows.
    ///
    /// # Errors
    /// Fails at the first key that contradicts the weights, or if the classifier reads something else than the features.
    pub fn check(&self, named: &Named, fixed: &Fixed) -> Result<()> {
        let (geometry, classes) = (&named.geometry, named.classes());
        match &self.kind {
            Kind::Transformers { family, .. } => {
                ensure!(
                    classes.is_none() || family.classifies,
                    "the classifier of a {} reads what bella does not compute: give the folder of the network without it, and \
                     use [head.linear]",
                    family.model_type
                );
                ensure!(
                    family.prefixes.contains(&named.prefix.as_str()),
                    "its parameters begin with `{}`, but those of model_type {} with {}: weights and config are not of one model",
                    named.prefix,
                    family.model_type,
                    family.prefixes.iter().map(|prefix| format!("`{prefix}`")).collect::<Vec<_>>().join(" or ")
                );
                self.tower().map_or(Ok(()), |tower| tower.check_sizes(geometry, named.registers(), classes))
            }
            Kind::Timm(arguments) if fixed.heads.is_none() => timm::check(arguments, &self.values, named),
            Kind::TimmInOpenClip { arguments, model } => {
                if fixed.heads.is_none() {
                    timm::check(arguments, &self.values, named)?;
                }
                model.check(geometry, true)
            }
            Kind::OpenClip(model) => model.check(geometry, false),
            Kind::Timm(_) | Kind::Told => Ok(()),
        }
    }
}
