//! Objectives and optimizers that record the time spent in them, so that a training step can be split into its parts.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use super::clock::{Clock, Elapsed};
use crate::base::tensor_file::State;
use crate::methods::{Evaluation, HeadInputs, Mixed, Noisy, Objective, Outputs, Signs, Squared};
use crate::optimizers::Optimizer;

/// The time spent, shared between the code that spends it and the code that reads it.
pub type Spent = Rc<Cell<Elapsed>>;

/// Returns a counter at zero.
pub fn nothing_spent() -> Spent {
    Rc::new(Cell::new(Elapsed::NONE))
}

fn during<T>(spent: &Spent, device: Device, work: impl FnOnce() -> T) -> T {
    let clock = Clock::start(device);
    let done = work();
    spent.set(spent.get().plus(clock.stop()));
    done
}

/// An objective that records its time.
pub struct TimedObjective<'a> {
    pub inner: &'a mut dyn Objective,
    pub spent: Spent,
}

impl Objective for TimedObjective<'_> {
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation> {
        during(&self.spent, theta.device(), || self.inner.evaluate(theta))
    }

    fn evaluate_mixed(&mut self, theta: &Tensor, matrices: &Tensor) -> Result<Mixed> {
        during(&self.spent, theta.device(), || self.inner.evaluate_mixed(theta, matrices))
    }

    fn outputs(&mut self, theta: &Tensor) -> Result<Outputs> {
        during(&self.spent, theta.device(), || self.inner.outputs(theta))
    }

    fn pull_back(&mut self, theta: &Tensor, by_logits: &Tensor) -> Result<Tensor> {
        during(&self.spent, theta.device(), || self.inner.pull_back(theta, by_logits))
    }

    fn head_inputs(&mut self, theta: &Tensor) -> Result<HeadInputs> {
        during(&self.spent, theta.device(), || self.inner.head_inputs(theta))
    }

    fn pull_back_head_inputs(&mut self, theta: &Tensor, by_features: &Tensor) -> Result<Tensor> {
        during(&self.spent, theta.device(), || self.inner.pull_back_head_inputs(theta, by_features))
    }

    fn parts(&self) -> usize {
        self.inner.parts()
    }

    fn share(&self, part: usize) -> f64 {
        self.inner.share(part)
    }

    fn evaluate_part(&mut self, theta: &Tensor, part: usize) -> Result<Evaluation> {
        during(&self.spent, theta.device(), || self.inner.evaluate_part(theta, part))
    }

    fn evaluate_squared(&mut self, theta: &Tensor, part: usize) -> Result<Squared> {
        during(&self.spent, theta.device(), || self.inner.evaluate_squared(theta, part))
    }

    fn evaluate_flipped(&mut self, theta: &Tensor, noise: &Tensor, signs: Signs, part: usize) -> Result<Noisy> {
        during(&self.spent, theta.device(), || self.inner.evaluate_flipped(theta, noise, signs, part))
    }
}

/// An optimizer that records its time.
pub struct TimedOptimizer {
    pub inner: Box<dyn Optimizer>,
    pub spent: Spent,
}

impl Optimizer for TimedOptimizer {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        let device = theta.device();
        during(&self.spent, device, || self.inner.step(theta, gradient, factor));
    }

    fn probe(&self) -> Option<i64> {
        self.inner.probe()
    }

    fn observe(&mut self, curvature: &Tensor) {
        during(&self.spent, curvature.device(), || self.inner.observe(curvature));
    }

    fn save(&self, state: &mut State) {
        self.inner.save(state);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.inner.load(state)
    }
}

/// An objective that returns given gradients, so that only the method and the optimizer take time.
pub struct Given {
    /// The gradients, `[n, P]`.
    pub gradients: Tensor,
}

impl Objective for Given {
    fn evaluate(&mut self, theta: &Tensor) -> Result<Evaluation> {
        let losses = Tensor::zeros([theta.size()[0]], (Kind::Float, theta.device()));
        // Methods overwrite the gradients that they receive.
        Ok(Evaluation { losses, gradients: self.gradients.copy() })
    }

    fn evaluate_squared(&mut self, theta: &Tensor, _: usize) -> Result<Squared> {
        Ok(Squared { own: self.evaluate(theta)?, squares: self.gradients.square() })
    }
}
