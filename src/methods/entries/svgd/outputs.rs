//! A step of particles that repel by what they compute: function-space SVGD (Wang et al. 2019, arXiv 1902.09754) and repulsive
//! ensembles in function space (D'Angelo and Fortuin 2021, arXiv 2106.11642).
//!
//! | symbol | here |
//! |---|---|
//! | f_i | what particle i computes for the B images of a batch, as one vector: logits, probabilities or features |
//! | k_ij | RBF kernel of D_ij = ‖f_i − f_j‖² (`kernel.rs`), one for all images |
//! | g_j = ∂L_j/∂f_j | L_j the mean cross-entropy of the batch |
//! | Stein: ψ_i = (1/n) [ Σ_j k_ij g_j + (γ/n) Σ_j ∂k_ij/∂f_i ] | `drive = "own"` has Σ_j k_ij g_i |
//! | Wasserstein: ψ_i = g_i + γ Σ_j ∂k_ij/∂f_i / Σ_j k_ij | |
//! | φ_i = (∂f_i/∂θ_i)ᵀ ψ_i | handed to the optimizer as the gradient |
//!
//! The gradient of the own loss is that of theta itself where features repel, since the head has columns that features do not
//! see: φ_i = c_i ∇_i L_i + (∂f_i/∂θ_i)ᵀ (the second term), with c_i = (1/n) Σ_j k_ij or 1.
//!
//! Differs from the authors' code in the prior: theirs is a Gaussian process' score, estimated from draws of the prior. Here the
//! prior is the optimizer's weight decay, as in FoRDE (Trinh et al. 2024, arXiv 2306.02775).

use anyhow::Result;
use tch::{Kind, Tensor, with_grad};

use super::kernel::{Kernel, diagnose};
use super::settings::{Space, Spec};
use crate::base::tensor::label_log_probabilities;
use crate::methods::{Evaluation, Objective, Output};
use crate::subspace::geometry::{squared_distances, without_rounding};

/// The losses `[n]`, φ `[n, P]`, and the diagnostics.
pub(super) struct Step {
    pub losses: Tensor,
    pub direction: Tensor,
    pub diagnostics: Tensor,
}

/// The number that the authors' code adds to probabilities before their logarithm.
const TINY: f64 = 1e-15;

/// Returns the share of its length by which rounding may move what a forward pass in this type computes: particles that differ by no more
/// compute the same, and do not repel.
pub(super) fn rounding(kind: Kind) -> f64 {
    match kind {
        Kind::BFloat16 | Kind::Half => 1e-2,
        _ => 1e-5,
    }
}

/// Returns φ at `theta: [n, P]`, with n ≥ 2.
pub(super) fn step(spec: &Spec, theta: &Tensor, objective: &mut dyn Objective) -> Result<Step> {
    match spec.space {
        Space::Features => by_features(spec, theta, objective),
        _ => by_logits(spec, theta, objective),
    }
}

fn by_logits(spec: &Spec, theta: &Tensor, objective: &mut dyn Objective) -> Result<Step> {
    let outputs = objective.outputs(theta, Output::Logits)?;
    let logits = outputs.values.to_kind(Kind::Double).detach().set_requires_grad(true);
    let values = with_grad(|| match spec.space {
        Space::Probabilities => logits.softmax(-1, Kind::Double),
        _ => logits.shallow_clone(),
    });
    let losses = with_grad(|| {
        let log_probabilities = match spec.space {
            Space::Probabilities => {
                (&values + TINY).log().gather(2, &outputs.labels.unsqueeze(2), false).squeeze_dim(2)
            }
            _ => label_log_probabilities(&values, &outputs.labels, Kind::Double),
        };
        -log_probabilities.mean_dim([-1i64].as_slice(), false, Kind::Double)
    });
    let scores = Tensor::f_run_backward(&[losses.sum(Kind::Double)], &[&values], true, false)?.swap_remove(0);
    let pushed = Pushed::new(spec, &values.detach(), rounding(outputs.values.kind()));
    let drive = pushed.drive(spec, &scores.flatten(1, 2));
    let direction = (&drive + &pushed.repulsion).view_as(&values);
    let by_logits = match spec.space {
        Space::Probabilities => {
            let root = with_grad(|| (&values * direction).sum(Kind::Double));
            Tensor::f_run_backward(&[root], &[&logits], false, false)?.swap_remove(0)
        }
        _ => direction,
    };
    let direction = objective.pull_back(theta, Output::Logits, &by_logits.to_kind(outputs.values.kind()))?;
    let diagnostics = pushed.diagnostics(&drive, &pushed.repulsion);
    Ok(Step { losses: losses.detach().to_kind(outputs.values.kind()), direction, diagnostics })
}

fn by_features(spec: &Spec, theta: &Tensor, objective: &mut dyn Objective) -> Result<Step> {
    let features = objective.outputs(theta, Output::Features)?.values;
    let Evaluation { losses, gradients } = objective.losses(theta)?;
    let pushed = Pushed::new(spec, &features.to_kind(Kind::Double), rounding(features.kind()));
    let drive = pushed.drive(spec, &gradients);
    let by_features = pushed.repulsion.view_as(&features).to_kind(features.kind());
    let repulsion = objective.pull_back(theta, Output::Features, &by_features)?;
    let diagnostics = pushed.diagnostics(&drive, &repulsion);
    Ok(Step { losses, direction: drive + repulsion, diagnostics })
}

/// The kernel of what particles compute, and the second term of ψ.
struct Pushed {
    /// D, `[1, n, n]`.
    distances: Tensor,
    kernel: Kernel,
    /// Σ_j c_ij ∂D_ij/∂f_i, `[n, K]`.
    repulsion: Tensor,
}

impl Pushed {
    /// Computes the kernel of outputs `[n, B, C]` in f64, of which this share is rounding.
    fn new(spec: &Spec, outputs: &Tensor, rounding: f64) -> Pushed {
        let outputs = outputs.flatten(1, -1);
        let squared_lengths = outputs.square().sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        let distances = without_rounding(&squared_distances(&outputs), &squared_lengths, rounding).unsqueeze(0);
        let kernel = Kernel::new(&distances, spec.rule());
        let coefficients = spec.repulsion(&kernel).get(0);
        let sums = coefficients.sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
        // ∂D_ij/∂f_i = 2 (f_i − f_j).
        let repulsion = (sums * &outputs - coefficients.matmul(&outputs)) * 2.0;
        Pushed { distances, kernel, repulsion }
    }

    /// Returns the first term, from the gradients `[n, K]` of the particles' own losses.
    fn drive(&self, spec: &Spec, gradients: &Tensor) -> Tensor {
        let drive = gradients.copy();
        spec.weigh(&self.kernel.values.get(0), drive.shallow_clone());
        drive
    }

    fn diagnostics(&self, drive: &Tensor, repulsion: &Tensor) -> Tensor {
        diagnose(&self.distances, &self.kernel, &drive.norm(), &repulsion.norm())
    }
}
