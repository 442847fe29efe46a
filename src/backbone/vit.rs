//! The particle-batched vision transformer: one forward for all particles, one model for CLIP's image tower, timm and
//! torchvision (Dosovitskiy et al. 2021, arXiv 2010.11929; Radford et al. 2021, arXiv 2103.00020).
//!
//! Activations are `[p, B, T, d]` with p = 1 until particles differ, so that the frozen products run once on all rows.

use tch::Tensor;

use super::weights::Weights;
use super::{Activation, Geometry, Traits};

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

    /// One block; the last computes the class token only, since nothing else reaches the output.
    pub fn block(&self, weights: &Weights, block: usize, x: Tensor) -> Tensor {
        let name = |layer: &str| format!("blocks.{block}.{layer}");
        let eps = self.traits.eps;
        let normed = weights.norm(&name("ln_1")).forward(&x, eps);
        let last = block + 1 == self.geometry.blocks;
        let (attended, x) = if last {
            (self.attend_class(weights, &name("attn.qkv"), &normed), x.narrow(2, 0, 1))
        } else {
            (self.attend(weights, &name("attn.qkv"), &normed), x)
        };
        let x = x + weights.linear(&name("attn.proj")).forward(&attended);
        let hidden = weights.linear(&name("mlp.fc")).forward(&weights.norm(&name("ln_2")).forward(&x, eps));
        let hidden = activate(&hidden, self.traits.activation);
        x + weights.linear(&name("mlp.proj")).forward(&hidden)
    }

    /// Self-attention of all tokens.
    fn attend(&self, weights: &Weights, layer: &str, x: &Tensor) -> Tensor {
        let qkv = weights.linear(layer).forward(x);
        let parts = self.split_heads(&qkv, 3);
        self.merge_heads(&attention(&parts[0], &parts[1], &parts[2]), qkv.size()[0])
    }

    /// Self-attention with the class token as the only query.
    fn attend_class(&self, weights: &Weights, layer: &str, x: &Tensor) -> Tensor {
        let width = self.geometry.width;
        let query = weights.linear_rows(layer, 0, width).forward(&x.narrow(2, 0, 1));
        let key_value = weights.linear_rows(layer, width, 2 * width).forward(x);
        let query = self.split_heads(&query, 1);
        let parts = self.split_heads(&key_value, 2);
        self.merge_heads(&attention(&query[0], &parts[0], &parts[1]), key_value.size()[0])
    }

    /// `[p, B, T, k·d] -> k × [p·B, heads, T, d / heads]`.
    fn split_heads(&self, x: &Tensor, parts: i64) -> Vec<Tensor> {
        let heads = self.traits.heads;
        let size = x.size();
        let x = x.view([size[0] * size[1], size[2], parts, heads, self.geometry.width / heads]);
        x.permute([2, 0, 3, 1, 4]).unbind(0)
    }

    /// `[p·B, heads, T, d / heads] -> [p, B, T, d]`.
    fn merge_heads(&self, x: &Tensor, particles: i64) -> Tensor {
        let size = x.size();
        x.transpose(1, 2).reshape([particles, size[0] / particles, size[2], self.geometry.width])
    }
}

fn attention(query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
    Tensor::scaled_dot_product_attention(query, key, value, None::<&Tensor>, 0.0, false, None, false)
}

/// The MLP's activation, elementwise.
fn activate(x: &Tensor, activation: Activation) -> Tensor {
    match activation {
        Activation::Gelu => x.gelu("none"),
        Activation::GeluTanh => x.gelu("tanh"),
        Activation::QuickGelu => x * (x * 1.702).sigmoid(),
    }
}
