//! Snapshots of theta along the training, for methods whose posterior is made of them: when they are taken, and the last of
//! them.

use std::collections::VecDeque;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::base::keeper::Keeper;
use crate::posterior::Posterior;
use crate::schema::settings;

settings! {
    /// The steps after which a snapshot is taken: `start + every`, `start + 2 every`, and so on.
    #[derive(Clone, Copy, Debug)]
    pub struct Schedule {
        /// Training steps before the first snapshot.
        pub start: i64, in 0..=1_000_000_000;
        /// Training steps from one snapshot to the next.
        pub every: i64, in 1..=1_000_000_000;
    }
}

impl Schedule {
    /// Returns the number of snapshots in the first `steps` steps.
    pub fn snapshots(self, steps: i64) -> i64 {
        (steps - self.start).max(0) / self.every
    }

    /// Returns whether a snapshot is taken after step number `step`, counted from 1.
    pub fn is_due(self, step: i64) -> bool {
        self.snapshots(step) > self.snapshots(step - 1)
    }
}

/// Returns the number of rows of a posterior that is made of the last snapshots, at most `most` of each particle: the particles
/// themselves before the first one.
pub fn rows(particles: i64, taken: i64, most: usize) -> i64 {
    particles * taken.clamp(1, most as i64)
}

/// The last tensors of a sequence, at most K, each of theta's shape `[n, P]`.
pub struct Last {
    most: usize,
    size: Vec<i64>,
    options: (Kind, Device),
    tensors: VecDeque<Tensor>,
}

impl Last {
    /// Returns an empty sequence of tensors that have the shape, type and device of `theta`.
    pub fn new(most: usize, theta: &Tensor) -> Last {
        Last { most, size: theta.size(), options: (theta.kind(), theta.device()), tensors: VecDeque::new() }
    }

    /// Returns the number of tensors.
    pub fn count(&self) -> usize {
        self.tensors.len()
    }

    /// Appends a tensor. The first one goes when there are more than K.
    pub fn push(&mut self, tensor: Tensor) {
        if self.tensors.len() == self.most {
            self.tensors.pop_front();
        }
        self.tensors.push_back(tensor);
    }

    /// Returns the tensors side by side, `[n, K, P]`.
    pub fn stacked(&self) -> Tensor {
        Tensor::stack(&self.tensors.iter().collect::<Vec<_>>(), 1)
    }

    /// Returns the posterior of chains at `theta: [n, P]`, of which the states are kept: a bank of them, those of a chain next to each
    /// other, with their weights if there are some. Before the first state is kept, it is points.
    pub fn posterior(&self, theta: &Tensor, weights: impl FnOnce() -> Option<Vec<f64>>) -> Posterior {
        match self.count() {
            0 => Posterior::Points { theta: theta.shallow_clone() },
            _ => Posterior::Bank { draws: self.stacked().flatten(0, 1).to_kind(Kind::Float), weights: weights() },
        }
    }

    /// Keeps the tensors as `<name>.0`, `<name>.1`, and so on, of a whole sequence of `length` tensors.
    ///
    /// # Errors
    /// Fails if a tensor is missing where it is restored, or has another shape.
    pub fn keep(&mut self, name: &str, length: i64, keeper: &mut Keeper) -> Result<()> {
        if keeper.restores() {
            let empty = || Tensor::empty(self.size.as_slice(), self.options);
            self.tensors = (0..(length as usize).min(self.most)).map(|_| empty()).collect();
        }
        self.tensors
            .iter_mut()
            .enumerate()
            .try_for_each(|(place, tensor)| keeper.tensor(&format!("{name}.{place}"), tensor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::tensor_file::State;

    #[test]
    fn snapshots_are_due_as_often_as_they_are_counted() {
        let schedule = Schedule { start: 4, every: 3 };
        let due: Vec<i64> = (1..=14).filter(|step| schedule.is_due(*step)).collect();
        assert_eq!(due, [7, 10, 13]);
        assert_eq!([0, 4, 6, 7, 14].map(|steps| schedule.snapshots(steps)), [0, 0, 0, 1, 3]);
    }

    #[test]
    fn a_tensor_of_another_shape_is_refused() {
        let tensor = |size: i64| Tensor::zeros([2, size], (Kind::Float, Device::Cpu));
        let mut last = Last::new(3, &tensor(5));
        last.push(tensor(5));
        let mut state = State::default();
        state.store(|keeper| last.keep("kept", 1, keeper)).unwrap();
        let restored = state.restore(|keeper| Last::new(3, &tensor(4)).keep("kept", 1, keeper));
        let error = restored.unwrap_err().to_string();
        assert_eq!(error, "the file's `kept.0` has shape [2, 5], this run needs [2, 4]");
    }
}
