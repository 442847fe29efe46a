//! Predictions of m members on an image set: every member sees each batch in one forward.

use anyhow::Result;
use indicatif::ProgressBar;
use tch::{Kind, Tensor};

use crate::backbone::weights::Weights;
use crate::images::{ImageSet, in_order};
use crate::model::Model;
use crate::subspace::Subspace;
use crate::tensor::{guarded, host_f32};

/// Who predicts.
pub enum Members<'a> {
    /// The checkpoint as it is: m = 1.
    Checkpoint,
    /// Rows of `theta: [m, P]`.
    Rows { subspace: &'a dyn Subspace, theta: &'a Tensor, chunk: usize },
}

impl Members<'_> {
    pub fn count(&self) -> usize {
        match self {
            Self::Checkpoint => 1,
            Self::Rows { theta, .. } => theta.size()[0] as usize,
        }
    }
}

/// Logits `[m, N, C]`, row-major, of images `indices` in order.
pub fn logits(
    model: &Model,
    members: &Members,
    set: &ImageSet,
    indices: &[u32],
    batch_size: usize,
    bar: &ProgressBar,
) -> Result<Vec<f32>> {
    let _guard = tch::no_grad_guard();
    let sources = sources(model, members);
    let mut parts = Vec::new();
    for batch in set.batches(in_order(indices, batch_size)) {
        let batch = batch?;
        let logits = guarded("prediction", || {
            let images = model.preprocess.images(&batch.bytes, 1);
            let parts: Vec<Tensor> = sources.iter().map(|weights| model.logits(weights, &images)).collect();
            Ok(Tensor::cat(&parts, 0).to_device(tch::Device::Cpu))
        })?;
        bar.inc(batch.labels.size()[0] as u64);
        parts.push(logits);
    }
    host_f32(&Tensor::cat(&parts, 1).to_kind(Kind::Float))
}

/// Layer weights of all members, a chunk an entry.
fn sources<'a>(model: &'a Model, members: &Members) -> Vec<Weights<'a>> {
    match members {
        Members::Checkpoint => vec![Weights::frozen(&model.base)],
        Members::Rows { subspace, theta, chunk } => {
            let count = theta.size()[0];
            let chunk = if *chunk == 0 { count } else { *chunk as i64 };
            let chunks = (0..count).step_by(chunk as usize);
            chunks
                .map(|start| {
                    let rows = theta.narrow(0, start, chunk.min(count - start));
                    subspace.weights(&model.base, &subspace.layout().leaves(&rows, model.kind, false))
                })
                .collect()
        }
    }
}
