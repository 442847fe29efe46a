//! Doubles of an optimizer and of other parts, from which tests build methods.

use anyhow::Result;
use tch::Tensor;

use super::Parts;
use crate::base::tensor_file::State;
use crate::optimizers::Optimizer;
use crate::subspace::geometry::WeightSpace;
use crate::subspace::{Layout, Shape};

/// An optimizer that moves theta by minus the direction, times this factor.
pub struct Plain(pub f64);

impl Optimizer for Plain {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        let _ = theta.g_sub_(&(gradient * (self.0 * factor)));
    }

    fn save(&self, _: &mut State) {}

    fn load(&mut self, _: &State) -> Result<()> {
        Ok(())
    }
}

/// Returns the parts of a method with `theta: [n, P]` as one dense block, and steps of a tenth of the direction.
pub fn parts(theta: &Tensor) -> Parts {
    let mut layout = Layout::default();
    layout.push("weight", &[theta.size()[1]]);
    layout.close_block("weight", 0, Shape::Dense);
    let geometry = WeightSpace::new(&layout);
    Parts { theta: theta.copy(), seed: 1, optimizer: Box::new(Plain(0.1)), geometry, clip_norm: None }
}
