//! The stacked factors of low-rank blocks, their Gram matrices, and what is computed from these without forming B A.
//!
//! Rows are ordered by direction a first and particle i second. In a Gram matrix viewed as `[r, n, r, n]`, all
//! particles of a pair of directions are then adjacent.

use tch::{Device, Kind, Tensor};

use crate::machine::workers::products;

/// The number of rows of a Gram matrix from which it pays to compute only one of its two equal triangles.
const LARGE: i64 = 128;

/// The number of row blocks in which the triangle is computed. This takes (PARTS + 1) / (2 PARTS) of the products of
/// the whole matrix.
const PARTS: i64 = 4;

/// The share of ‖W_i‖² + ‖W_j‖² below which a squared distance in f32 has lost too many digits.
const NEAR: f64 = 0.1;

/// The share of ‖W_i‖ by which rounding may move a product of factors in f32. Particles may hold one product by different factors, as they
/// do at the start of PiSSA.
const ROUNDING: f64 = 1e-6;

/// Returns squared distances `[L, n, n]` in f64 with 0 for rows that are equal up to an error of `share` of the longer one's length, given
/// the squared lengths `[L, n]`. What lies between such rows is rounding: a bandwidth by the median rule would shrink to it, and the
/// repulsion along it would outweigh everything.
pub fn without_rounding(distances: &Tensor, squared_lengths: &Tensor, share: f64) -> Tensor {
    let longer = squared_lengths.unsqueeze(-1).maximum(&squared_lengths.unsqueeze(-2));
    distances.masked_fill(&distances.le_tensor(&(longer * share.powi(2))), 0.0)
}

/// Returns the squared distances in weight space `[G, n, n]` of blocks of `theta: [n, P]` in f64, and the Gram matrices
/// behind them in the type of theta.
///
/// Products are computed in f64 because they may cancel. Processors are half as fast in f64 as in f32, so f32 is tried
/// first where the result can be checked without waiting for a device. It suffices where no two particles are near.
pub fn distances(theta: &Tensor, shape: Shape, starts: &[i64]) -> (Tensor, Grams) {
    let particles = theta.size()[0];
    if theta.kind() == Kind::Float && theta.device() == Device::Cpu {
        let grams = Factors::new(theta, shape, starts, Kind::Float).grams();
        let Distances { squared, near } = grams.distances(particles, shape);
        if near.any().int64_value(&[]) == 0 {
            return (squared, grams);
        }
    }
    let grams = Factors::new(theta, shape, starts, Kind::Double).grams();
    (grams.distances(particles, shape).squared, grams.to_kind(theta.kind()))
}

struct Distances {
    squared: Tensor,
    /// The pairs whose squared distance is small compared with the norms that it is the difference of.
    near: Tensor,
}

/// The shape of low-rank blocks.
#[derive(Clone, Copy)]
pub struct Shape {
    pub rank: i64,
    pub inputs: i64,
    pub outputs: i64,
    pub scale: f64,
}

impl Shape {
    /// Returns the bytes of the pairs of n particles in a group of blocks: what is kept of all blocks until their gradients are
    /// added, and what a turn makes and drops.
    pub fn bytes_of_pairs(self, (turn, blocks): (i64, i64), particles: i64) -> (u64, u64) {
        let (float, double) = (Kind::Float.elt_size_in_bytes() as u64, Kind::Double.elt_size_in_bytes() as u64);
        let rows = self.rank * particles;
        let (gram, factors) = ((rows * rows) as u64, (rows * (self.inputs + self.outputs)) as u64);
        // Two Gram matrices in the type of theta. In a turn: the factors, two Gram matrices and their product in f64.
        (2 * float * gram * blocks as u64, (3 * gram + factors) * double * turn as u64)
    }
}

/// The factors of G blocks of n particles: A `[G, r·n, in]`, Bᵀ `[G, r·n, out]`.
pub struct Factors {
    shape: Shape,
    particles: i64,
    a: Tensor,
    b: Tensor,
}

impl Factors {
    /// Copies the blocks of `theta: [n, P]` that begin at these columns into `kind`.
    pub fn new(theta: &Tensor, shape: Shape, starts: &[i64], kind: Kind) -> Factors {
        let Shape { rank, inputs, outputs, .. } = shape;
        let (blocks, particles) = (starts.len() as i64, theta.size()[0]);
        let copy = |rows: Tensor, width: i64| {
            let mut copy = Tensor::empty(rows.size(), (kind, theta.device()));
            copy.copy_(&rows);
            copy.view([blocks, rank * particles, width])
        };
        let [a, b] = rows(theta, shape, starts);
        Factors { shape, particles, a: copy(a, inputs), b: copy(b, outputs) }
    }

    fn grams(&self) -> Grams {
        Grams { a: gram(&self.a), b: gram(&self.b) }
    }

