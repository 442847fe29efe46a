//! The parameters that a network must have. Its family and its config decide them, not what is found among the weights: a
//! parameter that is missing and one that is left over are refused by name.

use std::collections::HashSet;

use anyhow::{Result, bail, ensure};
use tch::{Kind, Tensor};

use crate::model::network::block_of;

/// The biases that queries, keys and values have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkvBias {
    None,
    All,
    /// Queries and values.
    Keyless,
}

/// The projection of the features behind the readout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Projection {
    None,
    Plain,
    Biased,
    /// Nothing but the weights tells whether there is one.
    Untold,
}

/// The parameters of a vision transformer that its family and its config call for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Required {
    pub patch_bias: bool,
    pub class_token: bool,
    pub distillation_token: bool,
    pub registers: bool,
    pub position: bool,
    pub pre_norm: bool,
    /// Whether each block has a table of relative positions.
    pub relative: bool,
    /// Whether all blocks share a table of relative positions.
    pub shared_relative: bool,
    pub layer_scale: bool,
    pub qkv_bias: QkvBias,
    pub gated: bool,
    pub attention_norm: bool,
    pub mlp_norm: bool,
    /// Whether the last norm follows the mean of the patches, for which files have another name.
    pub mean_norm: bool,
    /// Whether a learnt query reads the tokens.
    pub pool: bool,
    pub projection: Projection,
    /// The classifiers; `None` where nothing but the weights tells whether there is one.
    pub heads: Option<&'static [&'static str]>,
}

impl Required {
    /// A plain vision transformer with a class token.
    pub const PLAIN: Required = Required {
        patch_bias: true,
        class_token: true,
        distillation_token: false,
        registers: false,
        position: true,
        pre_norm: false,
        relative: false,
        shared_relative: false,
        layer_scale: false,
        qkv_bias: QkvBias::All,
        gated: false,
        attention_norm: false,
        mlp_norm: false,
        mean_norm: false,
        pool: false,
        projection: Projection::None,
        heads: None,
    };

    /// CLIP's image tower.
    pub const CLIP: Required =
        Required { patch_bias: false, pre_norm: true, projection: Projection::Plain, ..Required::PLAIN };

    /// Checks that parameters under canonical names are those that are required, no more and no less.
    ///
    /// # Errors
    /// Fails at the first one that is missing or left over.
    pub fn check(&self, found: &[(String, Tensor)]) -> Result<()> {
        if self.heads.is_none() {
            Required::check_untold(found)?;
        }
        let there: HashSet<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        let blocks = block_count(found)?;
        let wanted = self.names(blocks);
        if let Some(lacking) = wanted.iter().find(|name| !there.contains(name.as_str())) {
            bail!("it lacks the parameter that bella calls {lacking}, which belongs to such a network");
        }
        let biases = (0..blocks).map(|block| format!("blocks.{block}.attn"));
        biases.into_iter().try_for_each(|attention| self.check_bias(found, &attention))?;
        let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
        let is_open = |name: &str| {
            name.ends_with(".attn.qkv.bias")
                || name.ends_with(".attn.qkv.keyless_bias")
                || (self.heads.is_none() && name.starts_with("head"))
                || (self.projection == Projection::Untold && name == "proj.weight")
        };
        let surplus = there.into_iter().filter(|name| !wanted.contains(name) && !is_open(name)).min();
        ensure!(
            surplus.is_none(),
            "it has a parameter that bella calls {}, which does not belong to such a network: weights and config are not of \
             one model",
            surplus.unwrap_or_default()
        );
        Ok(())
    }

    /// Checks of parameters of which nothing tells what they should be that every classifier is whole, and that patches have a
    /// bias unless a norm follows them.
    ///
    /// # Errors
    /// Fails at the first parameter that is missing.
    pub fn check_untold(found: &[(String, Tensor)]) -> Result<()> {
        let has = |name: &str| found.iter().any(|(known, _)| known == name);
        for head in ["head", "head_dist"] {
            let parts = ["weight", "bias"].map(|part| format!("{head}.{part}"));
            let [weight, bias] = [has(&parts[0]), has(&parts[1])];
            ensure!(
                weight == bias,
                "it lacks the parameter that bella calls {}, which belongs to its classifier",
                parts[usize::from(weight)]
            );
        }
        let ends = has("patch.bias") || has("ln_pre.weight") || has("ln_pre.bias");
        ensure!(ends, "it lacks the parameter that bella calls patch.bias, which belongs to such a network");
        for (one, other) in [("ln_pre.weight", "ln_pre.bias"), ("ln_pre.bias", "ln_pre.weight")] {
            ensure!(!has(one) || has(other), "it lacks the parameter that bella calls {other}");
        }
        Ok(())
    }

