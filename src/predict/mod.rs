//! Predictions of m members on an image set. Layer weights are computed when needed, and kept if those of all members
//! fit in memory.

pub mod generate;
pub mod inputs;
mod kept;
mod members;
mod pieces;
mod plan;

use std::ops::Range;

use anyhow::{Result, anyhow};
use indicatif::ProgressBar;
use tch::{Device, Kind, Tensor};

use crate::base::tensor::{first_line, host_f32, upload, wide};
use crate::data::batches::{SampleSet, in_order};
use crate::machine::Chunk;
use crate::machine::memory::Chunker;
use crate::machine::parallel::ProcessGroup;
use crate::model::network::Weights;
use crate::model::{Input, Model};
use crate::predictions::{Predictions, Shape};

pub use kept::Kept;
pub use members::{Linear, Members, Rows};

/// The members of a model, ready to predict any number of batches.
pub struct Predictor<'a> {
    pub model: &'a Model,
    members: Members<'a>,
    /// The number of members in one forward pass, as set by the user.
    chunk: Chunk,
    /// The weights computed so far.
    made: Kept<Weights<'a>>,
    /// The classes that are predicted; `None` for all that the model knows.
    among: Option<Among>,
}

/// Some of the classes of a model.
struct Among {
    classes: Vec<u32>,
    /// The same numbers on the device of the model.
    index: Tensor,
}

