//! The operations of a forward pass. A network writes its pass once, over [`Ops`], and an interpreter says what an operation does:
//! [`Eager`] computes it with libtorch, [`Writer`] adds it to a graph that other programs run, [`Counter`] counts what it
//! costs and what a backward pass keeps of it, and [`Tangents`] computes it with its derivatives along moves of the weights.
//!
//! A value has the axes `[p, B, …]`: particles, with p = 1 until they differ, then samples. Each operation lets values of one
//! particle meet those of n. Activations are `[p, B, T, d]`, the heads of attention `[p, B, heads, T, D]`. B alone may be unknown;
//! [`Ops::length`] tells every other length.
//!
//! | kind | operations |
//! |---|---|
//! | weights by name | [`linear`](Ops::linear), [`layer`](Ops::layer), [`norm`](Ops::norm), [`rms_norm`](Ops::rms_norm), [`embedding`](Ops::embedding), [`param`](Ops::param), [`picked`](Ops::picked) |
//! | values that follow from a shape | [`constant`](Ops::constant) |
//! | elements | [`add`](Ops::add), [`mul`](Ops::mul), [`activation`](Ops::activation), [`cast`](Ops::cast), [`normalised`](Ops::normalised) |
//! | places | [`slice`](Ops::slice), [`concat`](Ops::concat), [`reshape`](Ops::reshape), [`permute`](Ops::permute), [`mean`](Ops::mean) |
//! | attention | [`heads`](Ops::heads), [`rotated`](Ops::rotated), [`attend`](Ops::attend), [`attention`](Ops::attention), [`relative`](Ops::relative) |
//! | texts | [`aligned`](Ops::aligned), [`numbered`](Ops::numbered), [`column`](Ops::column), [`latest`](Ops::latest), [`last`](Ops::last), [`at`](Ops::at), [`rows_at`](Ops::rows_at), [`filled`](Ops::filled) |
//!
//! Operations consume what a pass does not read again, so that its memory is free for the next one.
//!
//! A network that is written over operations is a [`Forward`], and by that a [`Written`], which interpreters run.

pub mod counter;
pub mod dual;
mod eager;
pub mod graph;
mod operations;
mod writer;

use std::ops::Range;

use crate::data::Fields;
use graph::Value;

pub use counter::{Adaptation, Count, Counted, Counter, Flags, Work};
pub use dual::{Dual, Tangents};
pub use eager::Eager;
pub use operations::{Activation, Constant, Layer, Mask, Ops, Pairs, RmsNormed, Scoring};
pub use writer::{Writer, origin};

/// The features that a pass ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The features of each sample, `[p, B, d]`.
    Samples,
    /// The features of each token of a text, `[p, B, T, d]`.
    Tokens,
}

/// A network whose forward pass is written over operations, in the stages of [`Network`](crate::model::network::Network).
pub trait Forward {
    /// Returns the number of stages.
    fn depth(&self) -> usize;

    /// Returns the input of stage 0 from prepared samples.
    fn enter_by<O: Ops>(&self, ops: &O, samples: &Fields<O::Value>) -> Fields<O::Value>;

    /// Returns the output of a stage from its input.
    fn stage_by<O: Ops>(&self, ops: &O, stage: usize, x: Fields<O::Value>) -> Fields<O::Value>;

    /// Returns the features from the output of the last stage.
    fn features_by<O: Ops>(&self, ops: &O, x: &Fields<O::Value>) -> O::Value;

    /// Returns features from the input of stage `from`. A network without texts has those of samples alone.
    fn read_by<O: Ops>(&self, ops: &O, from: usize, x: Fields<O::Value>, _reads: Reads) -> O::Value {
        let x = (from..self.depth()).fold(x, |x, stage| self.stage_by(ops, stage, x));
        self.features_by(ops, &x)
    }
}

/// A network whose pass an interpreter runs that is chosen at run time.
pub trait Written {
    /// Writes the pass from prepared samples to their features `[p, B, d]`.
    fn write(&self, writer: &Writer, samples: &Fields<Value>) -> Value;

    /// Computes the features `[1, B, d]` of prepared samples `[1, B, …]`, with their derivatives `[S, B, d]`.
    fn along(&self, tangents: &Tangents, samples: &Fields<Dual>) -> Dual;

    /// Counts the pass from prepared samples, or from the input of a stage.
    fn count(&self, counter: &Counter, from: Option<usize>, x: Fields<Count>, reads: Reads) -> Count;

    /// Counts the input of stage 0 from prepared samples.
    fn count_entered(&self, counter: &Counter, samples: &Fields<Count>) -> Fields<Count>;

    /// Counts some stages, of which each keeps values: for each the entries of its input, and those that it keeps.
    fn stages_kept(&self, counter: &Counter, stages: Range<usize>, x: Fields<Count>) -> Vec<Kept>;
}

/// The entries of values that a stage leaves in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The entries of the input of the stage.
    pub entered: u64,
    /// The entries that the backward pass of the stage reads.
    pub inside: u64,
}

impl Kept {
    /// Returns the entries that a pass keeps of stages whose activations may be computed again.
    pub fn of_all(stages: &[Kept], recompute: bool) -> u64 {
        match recompute {
            true => {
                stages.iter().map(|stage| stage.entered).sum::<u64>()
                    + stages.iter().map(|stage| stage.inside).max().unwrap_or(0)
            }
            false => stages.iter().map(|stage| stage.inside).sum(),
        }
    }
}

impl<N: Forward> Written for N {
    fn write(&self, writer: &Writer, samples: &Fields<Value>) -> Value {
        self.read_by(writer, 0, self.enter_by(writer, samples), Reads::Samples)
    }

    fn along(&self, tangents: &Tangents, samples: &Fields<Dual>) -> Dual {
        self.read_by(tangents, 0, self.enter_by(tangents, samples), Reads::Samples)
    }

    fn count(&self, counter: &Counter, from: Option<usize>, x: Fields<Count>, reads: Reads) -> Count {
        let x = if from.is_none() { self.enter_by(counter, &x) } else { x };
        self.read_by(counter, from.unwrap_or(0), x, reads)
    }

    fn count_entered(&self, counter: &Counter, samples: &Fields<Count>) -> Fields<Count> {
        self.enter_by(counter, samples)
    }

    fn stages_kept(&self, counter: &Counter, stages: Range<usize>, x: Fields<Count>) -> Vec<Kept> {
        let mut x = x;
        let mut kept = |stage| {
            let entered = x.values().map(Count::numbers).sum();
            x = self.stage_by(counter, stage, x.clone());
            Kept { entered, inside: counter.take_kept() }
        };
        stages.map(&mut kept).collect()
    }
}
