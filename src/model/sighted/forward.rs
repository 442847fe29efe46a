//! A network that sees images as a [`Network`]. Its first stage sees the image and puts its patches among the embeddings of the
//! prompt; each further stage is a block of the language network. The features are the hidden states at all tokens,
//! `[p, B, T, d]`, or for classes that at the last token, `[p, B, d]`.
//!
//! What enters the first stage is the sample; between later stages, hidden states travel with a mask as in a language network.

use tch::{Kind, Tensor};

use super::{TOWER, VisionConfig};
use crate::data::Fields;
use crate::data::fields::{IDS, KINDS, MASK, PIXELS};
use crate::machine::memory::MemoryEstimate;
use crate::model::Normalize;
use crate::model::language::{self, Language, Places, Rows, Texts};
use crate::model::network::ops::{Activation, Constant, Count, Counter, Eager, Forward, Ops, Reads};
use crate::model::network::{
    Autoregressive, Graph, Memory, Network, Parameters, Prompted, Slot, SlotKind, Weights, runs_its_pass,
};
use crate::model::vit::footprint;
use crate::model::vit::forward::Vit;

/// The number of tokens of an answer for which memory is planned.
const ANSWER: u64 = 8;

/// A network that reads a prompt with an image.
pub struct Sighted {
    pub language: Language,
    pub sight: VisionTower,
    /// The tokens whose hidden states are the features: all, or the last one of each prompt.
    pub reads: Rows,
    minus: Constant,
}

impl Sighted {
    pub fn new(language: Language, sight: VisionTower, reads: Rows) -> Sighted {
        Sighted { language, sight, reads, minus: Constant::new("text.minus") }
    }

    /// Returns whether the tokens of a prompt read each other in both directions.
    pub fn reads_prompt_whole(&self) -> bool {
        self.sight.eyes.family.reads_prompt_whole
    }

    /// Returns the embeddings of the prompts in samples, with the patches at the places of their tokens, and the mask of tokens,
    /// `[p, B, T]`.
    fn entered<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> (Texts<O::Value>, O::Value) {
        let text = ops.aligned([IDS, MASK].map(|name| samples.get(name)));
        let patches = self.sight.patch_embeddings(ops, samples.get(PIXELS));
        let words = self.language.entered(ops, &text[0], &text[1], &Places::First);
        let prompt = self.reads_prompt_whole().then(|| self.prompt(ops, samples, &words.mask));
        let hidden = ops.filled(words.hidden, patches, &text, self.sight.eyes.token);
        let [_, mask] = text;
        (Texts { hidden, mask: words.mask, prompt }, mask)
    }

    /// Returns 1 where there is a token of a prompt, of the kind 0, and 0 elsewhere, `[p, B, T, 1]`; `mask` has the tokens of prompts
    /// and answers.
    fn prompt<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>, mask: &O::Value) -> O::Value {
        let [kinds, _] = ops.aligned([KINDS, MASK].map(|name| samples.get(name)));
        let minus = ops.constant(&self.minus, &[], mask, |(kind, device)| {
            Tensor::from_slice(&[-1.0]).to_kind(kind).to_device(device)
        });
        let answers = ops.mul(ops.column(&kinds, mask), ops.again(mask));
        ops.add(ops.again(mask), ops.mul(answers, minus))
    }

    /// Returns whether the image tower or the projector is trained.
    fn trains_sight(graph: Graph) -> bool {
        let Graph::Weights { trained, .. } = graph else { return false };
        trained.reaches(TOWER) || trained.reaches("projector.")
    }
}

impl Forward for Sighted {
    fn depth(&self) -> usize {
        self.language.stages() + 1
    }

    fn enter_by<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Fields<O::Value> {
        samples.map(|values| ops.again(values))
    }

    fn stage_by<O: Ops>(&self, ops: &O, stage: usize, x: Fields<O::Value>) -> Fields<O::Value> {
        match stage.checked_sub(1) {
            None => self.entered(ops, &x).0.fields(),
            Some(block) => {
                let rows = if block + 1 == self.blocks() { self.reads } else { Rows::All };
                self.language.block(ops, block, rows, &x)
            }
        }
    }

    fn features_by<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        let hidden = self.language.normed(ops, x);
        if self.reads == Rows::Last { ops.reshape(&hidden, &[self.feature_width()]) } else { hidden }
    }

    fn read_by<O: Ops>(&self, ops: &O, from: usize, x: Fields<O::Value>, reads: Reads) -> O::Value {
        let x = if from == 0 { self.stage_by(ops, 0, x) } else { x };
        self.language.read_by(ops, from.saturating_sub(1), x, reads)
    }
}

impl Network for Sighted {
    fn slots(&self) -> Vec<Slot> {
        let (eyes, width) = (&self.sight.eyes, self.language.geometry.width);
        let tower = self.sight.tower.slots().into_iter();
        let mut all: Vec<Slot> = tower
            .map(|slot| Slot {
                name: format!("{TOWER}{}", slot.name),
                target: format!("{TOWER}{}", slot.target),
                stage: 0,
                ..slot
            })
            .collect();
        for (at, layer) in eyes.family.projector.iter().enumerate() {
            let (name, target, kind) = (layer.to_string(), layer.to_string(), SlotKind::Linear);
            let inputs = if at == 0 { eyes.width } else { width };
            all.push(Slot { name, target, kind, inputs, outputs: width, stage: 0 });
        }
        all.extend(self.language.slots().into_iter().map(|slot| Slot { stage: slot.stage + 1, ..slot }));
        all
    }

