//! A language network that writes texts. Keys and values of all tokens are kept, so that each token goes through the network
//! once.

use tch::{Kind, Tensor};

use super::block::{Block, Places, Rows, Texts};
use super::forward::{Language, aligned};
use super::{Geometry, OUTPUT};
use crate::model::network::autoregressive::Memory;
use crate::model::network::{Autoregressive, Network, Weights};

impl Autoregressive for Language {
    fn context(&self) -> i64 {
        self.geometry.context
    }

    fn read(&self, weights: &Weights, prompts: &Tensor, more: i64) -> (Tensor, Memory) {
        let (ids, mask) = aligned(prompts);
        self.read_entered(weights, &self.entered(weights, &ids, &mask), &mask, more)
    }

    fn longest_prompt(&self) -> i64 {
        self.tokens
    }

    fn prompt_tokens(&self, prompts: &Tensor) -> i64 {
        prompts.size()[3]
    }

    fn append(&self, weights: &Weights, memory: &mut Memory, tokens: &Tensor) -> Tensor {
        let (place, geometry) = (memory.taken, &self.geometry);
        let _ = memory.mask.narrow(2, place, 1).fill_(1);
        let seen = memory.mask.narrow(2, 0, place + 1).to_kind(Kind::Bool).unsqueeze(2).unsqueeze(3);
        let one = tokens.unsqueeze(2);
        let mut texts = Texts::split(&self.entered(weights, &one, &one.ones_like()), geometry.width);
        let table = self.table(memory.mask.size()[2], (texts.hidden.kind(), texts.hidden.device()));
        for (index, [keys, values]) in memory.blocks.iter().enumerate() {
            let block = Block { geometry, table: &table, index, rows: Rows::All };
            let normed = block.normed(weights, &texts.hidden);
            let places = Places::At(&memory.lengths);
            let [key, value] = block.keys_and_values(weights, &normed, places);
            keys.narrow(3, place, 1).copy_(&key);
            values.narrow(3, place, 1).copy_(&value);
            let all = |of: &Tensor| of.narrow(3, 0, place + 1);
            let read = block.read(&block.query(weights, &normed, places), (&all(keys), &all(values)), Some(&seen));
            texts.hidden = block.rest(weights, &texts.hidden, &read);
        }
        memory.taken += 1;
        memory.lengths = &memory.lengths + 1;
        self.features(weights, &texts.joined())
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
    /// Reads what enters the first block, `entered: [p, B, T, d + 1]`, of texts with their mask, `[p, B, T]`, as
    /// [`Autoregressive::read`] reads prompts.
    pub fn read_entered(&self, weights: &Weights, entered: &Tensor, mask: &Tensor, more: i64) -> (Tensor, Memory) {
        let mut texts = Texts::split(entered, self.geometry.width);
        let (tokens, blocks) = (entered.size()[2], self.geometry.blocks);
        let table = self.table(tokens + more, (texts.hidden.kind(), texts.hidden.device()));
        let mut kept = Vec::new();
        for index in 0..blocks {
            let rows = if index + 1 == blocks { Rows::Last } else { Rows::All };
            let block = Block { geometry: &self.geometry, table: &table, index, rows };
            let normed = block.normed(weights, &texts.hidden);
            let now = block.keys_and_values(weights, &normed, Places::From(0));
            texts = block.forward_with(weights, texts, &normed, &now);
            kept.push(now.map(|all| all.constant_pad_nd([0, 0, 0, more])));
        }
        let lengths = mask.sum_dim_intlist([2i64].as_slice(), false, Kind::Int64);
        let mask = mask.constant_pad_nd([0, more]);
        (self.features(weights, &texts.joined()), Memory { blocks: kept, mask, lengths, taken: tokens })
    }
}
