//! Predictions in pieces of members and samples, which threads take, with the layer weights that they read; and the features of
//! samples by single members.

use std::ops::Range;
use std::rc::Rc;

use anyhow::{Context, Result, anyhow};
use tch::{Kind, Tensor, no_grad};

use super::{Members, Predictor, in_parts, joined};
use crate::data::batches::{SampleSet, in_order};
use crate::machine::memory::{ChunkSize, Chunker, Task};
use crate::machine::workers::{self, Load};
use crate::model::Input;
use crate::model::network::{Graph, Weights};
use crate::model::pieces::{Piece, Whole};

impl<'a> Predictor<'a> {
    /// Returns the layer weights of some members.
    ///
    /// # Errors
    /// Fails for linearised members, which have none, and if the posterior cannot be drawn from.
    pub fn weights(&self, members: Range<usize>) -> Result<Rc<Weights<'a>>> {
        Ok(self.weights_of(&[members])?.remove(0))
    }

    /// Returns the layer weights of each of several ranges of members, which are kept together.
    fn weights_of(&self, all: &[Range<usize>]) -> Result<Vec<Rc<Weights<'a>>>> {
        let base = &self.model.base;
        self.made.each(all, |members| match self.members {
            Members::Checkpoint => Ok(Weights::frozen(base)),
            Members::Rows { subspace, rows } => {
                let rows = rows.rows(members.clone())?;
                Ok(subspace.weights(base, &subspace.layout().leaves(&rows, self.model.kind, false)))
            }
            Members::Linear(_) => Err(anyhow!("linearised members have no layer weights")),
        })
    }

    /// Returns the logits `[k, B, C]` of some members for B samples that all of them see, without a graph, in pieces where that pays.
    pub(super) fn in_pieces(&self, some: Range<usize>, input: &Input) -> Result<Tensor> {
        let whole = Whole { members: some.len(), samples: input.samples() as usize, gradients: 0 };
        let Some(pieces) = self.model.pieces(whole) else { return no_grad(|| self.forward(some, input)) };
        let shared = match self.members {
            Members::Rows { subspace, .. } if some.len() > 1 => {
                self.model.shared_input(subspace.layout(), input, some.len())?
            }
            _ => None,
        };
        let input = shared.as_ref().unwrap_or(input);
        let of = |piece: &Piece| some.start + piece.members.start..some.start + piece.members.end;
        // The first pieces are those of all members, each for the first samples.
        let lanes: Vec<Range<usize>> = pieces.iter().filter(|piece| piece.turn.number == 0).map(of).collect();
        let weights = self.weights_of(&lanes)?;
        let forward = |number: usize| {
            let Piece { samples, turn, .. } = &pieces[number];
            let own = input.map(|values| values.narrow(1, samples.start as i64, samples.len() as i64));
            no_grad(|| self.logits_by(&weights[turn.lane], &own))
        };
        // SAFETY: the pieces read samples and weights through a network that divides, and count no reference of their own.
        let found = unsafe { workers::each(Load { pieces: pieces.len(), particles: some.len() }, &forward)? };
        let of_lane = |lane: usize| {
            let own: Vec<&Tensor> =
                pieces.iter().zip(&found).filter(|(piece, _)| piece.turn.lane == lane).map(|(_, t)| t).collect();
            let count = lanes[lane].len() as i64;
            Tensor::cat(&own, 1).expand([count, -1, -1], false)
        };
        Ok(Tensor::cat(&(0..lanes.len()).map(of_lane).collect::<Vec<_>>(), 0))
    }
}

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

    /// Returns the features of samples, means over the members by their weights, `[B, d]` in f64.
    ///
    /// # Errors
    /// Fails as [`features`](Self::features) does.
    pub fn mean_features(&self, chunker: &Chunker, input: &Input) -> Result<Tensor> {
        let weighted = |(member, share)| Ok(self.features(member, chunker, input)?.to_kind(Kind::Double) * share);
        let mut each = self.shares().into_iter().enumerate().map(weighted);
        let first = each.next().context("a run has members")??;
        each.try_fold(first, |sum, features: Result<Tensor>| Ok(sum + features?))
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