    fn stages(&self) -> usize {
        self.depth()
    }

    fn blocks(&self) -> usize {
        self.language.stages()
    }

    fn block_of(&self, slot: &Slot) -> Option<usize> {
        slot.stage.checked_sub(1).filter(|block| *block < self.blocks())
    }

    fn stage_of(&self, name: &str) -> usize {
        match !self.sees_texts(name) || name.starts_with("embed") {
            true => 0,
            false => self.language.stage_of(name) + 1,
        }
    }

    fn sees_texts(&self, layer: &str) -> bool {
        !layer.starts_with(TOWER) && !layer.starts_with("projector.")
    }

    fn feature_width(&self) -> i64 {
        self.language.feature_width()
    }

    fn entering(&self, stage: usize) -> Fields<Vec<i64>> {
        let (tokens, side) = (self.language.tokens, self.sight.eyes.image_size);
        let whole = self.reads_prompt_whole();
        if stage == self.stages() && self.reads == Rows::Last {
            return self.language.entering(self.language.stages());
        }
        if stage > 0 {
            return Texts::entering(tokens, self.language.geometry.width, whole);
        }
        let text = [IDS, MASK, KINDS].into_iter().take(if whole { 3 } else { 2 }).map(|name| (name, vec![tokens]));
        Fields::new(text.chain([(PIXELS, vec![3, side, side])]).collect())
    }

    runs_its_pass!();

    fn autoregressive(&self) -> Option<&dyn Autoregressive> {
        Some(self)
    }

    fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let trains_sight = Sighted::trains_sight(graph);
        let pass = self.language.pass(base, graph, kind);
        let read = language::Pass { flows: trains_sight, prompt: self.reads_prompt_whole(), ..pass }.need();
        let float = Kind::Float.elt_size_in_bytes() as u64;
        let pixels = 2 * self.sight.pixels() as u64 * float;
        // The logits of an answer's tokens, their logarithms and the gradient of these.
        let logits = 3 * ANSWER * self.language.geometry.vocabulary as u64 * float;
        let read = MemoryEstimate { image: read.image + pixels, pair: read.pair + logits, ..read };
        if trains_sight {
            let seen = self.sight.need(base, graph, kind);
            return MemoryEstimate { image: read.image + seen.image, pair: read.pair + seen.pair, ..read };
        }
        // Frozen eyes see each image once for all members.
        let seen = self.sight.need(base, Graph::None, kind);
        MemoryEstimate { image: read.image + seen.image + seen.pair, ..read }
    }
}

impl Autoregressive for Sighted {
    fn context(&self) -> i64 {
        self.language.context()
    }

    fn longest_prompt(&self) -> i64 {
        self.language.tokens
    }

    fn read(&self, weights: &Weights, prompts: &Fields, more: i64) -> Prompted {
        let ops = Eager::of(weights);
        let (entered, mask) = self.entered(&ops, prompts);
        self.language.read_entered(&ops, entered, &mask, more)
    }

    fn count_append(&self, counter: &Counter, tokens: i64) -> Count {
        self.language.count_append(counter, tokens)
    }

    fn append(&self, weights: &Weights, memory: &mut Memory, tokens: &Tensor) -> Tensor {
        self.language.append(weights, memory, tokens)
    }

    fn token_logits(&self, weights: &Weights, features: &Tensor) -> Tensor {
        self.language.token_logits(weights, features)
    }

    fn kept_bytes(&self, tokens: i64, kind: Kind) -> u64 {
        self.language.kept_bytes(tokens, kind)
    }
}

/// The image tower and the projector.
pub struct VisionTower {
    pub eyes: VisionConfig,
    /// The blocks of the tower that are run.
    pub tower: Vit,
    pub normalize: Normalize,
}

impl VisionTower {
    /// Returns the number of tokens in front of the patches that the language network does not read.
    fn skipped(&self) -> i64 {
        if self.eyes.sight.keeps_class { 0 } else { self.tower.parts.prefix }
    }

    /// Returns the number of patches of an image, P.
    pub fn patches(&self) -> i64 {
        self.tower.tokens() - self.skipped()
    }

    /// Returns the memory of a pass of the tower.
    pub fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let (network, geometry, blocks) = (&self.tower, &self.tower.geometry, self.eyes.sight.blocks);
        footprint::Pass { network, geometry, part: TOWER, blocks, base, kind, graph }.need()
    }

    /// Returns the number of values of an image.
    pub fn pixels(&self) -> i64 {
        3 * self.eyes.image_size * self.eyes.image_size
    }

    /// Returns the embeddings of the patches, `[p', B, P, d]`, from bytes `[p, B, 3, S, S]` in f32.
    pub fn patch_embeddings<O: Ops>(&self, ops: &O, bytes: &O::Value) -> O::Value {
        let (own, eyes) = (ops.within(TOWER), &self.eyes);
        let Normalize { mean, std } = self.normalize;
        let images = ops.cast(ops.normalised(ops.again(bytes), mean, std));
        let entered = self.tower.embedded(&own, &images);
        let seen = (0..eyes.sight.blocks).fold(entered, |x, block| self.tower.block(&own, block, x));
        let seen = if eyes.sight.norm { own.norm("ln_post", &seen, eyes.traits.eps) } else { seen };
        let patches = ops.slice(&seen, 2, self.skipped(), self.patches());
        let layers = eyes.family.projector.iter().enumerate();
        layers.fold(patches, |x, (at, layer)| {
            let x = if at == 0 { x } else { ops.activation(Activation::Gelu, x) };
            ops.linear(layer, &x)
        })
    }
}
