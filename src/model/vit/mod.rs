//! Backbones: what turns per-layer weights and images into features `[n, B, d]`.
//!
//! One forward ([`forward`]) serves every pre-norm vision transformer; a *naming* (one file each) says how an archive calls
//! its parameters. A new family of checkpoints is one new naming and its line in [`NAMINGS`].

mod block;
pub mod footprint;
pub mod forward;
mod hints;
pub mod identify;
pub mod low_rank;
pub mod namings;
mod recognise;
pub mod settle;
pub mod shapes;
pub mod text;
pub mod weights;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tch::{Kind, Tensor};

use crate::schema::words;

pub use hints::Hints;
pub use namings::NAMINGS;
pub use recognise::{Named, recognise};

/// How one family of archives names its parameters.
pub struct Naming {
    pub key: &'static str,
    pub about: &'static str,
    /// A parameter without which the archive is not of this family, relative to the prefix.
    pub landmark: &'static str,
    /// Prefixes under which the image tower may sit.
    pub prefixes: &'static [&'static str],
    /// Canonical name and layout of a parameter, `None` for one that the image path never uses.
    pub canonical: fn(&str) -> Option<(String, Form)>,
}

/// What must be done to a stored tensor to have the canonical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    AsIs,
    /// `[1, …]` or `[1, 1, …]`: leading ones dropped.
    Squeezed,
    /// `[d, 3, p, p]` convolution to `[d, 3·p·p]`.
    Flattened,
    /// `[d, out]` to `[out, d]`.
    Transposed,
}

words! {
    /// The activation between the two MLP layers.
    pub enum Activation { Gelu = "gelu", QuickGelu = "quick-gelu", GeluTanh = "gelu-tanh" }
}

/// What names and shapes tell about a vision transformer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    pub width: i64,
    pub blocks: usize,
    pub patch: i64,
    /// Patches a side.
    pub grid: i64,
    pub mlp: i64,
    /// Width of the features.
    pub output: i64,
}

impl Geometry {
    /// Pixels a side.
    pub fn image_size(&self) -> i64 {
        self.grid * self.patch
    }
}

/// What names cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traits {
    pub heads: i64,
    pub activation: Activation,
    pub eps: f64,
}

/// Frozen weights under canonical names, in the order of the archive's forward.
pub struct Parameters(Vec<(String, Tensor)>);

impl Parameters {
    /// Name and tensor of each.
    pub fn all(&self) -> &[(String, Tensor)] {
        &self.0
    }

    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// Number of scalars.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, t)| t.numel()).sum()
    }

    /// The same weights on another device and in another type.
    pub fn to(&self, device: tch::Device, kind: Kind) -> Parameters {
        Parameters(self.0.iter().map(|(name, t)| (name.clone(), t.to_device(device).to_kind(kind))).collect())
    }
}

/// The image tower's weights: `patch.{weight,bias}`, `class_token`, `position`, `ln_pre.*`,
/// `blocks.i.{ln_1,attn.qkv,attn.proj,ln_2,mlp.fc,mlp.proj}.*`, `ln_post.*`, `proj.weight`; a checkpoint's own head is
/// kept apart.
pub struct Base {
    pub geometry: Geometry,
    parameters: Parameters,
}

impl Base {
    /// Parameters in canonical order.
    pub fn parameters(&self) -> &[(String, Tensor)] {
        self.parameters.all()
    }

    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.parameters.get(name)
    }

    /// Number of scalars.
    pub fn count(&self) -> usize {
        self.parameters.count()
    }

    /// The same weights on another device and in another type.
    pub fn to(&self, device: tch::Device, kind: Kind) -> Base {
        Base { geometry: self.geometry.clone(), parameters: self.parameters.to(device, kind) }
    }

    /// The same weights for images of `image_size` pixels a side; position embeddings are interpolated (bicubic, antialiased).
    pub fn at_image_size(mut self, image_size: i64) -> Result<Base> {
        let Geometry { patch, grid, width, .. } = self.geometry;
        if image_size == self.geometry.image_size() {
            return Ok(self);
        }
        ensure!(
            image_size > 0 && image_size % patch == 0,
            "checkpoint.image_size = {image_size}: must be a multiple of the patch size {patch}"
        );
        let new_grid = image_size / patch;
        let position = &mut self
            .parameters
            .0
            .iter_mut()
            .find(|(name, _)| name == "position")
            .context("the checkpoint has no position embedding")?
            .1;
        let class = position.narrow(0, 0, 1);
        let patches = position.narrow(0, 1, grid * grid).reshape([1, grid, grid, width]).permute([0, 3, 1, 2]);
        let resized = patches.internal_upsample_bicubic2d_aa([new_grid, new_grid], false, None, None);
        let resized = resized.permute([0, 2, 3, 1]).reshape([new_grid * new_grid, width]);
        *position = Tensor::cat(&[class, resized], 0);
        self.geometry.grid = new_grid;
        Ok(self)
    }
}

/// A checkpoint's own classifier.
pub struct OwnHead {
    /// `[C, d]`.
    pub weight: Tensor,
    /// `[C]`.
    pub bias: Tensor,
}
