//! The parts in which vision transformers differ, as read from their parameters and their config.
//!
//! Rotary positions on the patch grid (Su et al. 2021, arXiv 2104.09864): the coordinates of each patch rotate pairs of a
//! head's channels by angles of several frequencies. Let a head have D channels, let y and x be the coordinates of a patch, and let f
//! be the frequencies θ^(−4k/D), k < D/4. The D/2 angles are y f followed by x f.
//!
//! - DINOv3 (Siméoni et al. 2025, arXiv 2508.10104): coordinates are 2π times those of the patch's centre in [−1, 1], and
//!   angle k rotates the channels k and k + D/2.
//! - EVA-02 (Fang et al. 2023, arXiv 2303.11331): coordinates are the patch's row and column, scaled to the grid on which
//!   the network was trained first, and angle k rotates the channels 2k and 2k + 1.

use anyhow::{Result, bail};
use serde::Serialize;
use tch::{Device, Kind, Tensor};

use crate::model::network::Parameters;
use crate::model::network::ops::{Constant, Ops, Pairs};
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

/// Rotary positions. θ is the ratio of the largest to the smallest frequency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Rope {
    /// DINOv3 has these, whose coordinates are measured from the centre of the image.
    Centred { theta: f64 },
    /// EVA-02 has these, whose coordinates are indices of patches. `reference` is the number of patches per side of the grid that coordinates are scaled to.
    Indexed { theta: f64, reference: f64 },
}

/// The rotary positions of a grid for a network's heads.
#[derive(Clone, Debug)]
pub struct Angles {
    rope: Rope,
    grid: i64,
    cos: Constant,
    sin: Constant,
}

impl Rope {
    /// Returns the channels that one angle rotates.
    pub fn pairs(self) -> Pairs {
        match self {
            Rope::Centred { .. } => Pairs::Halves,
            Rope::Indexed { .. } => Pairs::Neighbours,
        }
    }

    /// Returns the angles of a grid, `[grid², D]` for heads of D channels.
    fn angles(self, grid: i64, channels: i64, device: Device) -> Tensor {
        let options = (Kind::Double, device);
        let index = Tensor::arange(grid, options);
        let (theta, coordinates) = match self {
            Rope::Centred { theta } => {
                let centres = (index + 0.5) / grid as f64 * 2.0 - 1.0;
                (theta, centres * (2.0 * std::f64::consts::PI))
            }
            Rope::Indexed { theta, reference } => (theta, index / grid as f64 * reference),
        };
        let exponents = Tensor::arange(channels / 4, options) * (4.0 / channels as f64);
        let frequencies = (exponents * -theta.ln()).exp();
        let angles = |coordinate: Tensor| coordinate.reshape([-1, 1]) * &frequencies;
        let y = angles(coordinates.unsqueeze(1).expand([grid, grid], false));
        let x = angles(coordinates.unsqueeze(0).expand([grid, grid], false));
        match self.pairs() {
            Pairs::Halves => Tensor::cat(&[&y, &x, &y, &x], 1),
            Pairs::Neighbours => Tensor::cat(&[y, x], 1).repeat_interleave_self_int(2, 1, None),
        }
    }
}

impl Angles {
    pub fn new(rope: Rope, grid: i64) -> Angles {
        Angles { rope, grid, cos: Constant::new("rope.cos"), sin: Constant::new("rope.sin") }
    }

    /// Rotates queries or keys `[p, B, heads, T, D]`. Only those of the patches, which come last, are rotated.
    pub fn turn<O: Ops>(&self, ops: &O, x: &O::Value) -> O::Value {
        let (front, channels) = (ops.length(x, 3) - self.grid * self.grid, ops.length(x, 4));
        let of = [self.grid, channels];
        let angles = |device| self.rope.angles(self.grid, channels, device);
        let cos = ops.constant(&self.cos, &of, x, |(kind, device)| angles(device).cos().to_kind(kind));
        let sin = ops.constant(&self.sin, &of, x, |(kind, device)| angles(device).sin().to_kind(kind));
        let own = ops.slice(x, 3, front, self.grid * self.grid);
        let rotated = ops.rotated(&own, self.rope.pairs());
        let turned = ops.add(ops.mul(own, cos), ops.mul(rotated, sin));
        ops.concat(vec![ops.slice(x, 3, 0, front), turned], 3)
    }
}
