//! The vision transformer, one implementation of [`Network`](super::network::Network).
//!
//! One forward pass ([`forward`]) serves every pre-norm vision transformer. Its parameters have canonical names:
//! `patch.{weight,bias}`, `class_token`, `position`, `ln_pre.*`,
//! `blocks.i.{ln_1,attn.qkv,attn.proj,ln_2,mlp.fc,mlp.proj}.*`, `ln_post.*` and `proj.weight`. The head of a checkpoint
//! is kept separately.

pub mod architecture;
pub mod arguments;
pub mod footprint;
pub mod forward;
pub mod parts;
pub mod relative;
pub mod required;
pub mod text;

use anyhow::Result;
use serde::Serialize;
use tch::Tensor;

use super::network::expect_finite;
use super::network::ops::{Layer, Mask, Ops};
use parts::{Angles, BlockParts};
use relative::Distances;

pub use crate::model::network::ops::Activation;

/// Returns whether a layer of `width` channels can be cut into `heads` heads.
pub fn heads_fit(heads: i64, width: i64) -> bool {
    heads > 0 && width % heads == 0
}

/// The properties of a vision transformer that names and shapes reveal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    pub width: i64,
    pub blocks: usize,
    pub patch: i64,
    /// The number of patches per side.
    pub grid: i64,
    /// The number of pixels behind the last patch of a row and below the last one of a column, which the network leaves out.
    pub margin: i64,
    pub mlp: i64,
    /// The width of the features.
    pub output: i64,
}

impl Geometry {
    /// Returns the number of pixels per side.
    pub fn image_size(&self) -> i64 {
        self.grid * self.patch + self.margin
    }
}

/// The properties of a vision transformer that names and shapes do not reveal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traits {
    pub heads: i64,
    pub activation: Activation,
    pub eps: f64,
}

/// The classifier in a checkpoint.
pub struct OwnHead {
    /// The weight, `[C, d]`.
    pub weight: Tensor,
    /// The bias, `[C]`.
    pub bias: Tensor,
}

impl OwnHead {
    /// Checks that the classifier is finite.
    ///
    /// # Errors
    /// Fails if it is not.
    pub fn check_finite(&self) -> Result<()> {
        [&self.weight, &self.bias].into_iter().try_for_each(|weight| expect_finite("its classifier", weight))
    }
}

/// The tokens that each token attends to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// All tokens.
    Full,
    /// The token itself and earlier ones.
    Causal,
}

/// The tokens that a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    All,
    /// Only the first token, which is enough in the last block if no other is read. Attention must be full.
    First,
}

/// A stack of pre-norm blocks, `blocks.0` and so on, which the image tower and the text tower share; batched over particles.
pub struct Blocks<'a> {
    pub width: i64,
    pub blocks: usize,
    pub traits: Traits,
    pub attention: Attention,
    pub parts: BlockParts,
    pub places: Places<'a>,
}

/// The positions of tokens as attention sees them, besides those that the tokens carry.
#[derive(Clone, Copy, Debug, Default)]
pub struct Places<'a> {
    /// The rotary positions of the last tokens.
    pub rope: Option<&'a Angles>,
    /// The distances between tokens, for which there are learnt scores.
    pub relative: Option<&'a Distances>,
}

/// An MLP of which a part is computed already: its input, and the output of its first layer without an update.
pub struct Begun<V> {
    pub normed: V,
    pub frozen: Option<V>,
}

