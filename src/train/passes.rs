//! The passes of a step: as many particles and samples go through the network at once as memory allows, in pieces that threads take
//! through forward and backward by themselves, and their losses and gradients are summed.

use std::cell::Cell;
use std::ops::Range;

use anyhow::Result;
use tch::{Kind, Tensor, no_grad, with_grad};

use super::gradient::{Backward, Gradient, Pass, Plain, Root, Segments, Slice};
use super::likelihood::Likelihood;
use super::mixing::Mixing;
use crate::machine::memory::ChunkSize;
use crate::machine::workers::{self, Load, Turns};
use crate::methods::{Evaluation, Output, Outputs};
use crate::model::Input;
use crate::model::network::Weights;
use crate::model::pieces::Whole;
use crate::predict::in_parts;

/// Some particles of a step.
struct Chunk {
    /// The row of the first particle among those in this process.
    start: i64,
    /// The particles, `[k, P]`.
    theta: Tensor,
    /// The rows to which their gradients are added, `[k, P]`.
    gradients: Tensor,
}

impl Likelihood<'_> {
    /// Returns the values of a root and their gradients for rows of theta over some parts; in a loss, each sample is weighted
    /// by its share of the batch. Mixed gradients go into `mixing`.
    pub(super) fn gradients(
        &self,
        theta: &Tensor,
        parts: Range<usize>,
        root: Root,
        mixing: Option<&Mixing>,
    ) -> Result<Evaluation> {
        let particles = theta.size()[0];
        let gradients = theta.zeros_like();
        let parts = &self.parts[parts];
        // Only the number of particles is adjusted. The images of this batch must not limit the next one, because the
        // last batch of an epoch may be smaller.
        self.chunker.clamp(particles as usize);
        let (mut losses, mut start) = (Vec::new(), 0);
        while start < particles {
            let tried = Cell::new(false);
            let chunk = |size: ChunkSize| {
                let count = (size.members as i64).min(particles - start);
                let rows = gradients.narrow(0, start, count);
                if tried.replace(true) {
                    // The attempt that ran out of memory may have added to more rows than this one takes.
                    let _ = gradients.narrow(0, start, particles - start).zero_();
                }
                let samples = parts.iter().cloned().flat_map(|part| in_parts(part, size.images));
                self.chunk(
                    &Chunk { start, theta: theta.narrow(0, start, count), gradients: rows },
                    samples,
                    root,
                    mixing,
                )
            };
            // With mixing, a retry after running out of memory would add the mixed gradients twice.
            losses.push(if mixing.is_none() { self.chunker.run(chunk)? } else { chunk(self.chunker.cut())? });
            start += losses.last().map_or(0, |losses: &Tensor| losses.size()[0]);
        }
        if self.magnified != 1.0 {
            let _ = gradients.shallow_clone().g_div_scalar_(self.magnified);
        }
        Ok(Evaluation { losses: Tensor::cat(&losses, 0), gradients })
    }

    /// Returns the values `[k]` of a root for a chunk of particles over some samples, and adds their gradients to those of the
    /// chunk.
    fn chunk(
        &self,
        chunk: &Chunk,
        samples: impl Iterator<Item = Range<usize>>,
        root: Root,
        mixing: Option<&Mixing>,
    ) -> Result<Tensor> {
        let (layout, count) = (self.subspace.layout(), chunk.theta.size()[0]);
        let pass = |own: &Own| {
            let leaves = layout.leaves(&own.rows(&chunk.theta), self.model.kind, true);
            let weights = self.subspace.weights(&self.model.base, &leaves);
            self.pass(weights, &leaves.iter().collect::<Vec<_>>(), own, root, mixing)
        };
        let total = Tensor::zeros([count], (Kind::Float, chunk.theta.device()));
        let add = |own: &Own, Gradient { values, by_leaves }: Gradient| {
            layout.gather(&by_leaves, &own.rows(&chunk.gradients));
            let _ = own.rows(&total).g_add_(&values);
        };
        for samples in samples {
            let slice = self.slice(chunk.start, count, samples);
            match (mixing, root) {
                // Mixed gradients are sums over particles, and their tape is that of one thread. Gradients by pixels begin at the
                // pixels, and not at what pieces share.
                (Some(_), _) | (None, Root::Product(Output::InputGradients, _)) => self.together(slice, &pass, &add)?,
                (None, _) => self.in_pieces(slice, layout.parameters(), &pass, &add)?,
            }
        }
        Ok(total)
    }

    /// Runs one pass with `weights` that are attached to `leaves`.
    pub(super) fn pass(
        &self,
        mut weights: Weights,
        leaves: &[&Tensor],
        own: &Own,
        root: Root,
        mixing: Option<&Mixing>,
    ) -> Result<Gradient> {
        let slice = own.slice;
        let forward = mixing.map(|mixing| mixing.forward(&mut weights, slice));
        let backward: &dyn Backward = if let Some(forward) = &forward { forward } else { &Plain };
        let (input, labels) = (own.input(), slice.of(&self.labels));
        let scale = self.scale.as_ref().map(|scale| slice.of(scale));
        if let Root::Product(Output::InputGradients, _) = root {
            weights = weights.differentiated_twice();
        }
        let (model, loss, magnified) = (self.model, self.loss, self.magnified);
        let pass = Pass { model, loss, weights, input, labels, scale, root, magnified, slice };
        if self.passes.recompute {
            let first = self.model.network.first_stage(self.subspace.layout());
            return Segments { pass: &pass, backward, leaves, first }.gradient();
        }
        pass.gradient(leaves, backward)
    }

    /// Returns an output for rows of theta and all samples of this process, without a graph.
    pub(super) fn outputs_of(&self, theta: &Tensor, output: Output) -> Result<Outputs> {
        let head = &self.model.head;
        let labels = self.labels.expand([theta.size()[0], -1], false);
        let values = match output {
            Output::Logits => {
                self.without_graph(theta, head.classes(), |weights, input| self.model.logits_of(weights, input))
            }
            Output::InputGradients => return self.input_gradients_of(theta),
            Output::Features => self.without_graph(theta, head.weight.size()[1], |weights, input| {
                Ok(head.inputs(&self.model.features_of(weights, input)?))
            }),
        };
        Ok(Outputs { values: values?, labels })
    }

    /// Returns the outputs of `forward` for each slice, `[k, b, columns]` for rows of theta and all samples of this process.
    fn without_graph(
        &self,
        theta: &Tensor,
        columns: i64,
        forward: impl Fn(&Weights, &Input) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let (layout, rows) = (self.subspace.layout(), theta.size()[0]);
        let shape = [rows, self.labels.size()[1], columns];
        let all = Tensor::zeros(shape, (self.model.head.weight.kind(), theta.device()));
        self.chunker.clamp(rows as usize);
        self.chunker.run(|size| {
            for some in in_parts(0..rows as usize, size.members) {
                let (start, count) = (some.start as i64, some.len() as i64);
                for samples in in_parts(0..shape[1] as usize, size.images) {
                    let (whole, samples) = (self.slice(start, count, samples), all.narrow(0, start, count));
                    let pass = |own: &Own| {
                        let leaves = layout.leaves(&own.rows(&theta.narrow(0, start, count)), self.model.kind, false);
                        let weights = self.subspace.weights(&self.model.base, &leaves);
                        no_grad(|| forward(&weights, &own.input()))
                    };
                    let keep = |own: &Own, found: Tensor| {
                        own.rows(&samples).narrow(1, own.slice.from, own.slice.samples).copy_(&found);
                    };
                    self.in_pieces(whole, 0, &pass, &keep)?;
                }
            }
            Ok(())
        })?;
        Ok(all)
    }

    /// Returns `count` particles from row `start` on, on some samples of this process.
    pub(super) fn slice(&self, start: i64, count: i64, samples: Range<usize>) -> Slice {
        Slice {
            particle: self.first + start,
            start,
            count,
            from: samples.start as i64,
            samples: samples.len() as i64,
            weight: samples.len() as f64 / self.batch as f64,
        }
    }
}

