//! Predictions of m members on an image set: every member sees each batch in one forward.

use anyhow::Result;
use indicatif::ProgressBar;
use tch::{Device, Kind, Tensor};

use crate::backbone::weights::Weights;
use crate::images::{ImageSet, in_order};
use crate::laplace::Linearised;
use crate::model::Model;
use crate::parallel::{World, cut};
use crate::subspace::Subspace;
use crate::tensor::{ROOM_TO_PREDICT, guarded, host_f32};

/// Who predicts.
pub enum Members<'a> {
    /// The checkpoint as it is: m = 1.
    Checkpoint,
    /// Rows of `theta: [m, P]`, `chunk` of them in one forward (0: all).
    Rows { subspace: &'a dyn Subspace, theta: &'a Tensor, chunk: usize },
    /// Linearised logits of a Laplace approximation.
    Linearised(&'a Linearised<'a>),
}

/// Members with their layer weights made, ready for any number of batches.
pub struct Predictor<'a> {
    pub model: &'a Model,
    /// Layer weights, a chunk of members an entry.
    sources: Vec<Weights<'a>>,
    members: usize,
    /// Where predictions are not the sources' own logits.
    linearised: Option<&'a Linearised<'a>>,
}

impl<'a> Predictor<'a> {
    pub fn new(model: &'a Model, members: &Members<'a>) -> Predictor<'a> {
        let mut linearised = None;
        let (sources, members) = match members {
            Members::Checkpoint => (vec![Weights::frozen(&model.base)], 1),
            Members::Linearised(found) => {
                linearised = Some(*found);
                (Vec::new(), found.members())
            }
            Members::Rows { subspace, theta, chunk } => {
                let count = theta.size()[0];
                let chunk = if *chunk == 0 { count } else { *chunk as i64 };
                let weights = |start: i64| {
                    let rows = theta.narrow(0, start, chunk.min(count - start));
                    subspace.weights(&model.base, &subspace.layout().leaves(&rows, model.kind, false))
                };
                ((0..count).step_by(chunk as usize).map(weights).collect(), count as usize)
            }
        };
        Predictor { model, sources, members, linearised }
    }

    pub fn members(&self) -> usize {
        self.members
    }

    /// Layer weights, a chunk of members an entry; none where logits are linearised.
    pub fn sources(&self) -> &[Weights<'a>] {
        &self.sources
    }

    /// Logits `[k, B, C]` of one chunk of members for pixels `[B, 3, h, w]` in [0, 1], differentiable.
    pub fn forward(&self, source: &Weights, pixels: &Tensor) -> Tensor {
        let preprocess = &self.model.preprocess;
        let images = preprocess.normalise(&preprocess.resize(pixels));
        self.model.logits(source, &images.unsqueeze(0))
    }

    /// Logits `[m, B, C]` of all members for pixels `[B, 3, h, w]` in [0, 1], without a graph.
    pub fn logits(&self, pixels: &Tensor) -> Result<Tensor> {
        if let Some(linearised) = self.linearised {
            let preprocess = &self.model.preprocess;
            let images = preprocess.normalise(&preprocess.resize(pixels)).detach();
            return tch::with_grad(|| linearised.logits(self.model, &images.unsqueeze(0)));
        }
        Ok(tch::no_grad(|| {
            let parts: Vec<Tensor> = self.sources.iter().map(|source| self.forward(source, pixels)).collect();
            Tensor::cat(&parts, 0)
        }))
    }

    /// Logits `[m, N, C]`, row-major, of images `indices` in order.
    pub fn all_logits(
        &self,
        set: &ImageSet,
        indices: &[u32],
        batch_size: usize,
        bar: &ProgressBar,
    ) -> Result<Vec<f32>> {
        joined(&self.logits_of(set, in_order(indices, batch_size), bar)?)
    }

    /// The same, where each process of `world` predicts its share of the batches and gets all logits.
    pub fn shared_logits(
        &self,
        world: &World,
        set: &ImageSet,
        indices: &[u32],
        batch_size: usize,
        bar: &ProgressBar,
    ) -> Result<Vec<f32>> {
        let batches = in_order(indices, batch_size);
        let own = cut(batches.len(), world.size(), world.rank());
        let mut parts = self.logits_of(set, batches[own].to_vec(), bar)?;
        // Also a process without a batch takes part.
        let classes = self.model.head.classes();
        parts.push(Tensor::zeros([self.members as i64, 0, classes], (Kind::Float, Device::Cpu)));
        let own = Tensor::cat(&parts, 1).to_kind(Kind::Float);
        // By image, so that the shares of all processes follow each other.
        host_f32(&world.gather(&own.transpose(0, 1))?.transpose(0, 1))
    }

    /// Logits `[m, B, C]` of each batch of images, on the CPU.
    fn logits_of(&self, set: &ImageSet, batches: Vec<Vec<u32>>, bar: &ProgressBar) -> Result<Vec<Tensor>> {
        let mut parts = Vec::new();
        for batch in set.batches(batches) {
            let batch = batch?;
            parts.push(guarded("prediction", ROOM_TO_PREDICT, || {
                Ok(self.logits(&self.model.preprocess.unit(&batch.bytes))?.to_device(Device::Cpu))
            })?);
            bar.inc(batch.labels.size()[0] as u64);
        }
        Ok(parts)
    }
}

/// Logits of batches `[m, B, C]` as one row-major `[m, N, C]`.
pub fn joined(parts: &[Tensor]) -> Result<Vec<f32>> {
    host_f32(&Tensor::cat(parts, 1).to_kind(Kind::Float))
}
