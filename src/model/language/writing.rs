//! A language network that writes texts. Keys and values of all tokens are kept, so that each token goes through the network
//! once.

use tch::{Kind, Tensor};

use super::block::{Block, Places, Rows, Texts};
use super::forward::Language;
use super::rope::Table;
use super::{Geometry, OUTPUT};
use crate::data::Fields;
use crate::data::fields::{IDS, MASK};
use crate::model::network::autoregressive::Memory;
use crate::model::network::ops::{Count, Counter, Eager, Forward, Mask, Ops};
use crate::model::network::{Autoregressive, Network, Weights};

/// The place of one more token of each text.
struct Place<'a, V> {
    table: &'a Table<V>,
    /// Its positions, `[p, B]`.
    positions: &'a V,
    /// The tokens that it sees, `[p, B, T, 1]`.
    seen: &'a V,
}

impl Autoregressive for Language {
    fn context(&self) -> i64 {
        self.geometry.context
    }

    fn read(&self, weights: &Weights, prompts: &Fields, more: i64) -> (Tensor, Memory) {
        let ops = Eager::of(weights);
        let [ids, mask] = ops.aligned([IDS, MASK].map(|name| prompts.get(name)));
        self.read_entered(&ops, self.entered(&ops, &ids, &mask), &mask, more)
    }

    fn longest_prompt(&self) -> i64 {
        self.tokens
    }

    fn append(&self, weights: &Weights, memory: &mut Memory, tokens: &Tensor) -> Tensor {
        let (place, ops) = (memory.taken, &Eager::of(weights));
        let _ = memory.mask.narrow(2, place, 1).fill_(1);
        let seen = memory.mask.narrow(2, 0, place + 1).unsqueeze(3);
        let one = tokens.unsqueeze(2);
        let texts = self.entered(ops, &one, &one.ones_like());
        let table = self.table(ops, memory.mask.size()[2], &texts.hidden);
        let (positions, seen) = (&memory.lengths, &seen);
        let texts = self.continued(ops, texts, Place { table: &table, positions, seen }, |index, now| {
            let [keys, values] = &memory.blocks[index];
            let [key, value] = now;
            keys.narrow(3, place, 1).copy_(&key);
            values.narrow(3, place, 1).copy_(&value);
            [keys, values].map(|all| all.narrow(3, 0, place + 1))
        });
        memory.taken += 1;
        memory.lengths = &memory.lengths + 1;
        self.features(weights, &texts.fields())
    }

    fn count_append(&self, counter: &Counter, tokens: i64) -> Count {
        let one = |numbers: &[i64]| Count::new(numbers, false, false);
        let texts = self.entered(counter, &one(&[1]), &one(&[1]));
        let (table, positions, seen) = (self.table(counter, tokens, &texts.hidden), one(&[]), one(&[tokens, 1]));
        let place = Place { table: &table, positions: &positions, seen: &seen };
        let texts = self.continued(counter, texts, place, |_, now| now.map(|one| counter.longer(&one, 3, tokens)));
        self.features_by(counter, &texts.fields())
    }

    fn token_logits(&self, weights: &Weights, features: &Tensor) -> Tensor {
        weights.linear(OUTPUT).forward(&features.unsqueeze(2)).squeeze_dim(2)
    }

    fn kept_bytes(&self, tokens: i64, kind: Kind) -> u64 {
        let Geometry { blocks, key_heads, channels, .. } = self.geometry;
        2 * blocks as u64 * (key_heads * channels * tokens) as u64 * kind.elt_size_in_bytes() as u64
    }
}

impl Language {
    /// Runs all blocks on one more token of each text, at a place. `known` keeps its keys and values in a block and returns those of
    /// all tokens.
    fn continued<O: Ops>(
        &self,
        ops: &O,
        mut texts: Texts<O::Value>,
        Place { table, positions, seen }: Place<O::Value>,
        known: impl Fn(usize, [O::Value; 2]) -> [O::Value; 2],
    ) -> Texts<O::Value> {
        for index in 0..self.geometry.blocks {
            let block = Block { ops, geometry: &self.geometry, table, index, rows: Rows::All };
            let (normed, places) = (block.normed(&texts.hidden), &Places::At(positions));
            let [keys, values] = known(index, block.keys_and_values(&normed, places));
            let query = block.query(&normed, places);
            let read = ops.attention([&query, &keys, &values], Mask::Seen(ops.again(seen)));
            texts.hidden = block.rest(texts.hidden, &read);
        }
        texts
    }

    /// Reads what enters the first block of texts with their mask, `[p, B, T]`, as [`Autoregressive::read`] reads prompts.
    pub fn read_entered(&self, ops: &Eager, mut texts: Texts<Tensor>, mask: &Tensor, more: i64) -> (Tensor, Memory) {
        let (tokens, blocks) = (texts.hidden.size()[2], self.geometry.blocks);
        let table = self.table(ops, tokens + more, &texts.hidden);
        let mut kept = Vec::new();
        for index in 0..blocks {
            let rows = if index + 1 == blocks { Rows::Last } else { Rows::All };
            let block = Block { ops, geometry: &self.geometry, table: &table, index, rows };
            let normed = block.normed(&texts.hidden);
            let now = block.keys_and_values(&normed, &Places::First);
            texts = block.forward_with(texts, &normed, &now);
            kept.push(now.map(|all| all.constant_pad_nd([0, 0, 0, more])));
        }
        let lengths = mask.sum_dim_intlist([2i64].as_slice(), false, Kind::Int64);
        let mask = mask.constant_pad_nd([0, more]);
        (self.features_by(ops, &texts.fields()), Memory { blocks: kept, mask, lengths, taken: tokens })
    }
}
