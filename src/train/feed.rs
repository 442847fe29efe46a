//! What a training step is fed with: images, or what the blocks below the first trained one made of them.

use tch::Tensor;

use crate::images::Batch;
use crate::model::{Input, Model};

/// What a step is fed with.
pub(super) enum Feed {
    Images(Batch),
    /// What enters the first trained block, `[K, T, d]`, and labels `[K]`.
    Tokens(Tensor, Tensor),
}

impl Feed {
    /// What enters the network at `block`, and labels `[p, B]`, for p data orders.
    pub(super) fn input(&self, model: &Model, block: usize, orders: i64) -> (Input, Tensor) {
        let (values, labels) = match self {
            Feed::Images(batch) => (&batch.bytes, &batch.labels),
            Feed::Tokens(tokens, labels) => (tokens, labels),
        };
        let samples = labels.size()[0] / orders;
        let labels = labels.view([orders, samples]);
        let input = match self {
            // A process may have no sample of a small batch; preprocessing would not take that.
            _ if samples == 0 => Input::Tokens(values.shallow_clone(), block),
            Feed::Images(batch) => Input::Images(model.preprocess.images(&batch.bytes, orders)),
            Feed::Tokens(tokens, _) => {
                let (each, width) = (tokens.size()[1], tokens.size()[2]);
                Input::Tokens(tokens.view([orders, samples, each, width]), block)
            }
        };
        (input, labels)
    }
}
