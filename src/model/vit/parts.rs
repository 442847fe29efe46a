//! The parts in which vision transformers differ, as read from their parameters and their config.

use anyhow::{Result, bail};
use serde::Serialize;

use super::rope::Rope;
use crate::model::network::Parameters;
use crate::schema::words;

words! {
    /// The way in which features are computed from the output tokens of the last block.
    pub enum Readout {
        /// The class token, normalised.
        Class = "class",
        /// The normalised class token beside the normalised distillation token (DeiT with both heads).
        ClassDistillation = "class+distillation",
        /// The mean of the patch tokens, normalised after it is taken.
        Mean = "mean",
        /// The mean of the normalised patch tokens.
        NormedMean = "normed-mean",
        /// The normalised class token beside the mean of the normalised patch tokens.
        ClassMean = "class+mean",
        /// Attention of a learnt query over all normalised tokens (SigLIP's MAP head).
        Map = "map",
    }
}

words! {
    /// The way in which position embeddings are resized to another grid; all are bicubic.
    pub enum Resize {
        /// With antialiasing, as timm does.
        Antialiased = "antialiased",
        /// Without, as transformers does.
        Plain = "plain",
    }
}

/// The tables of relative positions: the one of all blocks, and that of the first block.
pub const RELATIVE: [&str; 2] = ["relative.weight", "blocks.0.attn.relative.weight"];

/// The parts in which a block differs from a plain one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BlockParts {
    /// Whether each half of a block scales its result by a learnt factor (`ls_1`, `ls_2`).
    pub layer_scale: bool,
    /// Whether the MLP has a gate: act(gate(x)) · fc(x) in place of act(fc(x)).
    pub gated: bool,
    /// Whether keys lack the bias that queries and values have.
    pub keyless_bias: bool,
    /// Whether the result of attention is normalised before its projection.
    pub attention_norm: bool,
    /// Whether the hidden values of the MLP are normalised before its projection.
    pub mlp_norm: bool,
}

impl BlockParts {
    /// A plain block.
    pub const PLAIN: BlockParts =
        BlockParts { layer_scale: false, gated: false, keyless_bias: false, attention_norm: false, mlp_norm: false };

    /// Reads the parts from the parameters' names in the first block.
    fn of(parameters: &Parameters) -> BlockParts {
        let has = |name: &str| parameters.get(&format!("blocks.0.{name}")).is_some();
        BlockParts {
            layer_scale: has("ls_1.gamma"),
            gated: has("mlp.gate.weight"),
            keyless_bias: has("attn.qkv.keyless_bias"),
            attention_norm: has("attn.norm.weight"),
            mlp_norm: has("mlp.norm.weight"),
        }
    }
}

/// The parts besides plain blocks, a class token with learnt positions, and the class readout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parts {
    /// The number of tokens in front of the patches: class, distillation, registers.
    pub prefix: i64,
    /// The number of these tokens that have their own position embeddings.
    pub positioned: i64,
    pub block: BlockParts,
    /// The rotary positions of the patches.
    pub rope: Option<Rope>,
    /// Whether attention scores have a learnt bias for each distance (`relative` for all blocks, `attn.relative` for one).
    pub relative: bool,
    pub readout: Readout,
    pub resize: Resize,
}

impl Parts {
    /// A plain vision transformer.
    pub const PLAIN: Parts = Parts {
        prefix: 1,
        positioned: 1,
        block: BlockParts::PLAIN,
        rope: None,
        relative: false,
        readout: Readout::Class,
        resize: Resize::Antialiased,
    };

    /// Reads the parts from the parameters' names and shapes. Parts that these do not tell are those of a plain vision
    /// transformer.
    ///
    /// # Errors
    /// Fails if the position embeddings fit no square grid.
    pub fn of(parameters: &Parameters) -> Result<Parts> {
        let rows = |name: &str| parameters.get(name).map(|t| if t.dim() == 1 { 1 } else { t.size()[0] });
        let lead = ["class_token", "distillation_token"].iter().filter_map(|name| rows(name)).sum::<i64>();
        let prefix = lead + rows("registers").unwrap_or(0);
        let positioned = match rows("position") {
            None => 0,
            Some(rows) => match [lead, 0, prefix].into_iter().find(|some| is_square(rows - some)) {
                Some(some) => some,
                None => bail!("its {rows} position embeddings are not a class token and a square grid"),
            },
        };
        Ok(Parts {
            prefix,
            positioned,
            block: BlockParts::of(parameters),
            relative: RELATIVE.iter().any(|name| parameters.get(name).is_some()),
            readout: if parameters.get("pool.query").is_some() { Readout::Map } else { Readout::Class },
            ..Parts::PLAIN
        })
    }
}

fn is_square(count: i64) -> bool {
    let side = (count.max(0) as f64).sqrt().round() as i64;
    count > 0 && side * side == count
}
