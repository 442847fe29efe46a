//! Optimizers that update the whole matrix `theta: [n, P]`. Each has a file of its own and is registered in
//! [`OPTIMIZERS`].

mod entries;

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise, Purpose};
use crate::schema::{Reader, Resolved, limits};

pub use entries::{OPTIMIZERS, adam};

/// An optimizer that moves `theta` along a given direction, which it receives as the gradient.
pub trait Optimizer {
    /// Makes one step. `factor` is the schedule's factor for the learning rate. `theta` and `gradient` have shape
    /// `[n, P]`.
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64);

    /// Returns the number of the next step if the optimizer wants to [`observe`](Self::observe) the curvature before it; `None` if
    /// gradients are enough.
    fn probe(&self) -> Option<i64> {
        None
    }

    /// Takes an estimate of the diagonal of the Hessian, `[n, P]`, before the step that it is for.
    fn observe(&mut self, _curvature: &Tensor) {}

    /// Keeps everything that a resumed run needs.
    ///
    /// # Errors
    /// Fails if something is missing where it is restored, or has another shape.
    fn keep(&mut self, keeper: &mut Keeper) -> Result<()>;
}

/// The settings of an optimizer, as read from `[optimizer.*]`.
pub trait OptimizerSpec: Resolved {
    /// Returns the learning rates: a single one, or one per particle.
    fn rates(&self) -> &[f64];

    /// Returns the number of matrices `[n, P]` that the optimizer keeps from step to step.
    fn kept_matrices(&self) -> u64;

    /// Returns the number of matrices `[n, P]` that the estimate of the curvature before a step creates and drops.
    fn matrices_of_a_step(&self) -> u64 {
        0
    }

    /// Returns the number of gradients that the estimate of the curvature takes before a step, besides the step's own.
    fn gradients_of_a_step(&self) -> u64 {
        0
    }

    /// Returns whether the optimizer takes differences of gradients at nearby places, which the rounding of bf16 would swallow.
    fn needs_f32(&self) -> bool {
        false
    }

    /// Creates the optimizer with zero moments for `theta: [n, P]`. The learning rates of the columns are multiplied by
    /// `factors: [P]`.
    fn build(&self, theta: &Tensor, factors: Option<&Tensor>) -> Box<dyn Optimizer>;
}

/// A registered optimizer.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub read: fn(&Reader) -> Box<dyn OptimizerSpec>,
}

/// Returns the learning rates (one or n) as a column `[n, 1]`, which is multiplied with the rows of `theta: [n, P]`.
pub(crate) fn rate_column(rates: &[f64], theta: &Tensor) -> Tensor {
    let rates = Tensor::from_slice(rates).to_kind(theta.kind()).to_device(theta.device());
    rates.view([-1, 1]).expand([theta.size()[0], 1], false)
}

/// Returns the learning rates of `theta: [n, P]` from one or n rates: a column `[n, 1]`, or `[n, P]` if columns have factors `[P]`.
fn rates_of(rates: &[f64], theta: &Tensor, factors: Option<&Tensor>) -> Tensor {
    let column = rate_column(rates, theta);
    match factors {
        Some(factors) => column * factors.to_kind(theta.kind()).to_device(theta.device()),
        None => column,
    }
}

/// Scales each row (particle) of `gradient: [n, P]` to an L2 norm of at most `max_norm`.
pub fn clip_rows(gradient: &Tensor, max_norm: f64) -> Tensor {
    let norms = gradient.norm_scalaropt_dim(2.0, [1], true);
    let scale = (max_norm / (norms + 1e-12)).clamp_max(1.0);
    gradient * scale
}

/// Reads the decay of the gradient's running mean, `beta1`; methods that step by themselves have it, too.
pub fn beta1(reader: &Reader) -> f64 {
    reader.float("beta1", limits::from_below(0.0, 1.0)).about("Decay of the gradient's running mean.").or(0.9)
}

/// Returns 1 − β^t after t steps, by which a running mean that began at 0 is divided.
pub(crate) fn correction(beta: f64, steps: i64) -> f64 {
    1.0 - beta.powi(steps.min(i64::from(i32::MAX)) as i32)
}

