//! The particle-batched vision transformer. One forward pass serves all particles, and one model serves CLIP's image
//! tower, timm and torchvision (Dosovitskiy et al. 2021, arXiv 2010.11929; Radford et al. 2021, arXiv 2103.00020).
//!
//! Activations are `[p, B, T, d]` with p = 1 until particles differ, so frozen products run once on all rows.

use std::cell::RefCell;
use std::rc::Rc;

use anyhow::{Result, ensure};
use tch::{Device, Kind, Tensor};

use super::block::{Attention, Blocks, Places, Rows};
use super::footprint::Pass;
use super::parts::{Parts, Readout, Resize};
use super::relative::{self, Distances};
use super::rope::{Rope, Table};
use super::{Geometry, Traits, pool};
use crate::machine::memory::Need;
use crate::model::network::{Graph, Network, Parameters, Slot, Weights};

/// A pre-norm vision transformer.
#[derive(Clone, Debug)]
pub struct Vit {
    pub geometry: Geometry,
    pub traits: Traits,
    pub parts: Parts,
    /// The latest table of rotary positions, which all blocks share.
    table: RefCell<Option<Rc<Table>>>,
    /// The latest distances between tokens, which all blocks share.
    distances: RefCell<Option<Rc<Distances>>>,
}

impl Network for Vit {
    fn slots(&self) -> Vec<Slot> {
        let Geometry { width, mlp, blocks, .. } = self.geometry;
        let gate = self.parts.block.gated.then_some(("mlp.gate", width, mlp));
        let layers = [("attn.qkv", width, 3 * width), ("attn.proj", width, width)]
            .into_iter()
            .chain(gate)
            .chain([("mlp.fc", width, mlp), ("mlp.proj", mlp, width)]);
        let slot = |stage, (target, inputs, outputs)| Slot::of_block(stage, target, inputs, outputs);
        (0..blocks).flat_map(|stage| layers.clone().map(move |layer| slot(stage, layer))).collect()
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.geometry.blocks
    }

    fn stage_of(&self, name: &str) -> usize {
        match name.strip_prefix("blocks.") {
            Some(rest) => rest.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0),
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

    /// Returns the shape of a stage's input for one image, `[prefix + grid², d]`.
    fn entering(&self, _: usize) -> Vec<i64> {
        vec![self.tokens(), self.geometry.width]
    }

    /// Returns the input of the first block, `[p', B, prefix + grid², d]`, from normalised images `[p, B, 3, S, S]`.
    fn enter(&self, weights: &Weights, images: &Tensor) -> Tensor {
        let x = self.embed(weights, images);
        if weights.has("ln_pre.weight") { weights.norm("ln_pre").forward(&x, self.traits.eps) } else { x }
    }

    /// Runs one block. If only the class token is read, the last block computes nothing else.
    fn stage(&self, weights: &Weights, stage: usize, x: Tensor) -> Tensor {
        let Geometry { width, blocks, .. } = self.geometry;
        let Parts { block: parts, readout, .. } = self.parts;
        let first = stage + 1 == blocks && readout == Readout::Class;
        let table = self.parts.rope.map(|rope| self.table(rope, (x.kind(), x.device())));
        let distances = self.parts.relative.then(|| self.distances(x.device()));
        let places = Places { rope: table.as_deref(), relative: distances.as_deref() };
        let stack = Blocks { width, blocks, traits: self.traits, attention: Attention::Full, parts, places };
        stack.block(weights, stage, x, if first { Rows::First } else { Rows::All })
    }

    fn features(&self, weights: &Weights, x: &Tensor) -> Tensor {
        pool::features(weights, x, (&self.traits, &self.parts))
    }

    fn need(&self, graph: Graph, kind: Kind) -> Need {
        let first = match graph {
            Graph::Weights { trained, .. } => self.first_stage(trained),
            Graph::None | Graph::Samples { .. } => 0,
        };
        Pass { geometry: &self.geometry, traits: self.traits, parts: self.parts, first, kind, graph }.need()
    }
}

impl Vit {
    pub fn new(geometry: Geometry, traits: Traits, parts: Parts) -> Vit {
        Vit { geometry, traits, parts, table: RefCell::new(None), distances: RefCell::new(None) }
    }

