//! The passes of a slice of a step in pieces, which threads take through forward and backward by themselves.

use anyhow::Result;
use tch::{Tensor, with_grad};

use super::gradient::Slice;
use super::likelihood::Likelihood;
use crate::machine::workers::{self, Load, Turns};
use crate::model::Input;
use crate::model::pieces::Whole;

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
    /// Passes a slice in pieces where that pays. `add` gets what `pass` returns, for pieces of the same particles in the order of
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
