//! The vision transformer, one implementation of [`Network`](super::network::Network).
//!
//! One forward pass ([`forward`]) serves every pre-norm vision transformer. A *naming* (one file each) maps an
//! archive's parameter names to the canonical ones: `patch.{weight,bias}`, `class_token`, `position`, `ln_pre.*`,
//! `blocks.i.{ln_1,attn.qkv,attn.proj,ln_2,mlp.fc,mlp.proj}.*`, `ln_post.*` and `proj.weight`. The head of a checkpoint
//! is kept separately. A new family of checkpoints needs a naming and its line in [`NAMINGS`].

pub mod architecture;
pub mod arguments;
mod block;
mod complete;
pub mod footprint;
pub mod forward;
mod fuse;
mod hints;
pub mod identify;
pub mod infer;
pub mod namings;
pub mod parts;
mod pool;
mod recognise;
pub mod relative;
pub mod required;
pub mod rope;
pub mod shapes;
pub mod text;

use serde::Serialize;
use tch::Tensor;

pub use super::network::ops::Activation;
pub use super::stored::Form;
pub use complete::{check_readout, table_heads};
pub use hints::Hints;
pub use namings::NAMINGS;
pub use recognise::{Expected, Named, recognise};
use required::Required;

/// Returns whether a layer of `width` channels can be cut into `heads` heads.
pub fn heads_fit(heads: i64, width: i64) -> bool {
    heads > 0 && width % heads == 0
}

/// The parameter names of one family of archives.
pub struct Naming {
    pub key: &'static str,
    pub about: &'static str,
    /// The parameters by which the family is recognised, relative to the prefix; one of them is enough.
    pub landmarks: &'static [&'static str],
    /// The prefixes that the names of the image tower may have.
    pub prefixes: &'static [&'static str],
    /// Returns the canonical name and layout of a parameter; `None` for one that the image path never uses.
    pub canonical: fn(&str) -> Option<(String, Form)>,
    /// Returns the same for a parameter outside the prefix.
    pub beside: fn(&str) -> Option<(String, Form)>,
    /// The parameters of a network with these names where no config decides them.
    pub required: Option<Required>,
}

/// Ignores a parameter, for namings whose archives may hold anything beside the image tower.
pub fn anything_beside(_: &str) -> Option<(String, Form)> {
    Some((String::new(), Form::Ignored))
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
