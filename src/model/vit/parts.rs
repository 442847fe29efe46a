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

/// The parts besides plain blocks, a class token with learnt positions, and the class readout.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Parts {
    /// The number of tokens in front of the patches: class, distillation, registers.
    pub prefix: i64,
    /// The number of these tokens that have their own position embeddings.
    pub positioned: i64,
    /// Whether each half of a block scales its result by a learnt factor (`ls_1`, `ls_2`).
    pub layer_scale: bool,
    /// Whether the MLP has a gate: act(gate(x)) · fc(x) in place of act(fc(x)).
    pub gated: bool,
    /// The rotary positions of the patches.
    pub rope: Option<Rope>,
    pub readout: Readout,
    pub resize: Resize,
}

impl Parts {
    /// A plain vision transformer.
    pub const PLAIN: Parts = Parts {
        prefix: 1,
        positioned: 1,
        layer_scale: false,
        gated: false,
        rope: None,
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
            layer_scale: parameters.get("blocks.0.ls_1.gamma").is_some(),
            gated: parameters.get("blocks.0.mlp.gate.weight").is_some(),
            readout: if parameters.get("pool.query").is_some() { Readout::Map } else { Readout::Class },
            ..Parts::PLAIN
        })
    }
}

fn is_square(count: i64) -> bool {
    let side = (count.max(0) as f64).sqrt().round() as i64;
    count > 0 && side * side == count
}
