//! What a training step is fed with: samples, or what the stages below the first trained one made of them.

use tch::Tensor;

use crate::data::batches::Batch;
use crate::model::Input;

/// What a step is fed with.
pub(super) enum Feed {
    Samples(Batch),
    /// What enters the first trained stage, `[K, …]`, and labels `[K]`.
    Entering(Tensor, Tensor),
}

impl Feed {
    /// What enters the network, the values entering `stage`, and labels `[p, B]`, for p data orders.
    pub(super) fn input(&self, stage: usize, orders: i64) -> (Input, Tensor) {
        let (values, labels) = match self {
            Feed::Samples(batch) => (&batch.samples, &batch.labels),
            Feed::Entering(values, labels) => (values, labels),
        };
        let samples = labels.size()[0] / orders;
        let labels = labels.view([orders, samples]);
        let values = values.unflatten(0, [orders, samples].as_slice());
        let input = match self {
            Feed::Samples(_) => Input::Stored(values),
            Feed::Entering(..) => Input::Entering(values, stage),
        };
        (input, labels)
    }
}
