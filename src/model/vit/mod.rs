//! The vision transformer, one implementation of [`Network`](super::network::Network).
//!
//! One forward ([`forward`]) serves every pre-norm vision transformer; a *naming* (one file each) says how an archive calls
//! its parameters. Their canonical names are `patch.{weight,bias}`, `class_token`, `position`, `ln_pre.*`,
//! `blocks.i.{ln_1,attn.qkv,attn.proj,ln_2,mlp.fc,mlp.proj}.*`, `ln_post.*` and `proj.weight`; a checkpoint's own head is
//! kept apart. A new family of checkpoints is one new naming and its line in [`NAMINGS`].

mod block;
pub mod footprint;
pub mod forward;
mod fuse;
mod hints;
pub mod identify;
pub mod namings;
pub mod parts;
mod pool;
mod recognise;
pub mod rope;
pub mod settle;
pub mod shapes;
pub mod text;

use serde::Serialize;
use tch::Tensor;

use crate::schema::words;

pub use hints::Hints;
pub use namings::NAMINGS;
pub use recognise::{Named, recognise};

/// How one family of archives names its parameters.
pub struct Naming {
    pub key: &'static str,
    pub about: &'static str,
    /// Parameters of which one tells the family, relative to the prefix.
    pub landmarks: &'static [&'static str],
    /// Prefixes under which the image tower may sit.
    pub prefixes: &'static [&'static str],
    /// Canonical name and layout of a parameter, `None` for one that the image path never uses.
    pub canonical: fn(&str) -> Option<(String, Form)>,
    /// The same of a parameter outside the prefix.
    pub beside: fn(&str) -> Option<(String, Form)>,
}

/// For namings whose archives hold anything else beside the image tower.
pub fn anything_beside(_: &str) -> Option<(String, Form)> {
    Some((String::new(), Form::Ignored))
}

/// What must be done to a stored tensor to have the canonical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    AsIs,
    /// `[1, …]` or `[1, 1, …]`: leading ones dropped.
    Squeezed,
    /// `[1, k, d]` to `[k, d]`, k = 1 included.
    Rows,
    /// Nothing that images go through.
    Ignored,
    /// `[d, 3, p, p]` convolution to `[d, 3·p·p]`.
    Flattened,
    /// `[d, out]` to `[out, d]`.
    Transposed,
}

words! {
    /// The activation between the two MLP layers.
    pub enum Activation { Gelu = "gelu", QuickGelu = "quick-gelu", GeluTanh = "gelu-tanh", Silu = "silu" }
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

/// A checkpoint's own classifier.
pub struct OwnHead {
    /// `[C, d]`.
    pub weight: Tensor,
    /// `[C]`.
    pub bias: Tensor,
}
