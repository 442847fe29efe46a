//! Networks whose forward pass is written over operations.

use std::ops::Range;

use super::graph::Value;
use super::{Count, Counter, Dual, Ops, Tangents, Writer};
use crate::data::Fields;

/// The features that a pass ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Those of each sample, `[p, B, d]`.
    Samples,
    /// Those of each token of a text, `[p, B, T, d]`.
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
    fn read_by<O: Ops>(&self, ops: &O, from: usize, x: Fields<O::Value>, reads: Reads) -> O::Value {
        let _ = reads;
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
    /// Those of its input.
    pub entered: u64,
    /// Those that its backward pass reads.
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
