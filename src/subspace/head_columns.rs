//! The columns of a head that particles train, and the random draws that particles start from.

use rand::RngExt;
use tch::Tensor;

use super::{Layout, Shape};
use crate::base::random::{Purpose, stream};
use crate::model::head::Head;

/// The name of the weight of a trained head.
pub const HEAD_WEIGHT: &str = "head.weight";

/// Returns uniform draws from ±bound, a pure function of (seed, particle, column).
pub fn uniform(seed: u64, particle: u64, column: u64, count: usize, bound: f64) -> Vec<f32> {
    let mut rng = stream(seed, Purpose::Init, &[particle, column]);
    (0..count).map(|_| rng.random_range(-bound..bound) as f32).collect()
}

/// Returns the start of a new linear head, drawn as in `torch.nn.Linear`: U(±1/√d).
pub fn initial_head(seed: u64, particle: u64, head: &Head) -> Tensor {
    let (classes, width) = (head.weight.size()[0], head.weight.size()[1]);
    let bound = 1.0 / (width as f64).sqrt();
    let values = uniform(seed, particle, u64::MAX, (classes * width + classes) as usize, bound);
    Tensor::from_slice(&values)
}

/// Appends the columns and the block of a head that particles train.
pub fn push_head(layout: &mut Layout, head: &Head) {
    let start = layout.parameters();
    layout.push_linear(HEAD_WEIGHT, [head.weight.size()[0], head.weight.size()[1]]);
    layout.push("head.bias", &head.bias.size());
    layout.close_block("head", start, Shape::Dense);
}

/// Returns the weight and the bias of a head as they follow each other in the columns.
pub fn flat_head(head: &Head) -> Tensor {
    Tensor::cat(&[head.weight.reshape([-1]), head.bias.reshape([-1])], 0)
}
