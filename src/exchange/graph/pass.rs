//! The state that all parts of a forward pass share while they write it as a graph.

use tch::Kind;

use super::layers::Layers;
use super::values::{Graph, Operation, Value};
use crate::model::vit::forward::Vit;

/// A network whose forward pass becomes a graph. A value has a leading axis of members, which is 1 until members differ.
pub struct Pass<'a> {
    pub vit: &'a Vit,
    pub layers: Layers<'a>,
}

impl Pass<'_> {
    pub(super) fn graph(&mut self) -> &mut Graph {
        &mut self.layers.graph
    }

    /// Returns a value in another type, unless that is f32 anyway.
    pub(super) fn cast(&mut self, x: &Value, reduced: Kind, to: Kind) -> Value {
        if reduced == Kind::Float { x.clone() } else { self.graph().keep(Operation::Cast(to), &[x]) }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.layers.members.has(name)
    }

    pub(super) fn norm(&mut self, layer: &str, x: &Value) -> Value {
        self.layers.norm(layer, x, self.vit.traits.eps)
    }

    pub(super) fn activated(&mut self, x: &Value) -> Value {
        let activation = self.vit.traits.activation;
        self.graph().keep(Operation::Activation(activation), &[x])
    }
}
