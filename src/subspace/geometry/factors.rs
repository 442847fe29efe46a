//! Factors of low-rank blocks side by side, their Gram matrices, and what follows from those without forming B A.
//!
//! Rows go by direction a first and particle i second, so that in a Gram matrix seen as `[r, n, r, n]` all particles of a
//! pair of directions are neighbours.

use tch::{Device, Kind, Tensor};

/// Rows of a Gram matrix from which computing only one of its two equal triangles pays.
const LARGE: i64 = 128;

/// In so many rows of blocks the triangle is computed: (PARTS + 1) / (2 PARTS) of the whole matrix's products.
const PARTS: i64 = 4;

/// Share of ‖W_i‖² + ‖W_j‖² below which a squared distance has lost digits that f32 does not have.
const NEAR: f64 = 0.1;

/// Squared distances in weight space `[G, n, n]` of blocks of `theta: [n, P]` in f64, and the Gram matrices behind them in
/// theta's type.
///
/// Products are in f64, in which they may cancel. Processors are half as fast in f64 as in f32, so f32 is tried first where the
/// answer can be looked at without waiting for a device, and is enough where no two particles are near.
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
    /// Pairs whose distance is small against what it is the difference of.
    near: Tensor,
}

/// Blocks of one low-rank shape.
#[derive(Clone, Copy)]
pub struct Shape {
    pub rank: i64,
    pub inputs: i64,
    pub outputs: i64,
    pub scale: f64,
}

/// Factors of G blocks of n particles: A `[G, r·n, in]`, Bᵀ `[G, r·n, out]`.
pub struct Factors {
    shape: Shape,
    particles: i64,
    a: Tensor,
    b: Tensor,
}

impl Factors {
    /// From the blocks of `theta: [n, P]` that begin at these columns, copied once, into `kind`.
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

    /// Adds Σ_j c'_ij ∇ of these factors to their columns of `sum: [n, P]`, for c' `[G, n, n]` whose rows sum to 0:
    /// ∇_{A_i} = Σ_j c'_ij (B_iᵀ B_j) A_j and ∇_{B_i}ᵀ = Σ_j c'_ij (A_i A_jᵀ) B_jᵀ. What was added has the returned norms.
    pub fn add_gradients(&self, centred: &Tensor, grams: &Grams, starts: &[i64], sum: &Tensor) -> [Tensor; 2] {
        let Factors { shape: Shape { rank, .. }, particles, .. } = *self;
        let blocks = starts.len() as i64;
        let mix = |gram: &Tensor| {
            let by_direction = gram.view([blocks, rank, particles, rank, particles]);
            (by_direction * centred.view([blocks, 1, particles, 1, particles])).view_as(gram)
        };
        let by_a = mix(&grams.b).bmm(&self.a);
        let by_b = mix(&grams.a).bmm(&self.b);
        for (mut sum, gradient) in rows(sum, self.shape, starts).into_iter().zip([&by_a, &by_b]) {
            let _ = sum.g_add_(&gradient.view(sum.size().as_slice()));
        }
        [by_a.norm(), by_b.norm()]
    }
}

/// A `[G, r, n, in]` and Bᵀ `[G, r, n, out]` of the blocks of `theta: [n, P]` that begin at these evenly spaced columns: views.
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

/// X Xᵀ of `x: [G, m, K]`.
fn gram(x: &Tensor) -> Tensor {
    let [blocks, rows, _] = x.size()[..] else { unreachable!("factors are [G, m, K]") };
    if rows < LARGE {
        return x.bmm(&x.transpose(1, 2));
    }
    let gram = Tensor::empty([blocks, rows, rows], (x.kind(), x.device()));
    for part in 0..PARTS {
        let (start, end) = (rows * part / PARTS, rows * (part + 1) / PARTS);
        let below = x.narrow(1, start, end - start).bmm(&x.narrow(1, 0, end).transpose(1, 2));
        gram.narrow(1, start, end - start).narrow(2, 0, end).copy_(&below);
        gram.narrow(1, 0, start).narrow(2, start, end - start).copy_(&below.narrow(2, 0, start).transpose(1, 2));
    }
    gram
}

/// Gram matrices of A and of Bᵀ, `[G, r·n, r·n]`.
pub struct Grams {
    a: Tensor,
    b: Tensor,
}

impl Grams {
    fn to_kind(&self, kind: Kind) -> Grams {
        Grams { a: self.a.to_kind(kind), b: self.b.to_kind(kind) }
    }

    /// `[G, n, n]` in f64: D_ij = s² (⟨i,i⟩ + ⟨j,j⟩ − 2 ⟨i,j⟩), ⟨i,j⟩ = tr((B_iᵀ B_j)(A_j A_iᵀ)); cancellation clamped at 0.
    fn distances(&self, n: i64, Shape { rank, scale, .. }: Shape) -> Distances {
        let products = (&self.a * &self.b).view([-1, rank, n, rank, n]);
        let inner = products.sum_dim_intlist([1i64, 3].as_slice(), false, Kind::Double);
        let own = inner.diagonal(0, 1, 2);
        let lengths = own.unsqueeze(2) + own.unsqueeze(1);
        let apart = (&lengths - inner * 2.0).clamp_min(0.0);
        let eye = Tensor::eye(n, (Kind::Bool, self.a.device()));
        let near = apart.lt_tensor(&(lengths * NEAR)).logical_and(&eye.logical_not());
        Distances { squared: (apart * (scale * scale)).masked_fill(&eye, 0.0), near }
    }
}
