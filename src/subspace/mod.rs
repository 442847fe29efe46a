//! Subspaces give the P columns of `theta` `[n, P]` their meaning. Each has one file and is registered in
//! [`SUBSPACES`].

mod dense;
mod entries;
pub mod geometry;
pub mod layout;
mod targets;
pub mod updates;

use anyhow::Result;
use tch::Tensor;

use crate::model::head::{Head, Training};
use crate::model::network::{Network, Parameters, Weights};
use crate::schema::{Reader, Resolved};

pub use dense::Dense;
pub use entries::{SUBSPACES, low_rank};
pub use layout::{Block, Column, Layout, Shape};
pub use updates::Space;

/// A layer whose factor A starts along directions of its inputs.
pub struct Directed {
    pub name: String,
    /// The number of directions.
    pub rank: i64,
}

/// A subspace laid out for one network.
pub trait Subspace {
    fn layout(&self) -> &Layout;

    /// Returns the start of one particle, `[P]`, a pure function of (seed, particle).
    fn initial(&self, seed: u64, particle: u64) -> Result<Tensor>;

    /// Returns the layers from whose inputs training starts, in their order; none if it starts from [`initial`](Self::initial).
    fn directed(&self) -> Vec<Directed> {
        Vec::new()
    }

    /// Returns the start of one particle, `[P]`, from directions of the inputs of each of these layers, `[r, in]` in f32 on the CPU.
    ///
    /// # Errors
    /// Fails as [`initial`](Self::initial) does.
    fn initial_along(&self, seed: u64, particle: u64, directions: &[Tensor]) -> Result<Tensor> {
        let _ = directions;
        self.initial(seed, particle)
    }

    /// Returns the layer weights for the leaves, which are one `[k, …shape]` per column in the layout's order.
    fn weights<'a>(&self, base: &'a Parameters, leaves: &[Tensor]) -> Weights<'a>;

    /// Returns whether these weights are tensors of their own, where leaves are views of theta.
    fn forms_weights(&self) -> bool {
        false
    }

    /// Returns the projection of the network, where the columns are projections of a zero-shot model.
    fn projection(&self) -> Option<&'static str> {
        None
    }

    /// Returns the columns of the checkpoint itself, `[P]`, to which updates ΔW are relative; zeros for a new head.
    fn origin(&self) -> Tensor;

    /// Returns the points ΔW_k = Σ_j c_kj ΔW_j of particles `theta: [n, P]` exactly, for coefficients `[k, n]` (f32).
    /// The columns of a new head, which has no update, are themselves combined.
    ///
    /// # Errors
    /// Fails if the coefficients have another shape.
    fn combine(&self, theta: &Tensor, coefficients: &Tensor) -> Result<Combined>;

    /// Returns particles `theta: [n, P]` as updates of the checkpoint itself, where the frozen weights are not those of the
    /// checkpoint; `None` where they are.
    ///
    /// # Errors
    /// Fails as [`combine`](Self::combine) does.
    fn relative(&self, theta: &Tensor) -> Result<Option<Combined>> {
        let _ = theta;
        Ok(None)
    }

    /// Returns whether the frozen weights are the checkpoint's without the part that the particles start from.
    fn moves_base(&self) -> bool {
        false
    }

    /// Returns the setting by which rows or columns of weights are multiplied by trained numbers, so that weights are no sums of
    /// updates; `None` where they are.
    fn scaled_by(&self) -> Option<&'static str> {
        None
    }

    /// Returns another copy of this subspace.
    fn again(&self) -> Box<dyn Subspace>;
}

/// The settings of a subspace, as read from `[subspace.*]`.
pub trait SubspaceSpec: Resolved {
    fn key(&self) -> &'static str;

    /// Lays out the columns for a network with its weights and a head (in f32, on any device).
    ///
    /// # Errors
    /// Fails if the network lacks a layer that the settings name.
    fn build(&self, network: &dyn Network, base: &Parameters, head: &Head) -> Result<Box<dyn Subspace>>;

    /// Returns whether all particles start at the same point when the head is trained in this way: that of the checkpoint.
    fn equal_starts(&self, head: Training) -> bool {
        head != Training::Always
    }

    /// Returns the rank, if there is one; it is a column of the results.
    fn rank(&self) -> Option<i64> {
        None
    }
}

/// A registered subspace.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub read: fn(&Reader) -> Box<dyn SubspaceSpec>,
}

/// The k combined points, and the subspace that gives them their meaning.
pub struct Combined {
    pub subspace: Box<dyn Subspace>,
    /// The points, `[k, P']`.
    pub theta: Tensor,
}
