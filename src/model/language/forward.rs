//! A language network as a [`Network`]. One forward pass serves all particles: activations are `[p, B, T, d]` with p = 1
//! until particles differ, so frozen products run once on all rows.
//!
//! Hidden states `[p, B, T, d]` and a mask `[p, B, T, 1]` travel between stages. After the last block they are those of the last
//! token alone.
//!
//! When a network writes texts, the keys and values of all tokens are kept, so that each token goes through the network once.

use tch::{Kind, Tensor};

use crate::base::tensor::capped;
use crate::data::Fields;
use crate::data::fields::{IDS, MASK};
use crate::machine::memory::MemoryEstimate;
use crate::model::families::decoders::Mlp;
use crate::model::language::block::{Block, Pass, Places, Texts};
use crate::model::language::rope::{Angles, Table};
use crate::model::language::{EMBEDDING, Geometry, OUTPUT, OutputMatrix};
use crate::model::network::Rows;
use crate::model::network::ops::{Constant, Count, Counter, Eager, Flags, Forward, Ops, Reads};
use crate::model::network::{
    Autoregressive, Graph, HIDDEN, Memory, Network, Parameters, Prompted, Slot, SlotKind, Weights, block_of,
    runs_its_pass,
};

/// The name of the table of learned positions.
pub const POSITION: &str = "position";

/// A language network.
#[derive(Debug)]
pub struct Language {
    pub geometry: Geometry,
    /// The most tokens of a prompt.
    pub tokens: i64,
    angles: Vec<Angles>,
    /// The factor of embeddings.
    scale: Constant,
    columns: Constant,
}

impl Network for Language {
    fn slots(&self) -> Vec<Slot> {
        let Geometry { width, mlp, blocks, heads, key_heads, channels, vocabulary, .. } = self.geometry;
        let traits = self.geometry.traits;
        let (queries, keys) = (heads * channels, key_heads * channels);
        let mut layers = match traits.is_qkv_fused {
            true => vec![("attn.qkv", width, queries + 2 * keys)],
            false => vec![("attn.q", width, queries), ("attn.k", width, keys), ("attn.v", width, keys)],
        };
        layers.push(("attn.proj", queries, width));
        layers.extend(match traits.mlp {
            Mlp::Gated => vec![("mlp.gate", width, mlp), ("mlp.fc", width, mlp)],
            Mlp::GatedInOne => vec![("mlp.gate_fc", width, 2 * mlp)],
            Mlp::Plain => vec![("mlp.fc", width, mlp)],
        });
        layers.push(("mlp.proj", mlp, width));
        let mut all = Slot::of_blocks(blocks, &layers);
        let (name, target, kind) = (OUTPUT.to_string(), OUTPUT.to_string(), SlotKind::Linear);
        let output = Slot { name, target, kind, inputs: width, outputs: vocabulary, stage: blocks };
        all.extend(self.writes().then_some(output));
        all
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.depth()
    }

    fn stage_of(&self, name: &str) -> usize {
        match block_of(name) {
            Some(block) => block,
            None if name.starts_with(EMBEDDING) || name.starts_with(POSITION) => 0,
            None => self.geometry.blocks,
        }
    }

    fn feature_width(&self) -> i64 {
        self.geometry.width
    }

    /// Returns the shapes of a stage's input for one prompt, of one token after the last stage.
    fn entering(&self, stage: usize) -> Fields<Vec<i64>> {
        let tokens = if stage == self.geometry.blocks { 1 } else { self.tokens };
        Texts::entering(tokens, self.geometry.width, false)
    }

    runs_its_pass!();

    fn autoregressive(&self) -> Option<&dyn Autoregressive> {
        self.writes().then_some(self as &dyn Autoregressive)
    }

    fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        self.pass(base, graph, kind).need()
    }
}

impl Forward for Language {
    fn depth(&self) -> usize {
        self.geometry.blocks
    }

    /// Returns the embeddings with the mask.
    fn enter_by<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Fields<O::Value> {
        let [ids, mask] = ops.aligned([IDS, MASK].map(|name| samples.get(name)));
        self.entered(ops, &ids, &mask, &Places::First).fields()
    }

    /// Runs one block. The last block computes nothing but the last token.
    fn stage_by<O: Ops>(&self, ops: &O, stage: usize, x: Fields<O::Value>) -> Fields<O::Value> {
        let rows = if stage + 1 == self.geometry.blocks { Rows::Last } else { Rows::All };
        self.block(ops, stage, rows, &x)
    }

