//! Finds the text tower of CLIP or SigLIP among a checkpoint's parameters.

use anyhow::{Context, Result, bail, ensure};
use tch::{Device, Kind, Tensor};

use super::complete::{check_blocks, check_norm, check_shape};
use super::fuse::Loose;
use super::namings::{clip, transformers};
use crate::model::network::Parameters;
use crate::model::stored::Form;
use crate::model::vit::required::block_count;
use crate::model::vit::text::{TextGeometry, TextStyle};

/// Returns the form in which a checkpoint stores the text tower's projection; `None` for any other parameter.
pub fn projection(name: &str) -> Option<Form> {
    let inner = PREFIXES.into_iter().filter_map(|prefix| name.strip_prefix(prefix));
    let mut known = inner.filter_map(canonical).chain(transformers::text(name));
    known.find(|(canonical, _)| canonical == "proj.weight").map(|(_, form)| form)
}

/// The prefixes of the text tower: none (OpenAI, open_clip), or `text.` (open_clip's custom models).
const PREFIXES: [&str; 2] = ["", "text."];
const LANDMARK: &str = "token_embedding.weight";
/// The parameters of which one is enough to know that there is a text tower.
const LANDMARKS: [&str; 2] = [LANDMARK, "ln_final.weight"];
/// The prefixes of parameters at the root that do not belong to the text tower.
const BESIDE: [&str; 3] = ["visual.", "logit_scale", "logit_bias"];

/// The parameters that a text tower has by its config.
#[derive(Clone, Copy, Debug)]
pub struct TextExpected {
    pub style: TextStyle,
    /// Whether there is a summand of all logits.
    pub logit_bias: bool,
}

/// The weights of a text tower under canonical names: `token_embedding.weight`, `position`, `blocks.i.*`, `ln_final.*`,
/// `proj.weight`.
pub struct TextWeights {
    pub geometry: TextGeometry,
    pub parameters: Parameters,
    /// The factor exp(`logit_scale`) on cosines of images and texts.
    pub logit_scale: f64,
    /// The summand of all logits (SigLIP's `logit_bias`); 0 where there is none.
    pub logit_bias: f64,
}

impl TextWeights {
    /// Finds the text tower among an archive's parameters; `None` if there is none.
    ///
    /// # Errors
    /// Fails if the text tower has parts that CLIP's does not have, or if parts or `logit_scale` are missing.
    pub fn recognise(parameters: &[(String, Tensor)], expected: Option<TextExpected>) -> Result<Option<TextWeights>> {
        let is_landmark = |name: &str| LANDMARKS.contains(&name);
        let has = |prefix: &&str| parameters.iter().any(|(name, _)| name.strip_prefix(prefix).is_some_and(is_landmark));
        let Some(prefix) = PREFIXES.into_iter().find(has) else {
            return TextWeights::of_transformers(parameters, expected);
        };
        let mut named = Vec::new();
        for (name, tensor) in parameters {
            let Some(inner) = name.strip_prefix(prefix) else { continue };
            if BESIDE.iter().any(|start| inner.starts_with(start)) {
                continue;
            }
            let (known, form) = canonical(inner).with_context(|| foreign(name))?;
            named.push((known, form.shaped(name, tensor)?));
        }
        TextWeights::complete(named, parameters, expected)
    }

    /// Finds the text tower under the names of transformers.
    fn of_transformers(parameters: &[(String, Tensor)], expected: Option<TextExpected>) -> Result<Option<TextWeights>> {
        let mut named: Vec<(String, Tensor)> = Vec::new();
        for (name, tensor) in parameters {
            if let Some((known, form)) = transformers::text(name) {
                named.push((known, form.shaped(name, tensor)?));
            } else if name.starts_with("text_model.") && !name.ends_with("position_ids") {
                bail!(foreign(name));
            }
        }
        // A projection alone is CLIP's of images.
        if named.iter().all(|(name, _)| name.starts_with("proj.")) {
            return Ok(None);
        }
        let blocks = block_count(&named)?;
        Loose(&mut named).fuse(blocks)?;
        TextWeights::complete(named, parameters, expected)
    }

