//! The size ε of a chain's steps and the length ℓ over which it keeps its direction, and how both are found.
//!
//! With ξ = ΔE² / (d v) + 10⁻⁸, where v is the wanted variance of a column, and w = exp(−½ (ln ξ / (6 · 1.5))²), which leaves out steps far
//! from it, ε = (Σ w ξ / ε⁶ / Σ w)^(−1/6) over running sums that forget by 149/151 (blackjax, `mclmc_find_L_and_step_size`).

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::tensor::host_f64;

/// The trust in one energy error.
const TRUST: f64 = 1.5;

/// The share of the running sums that a step keeps: 150 effective samples.
const KEPT: f64 = 149.0 / 151.0;

/// The largest growth of ε in a step.
const GROWTH: f64 = 2.0;

/// The settings of tuning.
pub struct Wanted {
    /// The variance of a step's energy error for each column.
    pub energy_variance: f64,
    /// The steps of tuning.
    pub steps: i64,
    /// ε at the start.
    pub step_size: f64,
    /// ℓ, if it is given.
    pub length: Option<f64>,
}

pub struct Tuning {
    wanted: f64,
    /// The steps of tuning.
    steps: i64,
    /// ε and ℓ, `[n, 1]` in f64.
    step_size: Tensor,
    length: Tensor,
    /// Σ w ξ / ε⁶ and Σ w, `[n, 1]`.
    scaled: Tensor,
    weight: Tensor,
    /// The mean of theta and of its squares over the second half of the steps, `[n, P]`, where they give ℓ, and the sum of the weights ε, `[n, 1]`.
    moments: Option<[Tensor; 2]>,
    total: Tensor,
}

impl Tuning {
    pub fn new(wanted: &Wanted, theta: &Tensor) -> Tuning {
        let (particles, columns) = (theta.size()[0], theta.size()[1]);
        let full = |value: f64| Tensor::full([particles, 1], value, (Kind::Double, theta.device()));
        let moments = (wanted.steps > 0 && wanted.length.is_none()).then(|| [theta.zeros_like(), theta.zeros_like()]);
        Tuning {
            wanted: wanted.energy_variance,
            steps: wanted.steps,
            step_size: full(wanted.step_size),
            length: full(wanted.length.unwrap_or((columns as f64).sqrt())),
            scaled: full(0.0),
            weight: full(0.0),
            moments,
            total: full(0.0),
        }
    }

    pub fn step_size(&self) -> &Tensor {
        &self.step_size
    }

    pub fn length(&self) -> &Tensor {
        &self.length
    }

    /// Learns from the energy error `[n, 1]` of the step that has led to `theta: [n, P]`, where `done` steps were before it.
    pub fn learn(&mut self, done: i64, theta: &Tensor, error: &Tensor) {
        if done >= self.steps {
            return;
        }
        let columns = theta.size()[1] as f64;
        let ratio = error.square() / (columns * self.wanted) + 1e-8;
        let weight = ((ratio.log() / (6.0 * TRUST)).square() * -0.5).exp();
        self.scaled = &self.scaled * KEPT + &weight * ratio / self.step_size.pow_tensor_scalar(6);
        self.weight = &self.weight * KEPT + weight;
        let found = (&self.scaled / &self.weight).pow_tensor_scalar(-1.0 / 6.0);
        self.step_size = found.minimum(&(&self.step_size * GROWTH));
        if done >= self.steps / 2 {
            self.gather(theta);
        }
        if done + 1 == self.steps
            && let Some([mean, square]) = &self.moments
        {
            let variances = (square - mean.square()).clamp_min(0.0);
            self.length = variances.sum_dim_intlist([1i64].as_slice(), true, Kind::Double).sqrt();
        }
    }

    /// Adds theta to the moments, with the weight ε.
    fn gather(&mut self, theta: &Tensor) {
        let Some([mean, square]) = &mut self.moments else { return };
        self.total = &self.total + &self.step_size;
        let share = (&self.step_size / &self.total).to_kind(theta.kind());
        *mean += (theta - &*mean) * &share;
        *square += (theta.square() - &*square) * share;
    }

    /// Returns what was found, in words.
    pub fn said(&self) -> Result<String> {
        let shown = |of: &Tensor| {
            let numbers = host_f64(&of.reshape([-1]))?;
            Ok::<_, anyhow::Error>(numbers.iter().map(|one| format!("{one:.3e}")).collect::<Vec<_>>().join(", "))
        };
        Ok(format!("step size {}, length {}", shown(&self.step_size)?, shown(&self.length)?))
    }

    pub fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.tensor("step_size", &mut self.step_size)?;
        keeper.tensor("length", &mut self.length)?;
        keeper.tensor("scaled", &mut self.scaled)?;
        keeper.tensor("weight", &mut self.weight)?;
        keeper.tensor("total", &mut self.total)?;
        if let Some([mean, square]) = &mut self.moments {
            keeper.tensor("mean", mean)?;
            keeper.tensor("square", square)?;
        }
        Ok(())
    }
}
