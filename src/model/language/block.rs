//! The block that the networks of the family share: attention with rotary positions and shared heads of keys and values,
//! then a gated MLP, each behind a norm by the root mean square.

use super::Geometry;
use super::rope::Table;
use crate::data::Fields;
use crate::data::fields::MASK;
use crate::model::network::HIDDEN;
use crate::model::network::ops::{Mask, Ops};

/// The texts that a block sees.
pub struct Texts<V> {
    /// The hidden states, `[p, B, T, d]`.
    pub hidden: V,
    /// 1 where there is a token, `[p, B, T, 1]`. Tokens come first, padding after them.
    pub mask: V,
}

impl<V> Texts<V> {
    /// Takes what travels between stages.
    pub fn of<O: Ops<Value = V>>(ops: &O, x: &Fields<V>) -> Texts<V> {
        Texts { hidden: ops.again(x.get(HIDDEN)), mask: ops.again(x.get(MASK)) }
    }

    /// Returns what travels between stages.
    pub fn fields(self) -> Fields<V> {
        Fields::new(vec![(HIDDEN, self.hidden), (MASK, self.mask)])
    }
}

impl Texts<Vec<i64>> {
    /// Returns the shapes of what travels between stages for one text of so many tokens.
    pub fn entering(tokens: i64, width: i64) -> Fields<Vec<i64>> {
        Texts { hidden: vec![tokens, width], mask: vec![tokens, 1] }.fields()
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
pub enum Places<'a, V> {
    /// One after the other, from the first on.
    First,
    /// One token of each text, at these positions `[p, B]`.
    At(&'a V),
}

/// A block of a network.
pub struct Block<'a, O: Ops> {
    pub ops: &'a O,
    pub geometry: &'a Geometry,
    pub table: &'a Table<O::Value>,
    pub index: usize,
    pub rows: Rows,
}

impl<O: Ops> Block<'_, O> {
    /// Runs the block.
    pub fn forward(&self, texts: Texts<O::Value>) -> Texts<O::Value> {
        let normed = self.normed(&texts.hidden);
        let kept = self.keys_and_values(&normed, &Places::First);
        self.forward_with(texts, &normed, &kept)
    }

    /// Runs the block with its normalised input, keys and values.
    pub fn forward_with(
        &self,
        texts: Texts<O::Value>,
        normed: &O::Value,
        [key, value]: &[O::Value; 2],
    ) -> Texts<O::Value> {
        let ops = self.ops;
        match self.rows {
            Rows::All => {
                let read = ops.attention([&self.query(normed, &Places::First), key, value], Mask::Causal);
                // Padding stays zero, so that no layer after it sees anything there.
                let read = ops.mul(read, ops.again(&texts.mask));
                Texts { hidden: self.rest(texts.hidden, &read), mask: texts.mask }
            }
            Rows::Last => {
                let last = ops.last(&texts.mask);
                let query = self.query(&ops.at(normed, &last), &Places::At(&last));
                let read = ops.attention([&query, key, value], Mask::Seen(ops.again(&texts.mask)));
                let x = ops.at(&texts.hidden, &last);
                Texts { hidden: self.rest(x, &read), mask: ops.slice(&texts.mask, 2, 0, 1) }
            }
        }
    }

    fn name(&self, layer: &str) -> String {
        format!("blocks.{}.{layer}", self.index)
    }

    /// Returns the normalised input of attention, `[p', B, T, d]`.
    pub fn normed(&self, x: &O::Value) -> O::Value {
        self.ops.rms_norm(&self.name("ln_1"), x, self.geometry.eps)
    }

    /// Returns the hidden states after attention, which has read `read: [p, B, T, heads · D]`, and the MLP.
    pub fn rest(&self, x: O::Value, read: &O::Value) -> O::Value {
        let ops = self.ops;
        let x = ops.add(x, ops.linear(&self.name("attn.proj"), read));
        let normed = ops.rms_norm(&self.name("ln_2"), &x, self.geometry.eps);
        let gate = ops.activation(self.geometry.traits.activation, ops.linear(&self.name("mlp.gate"), &normed));
        let hidden = ops.mul(gate, ops.linear(&self.name("mlp.fc"), &normed));
        ops.add(x, ops.linear(&self.name("mlp.proj"), &hidden))
    }

    /// Returns the outputs `[p', B, heads, T, D]` of one of the layers `q`, `k` and `v`.
    fn heads_of(&self, layer: &str, x: &O::Value) -> O::Value {
        let y = self.ops.linear(&self.name(&format!("attn.{layer}")), x);
        let y = if layer == "v" { y } else { self.normed_heads(layer, y) };
        let heads = self.ops.length(&y, 3) / self.geometry.channels;
        self.ops.heads(&y, 1, heads).remove(0)
    }

    /// Normalises outputs `[p, B, T, heads · D]` of a layer head by head, where the family does.
    fn normed_heads(&self, layer: &str, y: O::Value) -> O::Value {
        let Geometry { channels, eps, traits, .. } = *self.geometry;
        if !traits.head_norms {
            return y;
        }
        let [tokens, width] = [2, 3].map(|axis| self.ops.length(&y, axis));
        let heads = self.ops.reshape(&y, &[tokens * width / channels, channels]);
        let normed = self.ops.rms_norm(&self.name(&format!("attn.{layer}_norm")), &heads, eps);
        self.ops.reshape(&normed, &[tokens, width])
    }

    fn turned(&self, x: &O::Value, places: &Places<O::Value>) -> O::Value {
        match places {
            Places::First => self.table.turn(self.ops, x),
            Places::At(positions) => self.table.turn_at(self.ops, x, positions),
        }
    }

    /// Returns the queries of tokens at `places`, `[p', B, heads, T, D]`.
    pub fn query(&self, x: &O::Value, places: &Places<O::Value>) -> O::Value {
        self.turned(&self.heads_of("q", x), places)
    }

    /// Returns the keys and values of tokens at `places`, `[p', B, key heads, T, D]` each.
    pub fn keys_and_values(&self, x: &O::Value, places: &Places<O::Value>) -> [O::Value; 2] {
        let keys = self.turned(&self.heads_of("k", x), places);
        [keys, self.heads_of("v", x)]
    }
}