impl<'a> Predictor<'a> {
    pub fn new(model: &'a Model, members: Members<'a>, chunk: Chunk) -> Predictor<'a> {
        Predictor { model, members, chunk, made: Kept::default(), among: None }
    }

    /// Returns the predictor of some of the model's classes alone, in this order. The logits of the others are left out, so that
    /// no softmax sees them.
    pub fn among(self, classes: Vec<u32>) -> Predictor<'a> {
        let numbers: Vec<i64> = classes.iter().map(|class| i64::from(*class)).collect();
        let index = upload(&Tensor::from_slice(&numbers), self.model.device);
        Predictor { among: Some(Among { classes, index }), ..self }
    }

    /// Returns the classes that are predicted, by their numbers in the model; `None` if these are all.
    pub fn chosen_classes(&self) -> Option<&[u32]> {
        self.among.as_ref().map(|among| &among.classes[..])
    }

    /// Returns the number of classes C that are predicted, or of other outputs of each member.
    pub fn classes(&self) -> usize {
        let all = match self.members {
            Members::Linear(linear) => linear.outputs(self.model),
            _ => self.model.head.classes() as usize,
        };
        self.chosen_classes().map_or(all, <[u32]>::len)
    }

    /// Returns the logits of the classes that are predicted, `[…, C]`.
    fn narrowed(&self, logits: Tensor) -> Tensor {
        match &self.among {
            Some(among) => logits.index_select(-1, &among.index),
            None => logits,
        }
    }

    /// Returns the number of members m.
    pub fn members(&self) -> usize {
        self.members.count()
    }

    /// Returns the weights of the members in every average; `None` if all weigh the same.
    pub fn averaging_weights(&self) -> Option<&'a [f64]> {
        self.members.averaging_weights()
    }

    /// Returns the share of each member in an average; their sum is 1.
    pub fn shares(&self) -> Vec<f64> {
        let weights = self.averaging_weights().map_or_else(|| vec![1.0; self.members()], <[f64]>::to_vec);
        let sum: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / sum).collect()
    }

    /// Returns predictions of logits `[m, N, C]` that these members have computed, with the labels `[N]` if they are known,
    /// and with the weights of the members.
    ///
    /// # Errors
    /// Fails if lengths do not fit each other, if a logit is not finite, or if the outputs are no logits of classes.
    pub fn predictions(&self, logits: Vec<f32>, labels: Option<Vec<u32>>) -> Result<Predictions> {
        self.model.check_classes()?;
        let (members, classes) = (self.members(), self.classes());
        let shape = Shape { members, samples: logits.len() / (members * classes), classes };
        let predictions = match labels {
            Some(labels) => Predictions::new(shape, logits, labels)?,
            None => Predictions::unlabelled(shape, logits)?,
        };
        match self.averaging_weights() {
            Some(weights) => predictions.with_weights(weights.to_vec()),
            None => Ok(predictions),
        }
    }

    /// Returns whether the members have layer weights, through which gradients flow.
    pub fn has_weights(&self) -> bool {
        !matches!(self.members, Members::Linear(_))
    }

    /// Returns the logits `[k, B, C]` of some members for B samples that all of them see (p = 1), differentiable.
    ///
    /// # Errors
    /// Fails if [`weights`](Self::weights) fails, or if the samples cannot be prepared.
    pub fn forward(&self, members: Range<usize>, input: &Input) -> Result<Tensor> {
        self.logits_by(&*self.weights(members)?, input)
    }

    /// Returns the logits `[k, B, C]` of members with these weights for B samples that all of them see (p = 1), differentiable.
    ///
    /// # Errors
    /// Fails if the samples cannot be prepared.
    pub fn logits_by(&self, weights: &Weights, input: &Input) -> Result<Tensor> {
        Ok(self.narrowed(self.model.logits_of(weights, input)?))
    }

    /// Returns the logits `[m, B, C]` of all members for B samples that all of them see (p = 1), without a graph.
    ///
    /// # Errors
    /// Fails if libtorch fails, or if memory does not suffice for one member and one sample.
    pub fn logits(&self, chunker: &Chunker, input: &Input) -> Result<Tensor> {
        self.logits_of_some(chunker, 0..self.members(), input)
    }

    /// Returns the logits `[k, B, C]` of `members`, computed in parts of members and samples.
    fn logits_of_some(&self, chunker: &Chunker, members: Range<usize>, input: &Input) -> Result<Tensor> {
        chunker.run(|cut| {
            let samples = in_parts(0..input.samples() as usize, cut.images);
            let parts = samples.map(|samples| {
                let input = input.map(|values| values.narrow(1, samples.start as i64, samples.len() as i64));
                let parts = match self.members {
                    Members::Linear(linear) => vec![self.linear(linear, &input, cut.members)?],
                    _ => in_parts(members.clone(), cut.members)
                        .map(|some| self.in_pieces(some, &input))
                        .collect::<Result<Vec<_>>>()?,
                };
                Ok(joined(parts, 0))
            });
            Ok(joined(parts.collect::<Result<Vec<_>>>()?, 1))
        })
    }

    fn linear(&self, linear: &dyn Linear, input: &Input, at_once: usize) -> Result<Tensor> {
        let samples = self.model.prepared(input)?.detach();
        Ok(self.narrowed(tch::with_grad(|| linear.logits(self.model, &samples, at_once))?))
    }

    /// Returns the logits `[m, N, C]` of the images `indices`, in order and row-major.
    ///
    /// # Errors
    /// Fails if images cannot be read, or if [`logits`](Self::logits) fails.
    pub fn all_logits(
        &self,
        set: &SampleSet,
        indices: &[u32],
        batch_size: usize,
        bar: &ProgressBar,
    ) -> Result<Vec<f32>> {
        let batches = in_order(indices, batch_size);
        host_f32(&self.logits_of_set(set, batches, indices.len(), batch_size, bar)?)
    }

    /// Returns the same logits as [`all_logits`](Self::all_logits) in every process of `group`. Each process predicts
    /// its share of the batches.
    ///
    /// # Errors
    /// Fails if [`all_logits`](Self::all_logits) fails, here or in another process.
    pub fn shared_logits(
        &self,
        group: &ProcessGroup,
        set: &SampleSet,
        indices: &[u32],
        batch_size: usize,
        bar: &ProgressBar,
    ) -> Result<Vec<f32>> {
        if group.size() == 1 {
            return self.all_logits(set, indices, batch_size, bar);
        }
        let own = group.own(&in_order(indices, batch_size));
        let logits = self.logits_of_set(set, own, indices.len(), batch_size, bar)?;
        // The shares are gathered along the image axis, so that they follow each other in order.
        host_f32(&group.gather(&logits.transpose(0, 1))?.transpose(0, 1))
    }

    /// Returns the logits `[m, N, C]` of all images in `batches`, in f32 on the CPU. Where the weights of all members
    /// do not fit at once, each chunk of members goes through all batches before the next, so its weights are computed
    /// once.
    fn logits_of_set(
        &self,
        set: &SampleSet,
        batches: Vec<Vec<u32>>,
        samples: usize,
        batch_size: usize,
        bar: &ProgressBar,
    ) -> Result<Tensor> {
        let chunker = self.plan(batch_size.min(samples), samples)?;
        let own = batches.iter().map(Vec::len).sum::<usize>() as i64;
        let shape = [self.members() as i64, own, self.classes() as i64];
        let logits = Tensor::f_empty(shape, (Kind::Float, Device::Cpu)).map_err(|e| anyhow!("{}", first_line(&e)))?;
        let together = self.made.keeps_all() || !self.has_weights();
        let at_once = if together { self.members() } else { chunker.cut().members };
        let passes: Vec<Range<usize>> = in_parts(0..self.members(), at_once).collect();
        bar.set_length((own as u64) * passes.len() as u64);
        for members in passes {
            let rows = logits.narrow(0, members.start as i64, members.len() as i64);
            let mut start = 0;
            for batch in set.batches(batches.clone()) {
                let batch = batch?;
                let count = batch.labels.size()[0];
                let samples = Input::Stored(batch.samples.for_all());
                let found = self.logits_of_some(&chunker, members.clone(), &samples)?;
                rows.narrow(1, start, count).copy_(&found);
                start += count;
                bar.inc(count as u64);
            }
        }
        self.made.clear();
        Ok(logits)
    }

    /// Returns the type of [`logits`](Self::logits).
    pub fn kind(&self) -> Kind {
        wide(self.model.kind)
    }
}

/// Splits `range` into parts of at most `size`.
pub fn in_parts(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(size.max(1)).map(move |start| start..end.min(start + size.max(1)))
}

/// Joins tensors along an axis. A single tensor is not copied.
fn joined(mut parts: Vec<Tensor>, axis: i64) -> Tensor {
    if parts.len() == 1 { parts.swap_remove(0) } else { Tensor::cat(&parts, axis) }
}