impl Blocks<'_> {
    /// Runs all blocks on `x: [p, B, T, d]` and returns `[p', B, T, d]`, with p' = n if particles differ.
    pub fn forward<O: Ops>(&self, ops: &O, x: O::Value) -> O::Value {
        (0..self.blocks).fold(x, |x, block| self.block(ops, block, x, Rows::All))
    }

    /// Runs one block.
    pub fn block<O: Ops>(&self, ops: &O, block: usize, x: O::Value, rows: Rows) -> O::Value {
        self.behind_attention(ops, block, self.attended(ops, block, x, rows), None)
    }

    /// Runs the first half of a block, attention with its skip connection.
    pub fn attended<O: Ops>(&self, ops: &O, block: usize, x: O::Value, rows: Rows) -> O::Value {
        let name = |layer: &str| format!("blocks.{block}.{layer}");
        let eps = self.traits.eps;
        let normed = ops.norm(&name("ln_1"), &x, eps);
        let (attended, x) = match rows {
            Rows::All => (self.attend(ops, block, &normed), x),
            Rows::First => (self.attend_first(ops, block, &normed), ops.slice(&x, 2, 0, 1)),
        };
        let attended = match self.parts.attention_norm {
            true => ops.norm(&name("attn.norm"), &attended, eps),
            false => attended,
        };
        ops.add(x, self.scaled(ops, &name("ls_1"), ops.linear(&name("attn.proj"), &attended)))
    }

    /// Runs the second half of a block, the MLP with its skip connection, of which `begun` may be known.
    pub fn behind_attention<O: Ops>(
        &self,
        ops: &O,
        block: usize,
        x: O::Value,
        begun: Option<Begun<O::Value>>,
    ) -> O::Value {
        let name = |layer: &str| format!("blocks.{block}.{layer}");
        let begun = begun.unwrap_or_else(|| Begun { normed: self.normed(ops, block, &x), frozen: None });
        let added = self.mlp(ops, block, begun);
        ops.add(x, self.scaled(ops, &name("ls_2"), added))
    }

    /// Returns what enters the MLP.
    pub fn normed<O: Ops>(&self, ops: &O, block: usize, x: &O::Value) -> O::Value {
        ops.norm(&format!("blocks.{block}.ln_2"), x, self.traits.eps)
    }

    /// Returns what the MLP makes of its input, `[p, B, T, d]`.
    fn mlp<O: Ops>(&self, ops: &O, block: usize, Begun { normed, frozen }: Begun<O::Value>) -> O::Value {
        let name = |layer: &str| format!("blocks.{block}.mlp.{layer}");
        let hidden = ops.linear_from(&name("fc"), &normed, frozen.as_ref());
        let activation = self.traits.activation;
        if !self.parts.gated && !self.parts.mlp_norm {
            return ops.linear_behind(&name("proj"), activation, hidden);
        }
        let hidden = match self.parts.gated {
            false => ops.activation(activation, hidden),
            true => ops.mul(ops.activation(activation, ops.linear(&name("gate"), &normed)), hidden),
        };
        let hidden = match self.parts.mlp_norm {
            true => ops.norm(&name("norm"), &hidden, self.traits.eps),
            false => hidden,
        };
        ops.linear(&name("proj"), &hidden)
    }

    /// Returns the result `added: [p, B, T, d]` of half a block, times its learnt scale if there is one.
    fn scaled<O: Ops>(&self, ops: &O, scale: &str, added: O::Value) -> O::Value {
        match self.parts.layer_scale {
            true => ops.mul(added, ops.param(&format!("{scale}.gamma"))),
            false => added,
        }
    }

    /// Returns queries or keys with their rotary positions applied.
    fn turned<O: Ops>(&self, ops: &O, x: &O::Value) -> O::Value {
        self.places.rope.map_or_else(|| ops.again(x), |angles| angles.turn(ops, x))
    }

    /// Returns some rows of the layer that computes queries, keys and values.
    fn qkv<O: Ops>(&self, ops: &O, block: usize, rows: Option<(i64, i64)>, x: &O::Value) -> O::Value {
        let name = format!("blocks.{block}.attn.qkv");
        ops.layer(Layer { name: &name, rows, keyless_bias: self.parts.keyless_bias }, x)
    }

    /// Returns what each query in `rows` may read, with what the distances add to its scores.
    fn mask<O: Ops>(&self, ops: &O, block: usize, rows: Rows, like: &O::Value) -> Mask<O::Value> {
        if self.attention == Attention::Causal {
            return Mask::Causal;
        }
        let names = ["relative.weight".to_string(), format!("blocks.{block}.attn.relative.weight")];
        let scores = self.places.relative.and_then(|distances| distances.scores(ops, &names, like));
        match scores {
            None => Mask::None,
            Some(scores) if rows == Rows::First => Mask::Scores(ops.slice(&scores, 3, 0, 1)),
            Some(scores) => Mask::Scores(scores),
        }
    }

    /// Computes self-attention of all tokens.
    fn attend<O: Ops>(&self, ops: &O, block: usize, x: &O::Value) -> O::Value {
        let mask = self.mask(ops, block, Rows::All, x);
        let qkv = self.qkv(ops, block, None, x);
        if self.places.rope.is_none() && matches!(mask, Mask::None) {
            return ops.self_attention(&qkv, self.traits.heads);
        }
        let parts = ops.heads(&qkv, 3, self.traits.heads);
        let (query, key) = (self.turned(ops, &parts[0]), self.turned(ops, &parts[1]));
        ops.attention([&query, &key, &parts[2]], mask)
    }

    /// Computes self-attention with the first token as the only query. That token has no rotary position.
    fn attend_first<O: Ops>(&self, ops: &O, block: usize, x: &O::Value) -> O::Value {
        let (width, heads) = (self.width, self.traits.heads);
        let query = self.qkv(ops, block, Some((0, width)), &ops.slice(x, 2, 0, 1));
        let key_value = self.qkv(ops, block, Some((width, 2 * width)), x);
        let query = ops.heads(&query, 1, heads);
        let parts = ops.heads(&key_value, 2, heads);
        let key = self.turned(ops, &parts[0]);
        let mask = self.mask(ops, block, Rows::First, x);
        ops.attention([&query[0], &key, &parts[1]], mask)
    }
}