    fn features_by<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        ops.reshape(&self.normed(ops, x), &[self.geometry.width])
    }

    fn read_by<O: Ops>(&self, ops: &O, from: usize, x: Fields<O::Value>, reads: Reads) -> O::Value {
        let rows = |stage| match reads {
            Reads::Samples if stage + 1 == self.geometry.blocks => Rows::Last,
            Reads::Samples | Reads::Tokens => Rows::All,
        };
        let x = (from..self.geometry.blocks).fold(x, |x, stage| self.block(ops, stage, rows(stage), &x));
        if reads == Reads::Samples { self.features_by(ops, &x) } else { self.normed(ops, &x) }
    }
}

impl Language {
    /// Returns whether there is an output matrix, by which the network writes texts.
    fn writes(&self) -> bool {
        self.geometry.output != OutputMatrix::None
    }

    /// Takes a network for prompts of at most `tokens` tokens.
    pub fn new(geometry: Geometry, tokens: i64) -> Language {
        let angles = geometry.ropes.iter().cloned().enumerate().map(|(at, rope)| Angles::new(rope, at)).collect();
        let [scale, columns] = ["embed.scale", "text.columns"].map(Constant::new);
        Language { geometry, tokens, angles, scale, columns }
    }

    /// Returns a pass of prompts whose tokens look back, of which the memory is asked. Gradients do not flow through what enters the
    /// first block.
    pub fn pass<'a>(&'a self, base: &'a Parameters, graph: Graph<'a>, kind: Kind) -> Pass<'a> {
        let Geometry { width, blocks, heads, channels, .. } = self.geometry;
        let (attended, tokens, embeds) = (heads * channels, self.tokens, &[EMBEDDING, POSITION]);
        Pass { network: self, width, attended, blocks, tokens, embeds, base, flows: false, prompt: false, kind, graph }
    }

    /// Runs one block on some rows of what enters it.
    pub fn block<O: Ops>(&self, ops: &O, index: usize, rows: Rows, x: &Fields<O::Value>) -> Fields<O::Value> {
        let texts = Texts::of(ops, x);
        let tables = self.tables(ops, ops.length(&texts.hidden, 2), &texts.hidden);
        Block { ops, geometry: &self.geometry, tables: &tables, index, rows }.forward(texts).fields()
    }

    /// Returns the hidden states after the last norm, `[p', B, T, d]`, of what leaves the last block.
    pub fn normed<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        self.geometry.normed(ops, "ln_post", x.get(HIDDEN))
    }

    /// Returns the embeddings of tokens at `places` with their mask, `[p, B, T]` each.
    pub fn entered<O: Ops>(
        &self,
        ops: &O,
        ids: &O::Value,
        mask: &O::Value,
        places: &Places<O::Value>,
    ) -> Texts<O::Value> {
        let rows = self.scaled(ops, ops.embedding(EMBEDDING, ids));
        let rows = match self.geometry.learned {
            Some(_) => ops.add(rows, ops.embedding(POSITION, &self.positions(ops, mask, places))),
            None => rows,
        };
        let mask = ops.column(mask, &rows);
        Texts { hidden: ops.mul(rows, ops.again(&mask)), mask, prompt: None }
    }

    /// Returns embeddings times √d, where the family does so, rounded to their type as transformers rounds it.
    fn scaled<O: Ops>(&self, ops: &O, rows: O::Value) -> O::Value {
        if !self.geometry.traits.scales_embeddings {
            return rows;
        }
        let root = (self.geometry.width as f64).sqrt();
        let scale = ops.constant(&self.scale, &[self.geometry.width], &rows, |(kind, device)| {
            Tensor::from_slice(&[root]).to_kind(kind).to_device(device)
        });
        ops.mul(rows, scale)
    }

    /// Returns the rows of the tokens' learned positions, `[1, 1, T]`, or `[p, B, 1]` of one token of each text.
    fn positions<O: Ops>(&self, ops: &O, mask: &O::Value, places: &Places<O::Value>) -> O::Value {
        let tokens = ops.length(mask, 2);
        match places {
            Places::First => ops.constant(&self.columns, &[tokens], mask, |(_, device)| {
                Tensor::arange(tokens, (Kind::Int64, device)).view([1, 1, tokens])
            }),
            Places::At(positions) => ops.reshape(positions, &[1]),
        }
    }

    /// Returns tables of at least `positions` rotary positions; they are made anew only for longer texts than prompts are.
    pub fn tables<O: Ops>(&self, ops: &O, positions: i64, like: &O::Value) -> Vec<Table<O::Value>> {
        self.angles.iter().map(|angles| angles.table(ops, positions.max(self.tokens), like)).collect()
    }
}

