//! The covariance V = J P⁻¹ Jᵀ of the linearised logits of every image, `[B, C, C]`, with P = H + τ. The expensive part
//! does not depend on τ.

use anyhow::Result;
use tch::{Kind, Tensor};

use super::pass::{Map, Maps, Pass, Role, Source};
use crate::posterior::curvature::{Curvature, Pair};

/// The Jacobian of a batch in the eigenbasis of H, in one part per map, or one part for all maps.
pub struct Projected {
    parts: Vec<Part>,
}

enum Part {
    /// A part with V = Σ_m c_m c_mᵀ / (λ_m + τ) + rest / τ.
    General {
        /// The coordinates c, `[B, C, M]`.
        coordinates: Tensor,
        /// The eigenvalues λ, `[M]`.
        values: Tensor,
        /// The sum over directions without curvature, `[B, C, C]`, or `None` if every direction has curvature.
        rest: Option<Tensor>,
    },
    /// A last layer. Its Jacobian I ⊗ φᵀ is never formed: V = Q diag_c(Σ_i u_i² / (λ_ci + τ) + rest / τ) Qᵀ.
    Head {
        /// The squares u² of u = Q_Xᵀ φ, `[B, k]`.
        squares: Tensor,
        /// The eigenvalues λ, `[C, k]`.
        values: Tensor,
        /// The basis Q, `[C, C]`.
        basis: Tensor,
        /// The energy outside the basis, ‖φ‖² − ‖u‖², `[B, 1]`.
        rest: Tensor,
    },
}

impl Projected {
    /// Projects the Jacobian. This takes one backward pass per class, except where only a last layer is fitted.
    pub fn new(curvature: &Curvature, maps: &Maps, pass: &Pass) -> Result<Projected> {
        // The Jacobian of a last layer is never formed, except for `full` curvature.
        let jacobians = || pass.jacobians(|site| !matches!(site.source, Source::Logits));
        let parts = match curvature {
            Curvature::Full(factor) => {
                let flat: Vec<Tensor> = pass.jacobians(|_| true)?.iter().map(|j| j.flatten(2, 3)).collect();
                let jacobian = Tensor::cat(&flat, 2);
                let coordinates = jacobian.matmul(&factor.basis(jacobian.kind()));
                vec![Part::General { coordinates, values: factor.values.shallow_clone(), rest: None }]
            }
            Curvature::Diag(diagonal) => Part::of_diagonal(diagonal, maps, pass, &jacobians()?),
            Curvature::Kron(pairs) => {
                let jacobians = jacobians()?;
                let part = |(at, (map, pair)): (usize, (&Map, &Pair))| match map.role {
                    Role::Head | Role::HeadBias => Part::of_head(
                        &pass.sites[at].input,
                        Some(&pair.input.vectors),
                        pair.values(),
                        pair.gradient.vectors.shallow_clone(),
                    ),
                    _ => Part::of_pair(&jacobians[at], pair),
                };
                maps.maps.iter().zip(pairs).enumerate().map(part).collect()
            }
        };
        Ok(Projected { parts })
    }

    /// Returns V at prior precision τ, `[B, C, C]`, in f64.
    pub fn variance(&self, precision: f64) -> Result<Tensor> {
        let parts: Vec<Tensor> = self.parts.iter().map(|part| part.variance(precision)).collect();
        Ok(Tensor::stack(&parts, 0).f_sum_dim_intlist([0i64].as_slice(), false, Kind::Double)?)
    }
}

impl Part {
    /// Builds the part of a last layer from its features `input: [B, 1, d]`. `vectors: [d, k]` is the basis of
    /// `values: [C, k]`; without it, the values are in the basis of the features themselves.
    fn of_head(input: &Tensor, vectors: Option<&Tensor>, values: Tensor, basis: Tensor) -> Part {
        let features = input.squeeze_dim(1).to_kind(Kind::Double);
        let energy = |x: &Tensor| x.square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
        match vectors {
            Some(vectors) => {
                let u = features.matmul(vectors);
                let rest = energy(&(&features - u.matmul(&vectors.tr())));
                Part::Head { squares: u.square(), values, basis, rest }
            }
            None => {
                let rest = energy(&features).zeros_like();
                Part::Head { squares: features.square(), values, basis, rest }
            }
        }
    }

    /// Builds one part for each map from a diagonal curvature `[P]` and the Jacobians of the maps before the logits.
    fn of_diagonal(diagonal: &Tensor, maps: &Maps, pass: &Pass, jacobians: &[Tensor]) -> Vec<Part> {
        let mut start = 0;
        let part = |(at, map): (usize, &Map)| {
            let values = diagonal.narrow(0, start, map.parameters());
            start += map.parameters();
            match map.role {
                Role::Head | Role::HeadBias => Part::of_head(
                    &pass.sites[at].input,
                    None,
                    values.view([map.outputs, map.inputs]),
                    Tensor::eye(map.outputs, (Kind::Double, diagonal.device())),
                ),
                _ => Part::General { coordinates: jacobians[at].flatten(2, 3), values, rest: None },
            }
        };
        maps.maps.iter().enumerate().map(part).collect()
    }

    /// Builds the part of a map with Kronecker factors from its Jacobian `[B, C, out, in]`.
    fn of_pair(jacobian: &Tensor, pair: &Pair) -> Part {
        let kind = jacobian.kind();
        let (g, x) = (pair.gradient.basis(kind), pair.input.basis(kind));
        let kept = g.tr().matmul(&jacobian.matmul(&x));
        let complete = pair.gradient.is_complete() && pair.input.is_complete();
        let rest = (!complete).then(|| {
            let left = (jacobian - g.matmul(&kept).matmul(&x.tr())).flatten(2, 3);
            left.bmm(&left.transpose(1, 2)).to_kind(Kind::Double)
        });
        Part::General { coordinates: kept.flatten(2, 3), values: pair.values().reshape([-1]), rest }
    }

    fn variance(&self, precision: f64) -> Tensor {
        match self {
            Part::General { coordinates, values, rest } => {
                let weights = (values + precision).reciprocal().to_kind(coordinates.kind());
                let v = (coordinates * weights).bmm(&coordinates.transpose(1, 2)).to_kind(Kind::Double);
                match rest {
                    Some(rest) => v + rest / precision,
                    None => v,
                }
            }
            Part::Head { squares, values, basis, rest } => {
                let scales = squares.matmul(&(values + precision).reciprocal().tr()) + rest / precision;
                (basis * scales.unsqueeze(1)).matmul(&basis.tr())
            }
        }
    }
}
