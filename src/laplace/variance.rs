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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::{Golden, near};
    use crate::laplace::fit::Fit;
    use crate::laplace::labels::Labels;
    use crate::laplace::pass::Site;
    use crate::laplace::{Shape, Structure, Tokens};

    /// A pass of a last layer without bias on features `[B, D]`.
    fn pass(features: &Tensor, logits: Tensor) -> Pass {
        let site = Site { input: features.unsqueeze(1), mask: None, source: Source::Logits };
        Pass { logits, layers: vec![], sites: vec![site] }
    }

    /// The covariance of SNGP's last layer is that of the whole curvature of one output: its ridge s is the prior's precision of numbers, and half of
    /// it that of two classes, whose logit is a difference. edward2 multiplies variances by s.
    #[test]
    fn whole_curvatures_of_last_layers_are_those_of_edward2() {
        let golden = Golden::of_authors("random_features");
        let tensor = |name: &str| golden.tensor(&format!("covariance/{name}"));
        let (fitted, tested, logits) = (tensor("fitted"), tensor("tested"), tensor("logits"));
        let ridge = golden.number("covariance/ridge");
        let two = |logits: &Tensor| Tensor::cat(&[logits * 0.5, logits * -0.5], 1);
        let shape = Shape { structure: Structure::Full, tokens: Tokens::Expand, wide: 512, kept: 100 };
        let variances = |labels: Labels, logits: Tensor, precision: f64| {
            let (features, outputs) = (fitted.size()[1], logits.size()[1]);
            let map = Map { block: 0, role: Role::Head, inputs: features, outputs };
            let maps = Maps { maps: vec![map], columns: 0..features * outputs };
            let mut fit = Fit::new(&maps, shape, labels, tch::Device::Cpu);
            for (from, count) in [(0, 6), (6, 4)] {
                fit.add(&pass(&fitted.narrow(0, from, count), logits.narrow(0, from, count))).unwrap();
            }
            let curvature = fit.finish().unwrap();
            let at = pass(&tested, Tensor::zeros([3, outputs], tch::kind::DOUBLE_CPU));
            Projected::new(&curvature, &maps, &at).unwrap().variance(precision).unwrap() * ridge
        };
        let of_numbers = variances(Labels::Numbers(1.0), logits.copy(), ridge);
        near(&of_numbers.reshape([-1]), &tensor("variances/gaussian"), 1e-12);
        let v = variances(Labels::All, two(&logits), 2.0 * ridge);
        let entry = |i: i64, j: i64| v.select(1, i).select(1, j);
        let of_difference = entry(0, 0) + entry(1, 1) - entry(0, 1) - entry(1, 0);
        near(&of_difference, &tensor("variances/binary_logistic"), 1e-12);
    }
}
