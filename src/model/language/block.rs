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

/// The positions of tokens in their texts.
#[derive(Clone, Copy)]
pub enum Places<'a> {
    /// One after the other, from here on.
    From(i64),
    /// One token of each text, at these positions `[p, B]`.
    At(&'a Tensor),
}

impl Places<'_> {
    /// Turns queries or keys `[p, B, heads, T, D]`.
    fn turn(self, table: &Table, x: &Tensor) -> Tensor {
        match self {
            Places::From(first) => table.turn(x, first),
            Places::At(positions) => table.turn_at(x, positions),
        }
    }
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
        let normed = self.normed(weights, &texts.hidden);
        let kept = self.keys_and_values(weights, &normed, Places::From(0));
        self.forward_with(weights, texts, &normed, &kept)
    }

    /// Runs the block with its normalised input, keys and values.
    pub fn forward_with(&self, weights: &Weights, texts: Texts, normed: &Tensor, [key, value]: &[Tensor; 2]) -> Texts {
        match self.rows {
            Rows::All => {
                let query = self.query(weights, normed, Places::From(0));
                // Padding stays zero, so that no layer after it sees anything there.
                let read = self.read(&query, (key, value), None) * &texts.mask;
                Texts { hidden: self.rest(weights, &texts.hidden, &read), mask: texts.mask }
            }
            Rows::Last => {
                let query = self.query(weights, &texts.at_last(normed), Places::At(&texts.last()));
                let seen = texts.mask.to_kind(Kind::Bool).unsqueeze(2).transpose(3, 4);
                let read = self.read(&query, (key, value), Some(&seen));
                let x = texts.at_last(&texts.hidden);
                Texts { hidden: self.rest(weights, &x, &read), mask: texts.mask.narrow(2, 0, 1) }
            }
        }
    }

    fn name(&self, layer: &str) -> String {
        format!("blocks.{}.{layer}", self.index)
    }

    /// Returns the normalised input of attention, `[p', B, T, d]`.
    pub fn normed(&self, weights: &Weights, x: &Tensor) -> Tensor {
        weights.rms_norm(&self.name("ln_1")).forward(x, self.geometry.eps)
    }

    /// Returns the hidden states after attention, which has read `read: [p, B, T, heads · D]`, and the MLP.
    pub fn rest(&self, weights: &Weights, x: &Tensor, read: &Tensor) -> Tensor {
        let x = x + weights.linear(&self.name("attn.proj")).forward(read);
        let normed = weights.rms_norm(&self.name("ln_2")).forward(&x, self.geometry.eps);
        let gate = weights.linear(&self.name("mlp.gate")).forward(&normed).silu();
        let hidden = gate * weights.linear(&self.name("mlp.fc")).forward(&normed);
        x + weights.linear(&self.name("mlp.proj")).forward(&hidden)
    }

    /// Returns the outputs `[p', B, heads, T, D]` of one of the layers `q`, `k` and `v`.
    fn heads_of(&self, weights: &Weights, layer: &str, x: &Tensor) -> Tensor {
        let layer = weights.linear(&self.name(&format!("attn.{layer}")));
        layer.forward(x).unflatten(3, [-1, self.geometry.channels]).transpose(2, 3)
    }

    /// Returns the queries of tokens at `places`, `[p', B, heads, T, D]`.
    pub fn query(&self, weights: &Weights, x: &Tensor, places: Places) -> Tensor {
        places.turn(self.table, &self.heads_of(weights, "q", x))
    }

    /// Returns the keys and values of tokens at `places`, `[p', B, key heads, T, D]` each.
    pub fn keys_and_values(&self, weights: &Weights, x: &Tensor, places: Places) -> [Tensor; 2] {
        let keys = places.turn(self.table, &self.heads_of(weights, "k", x));
        [keys, self.heads_of(weights, "v", x)]
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
