//! The pre-norm transformer block that the image tower and the text tower share, batched over particles.

use tch::Tensor;

use super::rope::Table;
use super::{Activation, Traits};
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
    /// Whether each half of a block scales its result by a learnt factor.
    pub layer_scale: bool,
    /// Whether the MLP has a gate.
    pub gated: bool,
    /// The rotary positions of the last tokens.
    pub rope: Option<&'a Table>,
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
            Rows::All => (self.attend(weights, &name("attn.qkv"), &normed), x),
            Rows::First => (self.attend_first(weights, &name("attn.qkv"), &normed), x.narrow(2, 0, 1)),
        };
        let x = x + self.scaled(weights, &name("ls_1"), weights.linear(&name("attn.proj")).forward(&attended));
        let normed = weights.norm(&name("ln_2")).forward(&x, eps);
        let hidden = weights.linear(&name("mlp.fc")).forward(&normed);
        let hidden = match self.gated {
            false => activate(&hidden, self.traits.activation),
            true => {
                let gate = weights.linear(&name("mlp.gate")).forward(&normed);
                activate(&gate, self.traits.activation) * hidden
            }
        };
        x + self.scaled(weights, &name("ls_2"), weights.linear(&name("mlp.proj")).forward(&hidden))
    }

    /// Returns the result `added: [p, B, T, d]` of half a block, times its learnt scale if there is one.
    fn scaled(&self, weights: &Weights, scale: &str, added: Tensor) -> Tensor {
        match self.layer_scale {
            true => added * weights.param(&format!("{scale}.gamma")).unsqueeze(1).unsqueeze(1),
            false => added,
        }
    }

    /// Returns queries or keys with their rotary positions applied.
    fn turned(&self, x: &Tensor) -> Tensor {
        self.rope.map_or_else(|| x.shallow_clone(), |table| table.turn(x))
    }

    /// Computes self-attention of all tokens.
    fn attend(&self, weights: &Weights, layer: &str, x: &Tensor) -> Tensor {
        let qkv = weights.linear(layer).forward(x);
        let parts = split_heads(&qkv, 3, self.traits.heads);
        let causal = self.attention == Attention::Causal;
        let (query, key) = (self.turned(&parts[0]), self.turned(&parts[1]));
        merge_heads(&attention(&query, &key, &parts[2], causal), qkv.size()[0])
    }

    /// Computes self-attention with the first token as the only query.
    fn attend_first(&self, weights: &Weights, layer: &str, x: &Tensor) -> Tensor {
        let width = self.width;
        let query = weights.linear_rows(layer, 0, width).forward(&x.narrow(2, 0, 1));
        let key_value = weights.linear_rows(layer, width, 2 * width).forward(x);
        let query = split_heads(&query, 1, self.traits.heads);
        let parts = split_heads(&key_value, 2, self.traits.heads);
        merge_heads(&attention(&query[0], &self.turned(&parts[0]), &parts[1], false), key_value.size()[0])
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

/// Applies the MLP's activation elementwise.
pub(super) fn activate(x: &Tensor, activation: Activation) -> Tensor {
    match activation {
        Activation::Gelu => x.gelu("none"),
        Activation::GeluTanh => x.gelu("tanh"),
        Activation::QuickGelu => x * (x * 1.702).sigmoid(),
        Activation::Silu => x.silu(),
    }
}
