//! Published shapes of image towers, created in memory with random weights to measure sizes, speed and memory without a
//! file.

use tch::{Device, Kind, Tensor};

use super::forward::Vit;
use super::parts::Parts;
use super::{Activation, Geometry, Traits};
use crate::model::network::Parameters;

/// A published shape.
pub struct Shape {
    pub key: &'static str,
    pub about: &'static str,
    pub geometry: Geometry,
    pub traits: Traits,
}

const EPS: f64 = 1e-5;

/// Every known shape: CLIP image towers.
pub static SHAPES: &[Shape] = &[
    Shape {
        key: "vit-b-32",
        about: "CLIP ViT-B/32, 224 px",
        geometry: Geometry { width: 768, blocks: 12, patch: 32, grid: 7, mlp: 3072, output: 512 },
        traits: Traits { heads: 12, activation: Activation::QuickGelu, eps: EPS },
    },
    Shape {
        key: "vit-b-16",
        about: "CLIP ViT-B/16, 224 px",
        geometry: Geometry { width: 768, blocks: 12, patch: 16, grid: 14, mlp: 3072, output: 512 },
        traits: Traits { heads: 12, activation: Activation::QuickGelu, eps: EPS },
    },
    Shape {
        key: "vit-l-14",
        about: "CLIP ViT-L/14, 224 px",
        geometry: Geometry { width: 1024, blocks: 24, patch: 14, grid: 16, mlp: 4096, output: 768 },
        traits: Traits { heads: 16, activation: Activation::QuickGelu, eps: EPS },
    },
    Shape {
        key: "clip-mini",
        about: "a small CLIP tower for 32 px: patch 8, width 192, 6 blocks",
        geometry: Geometry { width: 192, blocks: 6, patch: 8, grid: 4, mlp: 768, output: 512 },
        traits: Traits { heads: 3, activation: Activation::Gelu, eps: EPS },
    },
];

impl Shape {
    /// Returns a tower of this shape in f32 on the CPU, with matrices from N(0, 1 / in) and norms at one.
    pub fn random(&self, seed: i64) -> (Vit, Parameters) {
        tch::manual_seed(seed);
        let vit = Vit::new(self.geometry.clone(), self.traits, Parts::PLAIN);
        let filled = |(name, shape): (String, Vec<i64>)| {
            let weight = random(&name, &shape);
            (name, weight)
        };
        (vit, Parameters::new(sizes(&self.geometry).into_iter().map(filled).collect()))
    }
}

/// Returns the names and shapes of all weights of a tower with plain parts, in the order of the forward pass.
pub fn sizes(geometry: &Geometry) -> Vec<(String, Vec<i64>)> {
    let Geometry { width, blocks, patch, grid, mlp, output } = *geometry;
    let mut all = Vec::new();
    let mut push = |name: String, shape: &[i64]| all.push((name, shape.to_vec()));
    push("patch.weight".into(), &[width, 3 * patch * patch]);
    push("class_token".into(), &[width]);
    push("position".into(), &[1 + grid * grid, width]);
    let mut layer = |name: String, shape: &[i64]| {
        push(format!("{name}.weight"), shape);
        push(format!("{name}.bias"), &shape[..1]);
    };
    layer("ln_pre".into(), &[width]);
    for block in 0..blocks {
        layer(format!("blocks.{block}.ln_1"), &[width]);
        layer(format!("blocks.{block}.attn.qkv"), &[3 * width, width]);
        layer(format!("blocks.{block}.attn.proj"), &[width, width]);
        layer(format!("blocks.{block}.ln_2"), &[width]);
        layer(format!("blocks.{block}.mlp.fc"), &[mlp, width]);
        layer(format!("blocks.{block}.mlp.proj"), &[width, mlp]);
    }
    layer("ln_post".into(), &[width]);
    push("proj.weight".into(), &[output, width]);
    all
}

/// Returns the random start of a weight.
fn random(name: &str, shape: &[i64]) -> Tensor {
    let options = (Kind::Float, Device::Cpu);
    match shape {
        _ if name.ends_with(".bias") => Tensor::zeros(shape, options),
        [_] if name.ends_with(".weight") => Tensor::ones(shape, options),
        [.., inputs] => Tensor::randn(shape, options).g_div_scalar_((*inputs as f64).sqrt()),
        [] => Tensor::zeros(shape, options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fields::{Fields, PIXELS};
    use crate::model::network::{Network, Weights};

    /// Checks that the image tower of OpenAI's ViT-B/32 has 87,849,216 parameters.
    #[test]
    fn published_sizes() {
        let count = |shape: &Shape| shape.random(1).1.count();
        assert_eq!(count(&SHAPES[0]), 87_849_216);
        let mini = SHAPES.iter().find(|shape| shape.key == "clip-mini").unwrap();
        assert_eq!(count(mini), 2_808_576);
    }

    #[test]
    fn a_random_tower_computes_features() {
        let mini = SHAPES.iter().find(|shape| shape.key == "clip-mini").unwrap();
        let (vit, base) = mini.random(1);
        let images = Tensor::randn([1, 2, 3, 32, 32], (Kind::Float, Device::Cpu));
        let images = Fields::of(PIXELS, images);
        let features = vit.forward(&Weights::frozen(&base), &images);
        assert_eq!(features.size(), [1, 2, 512]);
        assert!(bool::try_from(features.isfinite().all()).unwrap());
        // A different seed gives different weights.
        assert!(!features.equal(&vit.forward(&Weights::frozen(&mini.random(2).1), &images)));
    }
}
