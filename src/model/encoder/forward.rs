//! A text encoder as a [`Network`]. One forward pass serves all particles: activations are `[p, B, T, d]` with p = 1 until particles
//! differ, so frozen products run once on all rows.
//!
//! Hidden states `[p, B, T, d]` and a mask `[p, B, T, 1]` travel between stages. After the last block they are those of the first
//! token alone, which the features are read from.

use tch::{Kind, Tensor};

use super::Geometry;
use crate::data::Fields;
use crate::data::fields::{IDS, KINDS, MASK};
use crate::machine::memory::MemoryEstimate;
use crate::model::families::EMBEDDING;
use crate::model::families::encoders::Numbering;
use crate::model::language::{Pass, Texts};
use crate::model::network::ops::{Activation, Constant, Forward, Mask, Ops};
use crate::model::network::{Graph, HIDDEN, Network, Parameters, Slot, SlotKind, block_of, runs_its_pass};

/// The layer on the first token, by which a whole text is read.
pub const POOLER: &str = "pooler";

/// A text encoder for texts of at most so many tokens.
#[derive(Debug)]
pub struct Encoder {
    pub geometry: Geometry,
    /// The most tokens of a text.
    pub tokens: i64,
    columns: Constant,
    first_kind: Constant,
}

/// The rows of the tables that embed the tokens of texts, `[p, B, T]` each, with their mask.
struct Sample<V> {
    ids: V,
    mask: V,
    kinds: V,
}

impl Encoder {
    pub fn new(geometry: Geometry, tokens: i64) -> Encoder {
        let [columns, first_kind] = ["text.columns", "text.first_kind"].map(Constant::new);
        Encoder { geometry, tokens, columns, first_kind }
    }

    /// Returns the number of values of a token in a sample: its id, its place in the mask, and its kind where there are several.
    pub fn values(&self) -> usize {
        if self.geometry.kinds > 1 { 3 } else { 2 }
    }

    /// Takes samples apart.
    fn sample<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Sample<O::Value> {
        let [ids, mask] = [IDS, MASK].map(|name| ops.again(samples.get(name)));
        let tokens = ops.length(&mask, 2);
        let kinds = match self.values() {
            3 => ops.again(samples.get(KINDS)),
            _ => ops.constant(&self.first_kind, &[tokens], &mask, |(_, device)| {
                Tensor::zeros([1, 1, tokens], (Kind::Int64, device))
            }),
        };
        Sample { ids, mask, kinds }
    }

    /// Returns the rows of the tokens' positions, `[p, B, T]`, or `[1, 1, T]` where they are those of all texts.
    fn positions<O: Ops>(&self, ops: &O, mask: &O::Value) -> O::Value {
        let tokens = ops.length(mask, 2);
        match self.geometry.family.numbering {
            Numbering::BehindPadding => ops.numbered(mask, self.geometry.padding),
            Numbering::Columns => ops.constant(&self.columns, &[tokens], mask, |(_, device)| {
                Tensor::arange(tokens, (Kind::Int64, device)).view([1, 1, tokens])
            }),
        }
    }

    fn norm<O: Ops>(&self, ops: &O, layer: &str, x: O::Value) -> O::Value {
        ops.norm(layer, &x, self.geometry.eps)
    }

    /// Runs a block on texts, of which the last one computes the first token alone.
    fn block<O: Ops>(&self, ops: &O, index: usize, Texts { hidden, mask }: Texts<O::Value>) -> Texts<O::Value> {
        let Geometry { heads, activation, .. } = self.geometry;
        let name = |layer: &str| format!("blocks.{index}.{layer}");
        let attended = |layer: &str, x: &O::Value| ops.heads(&ops.linear(&name(layer), x), 1, heads).remove(0);
        let [key, value] = ["attn.k", "attn.v"].map(|layer| attended(layer, &hidden));
        let is_last = index + 1 == self.geometry.blocks;
        let x = if is_last { ops.slice(&hidden, 2, 0, 1) } else { hidden };
        let read = ops.attention([&attended("attn.q", &x), &key, &value], Mask::Seen(ops.again(&mask)));
        let x = self.norm(ops, &name("ln_1"), ops.add(x, ops.linear(&name("attn.proj"), &read)));
        let inner = ops.activation(activation, ops.linear(&name("mlp.fc"), &x));
        let inner = ops.linear(&name("mlp.proj"), &inner);
        let hidden = self.norm(ops, &name("ln_2"), ops.add(x, inner));
        Texts { hidden, mask: if is_last { ops.slice(&mask, 2, 0, 1) } else { mask } }
    }
}

impl Forward for Encoder {
    fn depth(&self) -> usize {
        self.geometry.blocks
    }

    /// Returns the embeddings with the mask.
    fn enter_by<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Fields<O::Value> {
        let Sample { ids, mask, kinds } = self.sample(ops, samples);
        let words = ops.embedding(EMBEDDING, &ids);
        let x = ops.add(words, ops.embedding("kind", &kinds));
        let x = ops.add(x, ops.embedding("position", &self.positions(ops, &mask)));
        let hidden = self.norm(ops, "ln_pre", x);
        let mask = ops.column(&mask, &hidden);
        Texts { hidden, mask }.fields()
    }

    fn stage_by<O: Ops>(&self, ops: &O, stage: usize, x: Fields<O::Value>) -> Fields<O::Value> {
        self.block(ops, stage, Texts::of(ops, &x)).fields()
    }

    fn features_by<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        let hidden = ops.again(x.get(HIDDEN));
        let read = match self.geometry.pooled {
            true => ops.activation(Activation::Tanh, ops.linear(POOLER, &hidden)),
            false => hidden,
        };
        ops.reshape(&read, &[self.geometry.width])
    }
}

impl Network for Encoder {
    fn slots(&self) -> Vec<Slot> {
        let Geometry { width, mlp, blocks, pooled, .. } = self.geometry;
        let layers = [
            ("attn.q", width, width),
            ("attn.k", width, width),
            ("attn.v", width, width),
            ("attn.proj", width, width),
            ("mlp.fc", width, mlp),
            ("mlp.proj", mlp, width),
        ];
        let mut all = Slot::of_blocks(blocks, &layers);
        let (name, target, kind) = (POOLER.to_string(), POOLER.to_string(), SlotKind::Linear);
        all.extend(pooled.then_some(Slot { name, target, kind, inputs: width, outputs: width, stage: blocks }));
        all
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.geometry.blocks
    }

    fn stage_of(&self, name: &str) -> usize {
        match block_of(name) {
            Some(block) => block,
            None if name.starts_with(POOLER) => self.geometry.blocks,
            None => 0,
        }
    }

    fn feature_width(&self) -> i64 {
        self.geometry.width
    }

    /// Returns the shapes of a stage's input for one text, of one token after the last stage.
    fn entering(&self, stage: usize) -> Fields<Vec<i64>> {
        let tokens = if stage == self.geometry.blocks { 1 } else { self.tokens };
        Texts::entering(tokens, self.geometry.width)
    }

    runs_its_pass!();

    fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let Geometry { width, blocks, .. } = self.geometry;
        let embeds = [EMBEDDING, "position", "kind", "ln_pre"];
        let (tokens, attended) = (self.tokens, width);
        Pass { network: self, width, attended, blocks, tokens, embeds: &embeds, base, flows: false, kind, graph }.need()
    }
}
