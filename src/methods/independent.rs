//! Particles that do not interact.

use anyhow::Result;
use tch::Tensor;

use super::{Method, Objective, Parts, Step};
use crate::base::tensor_file::State;

/// A method in which every row follows its own gradient.
pub struct Independent {
    pub parts: Parts,
}

impl Method for Independent {
    fn step(&mut self, theta: &mut Tensor, objective: &mut dyn Objective, factor: f64) -> Result<Step> {
        let evaluation = objective.losses(theta)?;
        self.parts.apply(theta, &evaluation.gradients, objective, factor)?;
        Ok(Step { losses: evaluation.losses, diagnostics: None })
    }

    fn save(&self, state: &mut State) {
        self.parts.optimizer.save(state);
    }

    fn load(&mut self, state: &State) -> Result<()> {
        self.parts.optimizer.load(state)
    }
}