/// A piece of a slice, or all of it.
pub(super) struct Own<'a> {
    pub slice: Slice,
    /// The slice of which this is a part, and its input.
    whole: Slice,
    input: &'a Input,
}

impl Own<'_> {
    /// Returns the particles of this piece among rows of which the first is that of the whole slice.
    pub fn rows(&self, all: &Tensor) -> Tensor {
        all.narrow(0, self.slice.start - self.whole.start, self.slice.count)
    }

    /// Returns the input of the pass.
    pub fn input(&self) -> Input {
        let Own { slice, whole, input } = self;
        input.map(|t| {
            let rows = if t.size()[0] == 1 { t.shallow_clone() } else { self.rows(t) };
            rows.narrow(1, slice.from - whole.from, slice.samples)
        })
    }
}

impl Likelihood<'_> {
    /// Passes a slice in pieces where that pays. `add` gets the results of `pass`, for pieces of the same particles in the order of
    /// their samples; for others it may be called by several threads at once. `gradients` is the number of gradients that a pass
    /// writes for a particle.
    ///
    /// # Errors
    /// Fails if a pass does.
    pub(super) fn in_pieces<T>(
        &self,
        whole: Slice,
        gradients: i64,
        pass: &dyn Fn(&Own) -> Result<T>,
        add: &dyn Fn(&Own, T),
    ) -> Result<()> {
        let (members, samples) = (whole.count as usize, whole.samples as usize);
        let Some(pieces) = self.model.pieces(Whole { members, samples, gradients: gradients as usize }) else {
            return self.together(whole, pass, add);
        };
        let input = self.input.map(|t| whole.of(t));
        let input = self.model.shared_input(self.subspace.layout(), &input, members)?.unwrap_or(input);
        let turns = Turns::new(members);
        let work = |number: usize| {
            let piece = &pieces[number];
            let (members, samples) = (&piece.members, &piece.samples);
            let samples = whole.from as usize + samples.start..whole.from as usize + samples.end;
            let slice = self.slice(whole.start + members.start as i64, members.len() as i64, samples);
            let own = Own { slice, whole, input: &input };
            let found = with_grad(|| pass(&own))?;
            turns.take(piece.turn, || add(&own, found));
            Ok(())
        };
        // SAFETY: passes read the batch, the frozen weights and theta through a network that divides, make leaves of their own, and
        // add to the rows of their own particles, each in its turn.
        unsafe { workers::run(Load { pieces: pieces.len(), particles: members }, &turns, &work) }
    }

    /// Passes a slice at once.
    ///
    /// # Errors
    /// Fails if the pass does.
    pub(super) fn together<T>(
        &self,
        whole: Slice,
        pass: &dyn Fn(&Own) -> Result<T>,
        add: &dyn Fn(&Own, T),
    ) -> Result<()> {
        let own = Own { slice: whole, whole, input: &self.input.map(|t| whole.of(t)) };
        add(&own, pass(&own)?);
        Ok(())
    }
}
