//! A text encoder as a [`Network`]. One forward pass serves all particles: activations are `[p, B, T, d]` with p = 1 until particles
//! differ, so frozen products run once on all rows.
//!
//! Hidden states `[p, B, T, d]` and a mask `[p, B, T, 1]` travel between stages. After the last block they are those of the first
//! token alone where the features are read from it.

use tch::{Kind, Tensor};

use super::config::Geometry;
use super::distances::{Buckets, Disentangled, Heads};
use crate::data::Fields;
use crate::data::fields::{IDS, KINDS, MASK};
use crate::machine::memory::MemoryEstimate;
use crate::model::families::EMBEDDING;
use crate::model::families::encoders::{EMBEDDING_PROJ, Numbering, POOLER, POOLER_NORM, Places, RELATIVE};
use crate::model::language::rope::{Angles, Rope, Scaling};
use crate::model::language::{Pass, Texts};
use crate::model::network::ops::{Constant, Forward, Layer, Mask, Ops, Scoring};
use crate::model::network::{Graph, HIDDEN, Network, Parameters, Slot, SlotKind, block_of, runs_its_pass};

/// The table of distances, and its norm.
pub const DISTANCE: &str = "distance";
pub const DISTANCE_NORM: &str = "ln_distance";

/// A text encoder for texts of at most so many tokens.
#[derive(Debug)]
pub struct Encoder {
    pub geometry: Geometry,
    /// The most tokens of a text.
    pub tokens: i64,
    columns: Constant,
    first_kind: Constant,
    zero: Constant,
    /// The distances of disentangled attention.
    disentangled: Option<Disentangled>,
    /// The distances that have learnt numbers.
    buckets: Option<Buckets>,
    /// The rotary positions of blocks whose attention is global, and of those whose attention is local.
    angles: Vec<Angles>,
    near: Constant,
}

/// The rows of the tables that embed the tokens of texts, `[p, B, T]` each, with their mask.
struct Sample<V> {
    ids: V,
    mask: V,
    kinds: V,
}

/// What a token that does not read another one has as the score of it. It is finite, so that a place without any token reads something.
const NEVER: f64 = -30_000.0;

