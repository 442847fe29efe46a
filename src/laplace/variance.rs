//! The covariance V = J P⁻¹ Jᵀ of the linearised logits of every image, `[B, C, C]`, with P = H + τ, and class probabilities under
//! the Gaussian logits N(f, V). The expensive part of V does not depend on τ.

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

/// Returns draws f + V^½ ε, `[S, B, C]`, for `mean: [B, C]`, `variance: [B, C, C]` and `epsilon: [S, C]`, in f64. V^½
/// is the symmetric root, so the draws depend only on V and ε. Negative eigenvalues are rounding error and count as 0.
pub fn draws(mean: &Tensor, variance: &Tensor, epsilon: &Tensor) -> Tensor {
    let (values, vectors) = variance.linalg_eigh("L");
    let root = (&vectors * values.clamp_min(0.0).sqrt().unsqueeze(1)).bmm(&vectors.transpose(1, 2));
    // The product of `[B, C, C]` and `[C, S]`.
    let noise = root.matmul(&epsilon.to_kind(Kind::Double).tr());
    mean.to_kind(Kind::Double).unsqueeze(0) + noise.permute([2, 0, 1])
}

/// Returns the log-probabilities `[B, C]` of MacKay's probit approximation, from the means and variances `[B, C]`.
pub fn probit(mean: &Tensor, variances: &Tensor) -> Tensor {
    shrunk(mean, variances).log_softmax(-1, Kind::Double)
}

/// Returns the logits `[B, C]` whose softmax is MacKay's probit approximation.
pub fn shrunk(mean: &Tensor, variances: &Tensor) -> Tensor {
    let scale = (variances * (std::f64::consts::PI / 8.0) + 1.0).sqrt();
    mean.to_kind(Kind::Double) / scale
}

/// Returns the log-probabilities `[B, C]` of the Laplace bridge: the mean α / Σ α of a Dirichlet distribution with
/// α_c = (1 − 2/C + e^(f_c) Σ_k e^(−f_k) / C²) / V_cc. f and V are first conditioned on logits that sum to 0.
pub fn bridge(mean: &Tensor, variance: &Tensor) -> Tensor {
    let mean = mean.to_kind(Kind::Double);
    let classes = mean.size()[1] as f64;
    // Conditioning on Σ f = 0 gives f − V1 (1ᵀf) / (1ᵀV1) and V − V1 1ᵀV / (1ᵀV1).
    let rows = variance.sum_dim_intlist([2i64].as_slice(), true, Kind::Double);
    let total = rows.sum_dim_intlist([1i64].as_slice(), true, Kind::Double).clamp_min(f64::MIN_POSITIVE);
    let sum = mean.sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
    let f = &mean - rows.squeeze_dim(2) * sum / total.squeeze_dim(2);
    let v = (variance - rows.matmul(&rows.transpose(1, 2)) / total).diagonal(0, 1, 2).clamp_min(1e-300);
    // log α is computed in logarithms because e^f may overflow.
    let constant = Tensor::from((1.0 - 2.0 / classes).ln()).to_device(f.device());
    let inner = (&f + (-&f).logsumexp([1i64].as_slice(), true) - 2.0 * classes.ln()).logaddexp(&constant);
    (inner - v.log()).log_softmax(-1, Kind::Double)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    fn gaussian() -> (Tensor, Tensor) {
        let mean = Tensor::from_slice(&[1.0, -0.5, 0.3]).view([1, 3]);
        let variance = Tensor::from_slice(&[0.5, 0.1, 0.0, 0.1, 0.8, -0.2, 0.0, -0.2, 0.4]).view([1, 3, 3]);
        (mean, variance)
    }

    #[track_caller]
    fn near(log: &Tensor, expected: &[f64], bound: f64) {
        let difference = (log.exp().view([-1]) - Tensor::from_slice(expected)).abs().max().double_value(&[]);
        assert!(difference < bound, "{log} differs by {difference}");
    }

    // f and v are those of `gaussian`. The probit values are torch.softmax(f / (1 + pi / 8 * v.diag()).sqrt(), 0). The
    // bridge values follow laplace-torch 0.3: f -= v.sum(1) * f.sum() / v.sum(); v -= outer(v.sum(1), v.sum(0)) /
    // v.sum(); alpha = (1 - 2/3 + f.exp() / 9 * (-f).exp().sum()) / v.diag(); alpha / alpha.sum().
    #[test]
    fn probit_and_bridge() {
        let (mean, variance) = gaussian();
        near(
            &probit(&mean, &variance.diagonal(0, 1, 2)),
            &[0.5590117926767395, 0.14485710799079494, 0.29613109933246556],
            1e-12,
        );
        near(&bridge(&mean, &variance), &[0.5722419008304939, 0.13830212363010688, 0.28945597553939933], 1e-12);
        let far = &mean * 1000.0;
        assert_eq!(bridge(&far, &variance).isfinite().all().int64_value(&[]), 1);
        assert_eq!(probit(&mean, &mean.zeros_like()), mean.log_softmax(-1, Kind::Double), "no variance, no change");
    }

    #[test]
    fn draws_have_the_mean_and_the_covariance() {
        let (mean, variance) = gaussian();
        tch::manual_seed(1);
        let found = draws(&mean, &variance, &Tensor::randn([200_000, 3], (Kind::Double, Device::Cpu))).squeeze_dim(1);
        let centred = &found - found.mean_dim([0i64].as_slice(), true, Kind::Double);
        let covariance = centred.tr().matmul(&centred) / 200_000.0;
        assert!((covariance - variance.get(0)).abs().max().double_value(&[]) < 0.01);
        assert!((found.mean_dim([0i64].as_slice(), true, Kind::Double) - mean).abs().max().double_value(&[]) < 0.01);
    }
}
