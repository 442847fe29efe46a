//! The particle-batched vision transformer. One forward pass serves all particles, and one model serves CLIP's image
//! tower, timm and torchvision (Dosovitskiy et al. 2021, arXiv 2010.11929; Radford et al. 2021, arXiv 2103.00020).
//!
//! Activations are `[p, B, T, d]` with p = 1 until particles differ, so frozen products run once on all rows.

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use super::{Attention, Begun, Blocks, Places, Rows};
use crate::data::Fields;
use crate::data::fields::PIXELS;
use crate::machine::fused;
use crate::machine::memory::MemoryEstimate;
use crate::model::network::ops::{Eager, Forward, Mask, Ops};
use crate::model::network::{Graph, HIDDEN, Network, Parameters, Shared, Slot, Weights, block_of, runs_its_pass};
use crate::model::vit::footprint::Pass;
use crate::model::vit::parts::{Angles, Parts, Readout, Resize};
use crate::model::vit::relative::{self, Distances};
use crate::model::vit::{Geometry, Traits};

/// The name of what travels between the halves of a block: its input with attention added.
const ATTENDED: &str = "attended";

/// The name of that value behind the norm, which enters the MLP, where it travels as well.
const NORMED: &str = "normed";

/// The name of what the first layer of the MLP makes of it without an update.
const FROZEN: &str = "frozen";

/// The most bytes of this product, of all samples, that may travel.
const MOST_BEGUN: i64 = 1 << 24;

/// A pre-norm vision transformer.
#[derive(Clone, Debug)]
pub struct Vit {
    pub geometry: Geometry,
    pub traits: Traits,
    pub parts: Parts,
    angles: Option<Angles>,
    distances: Option<Distances>,
}

impl Network for Vit {
    fn slots(&self) -> Vec<Slot> {
        let Geometry { width, mlp, blocks, .. } = self.geometry;
        let gate = self.parts.block.gated.then_some(("mlp.gate", width, mlp));
        let attention = [("attn.qkv", width, 3 * width), ("attn.proj", width, width)];
        let mlp = [("mlp.fc", width, mlp), ("mlp.proj", mlp, width)];
        let layers: Vec<_> = attention.into_iter().chain(gate).chain(mlp).collect();
        Slot::of_blocks(blocks, &layers)
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.depth()
    }

    fn stage_of(&self, name: &str) -> usize {
        match block_of(name) {
            Some(block) => block,
            None if ["ln_post.", "proj.", "pool."].iter().any(|after| name.starts_with(after)) => self.geometry.blocks,
            None => 0,
        }
    }

    fn feature_width(&self) -> i64 {
        self.geometry.output
    }

    /// Returns the projection behind the readout, or else the last layer of the readout by attention, to whose output its skip
    /// connection is added.
    fn projection(&self, base: &Parameters) -> Option<&'static str> {
        ["proj", "pool.out"].into_iter().find(|layer| base.get(&format!("{layer}.weight")).is_some())
    }

    /// Returns the shape of a stage's input for one image, `[prefix + grid², d]`, after the last stage of the tokens that are computed there.
    fn entering(&self, stage: usize) -> Fields<Vec<i64>> {
        let tokens = if stage == self.depth() && self.reads_class() { 1 } else { self.tokens() };
        Fields::of(HIDDEN, vec![tokens, self.geometry.width])
    }

    runs_its_pass!();

    /// Runs attention of the block, if nothing of it is trained, and begins the MLP, if of its first layer updates alone are.
    fn enter_within(&self, weights: &Weights, stage: usize, x: Fields, shared: Shared) -> Fields {
        let Shared { trained, .. } = shared;
        let own = ["ln_1.", "attn.", "ls_1."].map(|part| format!("blocks.{stage}.{part}"));
        let is_trained = own.iter().any(|prefix| trained.reaches(prefix)) || trained.reaches("relative.");
        if stage >= self.depth() || is_trained {
            return x;
        }
        let ops = Eager::of(weights);
        let attended = self.attended(&ops, stage, x.only());
        match self.begun(&ops, stage, &attended, shared) {
            Some((normed, frozen)) => Fields::of(ATTENDED, attended).and(NORMED, normed).and(FROZEN, frozen),
            None => Fields::of(ATTENDED, attended),
        }
    }

    fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let need =
            Pass { network: self, geometry: &self.geometry, part: "", blocks: self.depth(), base, kind, graph }.need();
        let begun = if base.lie_on_cpu() && fused::serves(kind, Device::Cpu) { self.begun_bytes() } else { 0 };
        MemoryEstimate { fixed: need.fixed + begun, ..need }
    }
}