impl Encoder {
    pub fn new(geometry: Geometry, tokens: i64) -> Encoder {
        let [columns, first_kind, zero, near] =
            ["text.columns", "text.first_kind", "text.zero", "text.near"].map(Constant::new);
        let channels = geometry.width / geometry.heads;
        let (mut disentangled, mut buckets, mut angles) = (None, None, Vec::new());
        match &geometry.traits.places {
            Places::Learned => {}
            Places::Relative { buckets: count, most, .. } => buckets = Some(Buckets::new(*count, *most)),
            Places::Disentangled { distances, .. } => disentangled = Some(Disentangled::new(*distances, channels)),
            Places::Turned { bases, .. } => {
                let rope = |theta: f64| Rope { theta, scaling: Scaling::None, channels };
                angles.extend(bases.iter().enumerate().map(|(at, theta)| Angles::new(rope(*theta), at)));
            }
        }
        Encoder { geometry, tokens, columns, first_kind, zero, disentangled, buckets, angles, near }
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

    fn norm<O: Ops>(&self, ops: &O, layer: &str, x: &O::Value) -> O::Value {
        ops.norm(layer, x, self.geometry.eps)
    }

    /// Returns whether a block computes the first token alone.
    fn reads_first(&self, block: usize) -> bool {
        block + 1 == self.geometry.blocks && !self.geometry.reads_mean()
    }

    /// Runs a block on texts, of which the last one may compute the first token alone.
    fn block<O: Ops>(&self, ops: &O, stage: usize, Texts { hidden, mask, .. }: Texts<O::Value>) -> Texts<O::Value> {
        let index = self.geometry.weights_of(stage);
        let first = |x: &O::Value| if self.reads_first(stage) { ops.slice(x, 2, 0, 1) } else { ops.again(x) };
        let name = |layer: &str| format!("blocks.{index}.{layer}");
        // The first block of those whose norms stand first reads what a norm has left.
        let normed = match self.geometry.traits.norms_first && index > 0 {
            true => self.norm(ops, &name("ln_1"), &hidden),
            false => ops.again(&hidden),
        };
        let read = self.attended(ops, index, (&first(&normed), &normed), &mask);
        let x = ops.add(first(&hidden), ops.linear(&name("attn.proj"), &read));
        let hidden = match self.geometry.traits.norms_first {
            true => {
                let inner = self.inner(ops, index, &self.norm(ops, &name("ln_2"), &x));
                ops.add(x, inner)
            }
            false => {
                let x = self.norm(ops, &name("ln_1"), &x);
                let inner = self.inner(ops, index, &x);
                self.norm(ops, &name("ln_2"), &ops.add(x, inner))
            }
        };
        Texts { hidden, mask: first(&mask), prompt: None }
    }

    /// Returns the outputs of the MLP.
    fn inner<O: Ops>(&self, ops: &O, index: usize, x: &O::Value) -> O::Value {
        let Geometry { mlp, activation, ref traits, .. } = self.geometry;
        let name = |layer: &str| format!("blocks.{index}.{layer}");
        let hidden = match traits.is_fused {
            true => {
                let both = ops.linear(&name("mlp.gate_fc"), x);
                let [activated, factor] = [0, mlp].map(|from| ops.slice(&both, 3, from, mlp));
                ops.mul(ops.activation(activation, activated), factor)
            }
            false => return ops.linear_behind(&name("mlp.proj"), activation, ops.linear(&name("mlp.fc"), x)),
        };
        ops.linear(&name("mlp.proj"), &hidden)
    }

    /// Returns heads `[p', B, heads, T, D]` of the layers of queries (0), keys (1) or values (2).
    fn heads_of<O: Ops>(&self, ops: &O, index: usize, part: i64, x: &O::Value) -> O::Value {
        let Geometry { width, heads, ref traits, .. } = self.geometry;
        let y = match traits.is_fused {
            true => {
                let name = format!("blocks.{index}.attn.qkv");
                ops.layer(Layer { name: &name, rows: Some((part * width, width)), keyless_bias: false }, x)
            }
            false => ops.linear(&format!("blocks.{index}.attn.{}", ["q", "k", "v"][part as usize]), x),
        };
        ops.heads(&y, 1, heads).remove(0)
    }

    /// Returns what some of the tokens read of all of them.
    fn attended<O: Ops>(
        &self,
        ops: &O,
        index: usize,
        (some, all): (&O::Value, &O::Value),
        mask: &O::Value,
    ) -> O::Value {
        let heads = |part: i64, x: &O::Value| self.heads_of(ops, index, part, x);
        let (query, key, value) = (heads(0, some), heads(1, all), heads(2, all));
        let seen = ops.again(mask);
        if let Some(disentangled) = &self.disentangled {
            let table = self.distances(ops);
            let own = Heads { query, key, far_query: heads(0, &table), far_key: heads(1, &table) };
            let mask = match disentangled.scores(ops, &own) {
                Some(scores) => Mask::SeenScores { seen, scores },
                None => Mask::Seen(seen),
            };
            let scoring = Scoring { scale: Some(disentangled.scale), cap: None };
            return ops.attend([&own.query, &own.key, &value], mask, scoring);
        }
        if let Some(buckets) = &self.buckets {
            let scores = buckets.scores(ops, all, ops.length(some, 2));
            let mask = scores.map_or_else(|| Mask::Seen(ops.again(mask)), |scores| Mask::SeenScores { seen, scores });
            return ops.attention([&query, &key, &value], mask);
        }
        let Places::Turned { local, reach, .. } = &self.geometry.traits.places else {
            return ops.attention([&query, &key, &value], Mask::Seen(seen));
        };
        let tokens = ops.length(all, 2);
        let table = self.angles[usize::from(local[index])].table(ops, tokens.max(self.tokens), all);
        let [query, key] = [query, key].map(|heads| table.turn(ops, &heads));
        let mask = match local[index] && tokens > reach + 1 {
            true => Mask::SeenScores { seen, scores: self.near(ops, *reach, (some, all)) },
            false => Mask::Seen(seen),
        };
        ops.attention([&query, &key, &value], mask)
    }

    /// Returns the table of distances, `[p, 1, R, d]`.
    fn distances<O: Ops>(&self, ops: &O) -> O::Value {
        let table = ops.param(&format!("{DISTANCE}.weight"));
        if ops.has(&format!("{DISTANCE_NORM}.weight")) { self.norm(ops, DISTANCE_NORM, &table) } else { table }
    }

    /// Returns what is added to the scores of the first tokens: 0 within reach, and what hides all others.
    fn near<O: Ops>(&self, ops: &O, reach: i64, (some, all): (&O::Value, &O::Value)) -> O::Value {
        let [queries, tokens] = [some, all].map(|x| ops.length(x, 2));
        let added = ops.constant(&self.near, &[tokens, reach], all, |(kind, device)| {
            let far = Tensor::full([1, 1, 1, tokens, tokens], NEVER, (kind, device));
            far.triu(reach + 1) + far.tril(-reach - 1)
        });
        ops.slice(&added, 3, 0, queries)
    }

    /// Returns the mean of the hidden states of all tokens of each text, `[p, B, 1, d]`: what a query reads that scores all alike.
    fn mean<O: Ops>(&self, ops: &O, x: &O::Value, mask: &O::Value) -> O::Value {
        let states = ops.heads(x, 1, 1).remove(0);
        let zero = ops.constant(&self.zero, &[], x, |(kind, device)| Tensor::zeros([1], (kind, device)));
        let keys = ops.mul(ops.again(&states), zero);
        let query = ops.slice(&keys, 3, 0, 1);
        ops.attention([&query, &keys, &states], Mask::Seen(ops.again(mask)))
    }
}

impl Forward for Encoder {
    fn depth(&self) -> usize {
        self.geometry.blocks
    }

