//! The input of a training step: samples, or the output of the stages below the first trained one.

use tch::Tensor;

use crate::data::batches::Batch;
use crate::model::Input;

/// The input of a training step.
pub(super) enum Feed {
    Samples(Batch),
    /// The input of the first trained stage, `[K, …]`, and labels `[K]`.
    Entering(Tensor, Tensor),
}

impl Feed {
    /// Returns the input of the network and the labels `[p, B, …]`, for p data orders. Cached values enter at `stage`.
    pub(super) fn input(&self, stage: usize, orders: i64) -> (Input, Tensor) {
        let (values, labels) = match self {
            Feed::Samples(batch) => (&batch.samples, &batch.labels),
            Feed::Entering(values, labels) => (values, labels),
        };
        let samples = labels.size()[0] / orders;
        let labels = labels.unflatten(0, [orders, samples].as_slice());
        let values = values.unflatten(0, [orders, samples].as_slice());
        let input = match self {
            Feed::Samples(_) => Input::Stored(values),
            Feed::Entering(..) => Input::Entering(values, stage),
        };
        (input, labels)
    }
}
