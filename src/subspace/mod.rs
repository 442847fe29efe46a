//! Subspaces give the P columns of `theta` `[n, P]` their meaning. Each has one file and is registered in
//! [`SUBSPACES`]. A [`Layout`] says which columns of a row are which parameter, and which columns form one block; among them those of a
//! head that particles train.

mod entries;
pub mod geometry;
mod targets;
pub mod updates;

use std::ops::Range;
use std::path::Path;

use anyhow::{Result, ensure};
use rand::RngExt;
use tch::{Kind, Tensor};
use xxhash_rust::xxh3::xxh3_64;

use crate::base::random::{Purpose, stream};
use crate::model::head::{Head, Training};
use crate::model::network::{Network, Parameters, Trained, Weights};
use crate::schema::{Reader, Resolved};

pub use entries::{SUBSPACES, low_rank};
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
    fn initial_along(&self, seed: u64, particle: u64, _directions: &[Tensor]) -> Result<Tensor> {
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
    fn relative(&self, _theta: &Tensor) -> Result<Option<Combined>> {
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

    /// Returns the setting by which weights are no sums of updates, as [`Subspace::scaled_by`] does.
    fn scaled_by(&self) -> Option<&'static str> {
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

/// One parameter of a particle: columns `start..start + numel(shape)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub start: i64,
    pub shape: Vec<i64>,
    /// Whether this is the weight `[outputs, inputs]` that the inputs of a linear layer meet first.
    pub takes_inputs: bool,
    /// The number that is added to the columns to give the entries of the parameter: 1 where columns are factors less 1, else 0.
    pub plus: i64,
}

impl Column {
    pub fn count(&self) -> i64 {
        self.shape.iter().product()
    }
}

/// The meaning of the columns of a block.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// The factors A `[rank, inputs]`, then B `[outputs, rank]`, of ΔW = scale · B A.
    LowRank { rank: i64, inputs: i64, outputs: i64, scale: f64 },
    /// The weights themselves.
    Dense,
}

/// The columns that share one kernel: the A and B of an adapted layer, or the weight and bias of a layer.
#[derive(Clone, Debug, PartialEq)]
pub struct Block {
    pub name: String,
    pub columns: Range<i64>,
    pub shape: Shape,
}

/// The meaning of a row of `theta`.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    pub columns: Vec<Column>,
    pub blocks: Vec<Block>,
}

/// The metadata entry of files of theta with the digest of its layout.
pub const LAYOUT: &str = "theta_layout";

impl Layout {
    /// Returns a digest of the names, the shapes and the order of the columns, which files of theta carry.
    pub fn digest(&self) -> String {
        let line = |column: &Column| format!("{} {:?}\n", column.name, column.shape);
        let text: String = self.columns.iter().map(line).collect();
        format!("{:016x}", xxh3_64(text.as_bytes()))
    }

    /// Checks that the columns of theta in a file, which has the digest `stored`, are these.
    ///
    /// # Errors
    /// Fails if they have other names or shapes, or another order, or if the file does not say.
    pub fn check(&self, file: &Path, stored: Option<&str>) -> Result<()> {
        let own = self.digest();
        ensure!(
            stored == Some(own.as_str()),
            "{}: its columns of theta have the layout {}, those of this network and subspace {own}: the checkpoint's names or their \
             order have changed; put the old checkpoint back, or train the run again with --force",
            file.display(),
            stored.unwrap_or("that it does not say")
        );
        Ok(())
    }

    /// Returns the number of trainable parameters per particle, P.
    pub fn parameters(&self) -> i64 {
        self.columns.last().map_or(0, |c| c.start + c.count())
    }

    /// Returns the number of outputs of a head that particles train; `None` if they train none.
    pub fn outputs_of_head(&self) -> Option<i64> {
        self.columns.iter().find(|column| column.name == HEAD_BIAS).map(Column::count)
    }

    /// Returns the number of copies of a particle, one for each image, that are held at once where the gradients of single
    /// images are wanted.
    pub fn copies_at_once(&self) -> usize {
        /// The memory that the copies and their gradients may take, in bytes.
        const BYTES: i64 = 256 << 20;
        (BYTES / (8 * self.parameters().max(1))).clamp(1, 64) as usize
    }

    /// Returns the bytes that these copies take: rows, leaves and gradients.
    pub fn copies_bytes(&self) -> u64 {
        12 * self.parameters() as u64 * self.copies_at_once() as u64
    }

