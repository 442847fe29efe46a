use super::*;
use crate::methods::{Answer, Evaluation, Request};
use crate::optimizers::Optimizer;
use crate::posterior::Draws;
use crate::subspace::Layout;
use crate::subspace::geometry::Geometry;
use tch::Device;

/// An optimizer that moves theta by minus a tenth of the direction.
struct Plain;

impl Optimizer for Plain {
    fn step(&mut self, theta: &mut Tensor, gradient: &Tensor, factor: f64) {
        let _ = theta.g_sub_(&(gradient * (0.1 * factor)));
    }

    fn save(&self, _: &mut State) {}

    fn load(&mut self, _: &State) -> Result<()> {
        Ok(())
    }
}

/// A linear layer with two outputs and three inputs, and its bias.
fn parts(rows: i64) -> Parts {
    let mut layout = Layout::default();
    layout.push_linear("layer.weight", [2, 3]);
    layout.push("layer.bias", &[2]);
    layout.close_block("layer", 0, crate::subspace::Shape::Dense);
    let theta = Tensor::arange(rows * 8, (Kind::Double, Device::Cpu)).view([rows, 8]) + 1.0;
    Parts { theta, seed: 5, optimizer: Box::new(Plain), geometry: Geometry::new(&layout), clip_norm: None }
}

/// L = Σ θ² / 2 on two parts of equal size; it notes where it was evaluated.
struct Square {
    seen: Vec<Tensor>,
}

impl Objective for Square {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        self.seen.push(theta.copy());
        let losses = theta.square().sum_dim_intlist([1i64].as_slice(), false, Kind::Double) * 0.5;
        Ok(Evaluation { losses: losses * 0.5, gradients: theta * 0.5 }.into())
    }

    fn parts(&self) -> usize {
        2
    }
}

#[test]
fn gradients_are_those_of_the_masked_layers() {
    let parts = parts(2);
    let start = parts.theta.copy();
    let mut method = Spec { particles: 2, rate: 0.5, samples: 3 }.build(parts);
    let (mut theta, mut square) = (start.copy(), Square { seen: Vec::new() });
    let step = method.step(&mut theta, &mut square, 1.0).unwrap();
    assert_eq!(square.seen.len(), 2);
    let masks: Vec<Tensor> = square.seen.iter().map(|seen| seen / &start).collect();
    assert!(!masks[0].equal(&masks[1]), "each part has a mask of its own");
    for mask in &masks {
        let weights = mask.narrow(1, 0, 6).view([2, 2, 3]);
        assert!(weights.select(1, 0).equal(&weights.select(1, 1)), "an input is dropped for all outputs");
        assert!((mask.narrow(1, 6, 2) - 1.0).abs().max().double_value(&[]) == 0.0, "biases stay");
        assert!((weights.square() - &weights * 2.0).abs().max().double_value(&[]) < 1e-12, "0 or 2");
    }
    // dL/dθ of L(θ m) is m² θ.
    let expected = &start - (masks[0].square() + masks[1].square()) * &start * 0.05;
    assert!((theta - expected).abs().max().double_value(&[]) < 1e-12);
    assert!(step.losses.size() == [2]);
}

#[test]
fn members_are_masks_and_the_mean_is_without_dropout() {
    let parts = parts(2);
    let theta = parts.theta.to_kind(Kind::Float);
    let method = Spec { particles: 2, rate: 0.5, samples: 3 }.build(parts);
    let posterior = method.posterior(&theta);
    assert!(posterior.is_random() && posterior.theta().equal(&theta));
    assert_eq!(posterior.predictives(Predictive::Draws(3)), [Predictive::Draws(3), Predictive::Mean]);
    let draws = |count: usize| {
        let draws = Draws::new(&posterior, count, 1).unwrap();
        draws.rows(0..draws.count()).unwrap()
    };
    let (three, four) = (draws(3), draws(4));
    assert_eq!(three.size(), [6, 8]);
    assert!(three.get(4).equal(&four.get(5)), "fewer draws are the first of more");
    let factors = three.view([2, 3, 8]) / theta.unsqueeze(1);
    assert!((factors.square() - &factors * 2.0).narrow(2, 0, 6).abs().max().double_value(&[]) < 1e-5, "0 or 2");
}
