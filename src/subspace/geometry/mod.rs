//! The columns as weights: distances between particles in weight space, and their gradients, for all blocks of a layout at
//! once; and the weights that the inputs of layers meet.
//!
//! For a low-rank block, D_ij = ‖s B_i A_i − s B_j A_j‖²_F is computed from r × r Gram blocks in O(n² r² (in + out)),
//! without forming B A (Bella, appendix G). For dense columns it is computed from direct differences.

mod factors;

use std::cell::OnceCell;
use std::ops::Range;

use tch::{Kind, Tensor};

pub use self::factors::without_rounding;
use self::factors::{Factors, Grams};
use super::{Block, Column, HEAD_WEIGHT, Layout, Shape};

/// The largest number of entries of theta that are computed at once. With many particles the blocks are computed in
/// turns, so that their f64 copies stay in the cache and in memory that the allocator reuses.
const AT_ONCE: i64 = 1 << 21;

/// Computes pairwise squared distances in weight space and their weighted gradients.
pub struct WeightSpace {
    groups: Vec<Group>,
    blocks: i64,
    inputs: Vec<Inputs>,
    head: Option<Inputs>,
    tensors: Vec<Range<i64>>,
}

/// A weight `[outputs, inputs]`, in the columns of theta from `start` on, that the inputs of a linear layer meet first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inputs {
    pub start: i64,
    pub outputs: i64,
    pub inputs: i64,
    /// The number that is added to the columns to give the weight; see [`Column::plus`].
    pub plus: i64,
}

/// The factors of a low-rank update, in the columns of theta from `start` on: A `[rank, inputs]`, then B `[outputs, rank]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Update {
    pub start: i64,
    pub rank: i64,
    pub inputs: i64,
    pub outputs: i64,
}

impl Update {
    /// Returns the factors A of rows of theta, `[k, rank, inputs]`, which share their memory.
    pub fn a(&self, theta: &Tensor) -> Tensor {
        theta.narrow(1, self.start, self.rank * self.inputs).unflatten(1, [self.rank, self.inputs].as_slice())
    }

    /// Returns the factors B of rows of theta, `[k, outputs, rank]`, which share their memory.
    pub fn b(&self, theta: &Tensor) -> Tensor {
        let start = self.start + self.rank * self.inputs;
        theta.narrow(1, start, self.outputs * self.rank).unflatten(1, [self.outputs, self.rank].as_slice())
    }
}

/// Squared distances, and the products behind them, which their gradients need again.
pub struct Pairs {
    /// D: `[L, n, n]` in f64; symmetric, non-negative, with a zero diagonal.
    pub distances: Tensor,
    /// The Gram matrices of each turn of each low-rank group, in the type of theta.
    grams: Vec<Grams>,
}

/// Blocks of one shape that are computed together: evenly spaced low-rank blocks, or one block of dense columns.
struct Group {
    shape: Shape,
    /// The index of each block in the layout.
    members: Vec<i64>,
    /// The first column of each block; all have `length` columns.
    starts: Vec<i64>,
    length: i64,
    /// The indices in `members` on the device of the first theta. Uploading them in each step would wait for the
    /// device.
    indices: OnceCell<Tensor>,
}

impl WeightSpace {
    pub fn new(layout: &Layout) -> WeightSpace {
        let mut groups: Vec<Group> = Vec::new();
        for (index, Block { columns, shape, .. }) in layout.blocks.iter().enumerate() {
            let (index, start, length) = (index as i64, columns.start, columns.end - columns.start);
            let joins =
                |group: &&mut Group| group.shape == *shape && group.length == length && group.continues_at(start);
            match groups.iter_mut().find(joins) {
                Some(group) => {
                    group.members.push(index);
                    group.starts.push(start);
                }
                None => groups.push(Group {
                    shape: shape.clone(),
                    members: vec![index],
                    starts: vec![start],
                    length,
                    indices: OnceCell::new(),
                }),
            }
        }
        let of = |column: &Column| match column.shape[..] {
            [outputs, inputs] if column.takes_inputs => {
                Some(Inputs { start: column.start, outputs, inputs, plus: column.plus })
            }
            _ => None,
        };
        let inputs = layout.columns.iter().filter_map(of).collect();
        let head = layout.columns.iter().find(|column| column.name == HEAD_WEIGHT).and_then(of);
        let tensors = layout.columns.iter().map(|column| column.start..column.start + column.count()).collect();
        WeightSpace { groups, blocks: layout.blocks.len() as i64, inputs, head, tensors }
    }

