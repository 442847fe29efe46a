//! The inputs and outputs of the image tower's projection for some images.

use anyhow::{Context, Result};
use tch::{Tensor, no_grad};

use crate::data::Fields;
use crate::model::Model;
use crate::model::network::Tape;
use crate::model::network::Weights;

/// The output of the image tower for some images.
pub struct Collected {
    /// The inputs of the projection, φ, `[B, w]`.
    pub inputs: Tensor,
    /// The embeddings g, `[B, d]`.
    pub embeddings: Tensor,
}

impl Collected {
    /// Runs the checkpoint's image tower on prepared samples `[1, B, …]`.
    ///
    /// # Errors
    /// Fails if the network does not show what enters its projection.
    pub fn new(model: &Model, layer: &'static str, samples: &Fields) -> Result<Collected> {
        let tape = Tape::default();
        let mut weights = Weights::frozen(&model.base);
        weights.watch(layer, &tape);
        let kind = model.head.weight.kind();
        let embeddings = no_grad(|| model.network.forward(&weights, samples)).squeeze_dim(0).to_kind(kind);
        let tap = tape.take().pop().context("the network does not show what enters its projection")?;
        Ok(Collected { inputs: tap.input.flatten(0, 2).to_kind(kind), embeddings })
    }
}