    /// Returns the table of rotary positions for a compute type and a device; it is made once.
    fn table(&self, rope: Rope, options: (Kind, Device)) -> Rc<Table> {
        let (grid, channels) = (self.geometry.grid, self.geometry.width / self.traits.heads);
        let mut latest = self.table.borrow_mut();
        let table = latest.take().filter(|table| table.is_of(grid, channels, options));
        Rc::clone(latest.insert(table.unwrap_or_else(|| Rc::new(rope.table(grid, channels, options)))))
    }

    /// Returns the distances between tokens on a device; they are listed once.
    fn distances(&self, device: Device) -> Rc<Distances> {
        let grid = self.geometry.grid;
        let mut latest = self.distances.borrow_mut();
        let distances = latest.take().filter(|distances| distances.is_of(grid, device));
        Rc::clone(latest.insert(distances.unwrap_or_else(|| Rc::new(Distances::of(grid, device)))))
    }

    /// Returns the number of tokens of an image.
    pub fn tokens(&self) -> i64 {
        self.parts.prefix + self.geometry.grid * self.geometry.grid
    }

    /// Changes the network and its weights to images of `image_size` pixels per side; position embeddings and learnt
    /// scores of distances are interpolated.
    ///
    /// # Errors
    /// Fails if the patches do not divide the size.
    pub fn resize(&mut self, base: &mut Parameters, image_size: i64) -> Result<()> {
        let Geometry { patch, grid, width, blocks, .. } = self.geometry;
        if image_size == self.geometry.image_size() {
            return Ok(());
        }
        ensure!(
            image_size > 0 && image_size % patch == 0,
            "checkpoint.image_size = {image_size}: must be a multiple of the patch size {patch}"
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
        self.geometry.grid = new_grid;
        Ok(())
    }

    /// Returns the patches with the tokens in front of them and the positions, `[p, B, prefix + grid², d]`.
    fn embed(&self, weights: &Weights, images: &Tensor) -> Tensor {
        let Geometry { patch, grid, width, .. } = self.geometry;
        let (particles, batch) = (images.size()[0], images.size()[1]);
        let patches = images
            .reshape([particles, batch, 3, grid, patch, grid, patch])
            .permute([0, 1, 3, 5, 2, 4, 6])
            .reshape([particles, batch, grid * grid, 3 * patch * patch]);
        let tokens = weights.linear("patch").forward(&patches);
        // [p, k, d] of k tokens in front, the ones with positions first.
        let front = |names: &[&str]| -> Vec<Tensor> {
            let present = names.iter().filter(|name| weights.has(name));
            present.map(|name| weights.param(name)).map(|t| if t.dim() == 2 { t.unsqueeze(1) } else { t }).collect()
        };
        let positions = || weights.param("position").unsqueeze(1);
        let (lead, rest) = match self.parts.positioned {
            0 => (vec![], front(&["class_token", "distillation_token", "registers"])),
            all if all == self.parts.prefix => (front(&["class_token", "distillation_token", "registers"]), vec![]),
            _ => (front(&["class_token", "distillation_token"]), front(&["registers"])),
        };
        let x = in_front(lead, tokens, batch, width);
        let x = if weights.has("position") { x + positions() } else { x };
        if rest.is_empty() {
            return x;
        }
        let positioned = self.parts.positioned;
        let (lead, patches) = (x.narrow(2, 0, positioned), x.narrow(2, positioned, grid * grid));
        let x = in_front(rest, patches, batch, width);
        if positioned == 0 { x } else { Tensor::cat(&[lead.expand([x.size()[0], -1, -1, -1], false), x], 2) }
    }
}

/// Puts tokens `[p, k, d]` that all images share in front of `x: [p, B, T, d]`.
fn in_front(shared: Vec<Tensor>, x: Tensor, batch: i64, width: i64) -> Tensor {
    if shared.is_empty() {
        return x;
    }
    let lifted = shared.iter().map(|token| token.size()[0]).chain([x.size()[0]]).max().unwrap_or(1);
    let expand = |token: &Tensor| token.unsqueeze(1).expand([lifted, batch, token.size()[1], width], false);
    let mut all: Vec<Tensor> = shared.iter().map(expand).collect();
    all.push(x.expand([lifted, -1, -1, -1], false));
    Tensor::cat(&all, 2)
}
