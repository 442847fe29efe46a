//! The text towers of CLIP and SigLIP, from the block of the image tower. CLIP's has a causal mask and is read at the end
//! of the text (Radford et al. 2021, arXiv 2103.00020, section 2.4). SigLIP's has none, sees texts padded to its full
//! context, and is read at the last token (Zhai et al. 2023, arXiv 2303.15343, as in its published code).

use tch::Tensor;

use super::parts::BlockParts;
use super::{Attention, Blocks, Places, Traits};
use crate::model::network::ops::{Eager, Ops};
use crate::model::network::{Parameters, Weights};

/// The canonical name of the text tower's projection beside an image tower. It begins like those of a head, which no stage of
/// the network reads.
pub const PROJECTION: &str = "head.projection";

/// The properties of a text tower that names and shapes reveal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextGeometry {
    pub width: i64,
    pub blocks: usize,
    pub mlp: i64,
    /// The number of tokens in the vocabulary.
    pub vocabulary: i64,
    /// The largest number of tokens in a text.
    pub context: i64,
    /// The width of the features, which is that of the image tower.
    pub output: i64,
    pub style: TextStyle,
}

/// The family of a text tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextStyle {
    Clip,
    /// SigLIP and SigLIP 2; told by the config, or in an archive by the bias of the projection.
    Siglip,
}

/// A text transformer.
#[derive(Clone, Debug)]
pub struct TextTower {
    pub geometry: TextGeometry,
    pub traits: Traits,
}

impl TextTower {
    /// Returns the features `[B, output]` of `tokens: [B, T]`. For CLIP, T is at most the context, and features are read at
    /// the end-of-text token, which is the largest; later tokens do not matter, since the mask hides them. For SigLIP, T is
    /// the context, since padding is part of the text.
    pub fn features(&self, parameters: &Parameters, tokens: &Tensor) -> Tensor {
        self.project(parameters, &self.read(parameters, tokens))
    }

    /// Returns the features `[B, output]` from what enters the projection, `[B, width]`.
    pub fn project(&self, parameters: &Parameters, read: &Tensor) -> Tensor {
        let x = read.unsqueeze(0).unsqueeze(2);
        Weights::frozen(parameters).linear("proj").forward(&x).squeeze_dim(2).squeeze_dim(0)
    }

    /// Returns what enters the projection, `[B, width]`, for `tokens: [B, T]` as in [`features`](Self::features).
    pub fn read(&self, parameters: &Parameters, tokens: &Tensor) -> Tensor {
        let weights = Weights::frozen(parameters);
        let (ids, ends) = (tokens.unsqueeze(0), tokens.argmax(1, false).unsqueeze(0));
        self.read_by(&Eager::of(&weights), [&ids, &ends]).squeeze_dim(2).squeeze_dim(0)
    }

    /// Returns the features `[p, B, output]` of ids `[p, B, T]`, whose texts end at `[p, B]`.
    pub fn features_by<O: Ops>(&self, ops: &O, text: [&O::Value; 2]) -> O::Value {
        let projected = ops.linear("proj", &self.read_by(ops, text));
        ops.reshape(&projected, &[self.geometry.output])
    }

    /// Returns what enters the projection, `[p, B, 1, width]`.
    fn read_by<O: Ops>(&self, ops: &O, [ids, ends]: [&O::Value; 2]) -> O::Value {
        let TextGeometry { width, blocks, style, .. } = self.geometry;
        let length = ops.length(ids, 2);
        let position = ops.slice(&ops.param("position"), 2, 0, length);
        let x = ops.add(ops.embedding("token_embedding", ids), position);
        let attention = if style == TextStyle::Clip { Attention::Causal } else { Attention::Full };
        let (parts, places) = (BlockParts::PLAIN, Places::default());
        let x = Blocks { width, blocks, traits: self.traits, attention, parts, places }.forward(ops, x);
        let read = match style {
            TextStyle::Clip => ops.at(&x, ends),
            TextStyle::Siglip => ops.slice(&x, 2, length - 1, 1),
        };
        ops.norm("ln_final", &read, self.traits.eps)
    }
}
