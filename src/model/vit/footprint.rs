//! The memory of passes through a vision transformer: what its operations keep and use at once, as [`KeptPass`] counts them.

use tch::Kind;

use crate::data::Fields;
use crate::data::fields::PIXELS;
use crate::machine::memory::MemoryEstimate;
use crate::model::network::ops::{Count, Flags, Written};
use crate::model::network::{Graph, KeptPass, Parameters};
use crate::model::vit::Geometry;

/// A pass through the first blocks of a vision transformer in a compute type.
pub struct Pass<'a> {
    pub network: &'a dyn Written,
    pub geometry: &'a Geometry,
    /// The beginning of the names of its parameters.
    pub part: &'static str,
    /// The number of blocks that are run.
    pub blocks: usize,
    pub base: &'a Parameters,
    pub kind: Kind,
    pub graph: Graph<'a>,
}

impl Pass<'_> {
    /// Returns the memory of the pass, per image and per image of each member.
    pub fn need(&self) -> MemoryEstimate {
        let number = self.kind.elt_size_in_bytes() as u64;
        // Freed tensors leave holes between those that stay; measured on CPUs.
        const HOLES: f64 = 1.2;
        let activations = (HOLES * (number * self.entries()) as f64) as u64;
        let (image, own) = self.pixels();
        MemoryEstimate { fixed: 0, member: 0, image, pair: activations + own }
    }

    /// Returns the number of entries that a pass of one image keeps and uses at once.
    fn entries(&self) -> u64 {
        let &Pass { network, part, blocks, base, kind, graph, .. } = self;
        let side = self.geometry.image_size();
        let moves = matches!(graph, Graph::Samples { .. });
        let mut beside = 0;
        let kept = KeptPass { network, stages: blocks, part, base, kind, graph }.entries(|counter| {
            let images = Fields::of(PIXELS, Count::new(&[3, side, side], Flags { apart: true, live: moves }));
            let entered = network.count_entered(counter, &images);
            // Tokens as they enter a block and as halves of it leave them, with their gradients.
            beside = 6 * entered.first().numbers();
            entered
        });
        kept + beside
    }

    /// Returns the bytes of an image's pixels: those that all members share, and those of each member.
    fn pixels(&self) -> (u64, u64) {
        const F32: u64 = 4;
        const F64: u64 = 8;
        let size = self.geometry.image_size() as u64;
        let numbers = 3 * size * size;
        // Stored bytes, pixels in f32, normalised pixels and patches. Training normalises in place.
        let seen = numbers * (1 + 2 * F32 + 2 * self.kind.elt_size_in_bytes() as u64);
        match self.graph {
            Graph::None => (seen + numbers * F32, 0),
            Graph::Weights { own_samples: false, .. } => (seen, 0),
            Graph::Weights { own_samples: true, .. } => (0, seen),
            // The gradient and its sum, the images of each budget, and the projection, which is computed in f64.
            Graph::Samples { budgets } => (seen + numbers * (F32 * (3 + 2 * budgets as u64) + 6 * F64), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::machine::fused;
    use crate::machine::quantised::Scheme;
    use crate::model::families::shapes;
    use crate::model::network::Trained;
    use crate::model::vit::forward::Vit;
    use crate::model::vit::{Activation, Traits};

    struct Mlps;
    impl Trained for Mlps {
        fn names(&self) -> Vec<&str> {
            vec!["blocks.4.mlp.fc.A", "blocks.4.mlp.proj.A", "blocks.5.mlp.fc.A", "blocks.5.mlp.proj.A"]
        }
    }

    /// The counts are made by hand for clip-mini: width 192, MLP 768, 17 tokens, 6 blocks, GELU, f32. Beside what is kept, the
    /// activation uses 2.5 · 768 entries a token, and 768 for its gradient.
    #[test]
    fn entries_are_counted_an_operation() {
        let (vit, base) = shapes().find(|shape| shape.key == "clip-mini").unwrap().random(1);
        let pass = |graph| Pass {
            network: &vit,
            geometry: &vit.geometry,
            part: "",
            blocks: 6,
            base: &base,
            kind: Kind::Float,
            graph,
        };
        let alone = 17 * (2 * 768 + 384 + 6 * 192);
        assert_eq!(pass(Graph::None).entries(), alone);
        let with_graph = alone + 17 * 768;
        // Both norms, queries, keys and values, what attention read, and the activation. The last block has one token after its
        // keys and values.
        let block = 17 * (6 * 192 + 768);
        let last = 17 * (192 + 2 * 192) + 3 * 192 + 768;
        assert_eq!(pass(Graph::Samples { budgets: 1 }).entries(), with_graph + 5 * block + last);
        // The gradient begins at the MLP of the fifth block, whose layers keep their inputs. What enters the second one is made again from
        // what enters the activation.
        let bent = if fused::serves(Kind::Float, Device::Cpu) { 0 } else { 768 };
        let weights = |recompute| Graph::Weights { trained: &Mlps, recompute, own_samples: true, twice: false };
        let fifth = 17 * (192 + 768 + bent);
        let last = last + 192 + bent;
        assert_eq!(pass(weights(false)).entries(), with_graph + fifth + last);
        assert_eq!(pass(weights(true)).entries(), with_graph + 2 * 17 * 192 + fifth.max(last));
        let need = pass(weights(false)).need();
        assert_eq!(need.image, 0);
        assert_eq!(need.pair, 4 * (with_graph + fifth + last) * 12 / 10 + 3 * 32 * 32 * 17);
    }

    /// The gradient of QuickGELU in one pass reads its input alone, and so does that of the layer behind it: that of the fifth block and of the
    /// last token in the sixth. Who does not know where the weights will be, or differentiates gradients again, plans for libtorch's.
    #[test]
    fn what_quick_gelu_makes_counts_where_it_is_kept() {
        let (vit, base) = shapes().find(|shape| shape.key == "clip-mini").unwrap().random(1);
        let quick = Traits { activation: Activation::QuickGelu, ..vit.traits };
        let vit = Vit::new(vit.geometry.clone(), quick, vit.parts);
        let sizes = base.all().iter().map(|(name, tensor)| (name.clone(), tensor.size())).collect();
        let anywhere = Parameters::without_memory(sizes, Kind::Float);
        let entries = |base, twice| {
            let graph = Graph::Weights { trained: &Mlps, recompute: false, own_samples: true, twice };
            let (network, geometry, kind) = (&vit, &vit.geometry, Kind::Float);
            Pass { network, geometry, part: "", blocks: 6, base, kind, graph }.entries()
        };
        // The sigmoid and its product with the input.
        let made = if fused::serves(Kind::Float, Device::Cpu) { 2 * (17 * 768 + 768) } else { 0 };
        assert_eq!(entries(&anywhere, false) - entries(&base, false), made);
        assert_eq!(entries(&base, true), entries(&anywhere, false));
        // A matrix in fewer bits has no pass that makes the product again.
        let (_, mut quantised) = shapes().find(|shape| shape.key == "clip-mini").unwrap().random(1);
        let layers = ["blocks.4.mlp.proj", "blocks.5.mlp.proj"].map(String::from);
        quantised.quantise(&layers, Scheme::Int8).unwrap();
        assert_eq!(entries(&quantised, false) - entries(&base, false), made / 2);
    }
}
