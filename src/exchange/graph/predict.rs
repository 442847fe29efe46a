//! The predictions of members, from their features.

use tch::Kind;

use super::members::Leaving;
use crate::model::network::ops::graph::{Operation, SAMPLES, Value};
use crate::model::network::ops::{Ops, Writer};

/// Returns the logits, the mean probabilities and the mutual information H[mean p] − mean H[p] in nats, all in f32, from features
/// `[p, B, d]`.
pub fn predict(writer: &Writer, leaving: &Leaving, features: &Value) -> [Value; 3] {
    writer.graph().enter("head");
    let x = writer.cast_from(features, Kind::Float);
    let writer = &writer.in_kind(Kind::Float);
    let x = if leaving.normalised { writer.graph().keep(Operation::Unit, &[&x]) } else { x };
    let x = writer.reshape(&x, &[1, x.shape[2]]);
    let x = writer.linear("head", &x);
    let classes = x.shape[3];
    let logits = writer.reshape(&x, &[classes]);
    let logits = writer.graph().expand(&logits, leaving.members.count);
    writer.graph().enter("predictive");
    let each = writer.graph().keep(Operation::Softmax, &[&logits]);
    let mean = averaged(writer, leaving, &each);
    let (probabilities, total, own) = {
        let mut graph = writer.graph();
        (graph.reshape(&mean, &[SAMPLES, classes]), graph.entropy(&mean), graph.entropy(&each))
    };
    let expected = averaged(writer, leaving, &own);
    let mut graph = writer.graph();
    let information = graph.pair(Operation::Subtract, &total, &expected);
    let information = graph.keep(Operation::Clamp { most: None }, &[&information]);
    let information = graph.reshape(&information, &[SAMPLES]);
    [logits, probabilities, information]
}

/// Returns the mean over members `[n, B, k]`, by their weights.
fn averaged(writer: &Writer, leaving: &Leaving, x: &Value) -> Value {
    let weighted = match &leaving.weights {
        Some(weights) => {
            let weights = writer.stored("predictive.weights", || weights.view([-1, 1, 1]));
            writer.graph().times(x, &weights)
        }
        None => x.clone(),
    };
    writer.graph().mean(&weighted, 0)
}
