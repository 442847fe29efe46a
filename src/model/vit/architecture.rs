//! timm's architectures: what a name says about a network beyond the names and shapes of its tensors, and the sizes by which
//! a name can be checked against these.
//!
//! `architectures.tsv` is written by `scripts/list_timm_architectures.py` from the package itself; it has the architectures
//! whose blocks bella computes.

use std::sync::LazyLock;

use anyhow::{Context, Result};
use serde_json::{Map, Value};
use tch::{Device, Kind, Tensor};

use crate::model::network::Parameters;
use crate::model::vit::forward::Vit;
use crate::model::vit::parts::Parts;
use crate::model::vit::{Activation, Geometry, Traits};
use crate::schema::{hint, words};

words! {
    /// The way in which timm pools the output tokens into one vector, its `global_pool`.
    pub enum Pool { Token = "token", Average = "avg", Map = "map" }
}

words! {
    /// The class of timm that computes an architecture.
    pub enum Class {
        /// `VisionTransformer`.
        Vit = "vit",
        /// `VisionTransformerDistilled`.
        Distilled = "distilled",
        Beit = "beit",
        Eva = "eva",
    }
}

/// An architecture of timm.
#[derive(Debug)]
pub struct Architecture {
    pub name: &'static str,
    pub class: Class,
    pub heads: i64,
    pub activation: Activation,
    pub eps: f64,
    /// Whether the first layer of the MLP contains a gate, which no argument of a config tells.
    pub is_packed: bool,
    /// The other arguments that it gives to its class.
    pub arguments: Map<String, Value>,
    pub width: i64,
    pub blocks: i64,
    pub patch: i64,
    /// The number of pixels per side of its images, where nothing else tells it.
    pub image_size: i64,
}

/// Every known architecture.
static ARCHITECTURES: LazyLock<Vec<Architecture>> = LazyLock::new(|| {
    let lines = include_str!("architectures.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(parse).collect()
});

/// Returns the architecture of a name, which may have the tag of its weights after a dot.
///
/// # Errors
/// Fails if the name is unknown; the message has those that are most like it.
pub fn architecture(name: &str) -> Result<&'static Architecture> {
    let plain = name.split('.').next().unwrap_or_default();
    let found = ARCHITECTURES.iter().find(|known| known.name == plain);
    found.with_context(|| {
        if is_other(plain) {
            return format!(
                "`{name}` is an architecture of timm, but not a vision transformer that bella computes: it trains by its own \
                 forward: write it with {EXPORT} timm NAME --weights FILE, and set checkpoint.kind = \"module\""
            );
        }
        format!(
            "`{name}` is no architecture of timm that bella computes; the nearest known ones are {}; if one of them \
             computes the same, set checkpoint.architecture to it; {EXPORT} timm NAME --weights FILE writes others, which train \
             with checkpoint.kind = \"module\"",
            nearest(plain).join(", ")
        )
    })
}

/// The program that writes other networks as modules.
pub const EXPORT: &str = "scripts/export_torchscript.py";

/// Returns whether a name is not one of a vision transformer, nor a mistyped one: it does not begin as any known name does.
fn is_other(name: &str) -> bool {
    let start = |name: &str| name.split('_').next().unwrap_or_default().to_string();
    let near = hint(name, ARCHITECTURES.iter().map(|known| known.name));
    near.is_empty() && ARCHITECTURES.iter().all(|known| start(known.name) != start(name))
}

/// Returns the architectures with these sizes, those with the shortest names first.
pub fn of_sizes(width: i64, blocks: i64, patch: i64) -> impl Iterator<Item = &'static Architecture> {
    let fits = |known: &&Architecture| [known.width, known.blocks, known.patch] == [width, blocks, patch];
    let mut found: Vec<&Architecture> = ARCHITECTURES.iter().filter(fits).collect();
    found.sort_by_key(|known| (known.name.len(), known.name));
    found.into_iter()
}

/// Returns three names that share most with a name: the longest beginning first, then the most similar length.
fn nearest(name: &str) -> Vec<&'static str> {
    let shared = |known: &str| known.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
    let mut all: Vec<&str> = ARCHITECTURES.iter().map(|known| known.name).collect();
    all.sort_by_key(|known| (std::cmp::Reverse(shared(known)), known.len().abs_diff(name.len()), *known));
    all.truncate(3);
    all
}

/// Reads a line of the columns that the header of the script names.
fn parse(line: &'static str) -> Option<Architecture> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [name, class, heads, activation, eps, gate, width, blocks, patch, size, arguments] = fields[..] else {
        return None;
    };
    let [heads, width, blocks, patch, size] = [heads, width, blocks, patch, size].map(|field| field.parse().ok());
    Some(Architecture {
        name,
        class: class.parse().ok()?,
        heads: heads?,
        activation: activation.parse().ok()?,
        eps: eps.parse().ok()?,
        is_packed: gate == "packed",
        arguments: serde_json::from_str(arguments).ok()?,
        width: width?,
        blocks: blocks?,
        patch: patch?,
        image_size: size?,
    })
}

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
    let Geometry { width, blocks, patch, grid, mlp, output, .. } = *geometry;
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
    use serde_json::json;

    use super::*;
    use crate::model::vit::arguments::Arguments;
    use crate::model::vit::parts::Rope;

    #[test]
    fn every_line_is_an_architecture() {
        let lines = include_str!("architectures.tsv").lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!((ARCHITECTURES.len(), lines), (lines, lines));
        assert!(lines > 150);
        let giant = architecture("eva02_large_patch14_clip_336.merged2b_s6b_b61k").unwrap();
        let arguments = Arguments::of(giant);
        assert_eq!((giant.heads, giant.eps, arguments.pool().unwrap()), (16, 1e-6, Pool::Token));
        assert_eq!(arguments.rope().unwrap(), Some(Rope::Indexed { theta: 10000.0, reference: 16.0 }));
        for known in ARCHITECTURES.iter() {
            let arguments = Arguments::of(known);
            let read = arguments.check().and(arguments.required()).and(arguments.rope().map(|_| ()));
            assert!(read.is_ok(), "{}: {read:?}", known.name);
        }
        // timm hands on what a config's arguments say, null too, and its class then takes GELU.
        let quick = architecture("vit_base_patch32_clip_quickgelu_224").unwrap();
        let activation = |own: Value| Arguments::of_config(quick, Some(&own), None).unwrap().activation().unwrap();
        let found = [json!({}), json!({ "act_layer": null }), json!({ "act_layer": "silu" })].map(activation);
        assert_eq!(found, [Activation::QuickGelu, Activation::Gelu, Activation::Silu]);
        assert_eq!(architecture("vit_so150m2_patch16_reg1_gap_256").unwrap().heads, 13);
        assert_eq!((giant.width, giant.blocks, giant.patch), (1024, 24, 14));
        assert_eq!(of_sizes(192, 12, 16).next().unwrap().name, "vit_tiny_patch16_224");
        let line = architecture("resnet50").unwrap_err().to_string();
        assert!(line.contains("set checkpoint.kind = \"module\"") && !line.contains("vit_"), "{line}");
        let line = architecture("vit_bse_patch16_224").unwrap_err().to_string();
        assert!(line.contains("nearest known ones are vit_base"), "{line}");
        let line = architecture("beit_base_patch16_256").unwrap_err().to_string();
        assert!(line.contains("nearest known ones are beit_base_patch16_224,"), "{line}");
    }
}
