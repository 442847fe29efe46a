//! What a LLaVA network sees: the patches of an image as embeddings of its language network.

use tch::{Kind, Tensor};

use super::{Eyes, PROJECTOR, TOWER};
use crate::base::tensor::upload;
use crate::model::Normalize;
use crate::model::network::{Network, Weights};
use crate::model::vit::forward::Vit;

/// The image tower and the projector.
#[derive(Debug)]
pub struct Sight {
    pub eyes: Eyes,
    /// CLIP's tower. It counts one block more than are run, so that none of these reads the class token alone.
    pub tower: Vit,
    pub normalize: Normalize,
}

impl Sight {
    /// Returns the number of patches of an image, P.
    pub fn patches(&self) -> i64 {
        self.tower.tokens() - i64::from(!self.eyes.keeps_class)
    }

    /// Returns the number of values of an image.
    pub fn pixels(&self) -> i64 {
        3 * self.eyes.image_size * self.eyes.image_size
    }

    /// Returns the embeddings of the patches, `[p', B, P, d]`, from bytes `[p, B, 3 S²]` in f32.
    pub fn patch_embeddings(&self, weights: &Weights, bytes: &Tensor) -> Tensor {
        let own = weights.within(TOWER);
        let images = self.normalised(bytes).to_kind(weights.kind());
        let entered = self.tower.enter(&own, &images);
        let seen = (0..self.eyes.blocks).fold(entered, |x, block| self.tower.stage(&own, block, x));
        let first = i64::from(!self.eyes.keeps_class);
        let patches = seen.narrow(2, first, seen.size()[2] - first);
        let [first, second] = PROJECTOR.map(|layer| weights.linear(layer));
        second.forward(&first.forward(&patches).gelu("none"))
    }

    /// Returns normalised images, `[p, B, 3, S, S]`.
    fn normalised(&self, bytes: &Tensor) -> Tensor {
        let side = self.eyes.image_size;
        let of = |three: [f64; 3]| {
            upload(&Tensor::from_slice(&three).to_kind(Kind::Float).view([1, 1, 3, 1, 1]), bytes.device())
        };
        let images = bytes.unflatten(2, [3, side, side].as_slice()) / 255.0;
        (images - of(self.normalize.mean)) / of(self.normalize.std)
    }
}
