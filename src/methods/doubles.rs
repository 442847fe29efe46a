//! Doubles of an optimizer and of other parts, from which tests build methods.

use anyhow::Result;
use tch::{Kind, Tensor};

use super::{Answer, Evaluation, Objective, Parts, Request};
use crate::base::golden::Golden;
use crate::base::keeper::Keeper;
use crate::base::random::{At, Noise};
use crate::base::tensor::label_log_probabilities;
use crate::optimizers::Optimizer;
use crate::subspace::geometry::WeightSpace;
use crate::subspace::{Layout, Shape};

/// An optimizer that moves theta by minus the direction, times this factor.
pub struct Plain(pub f64);

impl Optimizer for Plain {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        let _ = theta.g_sub_(&(gradient * (self.0 * factor)));
    }

    fn keep(&mut self, _: &mut Keeper) -> Result<()> {
        Ok(())
    }
}

/// Returns noise that is these draws `[n, P]` in turn, for comparison with other code.
pub fn given(draws: Vec<Tensor>) -> Noise {
    Noise::from(move |at: At, theta: &Tensor| draws[(at.step + at.sample) as usize % draws.len()].expand_as(theta))
}

/// Cross-entropy of linear layers `[4, 3]`, a row each; gradients by autograd. Inputs and labels are those of a golden of the authors.
pub struct Layers {
    x: Tensor,
    labels: Tensor,
}

impl Layers {
    pub fn of(golden: &Golden) -> Layers {
        Layers { x: golden.tensor("x"), labels: golden.tensor("labels").to_kind(Kind::Int64) }
    }
}

impl Objective for Layers {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?.copy().set_requires_grad(true);
        let logits = self.x.matmul(&theta.view([-1, 4, 3]).transpose(1, 2));
        let labels = self.labels.expand([theta.size()[0], -1], false);
        let chosen = label_log_probabilities(&logits, &labels, Kind::Double);
        let losses = -chosen.mean_dim([-1i64].as_slice(), false, Kind::Double);
        let gradients = Tensor::run_backward(&[losses.sum(Kind::Double)], &[&theta], false, false).remove(0);
        Ok(Evaluation { losses: losses.detach(), gradients }.into())
    }
}

/// L = Σ a (θ − c)⁴ for each particle, with a and c `[P]`, and the number of times that it was asked.
pub struct Quartic {
    pub a: Tensor,
    pub c: Tensor,
    pub evaluations: usize,
}

impl Objective for Quartic {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let apart = request.plain()? - &self.c;
        self.evaluations += 1;
        let losses = (&self.a * apart.square().square()).sum_dim_intlist([1i64].as_slice(), false, Kind::Double);
        Ok(Evaluation { losses, gradients: &self.a * apart.square() * &apart * 4.0 }.into())
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
