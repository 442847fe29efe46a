//! The part of a LLaVA network that sees: it turns the patches of an image into embeddings of its language network.

use tch::Kind;

use super::{PROJECTOR, TOWER, VisionConfig};
use crate::machine::memory::MemoryEstimate;
use crate::model::Normalize;
use crate::model::network::ops::{Activation, Ops};
use crate::model::network::{Graph, Parameters};
use crate::model::vit::footprint::Pass;
use crate::model::vit::forward::Vit;

/// The image tower and the projector.
#[derive(Debug)]
pub struct VisionTower {
    pub eyes: VisionConfig,
    /// CLIP's tower. It counts one block more than are run, so that none of these reads the class token alone.
    pub tower: Vit,
    pub normalize: Normalize,
}

impl VisionTower {
    /// Returns the number of patches of an image, P.
    pub fn patches(&self) -> i64 {
        self.tower.tokens() - i64::from(!self.eyes.keeps_class)
    }

    /// Returns the memory of a pass of the tower.
    pub fn need(&self, base: &Parameters, graph: Graph, kind: Kind) -> MemoryEstimate {
        let (network, geometry, blocks) = (&self.tower, &self.tower.geometry, self.eyes.blocks);
        Pass { network, geometry, part: TOWER, blocks, base, kind, graph }.need()
    }

    /// Returns the number of values of an image.
    pub fn pixels(&self) -> i64 {
        3 * self.eyes.image_size * self.eyes.image_size
    }

    /// Returns the embeddings of the patches, `[p', B, P, d]`, from bytes `[p, B, 3, S, S]` in f32.
    pub fn patch_embeddings<O: Ops>(&self, ops: &O, bytes: &O::Value) -> O::Value {
        let own = ops.within(TOWER);
        let Normalize { mean, std } = self.normalize;
        let images = ops.cast(ops.normalised(ops.again(bytes), mean, std));
        let entered = self.tower.embedded(&own, &images);
        let seen = (0..self.eyes.blocks).fold(entered, |x, block| self.tower.block(&own, block, x));
        let first = i64::from(!self.eyes.keeps_class);
        let patches = ops.slice(&seen, 2, first, self.patches());
        let hidden = ops.activation(Activation::Gelu, ops.linear(PROJECTOR[0], &patches));
        ops.linear(PROJECTOR[1], &hidden)
    }
}
