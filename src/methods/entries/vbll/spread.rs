//! What makes the head Gaussian: the covariance S of its weights and the noise of its logits.

use tch::Tensor;

use crate::methods::Outputs;
use crate::schema::words;
use crate::subspace::geometry::Inputs;

words! {
    /// The entries of S that are not 0, besides those of U.
    pub enum Covariance {
        /// The diagonal.
        Diagonal = "diagonal",
        /// All entries within a class.
        Dense = "dense",
    }
}

pub(super) struct Spread {
    /// ln s, `[n, C, d]`: s² is the diagonal of S, or s that of L.
    pub log_std: Tensor,
    /// ln σ, `[n, C]`.
    pub log_noise: Tensor,
    /// U, `[n, r, C, d]`.
    pub columns: Tensor,
    /// L, `[n, C, d, d]`, if S is dense.
    pub factors: Option<Tensor>,
}

/// The trace of S and ln det S, `[n]` each.
pub struct Size {
    pub trace: Tensor,
    pub log_det: Tensor,
}

/// The means and variances of logits, `[n, B, C]` each.
pub struct Moments {
    pub mean: Tensor,
    pub variance: Tensor,
}

impl Spread {
    /// Returns the number of numbers of a particle beside ln s and ln σ.
    pub fn others(covariance: Covariance, rank: i64, head: Inputs) -> i64 {
        let weights = head.outputs * head.inputs;
        match covariance {
            Covariance::Diagonal => rank * weights,
            Covariance::Dense => weights * head.inputs,
        }
    }

    /// Returns the spread as its numbers `[n, K]` have it: ln s, then ln σ, then U, or a square of which L has what is below the
    /// diagonal.
    pub fn of(numbers: &Tensor, head: Inputs, covariance: Covariance) -> Spread {
        let (n, classes, width) = (numbers.size()[0], head.outputs, head.inputs);
        let weights = classes * width;
        let others = numbers.size()[1] - weights - classes;
        let rest = numbers.narrow(1, weights + classes, others);
        let log_std = numbers.narrow(1, 0, weights).reshape([n, classes, width]);
        let factors = (covariance == Covariance::Dense)
            .then(|| rest.reshape([n, classes, width, width]).tril(-1) + log_std.exp().diag_embed(0, -2, -1));
        let rank = if factors.is_some() { 0 } else { others / weights };
        Spread {
            log_std,
            log_noise: numbers.narrow(1, weights, classes),
            columns: rest.narrow(1, 0, rank * weights).reshape([n, rank, classes, width]),
            factors,
        }
    }

    /// Returns the standard deviations of the weights without the part of U, `[n, C, d]`.
    pub fn std(&self) -> Tensor {
        match &self.factors {
            Some(factors) => factors.square().sum_dim_intlist([-1i64].as_slice(), false, factors.kind()).sqrt(),
            None => self.log_std.exp(),
        }
    }

    /// Returns the size of S.
    pub fn size(&self) -> Size {
        let Spread { log_std, columns, factors, .. } = self;
        let over = |t: &Tensor| t.flatten(1, -1).sum_dim_intlist([1i64].as_slice(), false, t.kind());
        let log_det = over(log_std) * 2.0;
        if let Some(factors) = factors {
            return Size { trace: over(&factors.square()), log_det };
        }
        let trace = over(&(log_std * 2.0).exp()) + over(&columns.square());
        if columns.size()[1] == 0 {
            return Size { trace, log_det };
        }
        // Of S = D + Uᵀ U with D = diag(s²), det S = det D · det(1 + U D⁻¹ Uᵀ).
        let scaled = (columns / log_std.exp().unsqueeze(1)).flatten(2, 3);
        let inner =
            scaled.matmul(&scaled.transpose(1, 2)) + Tensor::eye(columns.size()[1], (columns.kind(), columns.device()));
        Size { trace, log_det: log_det + inner.logdet() }
    }

    /// Returns the moments of the logits for features `[n, B, d]`, means `[n, C, d]` and a bias
    /// `[n, C]`.
    pub fn moments(&self, features: &Tensor, mean: &Tensor, bias: &Tensor) -> Moments {
        let kind = features.kind();
        let logits = features.matmul(&mean.transpose(1, 2)) + bias.unsqueeze(1);
        let own = match &self.factors {
            Some(factors) => {
                let along = features.unsqueeze(1).matmul(factors);
                along.square().sum_dim_intlist([-1i64].as_slice(), false, kind).transpose(1, 2)
            }
            None => features.square().matmul(&(&self.log_std * 2.0).exp().transpose(1, 2)),
        };
        let along = features.unsqueeze(1).matmul(&self.columns.transpose(2, 3));
        let shared = along.square().sum_dim_intlist([1i64].as_slice(), false, kind);
        Moments { mean: logits, variance: own + shared + (&self.log_noise * 2.0).exp().unsqueeze(1) }
    }

    /// Returns the bound on the mean negative log-likelihood of each particle, `[n]`, for features `[n, B, d]`, labels `[n, B]`,
    /// means `[n, C, d]` and a bias `[n, C]`.
    pub fn bound(&self, inputs: &Outputs, mean: &Tensor, bias: &Tensor) -> Tensor {
        let Outputs { values: features, labels } = inputs;
        let Moments { mean: logits, variance } = self.moments(features, mean, bias);
        let at_label = logits.gather(2, &labels.unsqueeze(2), false).squeeze_dim(2);
        ((logits + variance / 2.0).logsumexp([2i64], false) - at_label).mean_dim(
            [1i64].as_slice(),
            false,
            features.kind(),
        )
    }
}
