//! The diagonal of the Hessian of each particle's loss, for optimizers that ask for it.

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::random::{At, Noise, Purpose};

/// The part of a step's noise that probes the Hessian; the methods' own parts are not negative.
const PROBE: i64 = -1;

/// Returns Hutchinson's estimate z ∘ (H z) of the diagonal of the Hessian of each particle's loss, `[n, P]`, with signs z that
/// are a pure function of (seed, step). `gradients` returns ∇L at a place, `[n, P]`.
///
/// H z is the central difference (∇L(θ + h z) − ∇L(θ − h z)) / (2 h), exact for quadratics, and two gradients: libtorch's fused
/// attention has no second derivative. The step h balances the rounding of a gradient against the third derivative; its size
/// relative to the parameters keeps θ ± h z different from θ.
///
/// # Errors
/// Fails if `gradients` fails.
pub fn diagonal(
    gradients: impl FnMut(&Tensor) -> Result<Tensor>,
    theta: &Tensor,
    seed: u64,
    step: i64,
) -> Result<Tensor> {
    let at = At { step, sample: 0, part: PROBE };
    let signs = Noise::new(seed, Purpose::Noise).draw(at, theta).sign();
    along(gradients, theta, &signs)
}

/// Returns z ∘ (H z) for the given signs z, `[n, P]`.
pub(super) fn along(
    mut gradients: impl FnMut(&Tensor) -> Result<Tensor>,
    theta: &Tensor,
    signs: &Tensor,
) -> Result<Tensor> {
    let moved = signs * spacing(theta);
    let mut difference = gradients(&(theta + &moved))?;
    difference -= gradients(&(theta - &moved))?;
    Ok(difference * &moved / (moved.square() * 2.0))
}

/// Returns h for each particle, `[n, 1]`: the cube root of the rounding error, times the root mean square of its parameters.
fn spacing(theta: &Tensor) -> Tensor {
    let rounding: f64 = if theta.kind() == Kind::Double { f64::EPSILON } else { f32::EPSILON.into() };
    let size = theta.square().mean_dim([1i64].as_slice(), true, theta.kind()).sqrt();
    size.clamp_min(1e-3) * rounding.cbrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Device;

    /// On L = Σ θ⁴ / 12 + θᵀ A θ / 2 for each particle, the mean over many signs is the diagonal; one estimate is z ∘ (H z) with the H of its particle.
    #[test]
    fn the_estimate_is_that_of_hutchinson() {
        let a = Tensor::from_slice(&[3.0f64, 1.0, 1.0, 2.0]).view([2, 2]);
        let theta = Tensor::from_slice(&[0.5f64, -1.0, 2.0, 0.1]).view([2, 2]);
        let gradients = |theta: &Tensor| Ok(theta.pow_tensor_scalar(3.0) / 3.0 + theta.matmul(&a));
        let diagonals = theta.square() + a.diagonal(0, 0, 1);
        let mut sum = Tensor::zeros([2, 2], (Kind::Double, Device::Cpu));
        for step in 0..200 {
            let found = diagonal(gradients, &theta, 3, step).unwrap();
            // The off-diagonal entry is 1, so an estimate is the diagonal plus or minus 1.
            let away = ((&found - &diagonals).abs() - 1.0).abs().max().double_value(&[]);
            assert!(away < 1e-6, "{found}");
            sum += found;
        }
        let error = (sum / 200.0 - diagonals).abs().max().double_value(&[]);
        assert!(error < 0.25, "{error}");
    }
}