    /// Returns whether every column is an entry of a weight itself.
    pub fn is_dense(&self) -> bool {
        self.blocks.iter().all(|block| block.shape == Shape::Dense)
    }

    /// Appends a parameter. The caller closes the block that it belongs to with [`close_block`](Self::close_block).
    pub fn push(&mut self, name: impl Into<String>, shape: &[i64]) {
        let start = self.parameters();
        self.columns.push(Column { name: name.into(), start, shape: shape.to_vec(), takes_inputs: false, plus: 0 });
    }

    /// Appends the weight `[outputs, inputs]` that the inputs of a linear layer meet first.
    pub fn push_linear(&mut self, name: impl Into<String>, shape: [i64; 2]) {
        self.push(name, &shape);
        if let Some(column) = self.columns.last_mut() {
            column.takes_inputs = true;
        }
    }

    /// Appends the factors `[1, inputs]`, less 1, by which the inputs of a linear layer are multiplied first.
    pub fn push_scales(&mut self, name: impl Into<String>, inputs: i64) {
        self.push_linear(name, [1, inputs]);
        if let Some(column) = self.columns.last_mut() {
            column.plus = 1;
        }
    }

    /// Appends a block over the columns from `start` to the end.
    pub fn close_block(&mut self, name: impl Into<String>, start: i64, shape: Shape) {
        let columns = start..self.parameters();
        self.blocks.push(Block { name: name.into(), columns, shape });
    }

    /// Returns the leaves of a graph, one `[k, …shape]` per column in the compute type, from `theta: [k, P]`.
    pub fn leaves(&self, theta: &Tensor, kind: Kind, differentiate: bool) -> Vec<Tensor> {
        let particles = theta.size()[0];
        let leaf = |column: &Column| {
            let mut shape = vec![particles];
            shape.extend(&column.shape);
            let leaf = theta.narrow(1, column.start, column.count()).detach().to_kind(kind).reshape(&shape);
            leaf.set_requires_grad(differentiate)
        };
        self.columns.iter().map(leaf).collect()
    }

    /// Adds the gradients of the leaves to `rows: [k, P]`.
    pub fn gather(&self, gradients: &[Tensor], rows: &Tensor) {
        let particles = rows.size()[0];
        for (column, gradient) in self.columns.iter().zip(gradients) {
            // The gradient of a parameter that the loss does not depend on comes back undefined and counts as zero.
            if gradient.defined() {
                let mut target = rows.narrow(1, column.start, column.count());
                let _ = target.g_add_(&gradient.to_kind(rows.kind()).reshape([particles, -1]));
            }
        }
    }
}

impl Trained for Layout {
    fn names(&self) -> Vec<&str> {
        self.columns.iter().map(|column| column.name.as_str()).collect()
    }
}

/// The name of the weight of a trained head.
pub const HEAD_WEIGHT: &str = "head.weight";

/// The name of its bias.
pub const HEAD_BIAS: &str = "head.bias";

/// Returns uniform draws from ±bound, a pure function of (seed, particle, column).
pub fn uniform(seed: u64, particle: u64, column: u64, count: usize, bound: f64) -> Vec<f32> {
    let mut rng = stream(seed, Purpose::Init, &[particle, column]);
    (0..count).map(|_| rng.random_range(-bound..bound) as f32).collect()
}

/// Returns the start of a new linear head, drawn as in `torch.nn.Linear`: U(±1/√d).
pub fn initial_head(seed: u64, particle: u64, head: &Head) -> Tensor {
    let bound = 1.0 / (head.weight.size()[1] as f64).sqrt();
    let values = uniform(seed, particle, u64::MAX, head.weight.numel() + head.bias.numel(), bound);
    Tensor::from_slice(&values)
}

/// Appends the columns and the block of a head that particles train.
pub fn push_head(layout: &mut Layout, head: &Head) {
    let start = layout.parameters();
    layout.push_linear(HEAD_WEIGHT, [head.weight.size()[0], head.weight.size()[1]]);
    layout.push(HEAD_BIAS, &head.bias.size());
    layout.close_block("head", start, Shape::Dense);
}

/// Returns the weight and the bias of a head as they follow each other in the columns.
pub fn flat_head(head: &Head) -> Tensor {
    Tensor::cat(&[head.weight.reshape([-1]), head.bias.reshape([-1])], 0)
}
