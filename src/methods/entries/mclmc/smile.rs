//! SMILE (Sommer et al. 2026, arXiv 2602.06500): microcanonical dynamics without drawn noise. Batches differ, and that turns the directions; the
//! size of the steps follows quantiles of the energy errors, and a step whose error is beyond them is undone.
//!
//! | symbol | here |
//! |---|---|
//! | a step: turn(b) by the gradient where the last step ended, go(½), turn(1 − 2 b), go(½), turn(b) | two gradients of one batch, and one of the batch before |
//! | ΔE, the change of the speed's own energy and of E, which in the first step is not known | |
//! | m ← (1 − β) m + β abs(ΔE), s² ← (1 − β) s² + β (abs(ΔE) − m)² | β is `smoothing`; m starts at abs(ΔE) |
//! | Q(p) = s² / m · a (1 − 1 / (9 a) + z / (3 √a))³ with a = m² / s² and z = Φ⁻¹(p): the quantile of a gamma distribution (Wilson and Hilferty) | s² + 10⁻⁶ in place of s² |
//! | abs(ΔE) > Q(`guard`): θ as before the step, and no direction until the next gradient gives one | |
//! | abs(ΔE) > Q(1 − 2 t / 3): ε ← ε (1 − δ); abs(ΔE) < Q(t / 3): ε ← ε (1 + δ) | t is `tails`, δ `adaption` |
//! | pSMILE: σ, the deviation of each column's gradient from its running mean, over the root mean square of all; θ ← θ + ε a u / σ, and ∇E / σ in turns | β = 0.01, clamped to 10⁻² … 10⁴ |
//!
//! In the first nine steps nothing is undone and ε stays. These are the authors' steps, with the numbers that stand in their code. Differs from
//! it: the mean of the gradients goes on from step to step, where theirs begins at 1 in each (a state that is not handed on), and a loss that is
//! not finite ends the training.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::base::tensor::host_f64;
use crate::methods::{Evaluation, Objective};
use crate::optimizers::correction;

/// The adaptation of the size of the steps to the errors of the energy.
#[derive(Clone, Copy, Debug)]
pub struct Adaption {
    pub step_size: f64,
    pub guard: f64,
    pub tails: f64,
    pub adaption: f64,
    pub smoothing: f64,
}

/// The steps at the beginning in which nothing is undone and the size stays.
const SETTLING: i64 = 9;

/// The largest entry of a gradient.
const LARGEST: f64 = 1e6;

/// The share of the noise of gradients that is forgotten in a step.
const FORGOTTEN: f64 = 0.01;

pub struct Smile {
    adaption: Adaption,
    /// Φ⁻¹ of the quantiles: the guard, and the upper and lower one of the adaption.
    bounds: [f64; 3],
    /// The number of steps done.
    steps: i64,
    /// The number of steps that were undone, over all chains.
    undone: i64,
    /// ε, m, s, and E of the last batch at the end of the last step, `[n, 1]` in f64.
    step_size: Tensor,
    mean: Tensor,
    deviation: Tensor,
    energy: Tensor,
    /// The gradient at the end of the last step, `[n, P]`.
    gradient: Tensor,
    noise: Option<Noise>,
}

/// The running mean of the gradients, which begins at 1 in those of the log density, and their deviation from it, `[n, P]`.
struct Noise {
    mean: Tensor,
    deviation: Tensor,
}

/// The result of a step.
pub struct Moved {
    /// The mean losses, `[n]`: half-way in SMILE.
    pub losses: Tensor,
    /// ΔE, and 1 for each chain whose step was undone, `[n, 1]`.
    pub error: Tensor,
    pub undone: Tensor,
}

impl Smile {
    pub fn new(adaption: Adaption, preconditioned: bool, theta: &Tensor) -> Smile {
        let full = |value: f64| Tensor::full([theta.size()[0], 1], value, (Kind::Double, theta.device()));
        let Adaption { guard, tails, .. } = adaption;
        let noise = preconditioned.then(|| Noise { mean: -theta.ones_like(), deviation: theta.ones_like() });
        Smile {
            adaption,
            bounds: [guard, 1.0 - 2.0 * tails / 3.0, tails / 3.0].map(normal_quantile),
            steps: 0,
            undone: 0,
            step_size: full(adaption.step_size),
            mean: full(0.0),
            deviation: full(0.0),
            energy: full(0.0),
            gradient: theta.zeros_like(),
            noise,
        }
    }

    pub fn step_size(&self) -> &Tensor {
        &self.step_size
    }

