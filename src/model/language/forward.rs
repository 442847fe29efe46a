//! A language network as a [`Network`]. One forward pass serves all particles: activations are `[p, B, T, d]` with p = 1
//! until particles differ, so frozen products run once on all rows.
//!
//! What travels between stages is `[p, B, T, d + 1]`, whose last column is the mask. After the last block it is
//! `[p, B, 1, d + 1]`: the last token alone.

use std::cell::RefCell;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::block::{Block, Rows, Texts};
use super::footprint::Pass;
use super::rope::Table;
use super::{EMBEDDING, Geometry, OUTPUT};
use crate::machine::memory::Need;
use crate::model::network::{Autoregressive, Graph, Network, Slot, SlotKind, Weights};

/// A network of the Llama family.
#[derive(Debug)]
pub struct Language {
    pub geometry: Geometry,
    /// The most tokens of a prompt.
    pub tokens: i64,
    /// The latest table of rotary positions, which all blocks share.
    table: RefCell<Option<Rc<Table>>>,
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
        let slot = |stage, (target, inputs, outputs)| Slot::of_block(stage, target, inputs, outputs);
        let mut all: Vec<Slot> = (0..blocks).flat_map(|stage| layers.map(|layer| slot(stage, layer))).collect();
        let (name, target, kind) = (OUTPUT.to_string(), OUTPUT.to_string(), SlotKind::Linear);
        all.push(Slot { name, target, kind, inputs: width, outputs: vocabulary, stage: blocks });
        all
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.geometry.blocks
    }

    fn stage_of(&self, name: &str) -> usize {
        match name.strip_prefix("blocks.") {
            Some(rest) => rest.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0),
            None if name.starts_with(EMBEDDING) => 0,
            None => self.geometry.blocks,
        }
    }

    fn feature_width(&self) -> i64 {
        self.geometry.width
    }

    /// Returns the shape of a stage's input for one prompt: `[tokens, d + 1]`, and `[1, d + 1]` after the last stage.
    fn entering(&self, stage: usize) -> Vec<i64> {
        let tokens = if stage == self.geometry.blocks { 1 } else { self.tokens };
        vec![tokens, self.geometry.width + 1]
    }

    /// Returns the embeddings with the mask, `[p', B, T, d + 1]`, of prompts `[p, B, 2, T]`.
    fn enter(&self, weights: &Weights, samples: &Tensor) -> Tensor {
        let (ids, mask) = aligned(samples);
        self.entered(weights, &ids, &mask)
    }

    /// Runs one block. The last block computes nothing but the last token.
    fn stage(&self, weights: &Weights, stage: usize, x: Tensor) -> Tensor {
        let rows = if stage + 1 == self.geometry.blocks { Rows::Last } else { Rows::All };
        self.block(weights, (stage, rows), &x)
    }

    fn features(&self, weights: &Weights, x: &Tensor) -> Tensor {
        self.normed(weights, x).select(2, 0)
    }

    fn autoregressive(&self) -> Option<&dyn Autoregressive> {
        Some(self)
    }

    fn need(&self, graph: Graph, kind: Kind) -> Need {
        let first = match graph {
            Graph::Weights { trained, .. } => self.first_stage(trained),
            Graph::None | Graph::Samples { .. } => 0,
        };
        self.need_from(first, graph, kind)
    }
}

impl Language {
    /// Takes a network for prompts of at most `tokens` tokens.
    pub fn new(geometry: Geometry, tokens: i64) -> Language {
        Language { geometry, tokens, table: RefCell::new(None) }
    }

    /// Returns the memory of a pass whose first trained block is `first`.
    pub fn need_from(&self, first: usize, graph: Graph, kind: Kind) -> Need {
        Pass { geometry: &self.geometry, tokens: self.tokens, first, kind, graph }.need()
    }

    /// Runs one block on some rows of what enters it, `x: [p, B, T, d + 1]`.
    pub fn block(&self, weights: &Weights, (index, rows): (usize, Rows), x: &Tensor) -> Tensor {
        let table = self.table(x.size()[2], (x.kind(), x.device()));
        let block = Block { geometry: &self.geometry, table: &table, index, rows };
        block.forward(weights, Texts::split(x, self.geometry.width)).joined()
    }

    /// Returns the hidden states after the last norm, `[p', B, T, d]`, of what leaves the last block.
    pub fn normed(&self, weights: &Weights, x: &Tensor) -> Tensor {
        let Texts { hidden, .. } = Texts::split(x, self.geometry.width);
        weights.rms_norm("ln_post").forward(&hidden, self.geometry.eps)
    }

    /// Returns the embeddings with the mask, `[p', B, T, d + 1]`, of tokens with their mask, `[p, B, T]` each.
    pub fn entered(&self, weights: &Weights, ids: &Tensor, mask: &Tensor) -> Tensor {
        let table = weights.param(&format!("{EMBEDDING}.weight"));
        let offsets = Tensor::arange(table.size()[0], (Kind::Int64, ids.device())).view([-1, 1, 1]);
        let ids = ids + offsets * self.geometry.vocabulary;
        let rows = Tensor::embedding(&table.flatten(0, 1), &ids, -1, false, false);
        let mask = mask.unsqueeze(3).to_kind(rows.kind());
        Texts { hidden: rows * &mask, mask }.joined()
    }

    /// Returns a table of at least `positions` rotary positions; it is made anew only for longer texts.
    pub(super) fn table(&self, positions: i64, options: (Kind, Device)) -> Rc<Table> {
        let Geometry { rope, channels, .. } = self.geometry;
        let mut latest = self.table.borrow_mut();
        let table = latest.take().filter(|table| table.reaches(positions, channels, options));
        Rc::clone(latest.insert(table.unwrap_or_else(|| Rc::new(rope.table(positions, channels, options)))))
    }
}

/// Returns ids and mask, `[p, B, T]` each, of prompts `[p, B, 2, T]`, with the padding in front of a text moved behind it.
pub fn aligned(samples: &Tensor) -> (Tensor, Tensor) {
    let samples = samples.to_kind(Kind::Int64);
    let (ids, mask) = (samples.select(2, 0), samples.select(2, 1));
    let length = mask.size()[2];
    let before = mask.cumsum(2, Kind::Int64).eq(0).sum_dim_intlist([2i64].as_slice(), true, Kind::Int64);
    let index = (Tensor::arange(length, (Kind::Int64, mask.device())) + before).remainder(length);
    (ids.gather(2, &index, false), mask.gather(2, &index, false))
}
