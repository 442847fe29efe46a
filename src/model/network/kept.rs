//! The values that a pass keeps in memory, as [`Counter`] counts them.

use tch::Kind;

use super::ops::{Adaptation, Count, Counted, Counter, Kept, Ops, Written};
use super::{Graph, Parameters};
use crate::data::Fields;

/// A pass of one sample of one particle through the first stages of a network, whose values are counted.
pub struct KeptPass<'a> {
    pub network: &'a dyn Written,
    pub stages: usize,
    /// The beginning of the names of its parameters in `base`.
    pub part: &'static str,
    pub base: &'a Parameters,
    pub kind: Kind,
    pub graph: Graph<'a>,
}

impl KeptPass<'_> {
    /// Returns the number of entries that the pass keeps, and uses in its widest operation. `enter` counts the input of stage 0,
    /// of which nothing is kept.
    pub fn entries(&self, enter: impl FnOnce(&Counter) -> Fields<Count>) -> u64 {
        let (trained, recompute) = match self.graph {
            Graph::Weights { trained, recompute, .. } => (Some(trained), recompute),
            Graph::None | Graph::Samples { .. } => (None, false),
        };
        let reached = |layer: &str| trained.filter(|trained| trained.reaches_layer(layer)).map(|_| Adaptation::Whole);
        let graph = !matches!(self.graph, Graph::None);
        let counted = Counted { base: self.base, adapted: &reached, kind: self.kind, particles: 1, samples: 1, graph };
        let counter = Counter::new(counted).within(self.part);
        let entered = enter(&counter);
        counter.take_kept();
        let stages = self.network.stages_kept(&counter, 0..self.stages, entered);
        // A stage below the first trained one keeps nothing, also where activations are computed again.
        let first = stages.iter().position(|stage| stage.inside > 0).unwrap_or(stages.len());
        Kept::of_all(&stages[first..], recompute) + counter.widest()
    }
}