    /// Returns the weight of a trained head `[C, d]`, whose bias `[C]` follows in the columns; `None` if the head is frozen.
    pub fn head(&self) -> Option<Inputs> {
        self.head
    }

    /// Returns the weights that the inputs of linear layers meet first.
    pub fn inputs(&self) -> &[Inputs] {
        &self.inputs
    }

    /// Returns the columns of each parameter, of which a low-rank block has two.
    pub fn tensors(&self) -> &[Range<i64>] {
        &self.tensors
    }

    /// Returns the number of blocks L.
    pub fn blocks(&self) -> i64 {
        self.blocks
    }

    /// Returns the first column and the length of each block.
    pub fn block_columns(&self) -> Vec<(i64, i64)> {
        let mut columns = vec![(0, 0); self.blocks as usize];
        for group in &self.groups {
            for (index, start) in group.members.iter().zip(&group.starts) {
                columns[*index as usize] = (*start, group.length);
            }
        }
        columns
    }

    /// Returns the factors of each low-rank update.
    pub fn updates(&self) -> Vec<Update> {
        self.groups.iter().flat_map(Group::updates).collect()
    }

    /// Returns the bytes that the pairs of n particles take at once in a step that computes them in f64, weighs them by a kernel,
    /// and adds their gradients; none for one particle.
    pub fn bytes_of_pairs(&self, particles: i64) -> u64 {
        /// The tensors `[L, n, n]` in f64 that a kernel and its slopes make on their way.
        const OF_A_KERNEL: u64 = 12;
        let float = Kind::Float.elt_size_in_bytes() as u64;
        let of_group = |group: &Group| match group.factor_shape() {
            Some(shape) => shape.bytes_of_pairs((group.turn(particles) as i64, group.starts.len() as i64), particles),
            // The columns in f64; then the columns without their mean, and the product, in the type of theta.
            None => (0, 3 * float * (particles * group.length) as u64),
        };
        if particles < 2 {
            return 0;
        }
        let (kept, passing) =
            self.groups.iter().map(of_group).fold((0, 0), |(kept, most), (k, p)| (kept + k, most.max(p)));
        let kernel = OF_A_KERNEL * 2 * float * (self.blocks * particles * particles) as u64;
        kept + passing + kernel
    }

    /// Returns D, `[L, n, n]` in f64, for `theta: [n, P]`.
    pub fn distances(&self, theta: &Tensor) -> Tensor {
        self.pairs(theta).distances
    }

    /// Returns the distances for `theta: [n, P]` and the products that their gradients need.
    pub fn pairs(&self, theta: &Tensor) -> Pairs {
        let particles = theta.size()[0];
        let mut all = Tensor::zeros([self.blocks, particles, particles], (Kind::Double, theta.device()));
        let mut grams = Vec::new();
        for group in &self.groups {
            let distances = match group.factor_shape() {
                Some(shape) => {
                    let turns = group.turns(particles).map(|starts| {
                        let (distances, products) = factors::distances(theta, shape, starts);
                        grams.push(products);
                        distances
                    });
                    Tensor::cat(&turns.collect::<Vec<_>>(), 0)
                }
                None => squared_distances(&group.dense(theta)).unsqueeze(0),
            };
            let _ = all.index_copy_(0, group.indices(theta.device()), &distances);
        }
        Pairs { distances: all, grams }
    }

