//! A step of particles that repel by their gradients with respect to the images: first-order repulsive deep ensembles, FoRDE (Trinh
//! et al., ICLR 2024, arXiv 2306.02775).
//!
//! | symbol | here |
//! |---|---|
//! | J_ib | the gradient of the logit of image b's label by its prepared pixels, for particle i |
//! | u_ib = J_ib / √(‖J_ib‖² + 10⁻¹²) | |
//! | k_ijb = exp(−‖u_ib − u_jb‖² / h_jb) | j is held: only u_ib is moved |
//! | h_jb = median over all i of ‖u_ib − u_jb‖² / ln n + 10⁻¹² | `bandwidth` fixes it |
//! | φ_i = ∇_i L_i + γ ∇_i ln Σ_j mean_b k_ijb | handed to the optimizer as the gradient; the authors' code has γ = 1 / batch size |
//!
//! Differs from the authors' code, whose networks are trained from nothing: gradients are those of the evaluation mode, and neither the
//! eigenvectors nor the eigenvalues of the training images (its FoRDE-PCA and -Tuned) turn or weigh them.

use anyhow::Result;
use tch::{Kind, Tensor, with_grad};

use super::kernel::{Kernel, diagnose};
use super::outputs::{Step, rounding};
use super::settings::Spec;
use crate::methods::{Evaluation, Objective, Output};
use crate::subspace::geometry::without_rounding;

/// The number that the authors' code adds to the squared length of a gradient, and to a bandwidth.
const TINY: f64 = 1e-12;

/// Returns φ at `theta: [n, P]`, with n ≥ 2.
pub(super) fn step(spec: &Spec, theta: &Tensor, objective: &mut dyn Objective) -> Result<Step> {
    let gradients = objective.outputs(theta, Output::InputGradients)?.values;
    let Evaluation { losses, gradients: drive } = objective.losses(theta)?;
    let Repulsion { by_gradients, distances, kernel } = Repulsion::of(spec, &gradients)?;
    let by_gradients = (by_gradients * spec.gamma).to_kind(gradients.kind());
    let repulsion = objective.pull_back(theta, Output::InputGradients, &by_gradients)?;
    let diagnostics = diagnose(&distances, &kernel, &drive.norm(), &repulsion.norm());
    Ok(Step { losses, direction: drive + repulsion, diagnostics })
}

struct Repulsion {
    /// The gradient of Σ_i ln Σ_j mean_b k_ijb by J, `[n, B, D]`.
    by_gradients: Tensor,
    /// The squared distances, `[B, n, n]`, and the kernel of each image.
    distances: Tensor,
    kernel: Kernel,
}

impl Repulsion {
    /// Computes the repulsion of gradients `[n, B, D]`, in f64. Those that differ by the rounding of their own type alone do not repel.
    fn of(spec: &Spec, gradients: &Tensor) -> Result<Repulsion> {
        /// Makes `cdist` use direct differences, since a product would cancel.
        const WITHOUT_PRODUCT: i64 = 2;
        let (particles, images) = (gradients.size()[0] as f64, gradients.size()[1] as f64);
        let leaf = gradients.to_kind(Kind::Double).detach().set_requires_grad(true);
        let distances = with_grad(|| {
            let lengths = (leaf.square().sum_dim_intlist([2i64].as_slice(), true, Kind::Double) + TINY).sqrt();
            let units = (&leaf / lengths).transpose(0, 1);
            let distances = Tensor::cdist(&units, &units.detach(), 2.0, WITHOUT_PRODUCT).square();
            let squared_lengths = units.detach().square().sum_dim_intlist([2i64].as_slice(), false, Kind::Double);
            without_rounding(&distances, &squared_lengths, rounding(gradients.kind()))
        });
        let held = distances.detach();
        let bandwidth = match spec.bandwidth {
            Some(value) => Tensor::full([held.size()[0], 1, held.size()[2]], value, (Kind::Double, held.device())),
            None => medians(&held) / particles.ln() + TINY,
        };
        let (root, values) = with_grad(|| {
            let logarithms = -(&distances / &bandwidth);
            let root = (logarithms.logsumexp([0i64, 2].as_slice(), false) - images.ln()).sum(Kind::Double);
            (root, logarithms.detach().exp())
        });
        let by_gradients = Tensor::f_run_backward(&[root], &[&leaf], false, false)?.swap_remove(0);
        let kernel = Kernel { slopes: -(&values / &bandwidth), values, bandwidth };
        Ok(Repulsion { by_gradients, distances: held, kernel })
    }
}

/// Returns the medians over i of D_ij, `[B, 1, n]`, for `distances: [B, n, n]`: the mean of the middle two where n is even.
fn medians(distances: &Tensor) -> Tensor {
    let count = distances.size()[1];
    let (sorted, _) = distances.sort(1, false);
    (sorted.narrow(1, (count - 1) / 2, 1) + sorted.narrow(1, count / 2, 1)) / 2.0
}
