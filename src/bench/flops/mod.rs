//! Counts the floating-point operations of a training step or of a prediction, by the network's own forward pass
//! ([`Counter`]) and the layer behind its features. The method, the optimizer, recomputation, and mixing in weight space do
//! not count.

#[cfg(test)]
mod texts;

use tch::Kind;

use crate::data::fields::{Fields, IDS, KINDS, MASK, PIXELS};
use crate::model::language::{EMBEDDING, OUTPUT};
use crate::model::network::low_rank::SCALES;
use crate::model::network::ops::{self, Adaptation, Count, Counted, Counter, Flags, Ops};
use crate::model::network::{Network, Parameters, Trained};
use crate::subspace::{Layout, Shape};

pub use crate::model::network::ops::Work;

/// A forward pass of n particles through a network.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub layout: &'a Layout,
    pub classes: i64,
    pub particles: i64,
    /// The number of images, or of prompts, per particle.
    pub images: i64,
    /// Whether each particle has its own images instead of sharing them with the others.
    pub own_images: bool,
    /// The stage at which the pass starts, from cached tokens; `None` to start from samples.
    pub from_stage: Option<usize>,
}

/// A sample of a network: a text, an image, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The number of tokens of a text: those of an answer that is learnt among them, and the patches of an image.
    pub tokens: Option<i64>,
    /// The number of pixels per side of an image.
    pub side: Option<i64>,
}

/// The part of a network's output that is read for a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// The logits of classes, of a prompt at its last token.
    Classes,
    /// The logits of all tokens at the places of an answer of so many tokens.
    Answer(i64),
    /// The logits of all tokens at the last one of a prompt, and then at so many tokens less one that are written after it.
    Writes(i64),
}

impl Sample {
    /// Returns an image of so many pixels per side.
    pub fn of_image(side: i64) -> Sample {
        Sample { tokens: None, side: Some(side) }
    }

    /// Returns the shapes of a prepared sample. Networks that know one kind of tokens do not read the kinds.
    fn shape(self) -> Fields<Vec<i64>> {
        let text = self.tokens.map(|tokens| [IDS, MASK, KINDS].map(|name| (name, vec![tokens])));
        let image = self.side.map(|side| (PIXELS, vec![3, side, side]));
        Fields::new(text.into_iter().flatten().chain(image).collect())
    }

    /// Returns the shapes of what enters a stage of a network. It has as many tokens as a text has.
    fn entering(self, network: &dyn Network, stage: usize) -> Fields<Vec<i64>> {
        let shapes = network.entering(stage);
        let Some(tokens) = self.tokens else { return shapes };
        shapes.map(|shape| [&[tokens.max(1)], &shape[1..]].concat())
    }
}

/// A pass whose operations are counted.
#[derive(Clone, Copy)]
pub struct Counting<'a> {
    pub network: &'a dyn Network,
    /// The weights, of which sizes matter alone.
    pub base: &'a Parameters,
    pub sample: Sample,
    pub reads: Reads,
    pub pass: Pass<'a>,
}

impl Counting<'_> {
    /// Counts the operations of the pass and of its gradients.
    ///
    /// # Panics
    /// Panics if the network is not written over operations.
    pub fn work(&self) -> Work {
        let Counting { network, base, sample, pass, .. } = *self;
        let Pass { layout, particles, images: samples, own_images, from_stage, .. } = pass;
        let adapted = |name: &str| adaptation(layout, name);
        let counted =
            Counted { base, adapted: &adapted, kind: Kind::Float, particles, samples, graph: false, fuses: true };
        let counter = Counter::new(counted);
        let shapes = from_stage.map_or_else(|| sample.shape(), |stage| sample.entering(network, stage));
        let entering = shapes.map(|shape| Count::new(shape, Flags { apart: own_images, live: false }));
        let ends = if matches!(self.reads, Reads::Answer(_)) { ops::Reads::Tokens } else { ops::Reads::Samples };
        let written = network.written().expect("operations are counted of networks that are written over them");
        let features = written.count(&counter, from_stage, entering, ends);
        self.read(&counter, &features);
        counter.work()
    }

    /// Counts the logits, and the tokens that are written.
    fn read(&self, counter: &Counter, features: &Count) {
        let Counting { network, base, pass, .. } = *self;
        let is_trained = |layer: &str| adaptation(pass.layout, layer).is_some();
        let name = format!("{OUTPUT}.weight");
        let tied = base.first_name(&name).starts_with(EMBEDDING);
        let output = if tied && is_trained(EMBEDDING) { EMBEDDING } else { OUTPUT };
        let vocabulary = || base.get(&name).map_or(0, |output| output.size()[0]);
        let last = |features: &Count| counter.reshape(features, &[1, network.feature_width()]);
        match (self.reads, self.sample.tokens) {
            (Reads::Classes, _) => {
                let own = if is_trained(output) { output } else { "head" };
                counter.product(own, &last(features), pass.classes);
            }
            (Reads::Answer(tokens), _) => {
                counter.product(output, &counter.slice(features, 2, 0, tokens), vocabulary());
            }
            (Reads::Writes(more), Some(tokens)) => {
                counter.product(output, &last(features), vocabulary());
                let writer = network.autoregressive().expect("tokens are written by a network that writes");
                for before in 1..more {
                    let features = writer.count_append(counter, tokens + before);
                    counter.product(output, &last(&features), vocabulary());
                }
            }
            (Reads::Writes(_), None) => {}
        }
    }
}

