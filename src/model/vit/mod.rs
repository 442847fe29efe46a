//! The vision transformer, one implementation of [`Network`](super::network::Network).
//!
//! One forward pass ([`forward`]) serves every pre-norm vision transformer. Its parameters have canonical names:
//! `patch.{weight,bias}`, `class_token`, `position`, `ln_pre.*`,
//! `blocks.i.{ln_1,attn.qkv,attn.proj,ln_2,mlp.fc,mlp.proj}.*`, `ln_post.*` and `proj.weight`. The head of a checkpoint
//! is kept separately.

pub mod architecture;
pub mod arguments;
mod block;
pub mod footprint;
pub mod forward;
pub mod parts;
pub mod relative;
pub mod required;
pub mod text;

use serde::Serialize;
use tch::Tensor;

pub use crate::model::network::ops::Activation;

/// Returns whether a layer of `width` channels can be cut into `heads` heads.
pub fn heads_fit(heads: i64, width: i64) -> bool {
    heads > 0 && width % heads == 0
}

/// The properties of a vision transformer that names and shapes reveal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Geometry {
    pub width: i64,
    pub blocks: usize,
    pub patch: i64,
    /// The number of patches per side.
    pub grid: i64,
    pub mlp: i64,
    /// The width of the features.
    pub output: i64,
}

impl Geometry {
    /// Returns the number of pixels per side.
    pub fn image_size(&self) -> i64 {
        self.grid * self.patch
    }
}

/// The properties of a vision transformer that names and shapes do not reveal.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Traits {
    pub heads: i64,
    pub activation: Activation,
    pub eps: f64,
}

/// The classifier in a checkpoint.
pub struct OwnHead {
    /// The weight, `[C, d]`.
    pub weight: Tensor,
    /// The bias, `[C]`.
    pub bias: Tensor,
}
