//! The particle-batched vision transformer: one forward for all particles, one model for CLIP's image tower, timm and
//! torchvision (Dosovitskiy et al. 2021, arXiv 2010.11929; Radford et al. 2021, arXiv 2103.00020).
//!
//! Activations are `[p, B, T, d]` with p = 1 until particles differ, so that the frozen products run once on all rows.

use tch::Tensor;

use super::block::{Attention, Blocks, Rows};
use super::weights::Weights;
use super::{Geometry, Traits};

/// A pre-norm vision transformer with a class token.
#[derive(Clone, Debug)]
pub struct Vit {
    pub geometry: Geometry,
    pub traits: Traits,
}

impl Vit {
    /// Features of the class token: `images: [p, B, 3, S, S] -> [p', B, output]`, p' = n where particles differ.
    pub fn features(&self, weights: &Weights, images: &Tensor) -> Tensor {
        self.features_from(weights, 0, self.tokens(weights, 0, images))
    }

    /// What enters block `block`: `[p', B, 1 + grid², d]` from `images: [p, B, 3, S, S]`.
    pub fn tokens(&self, weights: &Weights, block: usize, images: &Tensor) -> Tensor {
        let mut x = self.embed(weights, images);
        if weights.has("ln_pre.weight") {
            x = weights.norm("ln_pre").forward(&x, self.traits.eps);
        }
        (0..block).fold(x, |x, block| self.block(weights, block, x))
    }

    /// Features `[p', B, output]` from what enters block `block`.
    pub fn features_from(&self, weights: &Weights, block: usize, tokens: Tensor) -> Tensor {
        let x = (block..self.geometry.blocks).fold(tokens, |x, block| self.block(weights, block, x));
        self.pool(weights, &x)
    }

    /// One block; the last computes the class token only, since nothing else reaches the output.
    pub fn block(&self, weights: &Weights, block: usize, x: Tensor) -> Tensor {
        let Geometry { width, blocks, .. } = self.geometry;
        let rows = if block + 1 == blocks { Rows::First } else { Rows::All };
        let stack = Blocks { width, blocks, traits: self.traits, attention: Attention::Full };
        stack.block(weights, block, x, rows)
    }

    /// Features `[p, B, output]` from what leaves the last block, `[p, B, T, d]`.
    pub fn pool(&self, weights: &Weights, x: &Tensor) -> Tensor {
        let class = weights.norm("ln_post").forward(&x.narrow(2, 0, 1), self.traits.eps);
        let class = if weights.has("proj.weight") { weights.linear("proj").forward(&class) } else { class };
        class.squeeze_dim(2)
    }

    /// Patches, class token and positions: `[p, B, 1 + grid², d]`.
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