    fn complete(
        named: Vec<(String, Tensor)>,
        parameters: &[(String, Tensor)],
        expected: Option<TextExpected>,
    ) -> Result<Option<TextWeights>> {
        let logit_scale = scalar(parameters, "logit_scale").context("it has no scalar logit_scale")?.exp();
        let logit_bias = scalar(parameters, "logit_bias");
        for (name, number) in [("exp(logit_scale)", Some(logit_scale)), ("logit_bias", logit_bias)] {
            let number = number.unwrap_or_default();
            ensure!(number.is_finite(), "its {name} is {number}: must be a finite number; download the weights again");
        }
        let has_bias = expected.map_or(logit_bias.is_some(), |expected| expected.logit_bias);
        ensure!(
            has_bias == logit_bias.is_some(),
            "it has {} scalar logit_bias: weights and config are not of one model",
            if has_bias { "no" } else { "a" }
        );
        let logit_bias = logit_bias.unwrap_or(0.0);
        let geometry = geometry(&named, expected)?;
        let weights = TextWeights { geometry, parameters: Parameters::new(named), logit_scale, logit_bias };
        weights.check_complete()?;
        Ok(Some(weights))
    }

    /// Returns the same weights on another device, in f32.
    pub fn to(&self, device: Device) -> TextWeights {
        let parameters = self.parameters.to(device, Kind::Float);
        TextWeights { geometry: self.geometry.clone(), parameters, ..*self }
    }

    /// Checks that every parameter of the forward pass exists and has the right shape.
    fn check_complete(&self) -> Result<()> {
        let TextGeometry { width, blocks, mlp, output, .. } = self.geometry;
        check_norm(&self.parameters, "ln_final", width)?;
        check_shape(&self.parameters, "proj.weight", &[output, width])?;
        if self.geometry.style == TextStyle::Siglip {
            check_shape(&self.parameters, "proj.bias", &[output])?;
        } else {
            ensure!(self.parameters.get("proj.bias").is_none(), "its projection has a bias, which CLIP's has not");
        }
        let biases = (0..blocks).map(|block| format!("blocks.{block}.attn.qkv.bias"));
        biases.into_iter().try_for_each(|bias| check_shape(&self.parameters, &bias, &[3 * width]))?;
        check_blocks(&self.parameters, blocks, width, mlp)
    }
}

/// Returns the canonical name and layout of a parameter; `None` for one that CLIP's text tower does not have.
pub fn canonical(name: &str) -> Option<(String, Form)> {
    match name {
        LANDMARK => Some((name.into(), Form::AsIs)),
        "positional_embedding" => Some(("position".into(), Form::AsIs)),
        "ln_final.weight" | "ln_final.bias" => Some((name.into(), Form::AsIs)),
        "text_projection" => Some(("proj.weight".into(), Form::Transposed)),
        "text_projection.weight" => Some(("proj.weight".into(), Form::AsIs)),
        "text_projection.bias" => Some(("proj.bias".into(), Form::AsIs)),
        _ if name.starts_with("transformer.") => clip::canonical(name),
        _ => None,
    }
}

/// Returns the message about a parameter that is of another text tower.
fn foreign(name: &str) -> String {
    format!("it has {name}, a part that no text tower of CLIP or SigLIP has: set head.zero-shot.weights instead")
}

/// Returns a parameter with a single value.
fn scalar(parameters: &[(String, Tensor)], name: &str) -> Option<f64> {
    let tensor = &parameters.iter().find(|(known, tensor)| known == name && tensor.numel() == 1)?.1;
    Some(tensor.to_kind(Kind::Double).view(-1).double_value(&[0]))
}

fn geometry(named: &[(String, Tensor)], expected: Option<TextExpected>) -> Result<TextGeometry> {
    let size = |name: &str| -> Result<(i64, i64)> {
        let found = named.iter().find(|(known, _)| known == name);
        let tensor = &found.with_context(|| format!("it lacks the parameter that bella calls {name}"))?.1;
        tensor.size2().map_err(|_| anyhow::anyhow!("its {name} is not a matrix"))
    };
    let ((vocabulary, width), (context, _)) = (size(LANDMARK)?, size("position")?);
    let ((output, _), (mlp, _)) = (size("proj.weight")?, size("blocks.0.mlp.fc.weight")?);
    ensure!(size("position")?.1 == width, "its position embeddings are not {width} wide");
    ensure!(vocabulary > 2 && context > 2, "it knows {vocabulary} tokens and texts of {context}: too few");
    let is_siglip = named.iter().any(|(known, _)| known == "proj.bias");
    let own = if is_siglip { TextStyle::Siglip } else { TextStyle::Clip };
    let style = expected.map_or(own, |expected| expected.style);
    Ok(TextGeometry { width, blocks: block_count(named)?, mlp, vocabulary, context, output, style })
}
