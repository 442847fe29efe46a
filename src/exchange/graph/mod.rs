//! A whole posterior as a graph of operations, which other programs run without bella: what the network takes in; the logits
//! `[members, B, C]` of every member, their mean probabilities `[B, C]` and their mutual information `[B]` out.

pub mod members;

use tch::Kind;

use crate::model::network::ops::graph::{Graph, Value};
use crate::model::network::ops::{Writer, Written};
use members::{Inputs, Leaving, predict};

/// The graph of a posterior.
pub struct Built {
    pub graph: Graph,
    /// Logits, mean probabilities and mutual information.
    pub outputs: [Value; 3],
}

/// Returns the graph of some members of a network that computes in `kind`.
pub fn build(network: &dyn Written, leaving: &Leaving, inputs: &dyn Inputs, kind: Kind) -> Built {
    let writer = Writer::new(&leaving.members, kind);
    let samples = inputs.samples(&writer);
    let features = network.write(&writer, &samples);
    let outputs = predict(&writer, leaving, &features);
    Built { graph: writer.finished(), outputs }
}
