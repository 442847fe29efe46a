//! The pre-norm transformer block that the image tower and the text tower share, batched over particles.

use tch::Tensor;

use super::parts::BlockParts;
use super::relative::Distances;
use super::rope::Table;
use super::{Activation, Traits};
use crate::model::network::Linear;
use crate::model::network::Weights;

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

/// A stack of blocks, `blocks.0` and so on.
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
    pub rope: Option<&'a Table>,
    /// The distances between tokens, for which there are learnt scores.
    pub relative: Option<&'a Distances>,
}

impl Blocks<'_> {
    /// Runs all blocks on `x: [p, B, T, d]` and returns `[p', B, T, d]`, with p' = n if particles differ.
    pub fn forward(&self, weights: &Weights, x: Tensor) -> Tensor {
        (0..self.blocks).fold(x, |x, block| self.block(weights, block, x, Rows::All))
    }

    /// Runs one block.
    pub fn block(&self, weights: &Weights, block: usize, x: Tensor, rows: Rows) -> Tensor {
        let name = |layer: &str| format!("blocks.{block}.{layer}");
        let eps = self.traits.eps;
        let normed = weights.norm(&name("ln_1")).forward(&x, eps);
        let (attended, x) = match rows {
            Rows::All => (self.attend(weights, block, &normed), x),
            Rows::First => (self.attend_first(weights, block, &normed), x.narrow(2, 0, 1)),
        };
        let attended = match self.parts.attention_norm {
            true => weights.norm(&name("attn.norm")).forward(&attended, eps),
            false => attended,
        };
        let x = x + self.scaled(weights, &name("ls_1"), weights.linear(&name("attn.proj")).forward(&attended));
        let hidden = self.hidden(weights, block, &weights.norm(&name("ln_2")).forward(&x, eps));
        x + self.scaled(weights, &name("ls_2"), weights.linear(&name("mlp.proj")).forward(&hidden))
    }

    /// Returns the hidden values of the MLP, `[p, B, T, m]`.
    fn hidden(&self, weights: &Weights, block: usize, normed: &Tensor) -> Tensor {
        let name = |layer: &str| format!("blocks.{block}.mlp.{layer}");
        let hidden = weights.linear(&name("fc")).forward(normed);
        let hidden = match self.parts.gated {
            false => activate(&hidden, self.traits.activation),
            true => activate(&weights.linear(&name("gate")).forward(normed), self.traits.activation) * hidden,
        };
        match self.parts.mlp_norm {
            true => weights.norm(&name("norm")).forward(&hidden, self.traits.eps),
            false => hidden,
        }
    }

    /// Returns the result `added: [p, B, T, d]` of half a block, times its learnt scale if there is one.
    fn scaled(&self, weights: &Weights, scale: &str, added: Tensor) -> Tensor {
        match self.parts.layer_scale {
            true => added * weights.param(&format!("{scale}.gamma")).unsqueeze(1).unsqueeze(1),
            false => added,
        }
    }

    /// Returns queries or keys with their rotary positions applied.
    fn turned(&self, x: &Tensor) -> Tensor {
        self.places.rope.map_or_else(|| x.shallow_clone(), |table| table.turn(x))
    }

    /// Returns the layer that computes queries, keys and values.
    fn qkv(&self, weights: &Weights, block: usize) -> Linear {
        let layer = format!("blocks.{block}.attn.qkv");
        if self.parts.keyless_bias { weights.linear_without_key_bias(&layer) } else { weights.linear(&layer) }
    }

    /// Returns what the distances add to the scores of `particles · batch` images, `[1 or p·B, heads, queries, T]`, for the
    /// queries in `rows`.
    fn scores(&self, weights: &Weights, block: usize, images: (i64, i64), rows: Rows) -> Option<Tensor> {
        let distances = self.places.relative?;
        let names = ["relative.weight".to_string(), format!("blocks.{block}.attn.relative.weight")];
        let tables = names.iter().filter(|name| weights.has(name)).map(|name| weights.param(name));
        let scores = distances.scores(&tables.reduce(|all, own| all + own)?);
        let scores = if rows == Rows::First { scores.narrow(2, 0, 1) } else { scores };
        if scores.size()[0] == 1 {
            return Some(scores);
        }
        let (particles, batch) = images;
        Some(scores.unsqueeze(1).expand([particles, batch, -1, -1, -1], false).flatten(0, 1))
    }

    /// Computes self-attention of all tokens.
    fn attend(&self, weights: &Weights, block: usize, x: &Tensor) -> Tensor {
        let qkv = self.qkv(weights, block).forward(x);
        let images = (qkv.size()[0], qkv.size()[1]);
        let parts = split_heads(&qkv, 3, self.traits.heads);
        let (query, key) = (self.turned(&parts[0]), self.turned(&parts[1]));
        let read = match (self.attention, self.scores(weights, block, images, Rows::All)) {
            (Attention::Causal, _) => attention(&query, &key, &parts[2], true),
            (Attention::Full, None) => attention(&query, &key, &parts[2], false),
            (Attention::Full, Some(scores)) => attention_with(&query, &key, &parts[2], &scores),
        };
        merge_heads(&read, images.0)
    }

    /// Computes self-attention with the first token as the only query.
    fn attend_first(&self, weights: &Weights, block: usize, x: &Tensor) -> Tensor {
        let (width, layer) = (self.width, self.qkv(weights, block));
        let query = layer.rows(0, width).forward(&x.narrow(2, 0, 1));
        let key_value = layer.rows(width, 2 * width).forward(x);
        let images = (key_value.size()[0], key_value.size()[1]);
        let query = split_heads(&query, 1, self.traits.heads);
        let parts = split_heads(&key_value, 2, self.traits.heads);
        let key = self.turned(&parts[0]);
        let read = match self.scores(weights, block, images, Rows::First) {
            None => attention(&query[0], &key, &parts[1], false),
            Some(scores) => attention_with(&query[0], &key, &parts[1], &scores),
        };
        merge_heads(&read, images.0)
    }
}

/// Splits `[p, B, T, k·d] -> k × [p·B, heads, T, d / heads]`.
pub(super) fn split_heads(x: &Tensor, parts: i64, heads: i64) -> Vec<Tensor> {
    let size = x.size();
    let x = x.reshape([size[0] * size[1], size[2], parts, heads, size[3] / (parts * heads)]);
    x.permute([2, 0, 3, 1, 4]).unbind(0)
}

/// Joins `[p·B, heads, T, d / heads] -> [p, B, T, d]`.
pub(super) fn merge_heads(x: &Tensor, particles: i64) -> Tensor {
    let size = x.size();
    x.transpose(1, 2).reshape([particles, size[0] / particles, size[2], size[1] * size[3]])
}

pub(super) fn attention(query: &Tensor, key: &Tensor, value: &Tensor, causal: bool) -> Tensor {
    Tensor::scaled_dot_product_attention(query, key, value, None::<&Tensor>, 0.0, causal, None, false)
}

/// Computes attention with numbers `[1 or B, heads, queries, T]` that are added to the scores.
fn attention_with(query: &Tensor, key: &Tensor, value: &Tensor, scores: &Tensor) -> Tensor {
    Tensor::scaled_dot_product_attention(query, key, value, Some(scores), 0.0, false, None, false)
}

/// Applies the MLP's activation elementwise.
pub(super) fn activate(x: &Tensor, activation: Activation) -> Tensor {
    match activation {
        Activation::Gelu => x.gelu("none"),
        Activation::GeluTanh => x.gelu("tanh"),
        Activation::QuickGelu => x * (x * 1.702).sigmoid(),
        Activation::Silu => x.silu(),
    }
}
