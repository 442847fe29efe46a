//! Subspaces: what the P columns of `theta` `[n, P]` mean. One file a subspace, registered in [`SUBSPACES`].

pub mod combine;
mod dense;
mod full;
pub mod geometry;
pub mod layout;
pub mod low_rank;

use anyhow::Result;
use tch::Tensor;

use crate::backbone::Base;
use crate::backbone::weights::Weights;
use crate::base::random::{Purpose, stream};
use crate::head::{Head, Training};
use crate::schema::Reader;

pub use combine::{Combined, Space};
pub use dense::Dense;
pub use layout::{Block, Layout, Shape};

/// A laid-out subspace.
pub trait Subspace {
    fn layout(&self) -> &Layout;

    /// The start of one particle: `[P]`, a pure function of (seed, particle).
    fn initial(&self, seed: u64, particle: u64) -> Result<Tensor>;

    /// The layer weights that leaves stand for (one `[k, …shape]` a column, in the layout's order).
    fn weights<'a>(&self, base: &'a Base, leaves: &[Tensor]) -> Weights<'a>;

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

/// Every known subspace.
pub static SUBSPACES: &[&Entry] = &[&low_rank::ENTRY, &full::ENTRY];

/// Uniform draws on ±bound, a pure function of (seed, particle, column).
fn uniform(seed: u64, particle: u64, column: u64, count: usize, bound: f64) -> Vec<f32> {
    use rand::RngExt;
    let mut rng = stream(seed, Purpose::Init, &[particle, column]);
    (0..count).map(|_| rng.random_range(-bound..bound) as f32).collect()
}

/// The start of a new linear head, as `torch.nn.Linear` draws it: U(±1/√d).
fn initial_head(seed: u64, particle: u64, head: &Head) -> Tensor {
    let (classes, width) = (head.weight.size()[0], head.weight.size()[1]);
    let bound = 1.0 / (width as f64).sqrt();
    let values = uniform(seed, particle, u64::MAX, (classes * width + classes) as usize, bound);
    Tensor::from_slice(&values)
}
