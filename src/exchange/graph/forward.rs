//! The forward pass of [`Vit`](crate::model::vit::forward::Vit) as a graph: prepared images `[B, 3, S, S]` in, or bytes; the
//! logits `[members, B, C]` of every member, their mean probabilities `[B, C]` and their mutual information `[B]` out.

use tch::Kind;

use super::embed::Preparing;
use super::layers::Layers;
use super::members::Members;
use super::pass::Pass;
use super::values::{Graph, IMAGES, Value};
use crate::model::vit::forward::Vit;

/// The graph of a posterior.
pub struct Built {
    pub graph: Graph,
    /// Logits, mean probabilities and mutual information.
    pub outputs: [Value; 3],
}

/// Returns the graph of some members of a network that computes in `kind`. Its input are bytes `[B, 3, h, w]` of any size if
/// they are prepared in it.
pub fn build(vit: &Vit, members: &Members, kind: Kind, preparing: Option<Preparing>) -> Built {
    let size = vit.geometry.image_size();
    let shape = if preparing.is_some() { [IMAGES, 3, IMAGES, IMAGES] } else { [IMAGES, 3, size, size] };
    let (graph, input) = Graph::new(&shape);
    let mut pass = Pass { vit, layers: Layers { graph, members, kind: Kind::Float } };
    let pixels = match preparing {
        Some(preparing) => pass.prepare(&input, preparing),
        None => input,
    };
    pass.layers.kind = kind;
    let pixels = pass.cast(&pixels, kind, kind);
    let mut x = pass.embed(&pixels);
    for block in 0..vit.geometry.blocks {
        x = pass.block(block, &x);
    }
    let features = pass.read_out(&x);
    let outputs = pass.predict(&features);
    Built { graph: pass.layers.graph, outputs }
}