    /// Makes a step of `theta: [n, P]` in the directions `[n, P]`.
    ///
    /// # Errors
    /// Fails if the objective does.
    pub fn advance(
        &mut self,
        theta: &mut Tensor,
        direction: &mut Tensor,
        objective: &mut dyn Objective,
        scale: Scale,
    ) -> Result<Moved> {
        let widths = self.noise.as_ref().map(Noise::widths);
        let over = |tensor: &Tensor| widths.as_ref().map_or(tensor.shallow_clone(), |widths| tensor / widths);
        let size = self.step_size.copy();
        let half = |place: &Tensor, way: &Tensor| place + over(&(way * (&size * 0.5).to_kind(way.kind())));
        let mut energy_at = |place: &Tensor| -> Result<Energy> {
            let found = scale.energy(place, objective)?;
            Ok(Energy { gradient: found.gradient.clamp(-LARGEST, LARGEST), ..found })
        };
        let mut turned = direction.copy();
        let mut error = turn(&mut turned, &self.gradient, &size, OUTER);
        let place = half(theta, &turned);
        let middle = energy_at(&place)?;
        error += turn(&mut turned, &over(&middle.gradient), &size, 1.0 - 2.0 * OUTER);
        let place = half(&place, &turned);
        let end = energy_at(&place)?;
        let gradient = over(&end.gradient);
        error += turn(&mut turned, &gradient, &size, OUTER);
        error += (&end.value - &self.energy) * self.energy.not_equal(0.0).to_kind(Kind::Double);
        (self.gradient, self.energy) = (gradient, end.value);
        let undone = self.judge(&error);
        *theta = theta.where_self(&undone, &place);
        *direction = turned.zeros_like().where_self(&undone, &turned);
        if let Some(noise) = &mut self.noise {
            noise.learn(&end.gradient);
        }
        self.undone += undone.sum(Kind::Int64).int64_value(&[]);
        Ok(Moved { losses: middle.losses, error, undone: undone.to_kind(Kind::Double) })
    }

    /// Learns from the energy errors, and returns which chains go back.
    fn judge(&mut self, error: &Tensor) -> Tensor {
        let Adaption { adaption, smoothing, .. } = self.adaption;
        let error = error.abs();
        let [guard, upper, lower] = self.quantiles();
        self.steps += 1;
        let settles = self.steps <= SETTLING;
        self.mean = if self.steps < 3 { error.copy() } else { &self.mean * (1.0 - smoothing) + &error * smoothing };
        self.mean = self.mean.clamp(1e-6, 1e6);
        let kept = if self.steps == 1 { 0.0 } else { 1.0 - smoothing };
        let known = if self.steps < 5 { 1.0 } else { correction(0.5, self.steps - 4) };
        let square = self.deviation.square() * kept + (&error - &self.mean).square() * smoothing;
        self.deviation = (square / known).sqrt().clamp(1e-6, 1e7);
        if settles {
            return error.zeros_like().to_kind(Kind::Bool);
        }
        let smaller = (&self.step_size * (1.0 - adaption)).where_self(&error.greater_tensor(&upper), &self.step_size);
        let larger = (&smaller * (1.0 + adaption)).where_self(&error.less_tensor(&lower), &smaller);
        self.step_size = larger.clamp(1e-8, 10.0);
        error.greater_tensor(&guard)
    }

    /// Returns the quantiles of the errors so far, `[n, 1]` each.
    fn quantiles(&self) -> [Tensor; 3] {
        let variance = self.deviation.square() + 1e-6;
        let (scale, shape) = (&variance / &self.mean, self.mean.square() / &variance);
        self.bounds.map(|z| {
            let root: Tensor = 1.0 - (&shape * 9.0).reciprocal() + shape.sqrt().reciprocal() * (z / 3.0);
            &scale * &shape * root.pow_tensor_scalar(3)
        })
    }

    /// Returns what was found, in words.
    pub fn said(&self) -> Result<String> {
        let sizes = host_f64(&self.step_size.reshape([-1]))?;
        let sizes: Vec<String> = sizes.iter().map(|one| format!("{one:.3e}")).collect();
        let all = self.steps * self.step_size.size()[0];
        Ok(format!("step size {}; {} of {all} steps were undone", sizes.join(", "), self.undone))
    }