    /// Adds Σ_j c_ij ∇_i D_ij to `sum: [n, P]` in the type of theta, for coefficients `c: [L, n, n]` (f64) and the
    /// `pairs` of the same theta. Returns the norm of the added gradients, `[]` in f64.
    pub fn add_weighted_gradients(&self, theta: &Tensor, coefficients: &Tensor, pairs: &Pairs, sum: &Tensor) -> Tensor {
        let mut grams = pairs.grams.iter();
        let mut norms = Vec::new();
        for group in &self.groups {
            let c = coefficients.index_select(0, group.indices(theta.device())) * 2.0;
            // The matrix has the row sums on its diagonal, minus c: Σ_j c_ij (x_i − x_j) = (C' X)_i.
            let centred =
                Tensor::diag_embed(&c.sum_dim_intlist([-1i64].as_slice(), false, Kind::Double), 0, -2, -1) - c;
            let Some(shape) = group.factor_shape() else {
                norms.push(group.add_dense_gradients(theta, &centred, sum));
                continue;
            };
            let centred = (centred * (shape.scale * shape.scale)).to_kind(theta.kind());
            let mut done = 0;
            for (starts, grams) in group.turns(theta.size()[0]).zip(&mut grams) {
                let (factors, blocks) = (Factors::new(theta, shape, starts, theta.kind()), starts.len() as i64);
                norms.extend(factors.add_gradients(&centred.narrow(0, done, blocks), grams, starts, sum));
                done += blocks;
            }
        }
        Tensor::stack(&norms, 0).to_kind(Kind::Double).norm()
    }
}

impl Group {
    /// Returns whether a block of the same shape and length that begins at this column can join this group.
    fn continues_at(&self, start: i64) -> bool {
        match self.starts[..] {
            _ if self.shape == Shape::Dense => false,
            [.., before, last] => start - last == last - before,
            _ => true,
        }
    }

    /// Returns the factors of each block; none for dense columns.
    fn updates(&self) -> Vec<Update> {
        let Some(factors::Shape { rank, inputs, outputs, .. }) = self.factor_shape() else { return Vec::new() };
        self.starts.iter().map(|start| Update { start: *start, rank, inputs, outputs }).collect()
    }

    fn indices(&self, device: tch::Device) -> &Tensor {
        self.indices.get_or_init(|| Tensor::from_slice(&self.members).to_device(device))
    }

    /// Returns the shape of the factors; `None` for dense columns.
    fn factor_shape(&self) -> Option<factors::Shape> {
        match self.shape {
            Shape::LowRank { rank, inputs, outputs, scale } => Some(factors::Shape { rank, inputs, outputs, scale }),
            Shape::Dense => None,
        }
    }

    fn dense(&self, theta: &Tensor) -> Tensor {
        theta.narrow(1, self.starts[0], self.length)
    }

    /// Returns the first columns of the blocks in each turn.
    fn turns(&self, particles: i64) -> impl Iterator<Item = &[i64]> {
        self.starts.chunks(self.turn(particles))
    }

    /// Returns the largest number of blocks in a turn.
    fn turn(&self, particles: i64) -> usize {
        ((AT_ONCE / (particles * self.length)).max(1) as usize).min(self.starts.len())
    }

    fn add_dense_gradients(&self, theta: &Tensor, centred: &Tensor, sum: &Tensor) -> Tensor {
        let x = self.dense(theta);
        // The rows of c' sum to 0, so a common offset drops out. Subtracting it first also avoids rounding error.
        let x = &x - x.mean_dim([0i64].as_slice(), true, x.kind());
        let product = centred.squeeze_dim(0).to_kind(theta.kind()).matmul(&x);
        let _ = self.dense(sum).g_add_(&product);
        product.norm()
    }
}

/// Returns the squared distances of all pairs of rows of a matrix `[n, K]`, `[n, n]` in f64.
pub fn squared_distances(rows: &Tensor) -> Tensor {
    /// Makes `cdist` use direct differences, since a product would cancel.
    const WITHOUT_PRODUCT: i64 = 2;
    let rows = rows.to_kind(Kind::Double);
    Tensor::cdist(&rows, &rows, 2.0, WITHOUT_PRODUCT).square()
}

#[cfg(test)]
mod tests;
