//! Self-attention of a block, with rotary or relative positions where the family has them.

use tch::{Device, Kind, Tensor};

use super::pass::Pass;
use super::values::{IMAGES, Operation, Value};
use crate::model::vit::parts::RELATIVE;
use crate::model::vit::relative::Distances;
use crate::model::vit::rope::{Pairs, Rope};

impl Pass<'_> {
    /// Returns the attention `[p, B, T, d]` of normalised tokens, or that of the first one alone.
    pub(super) fn attend(&mut self, block: usize, x: &Value, first: bool) -> Value {
        let (heads, width) = (self.vit.traits.heads, self.vit.geometry.width);
        let layer = format!("blocks.{block}.attn.qkv");
        let token = if first { self.graph().slice(x, 2, (0, 1)) } else { x.clone() };
        let (query, both) = match first {
            true => {
                let query = self.layers.linear_rows(&layer, &token, Some((0, width)));
                (Some(query), self.layers.linear_rows(&layer, x, Some((width, 2 * width))))
            }
            false => (None, self.layers.linear(&layer, x)),
        };
        self.graph().enter(&format!("blocks.{block}.attn"));
        let scores = self.scores(block, first);
        let lead = if self.scores_differ(block) { self.layers.members.count } else { both.shape[0] };
        let both = self.graph().expand(&both, lead);
        let [query, key, value] = match query {
            Some(query) => {
                let query = self.graph().expand(&query, lead);
                let [query] = self.split(&query, heads);
                let [key, value] = self.split(&both, heads);
                // The class token has no place of its own.
                [query, self.turned(key), value]
            }
            None => {
                let [query, key, value] = self.split(&both, heads);
                [self.turned(query), self.turned(key), value]
            }
        };
        let read = self.graph().attention([&query, &key, &value], scores.as_ref());
        self.merge(&read, lead)
    }

    /// Splits `[p, B, T, k·d]` into k of `[p·B, heads, T, d / heads]`.
    pub(super) fn split<const K: usize>(&mut self, x: &Value, heads: i64) -> [Value; K] {
        let (parts, tokens) = (K as i64, x.shape[2]);
        let width = x.shape[3] / parts;
        let x = self.graph().reshape(x, &[IMAGES, tokens, parts, heads, width / heads]);
        let x = self.graph().permute(&x, &[2, 0, 3, 1, 4]);
        std::array::from_fn(|part| {
            let part = self.graph().slice(&x, 0, (part as i64, part as i64 + 1));
            self.graph().reshape(&part, &[IMAGES, heads, tokens, width / heads])
        })
    }

    /// Joins `[p·B, heads, T, d / heads]` to `[p, B, T, d]`.
    pub(super) fn merge(&mut self, x: &Value, lead: i64) -> Value {
        let [_, heads, tokens, channels] = x.shape[..] else { panic!("{:?} are no heads", x.shape) };
        let x = self.graph().permute(x, &[0, 2, 1, 3]);
        self.graph().reshape(&x, &[lead, IMAGES, tokens, heads * channels])
    }

    /// Rotates the patches of queries or keys `[p·B, heads, T, D]`, as [`Table::turn`](crate::model::vit::rope::Table::turn).
    fn turned(&mut self, x: Value) -> Value {
        let Some(rope) = self.vit.parts.rope else { return x };
        let (prefix, tokens, channels) = (self.vit.parts.prefix, x.shape[2], x.shape[3]);
        let table = rope.table(self.vit.geometry.grid, channels, (Kind::Float, Device::Cpu));
        let [cos, sin] = table.parts().map(Tensor::shallow_clone);
        let cos = self.layers.stored("rope.cos", || cos);
        let sin = self.layers.stored("rope.sin", || sin);
        let own = self.graph().slice(&x, 2, (prefix, tokens));
        let rotated = self.rotated(&own, rope);
        let graph = self.graph();
        let (stays, moves) = (graph.times(&own, &cos), graph.times(&rotated, &sin));
        let own = graph.plus(&stays, &moves);
        if prefix == 0 {
            return own;
        }
        let front = graph.slice(&x, 2, (0, prefix));
        graph.concat(&[&front, &own], 2)
    }

    /// Returns each pair (a, b) of channels as (−b, a).
    fn rotated(&mut self, x: &Value, rope: Rope) -> Value {
        let [_, heads, tokens, channels] = x.shape[..] else { panic!("{:?} are no heads", x.shape) };
        let graph = self.graph();
        // The pairs as an axis of length 2.
        let (shape, axis) = match rope.pairs() {
            Pairs::Halves => ([IMAGES, heads, tokens, 2, channels / 2], 3),
            Pairs::Neighbours => ([IMAGES, heads, tokens, channels / 2, 2], 4),
        };
        let pairs = graph.reshape(x, &shape);
        let (a, b) = (graph.slice(&pairs, axis, (0, 1)), graph.slice(&pairs, axis, (1, 2)));
        let minus = graph.keep(Operation::Negate, &[&b]);
        let turned = graph.concat(&[&minus, &a], axis);
        graph.reshape(&turned, &[IMAGES, heads, tokens, channels])
    }

    fn scores_differ(&self, block: usize) -> bool {
        let own = format!("blocks.{block}.attn.relative.weight");
        self.layers.members.differ(&[RELATIVE[0], &own])
    }

    /// Returns what distances add to the scores of a block, `[1 or p·B, heads, queries, T]`.
    fn scores(&mut self, block: usize, first: bool) -> Option<Value> {
        if !self.vit.parts.relative {
            return None;
        }
        let names = [RELATIVE[0].to_string(), format!("blocks.{block}.attn.relative.weight")];
        let members = self.layers.members;
        let tables = names.iter().filter(|name| members.has(name)).map(|name| members.led(name));
        let table = tables.reduce(|all, own| all + own)?;
        let scores = Distances::of(self.vit.geometry.grid, Device::Cpu).scores(&table);
        let scores = if first { scores.narrow(2, 0, 1) } else { scores };
        let name = format!("blocks.{block}.attn.scores");
        let lead = scores.size()[0];
        if lead == 1 {
            return Some(self.layers.stored(&name, || scores));
        }
        let value = self.layers.stored(&name, || scores.unsqueeze(1));
        let value = self.graph().expand(&value, lead);
        let [_, _, heads, queries, tokens] = value.shape[..] else { return None };
        Some(self.graph().reshape(&value, &[IMAGES, heads, queries, tokens]))
    }
}