impl Forward for Vit {
    fn depth(&self) -> usize {
        self.geometry.blocks
    }

    /// Returns the input of the first block, `[p', B, prefix + grid², d]`, from normalised images `[p, B, 3, S, S]`.
    fn enter_by<O: Ops>(&self, ops: &O, images: &Fields<O::Value>) -> Fields<O::Value> {
        Fields::of(HIDDEN, self.embedded(ops, images.get(PIXELS)))
    }

    fn stage_by<O: Ops>(&self, ops: &O, stage: usize, x: Fields<O::Value>) -> Fields<O::Value> {
        let value = |name| x.find(name).map(|value| ops.again(value));
        let begun = value(NORMED).map(|normed| Begun { normed, frozen: value(FROZEN) });
        let is_attended = x.find(ATTENDED).is_some();
        let x = if is_attended { x.only() } else { self.attended(ops, stage, x.only()) };
        Fields::of(HIDDEN, self.stack().behind_attention(ops, stage, x, begun))
    }

    fn features_by<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value {
        features(ops, x.first(), (&self.traits, &self.parts))
    }
}

impl Vit {
    /// Returns the input of the first block, `[p', B, prefix + grid², d]`, from normalised images `[p, B, 3, S, S]`.
    pub fn embedded<O: Ops>(&self, ops: &O, images: &O::Value) -> O::Value {
        let x = self.embed(ops, images);
        if ops.has("ln_pre.weight") { ops.norm("ln_pre", &x, self.traits.eps) } else { x }
    }

    /// Runs one block. If only the class token is read, the last block computes nothing else.
    pub fn block<O: Ops>(&self, ops: &O, stage: usize, x: O::Value) -> O::Value {
        self.stack().behind_attention(ops, stage, self.attended(ops, stage, x), None)
    }

    /// Returns what enters the MLP of a block and what its first layer makes of it without an update, from the block's input with attention
    /// added; `None` where that layer cannot go on from it.
    fn begun(&self, ops: &Eager, stage: usize, attended: &Tensor, shared: Shared) -> Option<(Tensor, Tensor)> {
        let Shared { trained, samples } = shared;
        let layer = format!("blocks.{stage}.mlp.fc");
        let of = |part: &str| trained.reaches(&format!("blocks.{stage}.{part}"));
        let updated = of("mlp.fc.A") && !of("mlp.fc.weight") && !of("mlp.fc.bias") && !of("ln_2.");
        let bytes = samples * attended.size()[2] * self.geometry.mlp * attended.kind().elt_size_in_bytes() as i64;
        (updated && fused::serves(attended.kind(), attended.device()) && bytes <= MOST_BEGUN).then(|| {
            let normed = self.stack().normed(ops, stage, attended);
            let frozen = ops.linear(&layer, &normed);
            (normed, frozen)
        })
    }

    /// Returns the most bytes of what enters the MLP and of what its first layer makes of it, where both are computed once for all.
    fn begun_bytes(&self) -> u64 {
        let Geometry { width, mlp, .. } = self.geometry;
        (MOST_BEGUN + MOST_BEGUN * width / mlp) as u64
    }

    /// Runs the first half of one block.
    fn attended<O: Ops>(&self, ops: &O, stage: usize, x: O::Value) -> O::Value {
        let first = stage + 1 == self.geometry.blocks && self.reads_class();
        self.stack().attended(ops, stage, x, if first { Rows::First } else { Rows::All })
    }

    /// Returns whether the features are those of the class token alone, so that the last block computes no other.
    fn reads_class(&self) -> bool {
        self.parts.readout == Readout::Class
    }

