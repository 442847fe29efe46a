//! What a training step is fed with: images, or what the blocks below the first trained one made of them.

use tch::Tensor;

use crate::data::batches::Batch;
use crate::model::Input;

/// What a step is fed with.
pub(super) enum Feed {
    Images(Batch),
    /// What enters the first trained block, `[K, T, d]`, and labels `[K]`.
    Tokens(Tensor, Tensor),
}

impl Feed {
    /// What enters the network, tokens at `block`, and labels `[p, B]`, for p data orders.
    pub(super) fn input(&self, block: usize, orders: i64) -> (Input, Tensor) {
        let (values, labels) = match self {
            Feed::Images(batch) => (&batch.bytes, &batch.labels),
            Feed::Tokens(tokens, labels) => (tokens, labels),
        };
        let samples = labels.size()[0] / orders;
        let labels = labels.view([orders, samples]);
        let values = values.unflatten(0, [orders, samples].as_slice());
        let input = match self {
            Feed::Images(_) => Input::Images(values),
            Feed::Tokens(..) => Input::Tokens(values, block),
        };
        (input, labels)
    }
}
