//! The objective and the optimizer that a step calls, with a record of the time that they take.

use std::cell::Cell;
use std::rc::Rc;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::bench::measured::{Clock, Elapsed};
use crate::methods::{Answer, Evaluation, Extended, Extra, Objective, Request, Target};
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
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        during(&self.spent, request.theta.device(), || self.inner.evaluate(request))
    }

    fn parts(&self) -> usize {
        self.inner.parts()
    }

    fn share(&self, part: usize) -> f64 {
        self.inner.share(part)
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

    fn keep(&mut self, keeper: &mut Keeper) -> Result<()> {
        self.inner.keep(keeper)
    }
}

/// An objective that returns given gradients, so that only the method and the optimizer take time.
pub struct Given {
    /// The gradients, `[n, P]`.
    pub gradients: Tensor,
}

impl Objective for Given {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let losses = Tensor::zeros([request.theta.size()[0]], (Kind::Float, request.theta.device()));
        // Methods overwrite the gradients that they receive.
        let own = Evaluation { losses, gradients: self.gradients.copy() };
        match (request.target, request.extra) {
            (Target::Losses, Extra::None) => Ok(own.into()),
            (Target::Losses, Extra::Squares) => Ok(Extended { own, extra: self.gradients.square() }.into()),
            _ => Err(request.refused("the gradients are given, and there is no network")),
        }
    }
}
