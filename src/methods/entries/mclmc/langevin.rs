//! Microcanonical Langevin dynamics with drawn noise.

use anyhow::Result;
use tch::Tensor;

use super::smile::{Moved, OUTER, Scale, turn, unit};
use super::tuning::{Tuning, Wanted};
use crate::base::random::{At, Noise};
use crate::methods::Objective;

pub struct Langevin {
    noise: Noise,
    pub tuning: Tuning,
}

impl Langevin {
    pub fn new(wanted: &Wanted, noise: Noise, theta: &Tensor) -> Langevin {
        Langevin { noise, tuning: Tuning::new(wanted, theta) }
    }

    /// Returns the directions in which chains at `theta: [n, P]` start.
    pub fn start(&self, theta: &Tensor) -> Tensor {
        unit(&self.noise.draw(At { step: -1, sample: 0, part: 0 }, theta))
    }

    /// Adds noise to the direction, for the first or the second half of a step.
    fn refresh(&self, direction: &mut Tensor, half: i64) {
        let columns = direction.size()[1] as f64;
        let ratio = self.tuning.step_size() / self.tuning.length();
        let width = (ratio.expm1() / columns).sqrt().to_kind(direction.kind());
        let noise = self.noise.draw(At { step: half, sample: 0, part: 0 }, direction);
        *direction = unit(&(&*direction + noise * width));
    }

    /// Makes step number `step` of `theta: [n, P]` in the directions `[n, P]`. The losses are those where it began.
    ///
    /// # Errors
    /// Fails if the objective does.
    pub fn advance(
        &self,
        step: i64,
        theta: &mut Tensor,
        direction: &mut Tensor,
        objective: &mut dyn Objective,
        scale: Scale,
    ) -> Result<Moved> {
        let size = self.tuning.step_size();
        let go = |theta: &mut Tensor, direction: &Tensor| *theta += direction * (size * 0.5).to_kind(direction.kind());
        self.refresh(direction, 2 * step);
        let first = scale.energy(theta, objective)?;
        let mut error = turn(direction, &first.gradient, size, OUTER) - &first.value;
        go(theta, direction);
        let middle = scale.energy(theta, objective)?;
        error += turn(direction, &middle.gradient, size, 1.0 - 2.0 * OUTER);
        go(theta, direction);
        let last = scale.energy(theta, objective)?;
        error += turn(direction, &last.gradient, size, OUTER) + last.value;
        self.refresh(direction, 2 * step + 1);
        let undone = Tensor::zeros_like(size);
        Ok(Moved { losses: first.losses, error, undone })
    }
}