/// Returns what is wrong with the learning rates of a number of particles, in words that follow the key: each particle has its own, or all
/// have one. `None` if nothing is.
pub(crate) fn check_rates(rates: &[f64], particles: i64) -> Option<String> {
    let fits = rates.len() <= 1 || rates.len() as i64 == particles;
    let count = rates.len();
    (!fits).then(|| format!("has {count} learning rates for {particles} particles: give one, or one per particle"))
}

/// Two running means and the number of steps that are in them.
struct Moments {
    /// The name of the optimizer, with which the names of its tensors begin.
    key: &'static str,
    /// The first moment m, `[n, P]`.
    pub first: Tensor,
    /// The second moment v, `[n, P]`.
    pub second: Tensor,
    pub steps: i64,
}

impl Moments {
    /// Creates the moments of no step for `theta: [n, P]`.
    pub fn new(key: &'static str, theta: &Tensor) -> Moments {
        Moments { key, first: theta.zeros_like(), second: theta.zeros_like(), steps: 0 }
    }

    /// Returns the [`correction`] of the moment with the decay β.
    pub fn correction(&self, beta: f64) -> f64 {
        correction(beta, self.steps)
    }

    /// # Errors
    /// Fails if something is missing where it is restored, or has another shape.
    pub fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.below(&format!("{}.", self.key), |keeper| {
            keeper.tensor("first", &mut self.first)?;
            keeper.tensor("second", &mut self.second)?;
            keeper.count("steps", &mut self.steps)
        })
    }
}

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
pub fn hessian_diagonal(
    gradients: impl FnMut(&Tensor) -> Result<Tensor>,
    theta: &Tensor,
    seed: u64,
    step: i64,
) -> Result<Tensor> {
    let at = At { step, sample: 0, part: PROBE };
    along(gradients, theta, &signs(&Noise::new(seed, Purpose::Noise).draw(at, theta)))
}

/// Returns the signs ±1 of normal numbers. Of 25 million normal numbers in f32 about one is 0, which has a sign here, too: the
/// estimate divides by it.
fn signs(normal: &Tensor) -> Tensor {
    normal.ge(0.0).to_kind(normal.kind()) * 2.0 - 1.0
}

/// Returns z ∘ (H z) for the given signs z, `[n, P]`.
fn along(mut gradients: impl FnMut(&Tensor) -> Result<Tensor>, theta: &Tensor, signs: &Tensor) -> Result<Tensor> {
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
    use tch::Device;

    use super::*;

    #[test]
    fn rows_are_clipped_alone() {
        let gradient = Tensor::from_slice(&[3.0f64, 4.0, 0.3, 0.4]).view([2, 2]);
        let clipped = Vec::<f64>::try_from(clip_rows(&gradient, 1.0).view(-1)).unwrap();
        let expected = [0.6, 0.8, 0.3, 0.4];
        assert!(clipped.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9), "{clipped:?}");
    }

    #[test]
    fn a_normal_number_of_zero_has_a_sign() {
        let found = Vec::<f32>::try_from(signs(&Tensor::from_slice(&[0.0f32, -0.0, 1e-30, -1e-30, 2.0]))).unwrap();
        assert_eq!(found, [1.0, 1.0, 1.0, -1.0, 1.0]);
    }

    /// On L = Σ θ⁴ / 12 + θᵀ A θ / 2 for each particle, the mean over many signs is the diagonal; one estimate is z ∘ (H z) with the H of its particle.
    #[test]
    fn the_estimate_is_that_of_hutchinson() {
        let a = Tensor::from_slice(&[3.0f64, 1.0, 1.0, 2.0]).view([2, 2]);
        let theta = Tensor::from_slice(&[0.5f64, -1.0, 2.0, 0.1]).view([2, 2]);
        let gradients = |theta: &Tensor| Ok(theta.pow_tensor_scalar(3.0) / 3.0 + theta.matmul(&a));
        let diagonals = theta.square() + a.diagonal(0, 0, 1);
        let mut sum = Tensor::zeros([2, 2], (Kind::Double, Device::Cpu));
        for step in 0..200 {
            let found = hessian_diagonal(gradients, &theta, 3, step).unwrap();
            // The off-diagonal entry is 1, so an estimate is the diagonal plus or minus 1.
            let away = ((&found - &diagonals).abs() - 1.0).abs().max().double_value(&[]);
            assert!(away < 1e-6, "{found}");
            sum += found;
        }
        let error = (sum / 200.0 - diagonals).abs().max().double_value(&[]);
        assert!(error < 0.25, "{error}");
    }
}