/// Returns the way in which particles adapt a layer.
fn adaptation(layout: &Layout, name: &str) -> Option<Adaptation> {
    let block = layout.blocks.iter().find(|block| block.name == name)?;
    Some(match &block.shape {
        Shape::Dense if layout.reaches_layer(&format!("{name}{SCALES}")) => Adaptation::Scaled,
        Shape::Dense => Adaptation::Whole,
        Shape::LowRank { rank, .. } => Adaptation::LowRank { rank: *rank },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::vit::architecture::sizes;
    use crate::model::vit::forward::Vit;
    use crate::model::vit::parts::Parts;
    use crate::model::vit::{Activation, Geometry, Traits};
    use crate::subspace::Shape;

    const GEOMETRY: Geometry = Geometry { width: 8, blocks: 2, patch: 2, grid: 2, margin: 0, mlp: 16, output: 4 };

    fn low_rank() -> Layout {
        let mut layout = Layout::default();
        layout.push("blocks.1.mlp.fc.A", &[2, 8]);
        layout.push("blocks.1.mlp.fc.B", &[16, 2]);
        layout.close_block("blocks.1.mlp.fc", 0, Shape::LowRank { rank: 2, inputs: 8, outputs: 16, scale: 1.0 });
        layout
    }

    fn count(pass: Pass) -> Work {
        let traits = Traits { heads: 2, activation: Activation::Gelu, eps: 1e-6 };
        let vit = Vit::new(GEOMETRY, traits, Parts::PLAIN);
        let base = Parameters::without_memory(sizes(&GEOMETRY), Kind::Float);
        let (sample, reads) = (Sample::of_image(4), Reads::Classes);
        Counting { network: &vit, base: &base, sample, reads, pass }.work()
    }

    fn pass(layout: &Layout) -> Pass<'_> {
        Pass { layout, classes: 3, particles: 1, images: 1, own_images: true, from_stage: None }
    }

    /// The forward pass of one image of 5 tokens by hand, in multiply-adds. The last block has only the class token,
    /// except for keys and values.
    ///
    /// Patch: 4·12·8 = 384.
    /// Block 0: qkv 5·8·24 = 960, attention 2·5·5·8 = 400, proj 5·8·8 = 320, fc 5·8·16 = 640, proj 640.
    /// Block 1: qkv 8·8 + 5·8·16 = 704, attention 2·5·8 = 80, proj 64, fc 128, proj 128.
    /// Output: 8·4 = 32. Head: 4·3 = 12.
    const FROZEN: f64 = 2.0 * (384.0 + 960.0 + 400.0 + 320.0 + 1280.0 + 704.0 + 80.0 + 64.0 + 256.0 + 32.0 + 12.0);

    #[test]
    fn frozen_forward_by_hand() {
        let nothing = Layout::default();
        let work = count(pass(&nothing));
        assert_eq!(work, Work { forward: FROZEN, backward: 0.0 });
    }

    /// The layer fc of block 1 has rank 2. Its forward pass adds 2·(8 + 16) = 48. The backward pass takes 16 for A, 32
    /// for B, 32 between them, and the input gradients of later layers: proj 128, output 32, head 12.
    #[test]
    fn low_rank_step_by_hand() {
        let layout = low_rank();
        let work = count(pass(&layout));
        assert_eq!(work.forward, FROZEN + 2.0 * 48.0);
        assert_eq!(work.backward, 2.0 * (16.0 + 32.0 + 32.0 + 128.0 + 32.0 + 12.0));
        let five = count(Pass { particles: 5, images: 3, ..pass(&layout) });
        assert_eq!(five.total(), 15.0 * work.total());
    }

    /// Five particles on the same images first differ at fc of block 1. Earlier layers run once, and so does the frozen
    /// product of fc.
    #[test]
    fn shared_images_run_once_until_particles_part() {
        let layout = low_rank();
        let shared = count(Pass { particles: 5, own_images: false, ..pass(&layout) });
        let after = 2.0 * (128.0 + 32.0 + 12.0);
        assert_eq!(shared.forward, FROZEN - after + 5.0 * (2.0 * 48.0 + after));
    }

    #[test]
    fn cached_tokens_leave_the_first_blocks_out() {
        let layout = low_rank();
        let cached = count(Pass { from_stage: Some(1), ..pass(&layout) });
        let whole = count(pass(&layout));
        assert_eq!(whole.forward - cached.forward, 2.0 * (384.0 + 960.0 + 400.0 + 320.0 + 1280.0));
        assert_eq!(whole.backward, cached.backward);
    }

    /// A layer trained in full takes its own gradient, and that of its input where an earlier layer is trained.
    #[test]
    fn dense_step_is_three_forwards_but_for_the_first_layer() {
        let mut layout = Layout::default();
        for name in ["patch", "proj"] {
            let start = layout.parameters();
            layout.push(format!("{name}.weight"), &[4]);
            layout.close_block(name, start, Shape::Dense);
        }
        let work = count(pass(&layout));
        assert_eq!(work.forward, FROZEN);
        // The patch embedding has no input gradient, attention takes twice its forward pass, and the output layer also
        // has a weight gradient.
        assert_eq!(work.backward, FROZEN + 2.0 * (400.0 + 80.0) + 2.0 * 32.0);
    }
}