/// The place of one more token of each text.
struct Place<'a, V> {
    tables: &'a [Table<V>],
    /// Its positions, `[p, B]`.
    positions: &'a V,
    /// The tokens that it sees, `[p, B, T, 1]`.
    seen: &'a V,
}

impl Autoregressive for Language {
    fn context(&self) -> i64 {
        self.geometry.context
    }

    fn read(&self, weights: &Weights, prompts: &Fields, more: i64) -> Prompted {
        let ops = Eager::of(weights);
        let [ids, mask] = ops.aligned([IDS, MASK].map(|name| prompts.get(name)));
        self.read_entered(&ops, self.entered(&ops, &ids, &mask, &Places::First), &mask, more)
    }

    fn longest_prompt(&self) -> i64 {
        self.tokens
    }

    fn append(&self, weights: &Weights, memory: &mut Memory, tokens: &Tensor) -> Tensor {
        let (place, ops) = (memory.taken, &Eager::of(weights));
        let _ = memory.mask.narrow(2, place, 1).fill_(1);
        let seen = memory.mask.narrow(2, 0, place + 1).unsqueeze(3);
        let one = tokens.unsqueeze(2);
        let (positions, seen) = (&memory.lengths, &seen);
        let texts = self.entered(ops, &one, &one.ones_like(), &Places::At(positions));
        let tables = self.tables(ops, memory.mask.size()[2], &texts.hidden);
        let texts = self.continued(ops, texts, Place { tables: &tables, positions, seen }, |index, now| {
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
        let one = |numbers: &[i64]| Count::new(numbers, Flags { apart: false, live: false });
        let (positions, seen) = (one(&[]), one(&[tokens, 1]));
        let texts = self.entered(counter, &one(&[1]), &one(&[1]), &Places::At(&positions));
        let tables = self.tables(counter, tokens, &texts.hidden);
        let place = Place { tables: &tables, positions: &positions, seen: &seen };
        let texts = self.continued(counter, texts, place, |_, now| now.map(|one| counter.longer(&one, 3, tokens)));
        self.features_by(counter, &texts.fields())
    }

    fn token_logits(&self, weights: &Weights, features: &Tensor) -> Tensor {
        let logits = weights.linear(OUTPUT).forward(&features.unsqueeze(2)).squeeze_dim(2);
        self.geometry.traits.logit_cap.map_or_else(|| logits.shallow_clone(), |cap| capped(&logits, cap))
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
        Place { tables, positions, seen }: Place<O::Value>,
        known: impl Fn(usize, [O::Value; 2]) -> [O::Value; 2],
    ) -> Texts<O::Value> {
        for index in 0..self.geometry.blocks {
            let block = Block { ops, geometry: &self.geometry, tables, index, rows: Rows::All };
            let (normed, places) = (block.normed(&texts.hidden), &Places::At(positions));
            let [keys, values] = known(index, block.keys_and_values(&normed, places));
            let query = block.query(&normed, places);
            let read = block.attended([&query, &keys, &values], block.seen(seen));
            texts.hidden = block.rest(texts.hidden, &read);
        }
        texts
    }

    /// Reads what enters the first block of texts with their mask, `[p, B, T]`, as [`Autoregressive::read`] reads prompts.
    pub fn read_entered(&self, ops: &Eager, mut texts: Texts<Tensor>, mask: &Tensor, more: i64) -> Prompted {
        let (tokens, blocks) = (texts.hidden.size()[2], self.geometry.blocks);
        let tables = self.tables(ops, tokens + more, &texts.hidden);
        let mut kept = Vec::new();
        for index in 0..blocks {
            let rows = if index + 1 == blocks { Rows::Last } else { Rows::All };
            let block = Block { ops, geometry: &self.geometry, tables: &tables, index, rows };
            let normed = block.normed(&texts.hidden);
            let now = block.keys_and_values(&normed, &Places::First);
            texts = block.forward_with(texts, &normed, &now);
            kept.push(now.map(|all| all.constant_pad_nd([0, 0, 0, more])));
        }
        let lengths = mask.sum_dim_intlist([2i64].as_slice(), false, Kind::Int64);
        let mask = mask.constant_pad_nd([0, more]);
        let memory = Memory { blocks: kept, mask, lengths, taken: tokens };
        Prompted { features: self.features_by(ops, &texts.fields()), memory }
    }
}