    pub fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        keeper.tensor("step_size", &mut self.step_size)?;
        keeper.tensor("error_mean", &mut self.mean)?;
        keeper.tensor("error_deviation", &mut self.deviation)?;
        keeper.tensor("energy", &mut self.energy)?;
        keeper.tensor("gradient", &mut self.gradient)?;
        if let Some(Noise { mean, deviation }) = &mut self.noise {
            keeper.tensor("gradient_mean", mean)?;
            keeper.tensor("gradient_deviation", deviation)?;
        }
        keeper.count("smile_steps", &mut self.steps)?;
        keeper.count("undone", &mut self.undone)
    }
}

impl Noise {
    /// Returns σ, `[n, P]`.
    fn widths(&self) -> Tensor {
        let widths = self.deviation.clamp(1e-2, 1e4);
        let mean = widths.to_kind(Kind::Double).square().mean_dim([1i64].as_slice(), true, Kind::Double);
        &widths / mean.sqrt().to_kind(widths.kind())
    }

    fn learn(&mut self, gradient: &Tensor) {
        self.mean = (&self.mean * (1.0 - FORGOTTEN) + gradient * FORGOTTEN).clamp(-LARGEST, LARGEST);
        let square = self.deviation.square() * (1.0 - FORGOTTEN) + (gradient - &self.mean).square() * FORGOTTEN;
        self.deviation = square.clamp_min(1e-7).sqrt();
    }
}

/// Returns Φ⁻¹ of a probability.
fn normal_quantile(probability: f64) -> f64 {
    Tensor::full([1], probability, (Kind::Double, Device::Cpu)).special_ndtri().double_value(&[0])
}

/// The parts of the energy E(θ) = (N / T) (L̄(θ) + δ ‖θ‖² / 2).
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// N / T.
    pub scale: f64,
    /// δ.
    pub weight_decay: f64,
}

/// The energy of a batch.
pub struct Energy {
    /// The mean losses, `[n]`.
    pub losses: Tensor,
    /// E, `[n, 1]` in f64.
    pub value: Tensor,
    /// ∇E, `[n, P]`.
    pub gradient: Tensor,
}

impl Scale {
    pub fn energy(self, theta: &Tensor, objective: &mut dyn Objective) -> Result<Energy> {
        let Scale { scale, weight_decay } = self;
        let Evaluation { losses, gradients } = objective.losses(theta)?;
        let prior = theta.to_kind(Kind::Double).square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
        let value = (losses.to_kind(Kind::Double).unsqueeze(1) + prior * (weight_decay / 2.0)) * scale;
        Ok(Energy { losses, value, gradient: (gradients + theta * weight_decay) * scale })
    }
}

/// The share of a step that its outer turns take (McLachlan).
pub const OUTER: f64 = 0.1931833275037836;

/// Returns rows over their lengths; a row of nothing stays so.
pub fn unit(rows: &Tensor) -> Tensor {
    rows / rows.norm_scalaropt_dim(2.0, [1], true).clamp_min(f64::from(f32::MIN_POSITIVE))
}

/// Turns a chain of constant speed: the part of an isokinetic step that changes the momentum, as blackjax computes it. A direction is turned
/// by a share of a step of the size `step_size: [n, 1]`; the change of the speed's own energy, `[n, 1]`, is returned.
pub fn turn(direction: &mut Tensor, gradient: &Tensor, step_size: &Tensor, share: f64) -> Tensor {
    let more = (gradient.size()[1] - 1).max(1) as f64;
    let kind = direction.kind();
    let length = gradient.norm_scalaropt_dim(2.0, [1], true).to_kind(Kind::Double);
    // A gradient of nothing has no direction; the least length is a number in f32, too.
    let away = -gradient / length.clamp_min(f64::from(f32::MIN_POSITIVE)).to_kind(kind);
    let along = (&*direction * &away).sum_dim_intlist([1i64].as_slice(), true, Kind::Double);
    let delta = step_size * &length * (share / more);
    let zeta = (-&delta).exp();
    let rest: Tensor = 1.0 - &zeta;
    let turned: Tensor = 1.0 + &zeta + &along * &rest;
    let by_gradient = (rest * turned).to_kind(kind);
    // 1 + u·e where u has the length 1, which it has not after a step that was undone.
    let plus = (&*direction + &away).square().sum_dim_intlist([1i64].as_slice(), true, Kind::Double) * 0.5;
    let square = zeta.square();
    let grown = plus * (square.ones_like() - &square) + square * 2.0;
    *direction = unit(&(away * by_gradient + &*direction * (&zeta * 2.0).to_kind(kind)));
    (delta - 2f64.ln() + grown.log()) * more
}