    /// Returns the embeddings with the mask.
    fn enter_by<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Fields<O::Value> {
        let Sample { ids, mask, kinds } = self.sample(ops, samples);
        let mut x = ops.embedding(EMBEDDING, &ids);
        if self.geometry.kinds > 0 {
            x = ops.add(x, ops.embedding("kind", &kinds));
        }
        if self.geometry.has_positions() {
            x = ops.add(x, ops.embedding("position", &self.positions(ops, &mask)));
        }
        let hidden = self.norm(ops, "ln_pre", &x);
        let hidden = if self.geometry.traits.embedded.is_some() { ops.linear(EMBEDDING_PROJ, &hidden) } else { hidden };
        let mask = ops.column(&mask, &hidden);
        Texts { hidden, mask, prompt: None }.fields()
    }

    fn stage_by<O: Ops>(&self, ops: &O, stage: usize, x: Fields<O::Value>) -> Fields<O::Value> {
        self.block(ops, stage, Texts::of(ops, &x)).fields()
    }

    fn features_by<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        let (hidden, readout) = (x.get(HIDDEN), self.geometry.traits.readout);
        let hidden = match self.geometry.traits.norms_first {
            true => self.norm(ops, "ln_post", hidden),
            false => ops.again(hidden),
        };
        let hidden = if self.geometry.reads_mean() { self.mean(ops, &hidden, x.get(MASK)) } else { hidden };
        let read = match self.geometry.is_pooled() {
            true => ops.activation(readout.activation, ops.linear(POOLER, &hidden)),
            false => hidden,
        };
        let read = if self.geometry.is_pooled() && readout.normed { self.norm(ops, POOLER_NORM, &read) } else { read };
        ops.reshape(&read, &[self.geometry.width])
    }
}

impl Network for Encoder {
    fn slots(&self) -> Vec<Slot> {
        let Geometry { width, mlp, blocks, ref traits, .. } = self.geometry;
        let beside = |name: &str, inputs: i64, stage: usize| {
            let (name, target, kind) = (name.to_string(), name.to_string(), SlotKind::Linear);
            Slot { name, target, kind, inputs, outputs: width, stage }
        };
        let layers = match traits.is_fused {
            true => vec![
                ("attn.qkv", width, 3 * width),
                ("attn.proj", width, width),
                ("mlp.gate_fc", width, 2 * mlp),
                ("mlp.proj", mlp, width),
            ],
            false => vec![
                ("attn.q", width, width),
                ("attn.k", width, width),
                ("attn.v", width, width),
                ("attn.proj", width, width),
                ("mlp.fc", width, mlp),
                ("mlp.proj", mlp, width),
            ],
        };
        let own = Slot::of_blocks(self.geometry.distinct(), &layers).into_iter();
        let own = own.map(|slot| Slot { stage: self.geometry.first_with(slot.stage), ..slot });
        let projection = traits.embedded.map(|embedded| beside(EMBEDDING_PROJ, embedded, 0));
        projection
            .into_iter()
            .chain(own)
            .chain(self.geometry.is_pooled().then(|| beside(POOLER, width, blocks)))
            .collect()
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.geometry.blocks
    }

    fn blocks(&self) -> usize {
        self.geometry.distinct()
    }

    fn block_of(&self, slot: &Slot) -> Option<usize> {
        block_of(&slot.name)
    }

    /// Returns whether each layer computes once in a pass.
    fn records_layers(&self) -> bool {
        self.geometry.distinct() == self.geometry.blocks
    }

    fn stage_of(&self, name: &str) -> usize {
        match block_of(name) {
            Some(block) => self.geometry.first_with(block),
            None if [POOLER, POOLER_NORM, "ln_post"].iter().any(|layer| name.starts_with(layer)) => {
                self.geometry.blocks
            }
            None => 0,
        }
    }

    fn feature_width(&self) -> i64 {
        self.geometry.width
    }

    /// Returns the shapes of a stage's input for one text, of one token after the last stage unless all are read.
    fn entering(&self, stage: usize) -> Fields<Vec<i64>> {
        let is_read = stage == self.geometry.blocks && !self.geometry.reads_mean();
        let tokens = if is_read { 1 } else { self.tokens };
        Texts::entering(tokens, self.geometry.width, false)
    }

    runs_its_pass!();

    fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let Geometry { width, blocks, .. } = self.geometry;
        let embeds = [EMBEDDING, "position", "kind", "ln_pre", EMBEDDING_PROJ, RELATIVE, DISTANCE, DISTANCE_NORM];
        let (tokens, attended) = (self.tokens, width);
        Pass {
            network: self,
            width,
            attended,
            blocks,
            tokens,
            embeds: &embeds,
            base,
            flows: false,
            prompt: false,
            kind,
            graph,
        }
        .need()
    }
}