    fn stack(&self) -> Blocks<'_> {
        let Geometry { width, blocks, .. } = self.geometry;
        let places = Places { rope: self.angles.as_ref(), relative: self.distances.as_ref() };
        let (traits, parts) = (self.traits, self.parts.block);
        Blocks { width, blocks, traits, attention: Attention::Full, parts, places }
    }

    pub fn new(geometry: Geometry, traits: Traits, parts: Parts) -> Vit {
        let angles = parts.rope.map(|rope| Angles::new(rope, geometry.grid));
        let distances = parts.relative.then(|| Distances::new(geometry.grid));
        Vit { geometry, traits, parts, angles, distances }
    }

    /// Returns the number of tokens of an image.
    pub fn tokens(&self) -> i64 {
        self.parts.prefix + self.geometry.grid * self.geometry.grid
    }

    /// Changes the network and its weights as [`fit`](Self::fit) does, to a size that a config asks for.
    ///
    /// # Errors
    /// Fails if the patches do not divide the size.
    pub fn resize(&mut self, base: &mut Parameters, image_size: i64) -> Result<()> {
        let patch = self.geometry.patch;
        ensure!(
            image_size == self.geometry.image_size() || image_size % patch == 0,
            "checkpoint.image_size = {image_size}: must be a multiple of the patch size {patch}"
        );
        self.fit(base, image_size)
    }

    /// Changes the network and its weights to images of `image_size` pixels per side; position embeddings and learnt
    /// scores of distances are interpolated. The last pixels of rows and columns that no whole patch covers are left out.
    ///
    /// # Errors
    /// Fails if an image has no whole patch.
    pub fn fit(&mut self, base: &mut Parameters, image_size: i64) -> Result<()> {
        let Geometry { patch, grid, width, blocks, .. } = self.geometry;
        if image_size == self.geometry.image_size() {
            return Ok(());
        }
        ensure!(
            image_size >= patch,
            "images of {image_size} pixels have no patch of {patch}: set checkpoint.image_size"
        );
        let new_grid = image_size / patch;
        if let Some(position) = base.get_mut("position") {
            let lead = self.parts.positioned;
            let patches = position.narrow(0, lead, grid * grid).reshape([1, grid, grid, width]).permute([0, 3, 1, 2]);
            let to = [new_grid, new_grid];
            let resized = match self.parts.resize {
                Resize::Antialiased => patches.internal_upsample_bicubic2d_aa(to, false, None, None),
                Resize::Plain => patches.upsample_bicubic2d(to, false, None, None),
            };
            let resized = resized.permute([0, 2, 3, 1]).reshape([new_grid * new_grid, width]);
            *position = Tensor::cat(&[position.narrow(0, 0, lead), resized], 0);
        }
        let own = (0..blocks).map(|block| format!("blocks.{block}.attn.relative.weight"));
        for name in own.chain(["relative.weight".to_string()]) {
            if let Some(table) = base.get_mut(&name) {
                *table = relative::resized(table, grid, new_grid, self.parts.resize);
            }
        }
        (self.geometry.grid, self.geometry.margin) = (new_grid, image_size % patch);
        *self = Vit::new(self.geometry.clone(), self.traits, self.parts);
        Ok(())
    }

    /// Returns the patches with the tokens in front of them and the positions, `[p, B, prefix + grid², d]`.
    fn embed<O: Ops>(&self, ops: &O, images: &O::Value) -> O::Value {
        let Geometry { patch, grid, margin, .. } = self.geometry;
        let covered = (margin > 0).then(|| {
            let side = grid * patch;
            ops.slice(&ops.slice(images, 3, 0, side), 4, 0, side)
        });
        let patches = ops.reshape(covered.as_ref().unwrap_or(images), &[3, grid, patch, grid, patch]);
        let patches = ops.permute(&patches, &[0, 1, 3, 5, 2, 4, 6]);
        let patches = ops.reshape(&patches, &[grid * grid, 3 * patch * patch]);
        let tokens = ops.linear("patch", &patches);
        let positioned = self.parts.positioned;
        let (lead, rest) = TOKENS.split_at(match positioned {
            0 => 0,
            all if all == self.parts.prefix => TOKENS.len(),
            _ => 2,
        });
        let x = in_front(ops, lead, tokens);
        let x = if ops.has("position") { ops.add(x, ops.param("position")) } else { x };
        if !rest.iter().any(|name| ops.has(name)) {
            return x;
        }
        let patches = in_front(ops, rest, ops.slice(&x, 2, positioned, grid * grid));
        if positioned == 0 { patches } else { ops.concat(vec![ops.slice(&x, 2, 0, positioned), patches], 2) }
    }
}

/// The tokens that may stand in front of the patches, in their order.
const TOKENS: [&str; 3] = ["class_token", "distillation_token", "registers"];

/// Puts those of some tokens that the network has in front of `x: [p, B, T, d]`.
fn in_front<O: Ops>(ops: &O, names: &[&str], x: O::Value) -> O::Value {
    let mut all: Vec<O::Value> = names.iter().filter(|name| ops.has(name)).map(|name| ops.param(name)).collect();
    if all.is_empty() {
        return x;
    }
    all.push(x);
    ops.concat(all, 2)
}

