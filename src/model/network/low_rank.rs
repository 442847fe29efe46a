//! Low-rank updates of a linear layer, one per particle.

use tch::Tensor;

/// The updates ΔW_i = scale · B_i A_i.
#[derive(Debug)]
pub struct LowRank {
    /// The matrices A, `[n, rank, in]`.
    pub a: Tensor,
    /// The matrices B, `[n, out, rank]`.
    pub b: Tensor,
    /// The factor alpha / rank.
    pub scale: f64,
}

impl LowRank {
    /// Returns `y + scale · (x Aᵀ) Bᵀ` for `x: [p, M, in]`, `y: [p, M, out]`.
    pub(super) fn add_to(&self, y: Tensor, x: &Tensor) -> Tensor {
        let (particles, rank, inputs) = (self.a.size()[0], self.a.size()[1], self.a.size()[2]);
        let b = self.b.transpose(1, 2) * self.scale;
        if x.size()[0] == particles {
            let low = x.bmm(&self.a.transpose(1, 2));
            // Not in place: `y` is a view of the frozen product, and autograd would copy it three times in the backward
            // pass.
            return y.baddbmm(&low, &b, 1.0, 1.0);
        }
        // One product with the A of all particles reads x once instead of n times.
        let rows = x.size()[1];
        let low = x.squeeze_dim(0).matmul(&self.a.reshape([particles * rank, inputs]).tr());
        let low = low.view([rows, particles, rank]).transpose(0, 1);
        y.expand([particles, -1, -1], false).baddbmm(&low, &b, 1.0, 1.0)
    }

    /// Returns the number of particles, n.
    pub(super) fn particles(&self) -> i64 {
        self.a.size()[0]
    }

    /// Returns the update ΔW of one particle, `[out, in]`.
    pub(super) fn matrix(&self, particle: i64) -> Tensor {
        self.b.select(0, particle).matmul(&self.a.select(0, particle)) * self.scale
    }

    /// Returns the same update, sharing its tensors.
    pub(super) fn again(&self) -> LowRank {
        LowRank { a: self.a.shallow_clone(), b: self.b.shallow_clone(), scale: self.scale }
    }

    /// Returns output rows `start..start + length` of the update.
    pub(super) fn rows(&self, start: i64, length: i64) -> LowRank {
        LowRank { a: self.a.shallow_clone(), b: self.b.narrow(1, start, length), scale: self.scale }
    }
}
