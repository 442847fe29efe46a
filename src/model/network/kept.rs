//! The memory of a pass, counted without computing it: what the operations of a network keep for its gradients.

use tch::{Device, Kind};

use super::ops::{Adaptation, Count, Counted, Counter, Kept, Ops, Written};
use super::{Graph, Parameters, Trained, low_rank};
use crate::data::Fields;
use crate::machine::fused;

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
        let reached = |layer: &str| {
            let of = |trained: &dyn Trained| match trained.reaches_layer(&format!("{layer}{}", low_rank::SCALES)) {
                true => Adaptation::Scaled,
                // Memory depends on no rank.
                false if self.only_updates(trained, layer) => Adaptation::LowRank { rank: 0 },
                false => Adaptation::Whole,
            };
            trained.filter(|trained| trained.reaches_layer(layer)).map(of)
        };
        let graph = !matches!(self.graph, Graph::None);
        let once = matches!(self.graph, Graph::Weights { twice: false, .. });
        let fuses = once && self.base.lie_on_cpu() && fused::serves(self.kind, Device::Cpu);
        let (base, adapted, kind) = (self.base, &reached, self.kind);
        let counted = Counted { base, adapted, kind, particles: 1, samples: 1, graph, fuses };
        let counter = Counter::new(counted).within(self.part);
        let entered = enter(&counter);
        counter.take_kept();
        let stages = self.network.stages_kept(&counter, 0..self.stages, entered);
        // A stage below the first trained one keeps nothing, also where activations are computed again.
        let first = stages.iter().position(|stage| stage.inside > 0).unwrap_or(stages.len());
        Kept::of_all(&stages[first..], recompute) + counter.widest()
    }

    /// Returns whether the factors of updates are all that is trained of a layer whose weight is stored as numbers.
    fn only_updates(&self, trained: &dyn Trained, layer: &str) -> bool {
        let names = trained.names();
        let mut own = names.iter().filter_map(|name| name.strip_prefix(layer)?.strip_prefix('.'));
        own.all(|parameter| ["A", "B"].contains(&parameter)) && !self.base.is_quantised(&format!("{layer}.weight"))
    }
}
