//! Shapes of CLIP's image towers, created in memory with random weights to measure sizes, speed and memory without a file.

use tch::{Device, Kind, Tensor};

use super::forward::Vit;
use super::parts::Parts;
use super::{Geometry, Traits};
use crate::model::network::Parameters;

/// A published shape.
#[derive(Debug)]
pub struct Shape {
    pub key: &'static str,
    pub about: &'static str,
    pub geometry: Geometry,
    pub traits: Traits,
}

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
