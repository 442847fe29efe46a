//! The block that the networks of the family share: attention with rotary positions and shared heads of keys and values,
//! then a gated MLP, each behind a norm by the root mean square.

use tch::{Kind, Tensor};

use super::Geometry;
use super::rope::Table;
use crate::model::network::Weights;

/// The texts that a block sees.
pub struct Texts {
    /// The hidden states, `[p, B, T, d]`.
    pub hidden: Tensor,
    /// 1 where there is a token, `[p, B, T, 1]`. Tokens come first, padding after them.
    pub mask: Tensor,
}

impl Texts {
    /// Splits what travels between stages, `[p, B, T, d + 1]`.
    pub fn split(x: &Tensor, width: i64) -> Texts {
        Texts { hidden: x.narrow(3, 0, width), mask: x.narrow(3, width, 1).detach() }
    }

    /// Joins hidden states and mask to what travels between stages.
    pub fn joined(&self) -> Tensor {
        let mask = self.mask.to_kind(self.hidden.kind()).expand([self.hidden.size()[0], -1, -1, -1], false);
        Tensor::cat(&[&self.hidden, &mask], 3)
    }

    /// Returns the position of the last token of each text, `[p, B]`.
    fn last(&self) -> Tensor {
        self.mask.sum_dim_intlist([2i64, 3].as_slice(), false, Kind::Int64) - 1
    }

    /// Returns the values `of: [p', B, T, d]` at the last token of each text, `[p', B, 1, d]`.
    fn at_last(&self, of: &Tensor) -> Tensor {
        let size = of.size();
        let index = self.last().unsqueeze(2).unsqueeze(3).expand([size[0], size[1], 1, size[3]], false);
        of.gather(2, &index, false)
    }
}

/// The tokens that a block computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    All,
    /// Only the last token of each text, which is all that is read after the last block.
    Last,
}

/// A block of a network.
pub struct Block<'a> {
    pub geometry: &'a Geometry,
    pub table: &'a Table,
    pub index: usize,
    pub rows: Rows,
}

impl Block<'_> {
    /// Runs the block.
    pub fn forward(&self, weights: &Weights, texts: Texts) -> Texts {
        let name = |layer: &str| format!("blocks.{}.{layer}", self.index);
        let eps = self.geometry.eps;
        let normed = weights.rms_norm(&name("ln_1")).forward(&texts.hidden, eps);
        let (attended, x, mask) = match self.rows {
            Rows::All => (self.attend(weights, &normed, &texts), texts.hidden, texts.mask),
            Rows::Last => {
                let x = texts.at_last(&texts.hidden);
                (self.attend_last(weights, &normed, &texts), x, texts.mask.narrow(2, 0, 1))
            }
        };
        let x = x + weights.linear(&name("attn.proj")).forward(&attended);
        let normed = weights.rms_norm(&name("ln_2")).forward(&x, eps);
        let gate = weights.linear(&name("mlp.gate")).forward(&normed).silu();
        let hidden = gate * weights.linear(&name("mlp.fc")).forward(&normed);
        Texts { hidden: x + weights.linear(&name("mlp.proj")).forward(&hidden), mask }
    }

    /// Returns the outputs `[p', B, heads, T, D]` of one of the layers `q`, `k` and `v`.
    fn heads_of(&self, weights: &Weights, layer: &str, x: &Tensor) -> Tensor {
        let name = format!("blocks.{}.attn.{layer}", self.index);
        weights.linear(&name).forward(x).unflatten(3, [-1, self.geometry.channels]).transpose(2, 3)
    }

    /// Computes attention of every token to itself and earlier ones, `[p', B, T, heads · D]`.
    fn attend(&self, weights: &Weights, x: &Tensor, texts: &Texts) -> Tensor {
        let query = self.table.turn(&self.heads_of(weights, "q", x), 0);
        let key = self.table.turn(&self.heads_of(weights, "k", x), 0);
        let value = self.heads_of(weights, "v", x);
        // Padding stays zero, so that no layer after it sees anything there.
        self.read(&query, (&key, &value), None) * &texts.mask
    }

    /// Computes attention of the last token of each text, `[p', B, 1, heads · D]`.
    fn attend_last(&self, weights: &Weights, x: &Tensor, texts: &Texts) -> Tensor {
        let query = self.heads_of(weights, "q", &texts.at_last(x));
        let query = self.table.turn_at(&query, &texts.last());
        let key = self.table.turn(&self.heads_of(weights, "k", x), 0);
        let value = self.heads_of(weights, "v", x);
        let seen = texts.mask.to_kind(Kind::Bool).unsqueeze(2).transpose(3, 4);
        self.read(&query, (&key, &value), Some(&seen))
    }

    /// Returns what queries `[p, B, heads, Tq, D]` read, `[n, B, Tq, heads · D]`. Without `seen: [p, B, 1, 1, T]`, the
    /// tokens that may be read, query t reads the keys up to t.
    pub fn read(&self, query: &Tensor, (key, value): (&Tensor, &Tensor), seen: Option<&Tensor>) -> Tensor {
        let particles = [query, key, value].iter().map(|t| t.size()[0]).max().unwrap_or(1);
        let batch = query.size()[1];
        let flat = |t: &Tensor| t.expand([particles, -1, -1, -1, -1], false).flatten(0, 1);
        let shared = self.geometry.key_heads < self.geometry.heads;
        let (seen, causal) = (seen.map(flat), seen.is_none());
        let read = Tensor::scaled_dot_product_attention(
            &flat(query),
            &flat(key),
            &flat(value),
            seen.as_ref(),
            0.0,
            causal,
            None,
            shared,
        );
        read.transpose(1, 2).flatten(2, 3).unflatten(0, [particles, batch])
    }
}
