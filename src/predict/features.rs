//! Features of samples by single members, which have one each.

use anyhow::Result;
use tch::{Tensor, no_grad};

use super::{Predictor, in_parts, joined};
use crate::data::batches::{SampleSet, in_order};
use crate::machine::memory::{ChunkSize, Chunker, Task};
use crate::model::Input;
use crate::model::network::Graph;

impl Predictor<'_> {
    /// Plans passes of single members over batches of `images` samples, beside `fixed` bytes of other data.
    ///
    /// # Errors
    /// Fails if one member and one sample do not fit in memory.
    pub fn plan_features(&self, images: usize, fixed: u64) -> Result<Chunker> {
        // One member after the other sees all samples, so that none is needed twice.
        self.made.clear();
        self.made.keep_all(false);
        let need = self.need(Graph::None, fixed, false);
        Task { members: None, ..self.task("features", need, ChunkSize { members: 1, images }) }.plan()
    }

    /// Returns the features `[B, d]` of samples by one member, without a graph.
    ///
    /// # Errors
    /// Fails for linearised members, which have none, or if memory does not suffice for one sample.
    pub fn features(&self, member: usize, chunker: &Chunker, input: &Input) -> Result<Tensor> {
        let weights = self.weights(member..member + 1)?;
        chunker.run(|cut| {
            let parts = in_parts(0..input.samples() as usize, cut.images).map(|part| {
                let input = input.map(|values| values.narrow(1, part.start as i64, part.len() as i64));
                no_grad(|| self.model.features_of(&weights, &input))
            });
            Ok(joined(parts.collect::<Result<Vec<_>>>()?, 1).squeeze_dim(0))
        })
    }

    /// Returns the rows `[C, …]` of the classes that are predicted, of those `[K, …]` of all classes of the model.
    pub fn narrowed_rows(&self, rows: Tensor) -> Tensor {
        match &self.among {
            Some(among) => rows.index_select(0, &among.index),
            None => rows,
        }
    }

    /// Hands the features of all samples of a set by one member to `each`, a batch `[B, d]` at a time.
    ///
    /// # Errors
    /// Fails if samples cannot be read, or if [`features`](Self::features) or `each` fails.
    pub fn each_features(
        &self,
        member: usize,
        chunker: &Chunker,
        set: &SampleSet,
        batch_size: usize,
        each: &mut dyn FnMut(Tensor) -> Result<()>,
    ) -> Result<()> {
        let all: Vec<u32> = (0..set.samples() as u32).collect();
        for batch in set.batches(in_order(&all, batch_size)) {
            each(self.features(member, chunker, &Input::Stored(batch?.samples.for_all()))?)?;
        }
        Ok(())
    }
}
