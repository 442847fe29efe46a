//! Low-rank updates of a linear layer, one a particle, and zero terms beside them whose gradients are those of all
//! particles, mixed in weight space.

use tch::Tensor;

/// ΔW_i = scale · B_i A_i.
#[derive(Debug)]
pub struct LowRank {
    /// `[n, rank, in]`.
    pub a: Tensor,
    /// `[n, out, rank]`.
    pub b: Tensor,
    /// alpha / rank.
    pub scale: f64,
}

impl LowRank {
    /// `y + scale · (x Aᵀ) Bᵀ` for `x: [p, M, in]`, `y: [p, M, out]`.
    pub(super) fn add_to(&self, y: Tensor, x: &Tensor) -> Tensor {
        let (particles, rank, inputs) = (self.a.size()[0], self.a.size()[1], self.a.size()[2]);
        let b = self.b.transpose(1, 2) * self.scale;
        if x.size()[0] == particles {
            let low = x.bmm(&self.a.transpose(1, 2));
            // Not in place: `y` is a view of the frozen product, and autograd would copy it three times on the way back.
            return y.baddbmm(&low, &b, 1.0, 1.0);
        }
        // One product with all particles' A at once: x is read once, not n times.
        let rows = x.size()[1];
        let low = x.squeeze_dim(0).matmul(&self.a.reshape([particles * rank, inputs]).tr());
        let low = low.view([rows, particles, rank]).transpose(0, 1);
        y.expand([particles, -1, -1], false).baddbmm(&low, &b, 1.0, 1.0)
    }

    /// The same update, sharing its tensors.
    pub(super) fn again(&self) -> LowRank {
        LowRank { a: self.a.shallow_clone(), b: self.b.shallow_clone(), scale: self.scale }
    }

    /// Output rows `start..start + length` of the update.
    pub(super) fn rows(&self, start: i64, length: i64) -> LowRank {
        LowRank { a: self.a.shallow_clone(), b: self.b.narrow(1, start, length), scale: self.scale }
    }
}

/// Zero terms Σ_i c_ij (x_j A_iᵀ) E_iᵀ and Σ_i c_ij (x_j F_iᵀ) B_iᵀ in the output of particle j, with E = F = 0.
///
/// With G_j = ∂L_j/∂W_j, the gradients of Σ_j L_j are Σ_j c_ij G_j A_iᵀ for E_i and Σ_j c_ij B_iᵀ G_j for F_i: mixed over
/// particles, in the factors of particle i, without any G_j ever being formed.
#[derive(Debug)]
pub struct Probe {
    /// A_i of all n particles, one below the other: `[n·rank, in]`.
    pub a: Tensor,
    /// B_iᵀ of all n particles: `[n·rank, out]`.
    pub b: Tensor,
    /// E_iᵀ: zeros `[n·rank, out]`, a leaf.
    pub e: Tensor,
    /// F_i: zeros `[n·rank, in]`, a leaf.
    pub f: Tensor,
    /// c_ij, once a rank, for the k particles j of this forward: `[k, n·rank]`.
    pub shares: Tensor,
}

impl Probe {
    /// `y` with the zero terms, for `x: [p, M, in]`, `y: [k, M, out]`.
    pub(super) fn add_to(&self, y: &Tensor, x: &Tensor) -> Tensor {
        // The terms are zero whatever x is: no gradient flows into x, and none is computed.
        let x = x.detach();
        let (particles, rows, outputs) = (y.size()[0], y.size()[1], y.size()[2]);
        let shares = self.shares.unsqueeze(1);
        let flat = |hidden: Tensor| (hidden * &shares).view([particles * rows, -1]);
        // Two products, not one of joined factors: neither then has a second gradient to compute.
        let y = y.reshape([particles * rows, outputs]).addmm(&flat(x.matmul(&self.a.tr())), &self.e);
        let y = y.addmm(&flat(x.matmul(&self.f.tr())), &self.b);
        y.view([particles, rows, outputs])
    }

    /// The same terms, sharing their tensors.
    pub(super) fn again(&self) -> Probe {
        self.rows(0, self.b.size()[1])
    }

    /// The terms of output rows `start..start + length`.
    pub(super) fn rows(&self, start: i64, length: i64) -> Probe {
        Probe {
            a: self.a.shallow_clone(),
            b: self.b.narrow(1, start, length),
            e: self.e.narrow(1, start, length),
            f: self.f.shallow_clone(),
            shares: self.shares.shallow_clone(),
        }
    }
}
