//! A language network as a [`Network`]. One forward pass serves all particles: activations are `[p, B, T, d]` with p = 1
//! until particles differ, so frozen products run once on all rows.
//!
//! Hidden states `[p, B, T, d]` and a mask `[p, B, T, 1]` travel between stages. After the last block they are those of the last
//! token alone.

use tch::Kind;

use super::block::{Block, Rows, Texts};
use super::footprint::Pass;
use super::rope::{Angles, Table};
use super::{EMBEDDING, Geometry, OUTPUT};
use crate::data::Fields;
use crate::data::fields::{IDS, MASK};
use crate::machine::memory::MemoryEstimate;
use crate::model::network::ops::{Forward, Ops, Reads};
use crate::model::network::{
    Autoregressive, Graph, HIDDEN, Network, Parameters, Slot, SlotKind, block_of, runs_its_pass,
};

/// A network of the Llama family.
#[derive(Debug)]
pub struct Language {
    pub geometry: Geometry,
    /// The most tokens of a prompt.
    pub tokens: i64,
    angles: Angles,
}

impl Network for Language {
    fn slots(&self) -> Vec<Slot> {
        let Geometry { width, mlp, blocks, heads, key_heads, channels, vocabulary, .. } = self.geometry;
        let (queries, keys) = (heads * channels, key_heads * channels);
        let layers = [
            ("attn.q", width, queries),
            ("attn.k", width, keys),
            ("attn.v", width, keys),
            ("attn.proj", queries, width),
            ("mlp.gate", width, mlp),
            ("mlp.fc", width, mlp),
            ("mlp.proj", mlp, width),
        ];
        let mut all = Slot::of_blocks(blocks, &layers);
        let (name, target, kind) = (OUTPUT.to_string(), OUTPUT.to_string(), SlotKind::Linear);
        all.push(Slot { name, target, kind, inputs: width, outputs: vocabulary, stage: blocks });
        all
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.depth()
    }

    fn stage_of(&self, name: &str) -> usize {
        match block_of(name) {
            Some(block) => block,
            None if name.starts_with(EMBEDDING) => 0,
            None => self.geometry.blocks,
        }
    }

    fn feature_width(&self) -> i64 {
        self.geometry.width
    }

    /// Returns the shapes of a stage's input for one prompt, of one token after the last stage.
    fn entering(&self, stage: usize) -> Fields<Vec<i64>> {
        let tokens = if stage == self.geometry.blocks { 1 } else { self.tokens };
        Texts::entering(tokens, self.geometry.width)
    }

    runs_its_pass!();

    fn autoregressive(&self) -> Option<&dyn Autoregressive> {
        Some(self)
    }

    fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        self.need_where(false, base, graph, kind)
    }
}

impl Forward for Language {
    fn depth(&self) -> usize {
        self.geometry.blocks
    }

    /// Returns the embeddings with the mask.
    fn enter_by<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Fields<O::Value> {
        let [ids, mask] = ops.aligned([IDS, MASK].map(|name| samples.get(name)));
        self.entered(ops, &ids, &mask).fields()
    }

    /// Runs one block. The last block computes nothing but the last token.
    fn stage_by<O: Ops>(&self, ops: &O, stage: usize, x: Fields<O::Value>) -> Fields<O::Value> {
        let rows = if stage + 1 == self.geometry.blocks { Rows::Last } else { Rows::All };
        self.block(ops, (stage, rows), &x)
    }

    fn features_by<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        ops.reshape(&self.normed(ops, x), &[self.geometry.width])
    }

    fn read_by<O: Ops>(&self, ops: &O, from: usize, x: Fields<O::Value>, reads: Reads) -> O::Value {
        let rows = |stage| match reads {
            Reads::Samples if stage + 1 == self.geometry.blocks => Rows::Last,
            Reads::Samples | Reads::Tokens => Rows::All,
        };
        let x = (from..self.geometry.blocks).fold(x, |x, stage| self.block(ops, (stage, rows(stage)), &x));
        if reads == Reads::Samples { self.features_by(ops, &x) } else { self.normed(ops, &x) }
    }
}

impl Language {
    /// Takes a network for prompts of at most `tokens` tokens.
    pub fn new(geometry: Geometry, tokens: i64) -> Language {
        let angles = Angles::new(geometry.rope, geometry.channels);
        Language { geometry, tokens, angles }
    }

    /// Returns the memory of a pass; `flows` says whether gradients flow through what enters the first block.
    pub fn need_where(&self, flows: bool, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let Geometry { width, blocks, heads, channels, .. } = self.geometry;
        let (attended, tokens, embeds) = (heads * channels, self.tokens, &[EMBEDDING]);
        Pass { network: self, width, attended, blocks, tokens, embeds, base, flows, kind, graph }.need()
    }

    /// Runs one block on some rows of what enters it.
    pub fn block<O: Ops>(&self, ops: &O, (index, rows): (usize, Rows), x: &Fields<O::Value>) -> Fields<O::Value> {
        let texts = Texts::of(ops, x);
        let table = self.table(ops, ops.length(&texts.hidden, 2), &texts.hidden);
        Block { ops, geometry: &self.geometry, table: &table, index, rows }.forward(texts).fields()
    }

    /// Returns the hidden states after the last norm, `[p', B, T, d]`, of what leaves the last block.
    pub fn normed<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        ops.rms_norm("ln_post", x.get(HIDDEN), self.geometry.eps)
    }

    /// Returns the embeddings of tokens with their mask, `[p, B, T]` each.
    pub fn entered<O: Ops>(&self, ops: &O, ids: &O::Value, mask: &O::Value) -> Texts<O::Value> {
        let rows = ops.embedding(EMBEDDING, ids);
        let mask = ops.column(mask, &rows);
        Texts { hidden: ops.mul(rows, ops.again(&mask)), mask }
    }

    /// Returns a table of at least `positions` rotary positions; it is made anew only for longer texts than prompts are.
    pub fn table<O: Ops>(&self, ops: &O, positions: i64, like: &O::Value) -> Table<O::Value> {
        self.angles.table(ops, positions.max(self.tokens), like)
    }
}
