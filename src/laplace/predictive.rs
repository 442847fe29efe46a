//! Class probabilities under Gaussian logits N(f, V).

use tch::{Kind, Tensor};

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
