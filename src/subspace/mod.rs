//! Subspaces: what the P columns of `theta` `[n, P]` mean. One file a subspace, registered in [`SUBSPACES`].

pub mod combine;
mod dense;
mod entries;
pub mod geometry;
pub mod layout;
mod start;

use anyhow::Result;
use tch::Tensor;

use crate::model::head::{Head, Training};
use crate::model::vit::Base;
use crate::model::vit::weights::Weights;
use crate::schema::Reader;

pub use combine::Space;
pub use dense::Dense;
pub use entries::{SUBSPACES, low_rank};
pub use layout::{Block, Layout, Shape};

/// A laid-out subspace.
pub trait Subspace {
    fn layout(&self) -> &Layout;

    /// The start of one particle: `[P]`, a pure function of (seed, particle).
    fn initial(&self, seed: u64, particle: u64) -> Result<Tensor>;

    /// The layer weights that leaves stand for (one `[k, …shape]` a column, in the layout's order).
    fn weights<'a>(&self, base: &'a Base, leaves: &[Tensor]) -> Weights<'a>;

    /// Whether these weights are tensors of their own, where leaves are views of theta.
    fn forms_weights(&self) -> bool {
        false
    }

    /// The columns of the checkpoint itself, `[P]`, from which updates ΔW count; zeros for a new head.
    fn origin(&self) -> Tensor;

    /// The points ΔW_k = Σ_j c_kj ΔW_j of particles `theta: [n, P]`, for coefficients `[k, n]` (f32), exactly. The columns
    /// of a new head, which has no update, are combined themselves.
    ///
    /// # Errors
    /// Coefficients of another shape.
    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined>;

    /// The same subspace once more.
    fn again(&self) -> Box<dyn Subspace>;
}

/// The settings of a subspace, as read from `[subspace.*]`.
pub trait SubspaceSpec {
    fn key(&self) -> &'static str;

    /// Lays out the columns for a model (`base` and `head` in f32, wherever they lie).
    fn build(&self, base: &Base, head: &Head) -> Result<Box<dyn Subspace>>;

    /// Whether all particles start at the same point, with a head trained so.
    fn equal_starts(&self, head: Training) -> bool;

    fn resolved(&self) -> toml::Table;

    /// The rank, where there is one: a column of the results.
    fn rank(&self) -> Option<i64>;
}

/// A registered subspace.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub read: fn(&Reader) -> Box<dyn SubspaceSpec>,
}

/// k points with the subspace that reads them.
pub struct Combined {
    pub subspace: Box<dyn Subspace>,
    /// `[k, P']`.
    pub theta: Tensor,
}