    /// Returns the canonical names of all parameters, without the biases of queries, keys and values.
    fn names(&self, blocks: usize) -> Vec<String> {
        let mut names = Vec::new();
        let mut push = |prefix: &str, parts: &[(bool, &str)]| {
            let called = parts.iter().filter(|(is_called, _)| *is_called);
            names.extend(called.map(|(_, name)| format!("{prefix}{name}")));
        };
        let norm = if self.mean_norm { ["ln_mean.weight", "ln_mean.bias"] } else { ["ln_post.weight", "ln_post.bias"] };
        let projects = matches!(self.projection, Projection::Plain | Projection::Biased);
        push(
            "",
            &[
                (true, "patch.weight"),
                (self.patch_bias, "patch.bias"),
                (self.class_token, "class_token"),
                (self.distillation_token, "distillation_token"),
                (self.registers, "registers"),
                (self.position, "position"),
                (self.shared_relative, "relative.weight"),
                (self.pre_norm, "ln_pre.weight"),
                (self.pre_norm, "ln_pre.bias"),
                (true, norm[0]),
                (true, norm[1]),
                (projects, "proj.weight"),
                (self.projection == Projection::Biased, "proj.bias"),
            ],
        );
        for block in 0..blocks {
            push(&format!("blocks.{block}."), &self.block());
        }
        if self.pool {
            push("pool.", &[(true, "query")]);
            for layer in ["q", "kv", "proj", "ln", "fc", "out"] {
                push(&format!("pool.{layer}."), &[(true, "weight"), (true, "bias")]);
            }
        }
        for head in self.heads.into_iter().flatten() {
            push(&format!("{head}."), &[(true, "weight"), (true, "bias")]);
        }
        names
    }

    /// Returns the parameters of a block, each with whether it is called for.
    fn block(&self) -> [(bool, &'static str); 20] {
        [
            (true, "ln_1.weight"),
            (true, "ln_1.bias"),
            (true, "attn.qkv.weight"),
            (self.relative, "attn.relative.weight"),
            (self.attention_norm, "attn.norm.weight"),
            (self.attention_norm, "attn.norm.bias"),
            (true, "attn.proj.weight"),
            (true, "attn.proj.bias"),
            (self.layer_scale, "ls_1.gamma"),
            (true, "ln_2.weight"),
            (true, "ln_2.bias"),
            (self.gated, "mlp.gate.weight"),
            (self.gated, "mlp.gate.bias"),
            (true, "mlp.fc.weight"),
            (true, "mlp.fc.bias"),
            (self.mlp_norm, "mlp.norm.weight"),
            (self.mlp_norm, "mlp.norm.bias"),
            (true, "mlp.proj.weight"),
            (true, "mlp.proj.bias"),
            (self.layer_scale, "ls_2.gamma"),
        ]
    }

    /// Checks the biases of queries, keys and values. One that the family does not have may be there where it is 0, as in the
    /// files of DINOv3's authors.
    fn check_bias(&self, found: &[(String, Tensor)], attention: &str) -> Result<()> {
        let get = |name: &str| {
            let name = format!("{attention}.qkv.{name}");
            found.iter().find(|(known, _)| *known == name).map(|(_, tensor)| tensor)
        };
        let is_zero = |tensor: &Tensor| tensor.abs().sum(Kind::Float).double_value(&[]) == 0.0;
        let lacking = match (self.qkv_bias, get("bias"), get("keyless_bias")) {
            (QkvBias::All, Some(_), _) | (QkvBias::Keyless, None, Some(_)) | (QkvBias::None, None, None) => {
                return Ok(());
            }
            (QkvBias::All, None, Some(_)) => "k.bias",
            (QkvBias::All | QkvBias::Keyless, None, _) => "qkv.bias",
            (QkvBias::Keyless, Some(all), _) if is_zero(&all.chunk(3, 0)[1]) => return Ok(()),
            (QkvBias::None, all, keyless) if all.into_iter().chain(keyless).all(is_zero) => return Ok(()),
            (wanted, ..) => {
                let which = if wanted == QkvBias::None { "qkv.bias" } else { "k.bias" };
                bail!(
                    "it has the parameter that bella calls {attention}.{which}, which does not belong to such a network: \
                     weights and config are not of one model"
                )
            }
        };
        bail!("it lacks the parameter that bella calls {attention}.{lacking}, which belongs to such a network")
    }
}

/// Returns one more than the largest block number among the canonical names.
///
/// # Errors
/// Fails if there are fewer parameters than blocks, before anything is made for each of these.
pub fn block_count(parameters: &[(String, Tensor)]) -> Result<usize> {
    let numbered = parameters.iter().filter_map(|(name, _)| Some((block_of(name)?, name)));
    let Some((last, name)) = numbered.max() else { return Ok(0) };
    let all = parameters.len();
    ensure!(
        last < all,
        "it has the parameter that bella calls {name}, but {all} parameters in all: blocks are missing"
    );
    Ok(last + 1)
}
