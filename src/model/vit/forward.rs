//! The particle-batched vision transformer. One forward pass serves all particles, and one model serves CLIP's image
//! tower, timm and torchvision (Dosovitskiy et al. 2021, arXiv 2010.11929; Radford et al. 2021, arXiv 2103.00020).
//!
//! Activations are `[p, B, T, d]` with p = 1 until particles differ, so frozen products run once on all rows.

use anyhow::{Context, Result, ensure};
use tch::{Kind, Tensor};

use super::block::{Attention, Blocks, Rows};
use super::footprint::Pass;
use super::{Geometry, Traits};
use crate::machine::memory::Need;
use crate::model::network::{Graph, Network, Parameters, Slot, SlotKind, Weights};

/// A pre-norm vision transformer with a class token.
#[derive(Clone, Debug)]
pub struct Vit {
    pub geometry: Geometry,
    pub traits: Traits,
}

impl Network for Vit {
    fn slots(&self) -> Vec<Slot> {
        let Geometry { width, mlp, blocks, .. } = self.geometry;
        let layers = [
            ("attn.qkv", width, 3 * width),
            ("attn.proj", width, width),
            ("mlp.fc", width, mlp),
            ("mlp.proj", mlp, width),
        ];
        let slot = |stage: usize, (target, inputs, outputs): (&str, i64, i64)| Slot {
            name: format!("blocks.{stage}.{target}"),
            target: target.to_string(),
            kind: SlotKind::Linear,
            inputs,
            outputs,
            stage,
        };
        (0..blocks).flat_map(|stage| layers.map(|layer| slot(stage, layer))).collect()
    }

    /// Returns the number of blocks; each block is a stage.
    fn stages(&self) -> usize {
        self.geometry.blocks
    }

    fn stage_of(&self, name: &str) -> usize {
        match name.strip_prefix("blocks.") {
            Some(rest) => rest.split('.').next().and_then(|number| number.parse().ok()).unwrap_or(0),
            None if ["ln_post.", "proj."].iter().any(|after| name.starts_with(after)) => self.geometry.blocks,
            None => 0,
        }
    }

    fn width(&self) -> i64 {
        self.geometry.output
    }

    /// Returns `[1 + grid², d]`.
    fn entering(&self, _: usize) -> Vec<i64> {
        vec![1 + self.geometry.grid * self.geometry.grid, self.geometry.width]
    }

    /// Returns `[p', B, 1 + grid², d]` from normalised images `[p, B, 3, S, S]`.
    fn enter(&self, weights: &Weights, images: &Tensor) -> Tensor {
        let x = self.embed(weights, images);
        if weights.has("ln_pre.weight") { weights.norm("ln_pre").forward(&x, self.traits.eps) } else { x }
    }

    /// Runs one block. The last one computes only the class token, since nothing else reaches the output.
    fn stage(&self, weights: &Weights, stage: usize, x: Tensor) -> Tensor {
        let Geometry { width, blocks, .. } = self.geometry;
        let rows = if stage + 1 == blocks { Rows::First } else { Rows::All };
        let stack = Blocks { width, blocks, traits: self.traits, attention: Attention::Full };
        stack.block(weights, stage, x, rows)
    }

    /// Returns the features of the class token, from `[p, B, T, d]`.
    fn features(&self, weights: &Weights, x: &Tensor) -> Tensor {
        let class = weights.norm("ln_post").forward(&x.narrow(2, 0, 1), self.traits.eps);
        let class = if weights.has("proj.weight") { weights.linear("proj").forward(&class) } else { class };
        class.squeeze_dim(2)
    }

    fn need(&self, graph: Graph, kind: Kind) -> Need {
        Pass { vit: self, kind, graph }.need()
    }
}

impl Vit {
    /// Changes the network and its weights to images of `image_size` pixels per side. Position embeddings are
    /// interpolated (bicubic, antialiased).
    ///
    /// # Errors
    /// Fails if the patches do not divide the size.
    pub fn resize(&mut self, base: &mut Parameters, image_size: i64) -> Result<()> {
        let Geometry { patch, grid, width, .. } = self.geometry;
        if image_size == self.geometry.image_size() {
            return Ok(());
        }
        ensure!(
            image_size > 0 && image_size % patch == 0,
            "checkpoint.image_size = {image_size}: must be a multiple of the patch size {patch}"
        );
        let new_grid = image_size / patch;
        let position = base.get_mut("position").context("the checkpoint has no position embedding")?;
        let class = position.narrow(0, 0, 1);
        let patches = position.narrow(0, 1, grid * grid).reshape([1, grid, grid, width]).permute([0, 3, 1, 2]);
        let resized = patches.internal_upsample_bicubic2d_aa([new_grid, new_grid], false, None, None);
        let resized = resized.permute([0, 2, 3, 1]).reshape([new_grid * new_grid, width]);
        *position = Tensor::cat(&[class, resized], 0);
        self.geometry.grid = new_grid;
        Ok(())
    }

    /// Embeds patches and adds the class token and positions: `[p, B, 1 + grid², d]`.
    fn embed(&self, weights: &Weights, images: &Tensor) -> Tensor {
        let Geometry { patch, grid, width, .. } = self.geometry;
        let (particles, batch) = (images.size()[0], images.size()[1]);
        let patches = images
            .reshape([particles, batch, 3, grid, patch, grid, patch])
            .permute([0, 1, 3, 5, 2, 4, 6])
            .reshape([particles, batch, grid * grid, 3 * patch * patch]);
        let tokens = weights.linear("patch").forward(&patches);
        let class = weights.param("class_token");
        let lifted = tokens.size()[0].max(class.size()[0]);
        let tokens = tokens.expand([lifted, -1, -1, -1], false);
        let class = class.unsqueeze(1).unsqueeze(1).expand([lifted, batch, 1, width], false);
        Tensor::cat(&[class, tokens], 2) + weights.param("position").unsqueeze(1)
    }
}
