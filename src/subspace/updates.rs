//! Updates ΔW of particles: averaged in weight space, ΔW = Σ_j c_j ΔW_j, because the mean of the products B A is not the product
//! of the means, and low-rank ones written in the singular vectors of their factor B.

use anyhow::{Result, ensure};
use tch::{Kind, Tensor};

use super::{Combined, Layout, Shape, Subspace};
use crate::schema::words;

/// Particles whose updates ΔW = s B A are the same, with B = U D and A = Vᵀ A₀ for the B₀ = U D Vᵀ that they had.
pub struct Spectral {
    /// The particles, `[n, P]`.
    pub theta: Tensor,
    /// The singular value d_i of its row i for every entry of a factor A; 0 in all other columns. `[n, P]`
    pub singular_values: Tensor,
    /// 1 for the entries of a factor A, 0 in all other columns, `[P]`.
    pub is_a: Tensor,
}

/// Writes the low-rank updates of particles `theta: [n, P]` in the singular vectors of B. Dense columns stay.
pub fn spectral(layout: &Layout, theta: &Tensor) -> Spectral {
    let particles = theta.size()[0];
    let turned = theta.copy();
    let (singular_values, is_a) = (theta.zeros_like(), theta.get(0).zeros_like());
    for block in &layout.blocks {
        let Shape::LowRank { rank, inputs, outputs, .. } = block.shape else { continue };
        let (start, a_length, b_length) = (block.columns.start, rank * inputs, outputs * rank);
        let a_of = |tensor: &Tensor| tensor.narrow(1, start, a_length);
        let b_of = |tensor: &Tensor| tensor.narrow(1, start + a_length, b_length);
        let a = a_of(theta).to_kind(Kind::Double).reshape([particles, rank, inputs]);
        let b = b_of(theta).to_kind(Kind::Double).reshape([particles, outputs, rank]);
        // Bᵀ B = V D² Vᵀ. V is orthogonal however small the singular values are, so the product stays.
        let (_, v) = b.transpose(1, 2).matmul(&b).linalg_eigh("L");
        let b = b.matmul(&v);
        let d = b.norm_scalaropt_dim(2.0, [1], false);
        a_of(&turned).copy_(&v.transpose(1, 2).matmul(&a).reshape([particles, -1]));
        b_of(&turned).copy_(&b.reshape([particles, -1]));
        a_of(&singular_values).copy_(&d.unsqueeze(2).expand([-1, -1, inputs], false).reshape([particles, -1]));
        let _ = is_a.narrow(0, start, a_length).fill_(1.0);
    }
    Spectral { theta: turned, singular_values, is_a }
}

words! {
    /// The quantity that is averaged.
    pub enum Space {
        /// The updates ΔW. The average is exact and has rank n·r for low-rank particles.
        Weights = "weights",
        /// The columns of theta, factor by factor. This keeps the rank but does not average the models.
        Factors = "factors",
    }
}

/// Returns the mean of all particles as one particle, with the weights of the particles (with the sum 1; `None` if all weigh
/// the same). A mean in factors stays in the same subspace.
pub fn mean(subspace: &dyn Subspace, theta: &Tensor, weights: Option<&[f64]>, space: Space) -> Result<Combined> {
    let particles = theta.size()[0];
    let coefficients = match weights {
        None => Tensor::full([1, particles], 1.0 / particles as f64, (Kind::Float, theta.device())),
        Some(weights) => Tensor::from_slice(weights).view([1, -1]).to_kind(Kind::Float).to_device(theta.device()),
    };
    match space {
        Space::Weights => subspace.combine(theta, &coefficients),
        Space::Factors => Ok(Combined { subspace: subspace.again(), theta: coefficients.matmul(theta) }),
    }
}

/// Returns the points Σ_j c_j θ_j, `[k, P]`, of particles `theta: [n, P]` whose updates are relative to `origin: [P]`.
///
/// # Errors
/// Fails if the coefficients are not `[k, n]`.
pub(super) fn around(origin: &Tensor, theta: &Tensor, coefficients: &Tensor) -> Result<Tensor> {
    check(theta, coefficients)?;
    let origin = origin.to_device(theta.device());
    Ok(coefficients.matmul(&(theta - &origin)) + origin)
}

/// Checks that the coefficients are `[k, n]` for `theta: [n, P]`.
pub(super) fn check(theta: &Tensor, coefficients: &Tensor) -> Result<()> {
    let (theta, coefficients) = (theta.size(), coefficients.size());
    let fits = coefficients.len() == 2 && coefficients[1] == theta[0];
    ensure!(fits, "coefficients {coefficients:?} for particles {theta:?}: they must be [points, particles]");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_stay_and_b_gets_orthogonal_columns_of_the_singular_lengths() {
        tch::manual_seed(4);
        let (rank, inputs, outputs) = (3, 5, 4);
        let mut layout = Layout::default();
        layout.push("w.a", &[rank, inputs]);
        layout.push("w.b", &[outputs, rank]);
        layout.close_block("w", 0, Shape::LowRank { rank, inputs, outputs, scale: 2.0 });
        layout.push("head", &[2]);
        layout.close_block("head", rank * (inputs + outputs), Shape::Dense);
        let theta = Tensor::randn([2, layout.parameters()], tch::kind::DOUBLE_CPU);
        let factors = |theta: &Tensor| {
            let a = theta.narrow(1, 0, rank * inputs).reshape([2, rank, inputs]);
            (a, theta.narrow(1, rank * inputs, outputs * rank).reshape([2, outputs, rank]))
        };
        let near = |a: &Tensor, b: &Tensor| assert!((a - b).abs().max().double_value(&[]) < 1e-12, "{a} {b}");
        let found = spectral(&layout, &theta);
        let ((a, b), (before_a, before_b)) = (factors(&found.theta), factors(&theta));
        near(&b.matmul(&a), &before_b.matmul(&before_a));
        let (_, values, _) = before_b.svd(true, true);
        let d = factors(&found.singular_values).0.select(2, 1).flip([1]);
        near(&d, &values);
        near(&b.transpose(1, 2).matmul(&b), &Tensor::diag_embed(&d.flip([1]).square(), 0, -2, -1));
        near(&found.theta.narrow(1, 27, 2), &theta.narrow(1, 27, 2));
        assert_eq!(found.singular_values.narrow(1, 15, 14).abs().max().double_value(&[]), 0.0);
        assert_eq!(found.is_a.sum(Kind::Double).double_value(&[]), 15.0);
    }
}