/// Returns the features `[p', B, d]` from the output of the last block, `[p, B, T, width]`.
pub fn features<O: Ops>(ops: &O, x: &O::Value, (traits, parts): (&Traits, &Parts)) -> O::Value {
    let norm = |x: &O::Value| ops.norm("ln_post", x, traits.eps);
    let mean = |x: &O::Value| {
        let patches = ops.slice(x, 2, parts.prefix, ops.length(x, 2) - parts.prefix);
        ops.mean(&patches, 2)
    };
    let read = match parts.readout {
        Readout::Class => norm(&ops.slice(x, 2, 0, 1)),
        Readout::ClassDistillation => {
            let both = norm(&ops.slice(x, 2, 0, 2));
            ops.reshape(&both, &[1, 2 * ops.length(x, 3)])
        }
        Readout::Mean => norm(&mean(x)),
        Readout::NormedMean => mean(&norm(x)),
        Readout::ClassMean => {
            let x = norm(x);
            ops.concat(vec![ops.slice(&x, 2, 0, 1), mean(&x)], 3)
        }
        Readout::Map => attend(ops, &norm(x), traits),
    };
    let read = if ops.has("proj.weight") { ops.linear("proj", &read) } else { read };
    ops.reshape(&read, &[ops.length(&read, 3)])
}

/// Computes attention of the learnt query over tokens `[p, B, T, d]`, then an MLP with a skip connection:
/// `[p', B, 1, d]`.
fn attend<O: Ops>(ops: &O, x: &O::Value, traits: &Traits) -> O::Value {
    let query = ops.linear("pool.q", &ops.param("pool.query"));
    let key_value = ops.linear("pool.kv", x);
    let (query, key_value) = (ops.heads(&query, 1, traits.heads), ops.heads(&key_value, 2, traits.heads));
    let read = ops.attention([&query[0], &key_value[0], &key_value[1]], Mask::None);
    let read = ops.linear("pool.proj", &read);
    let normed = ops.norm("pool.ln", &read, traits.eps);
    let hidden = ops.activation(traits.activation, ops.linear("pool.fc", &normed));
    ops.add(read, ops.linear("pool.out", &hidden))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::families::shapes;
    use crate::model::network::Trained;
    use crate::model::network::low_rank::LowRank;

    /// Updates of both layers of the first MLP.
    struct Mlp;
    impl Trained for Mlp {
        fn names(&self) -> Vec<&str> {
            vec!["blocks.0.mlp.fc.A", "blocks.0.mlp.fc.B", "blocks.0.mlp.proj.A", "blocks.0.mlp.proj.B"]
        }
    }

    /// A pass that goes on from shared values gives the same bits as a whole one, also where the frozen matrix is not that of the checkpoint.
    #[test]
    fn a_pass_goes_on_from_what_is_shared() {
        let (vit, base) = shapes().find(|shape| shape.key == "clip-mini").unwrap().random(1);
        for kind in [Kind::Float, Kind::BFloat16] {
            let base = base.to(Device::Cpu, kind);
            let draw = |shape: &[i64]| Tensor::randn(shape, (Kind::Float, Device::Cpu)).to_kind(kind) * 0.1;
            let x = Fields::of(HIDDEN, draw(&[1, 5, 17, 192]));
            for shares in [false, true] {
                let mut weights = Weights::frozen(&base);
                let (a, b) = (draw(&[2, 4, 192]), draw(&[2, 768, 4]));
                weights.update("blocks.0.mlp.fc", LowRank { a, b, scale: 2.0, magnitude: None });
                if shares {
                    weights.share("blocks.0.mlp.fc.weight", draw(&[768, 192]));
                }
                let shared = Shared { trained: &Mlp, samples: 5 };
                let entered = vit.enter_within(&Weights::frozen(&base), 0, x.again(), shared);
                assert_eq!(entered.find(FROZEN).is_some(), fused::serves(kind, Device::Cpu));
                let [found, expected] = [entered, x.again()].map(|x| vit.features_from(&weights, 0, x));
                assert!(found.equal(&expected), "{kind:?}, shares: {shares}");
                let many = Shared { samples: 1 << 20, ..shared };
                assert!(vit.enter_within(&Weights::frozen(&base), 0, x.again(), many).find(FROZEN).is_none());
            }
        }
    }

    /// A plan of clip-mini counts 16 MB of the product and a quarter as much of the values in front of it (width 192, MLP 768). In f64 the product
    /// is not shared.
    #[test]
    fn plans_count_what_is_begun_for_all_members() {
        let (vit, base) = shapes().find(|shape| shape.key == "clip-mini").unwrap().random(1);
        let fixed = |kind| vit.need(&base, Graph::None, kind).fixed;
        for kind in [Kind::BFloat16, Kind::Float] {
            let begun = if fused::serves(kind, Device::Cpu) { 20 << 20 } else { 0 };
            assert_eq!(fixed(kind) - fixed(Kind::Double), begun, "{kind:?}");
        }
    }
}