    /// Adds the gradients Σ_j c'_ij ∇ D_ij of these factors to their columns of `sum: [n, P]`, for c' `[G, n, n]` whose
    /// rows sum to 0: ∇_{A_i} = Σ_j c'_ij (B_iᵀ B_j) A_j and ∇_{B_i}ᵀ = Σ_j c'_ij (A_i A_jᵀ) B_jᵀ. Returns the norms of
    /// the added gradients.
    pub fn add_gradients(&self, centred: &Tensor, grams: &Grams, starts: &[i64], sum: &Tensor) -> [Tensor; 2] {
        let Factors { shape: Shape { rank, .. }, particles, .. } = *self;
        let blocks = starts.len() as i64;
        let mix = |gram: &Tensor| {
            let by_direction = gram.view([blocks, rank, particles, rank, particles]);
            (by_direction * centred.view([blocks, 1, particles, 1, particles])).view_as(gram)
        };
        let by_a = products(&mix(&grams.b), &self.a);
        let by_b = products(&mix(&grams.a), &self.b);
        for (mut sum, gradient) in rows(sum, self.shape, starts).into_iter().zip([&by_a, &by_b]) {
            let _ = sum.g_add_(&gradient.view(sum.size().as_slice()));
        }
        [by_a.norm(), by_b.norm()]
    }
}

/// Returns views A `[G, r, n, in]` and Bᵀ `[G, r, n, out]` of the blocks of `theta: [n, P]` that begin at these evenly
/// spaced columns.
fn rows(theta: &Tensor, Shape { rank, inputs, outputs, .. }: Shape, starts: &[i64]) -> [Tensor; 2] {
    let (blocks, particles) = (starts.len() as i64, theta.size()[0]);
    let [of_particle, of_column] = theta.stride()[..] else { unreachable!("theta is [n, P]") };
    let of_block = starts.get(1).map_or(0, |next| next - starts[0]) * of_column;
    let view = |start: i64, width: i64, of_direction: i64, of_row: i64| {
        let strides = [of_block, of_direction * of_column, of_particle, of_row * of_column];
        theta.narrow(1, start, width * rank).as_strided([blocks, rank, particles, width], strides, None)
    };
    let a = view(starts[0], inputs, inputs, 1);
    let b = view(starts[0] + rank * inputs, outputs, 1, rank);
    [a, b]
}

/// Returns X Xᵀ for `x: [G, m, K]`.
fn gram(x: &Tensor) -> Tensor {
    let [blocks, rows, _] = x.size()[..] else { unreachable!("factors are [G, m, K]") };
    if rows < LARGE {
        return products(x, &x.transpose(1, 2));
    }
    let gram = Tensor::empty([blocks, rows, rows], (x.kind(), x.device()));
    for part in 0..PARTS {
        let (start, end) = (rows * part / PARTS, rows * (part + 1) / PARTS);
        let below = products(&x.narrow(1, start, end - start), &x.narrow(1, 0, end).transpose(1, 2));
        gram.narrow(1, start, end - start).narrow(2, 0, end).copy_(&below);
        gram.narrow(1, 0, start).narrow(2, start, end - start).copy_(&below.narrow(2, 0, start).transpose(1, 2));
    }
    gram
}

/// The Gram matrices of A and of Bᵀ, `[G, r·n, r·n]`.
pub struct Grams {
    a: Tensor,
    b: Tensor,
}

impl Grams {
    fn to_kind(&self, kind: Kind) -> Grams {
        Grams { a: self.a.to_kind(kind), b: self.b.to_kind(kind) }
    }

    /// Returns D_ij = s² (⟨i,i⟩ + ⟨j,j⟩ − 2 ⟨i,j⟩), `[G, n, n]` in f64, with ⟨i,j⟩ = tr((B_iᵀ B_j)(A_j A_iᵀ)). Negative
    /// values from cancellation become 0, and so do distances of products that differ by the rounding of their factors alone.
    fn distances(&self, n: i64, Shape { rank, scale, .. }: Shape) -> Distances {
        let products = (&self.a * &self.b).view([-1, rank, n, rank, n]);
        let inner = products.sum_dim_intlist([1i64, 3].as_slice(), false, Kind::Double);
        let own = inner.diagonal(0, 1, 2);
        let lengths = own.unsqueeze(2) + own.unsqueeze(1);
        let apart = (&lengths - inner * 2.0).clamp_min(0.0);
        let apart = without_rounding(&apart, &own, ROUNDING);
        let eye = Tensor::eye(n, (Kind::Bool, self.a.device()));
        let near = apart.lt_tensor(&(lengths * NEAR)).logical_and(&eye.logical_not());
        Distances { squared: (apart * (scale * scale)).masked_fill(&eye, 0.0), near }
    }
}
