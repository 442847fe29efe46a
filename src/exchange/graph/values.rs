//! A graph of operations on tensors. Shapes are known but for the number of images, which is [`IMAGES`], also where
//! another number multiplies it.

use std::collections::BTreeMap;

use tch::{Kind, Tensor};

use crate::data::Interpolation;
use crate::model::vit::Activation;

/// The length of an axis that depends on the number of images.
pub const IMAGES: i64 = -1;

/// A tensor in the graph.
#[derive(Clone, Debug)]
pub struct Value {
    pub id: usize,
    pub shape: Vec<i64>,
}

/// The operation by which a node computes its output from its inputs.
#[derive(Clone, Debug)]
pub enum Operation {
    /// x Wᵀ + b of `[…, in]`, `[out, in]` and, if there is one, `[out]`.
    Linear,
    /// The product of `[1 or n, m, k]` and `[n, k, l]`.
    MatMul,
    /// These four spread axes of length 1 as usual.
    Add,
    Subtract,
    Multiply,
    Divide,
    Negate,
    /// Layer norm over the last axis, with weight and bias if there are two more inputs.
    LayerNorm {
        eps: f64,
    },
    Reshape(Vec<i64>),
    Permute(Vec<i64>),
    Slice {
        axis: usize,
        start: i64,
        end: i64,
    },
    Concat {
        axis: usize,
    },
    /// Repeats the first axis to this length, and the second to the number of images.
    Expand {
        lead: i64,
    },
    Activation(Activation),
    /// softmax(Q Kᵀ / √D + scores) V of `[B, heads, T, D]` each; scores are a fourth input, if there are any.
    Attention,
    /// The mean over an axis, which stays with length 1.
    Mean {
        axis: usize,
    },
    /// x / max(‖x‖, 1e-12) over the last axis.
    Unit,
    /// Over the last axis.
    Softmax,
    /// −Σ p ln p over the last axis, which stays with length 1.
    Entropy,
    Cast(Kind),
    /// Resizes `[B, 3, h, w]` with antialiasing.
    Resize {
        size: i64,
        interpolation: Interpolation,
    },
    /// Raises negative values to 0 and, if there is one, lowers larger ones to a largest value.
    Clamp {
        most: Option<f64>,
    },
}

/// An operation with its inputs and its output.
#[derive(Debug)]
pub struct Node {
    /// The layer that it belongs to.
    pub scope: String,
    pub operation: Operation,
    pub inputs: Vec<Value>,
    pub output: Value,
}

/// A graph whose nodes are in an order in which they can be computed. Value 0 is its input.
#[derive(Debug, Default)]
pub struct Graph {
    /// The shape of the input.
    pub input: Vec<i64>,
    pub nodes: Vec<Node>,
    /// The tensors that the graph holds, by their values.
    pub stored: BTreeMap<usize, (String, Tensor)>,
    names: BTreeMap<String, Value>,
    scope: String,
    count: usize,
}

impl Graph {
    /// Returns an empty graph and its input.
    pub fn new(shape: &[i64]) -> (Graph, Value) {
        let mut graph = Graph { input: shape.to_vec(), ..Graph::default() };
        let input = graph.value(shape.to_vec());
        (graph, input)
    }

    fn value(&mut self, shape: Vec<i64>) -> Value {
        self.count += 1;
        Value { id: self.count - 1, shape }
    }

    /// Names the layer that following nodes belong to.
    pub fn enter(&mut self, scope: &str) {
        self.scope = scope.to_string();
    }

    /// Returns a tensor that the graph holds under `name`, which is asked for at the first use.
    pub fn stored(&mut self, name: &str, tensor: impl FnOnce() -> Tensor) -> Value {
        if let Some(known) = self.names.get(name) {
            return known.clone();
        }
        let tensor = tensor().contiguous();
        let value = self.value(tensor.size());
        self.names.insert(name.to_string(), value.clone());
        self.stored.insert(value.id, (name.to_string(), tensor));
        value
    }

    fn add(&mut self, operation: Operation, inputs: &[&Value], shape: Vec<i64>) -> Value {
        let output = self.value(shape);
        let inputs = inputs.iter().map(|&value| value.clone()).collect();
        self.nodes.push(Node { scope: self.scope.clone(), operation, inputs, output: output.clone() });
        output
    }

    /// Applies an operation that keeps the shape of its first input.
    pub fn keep(&mut self, operation: Operation, inputs: &[&Value]) -> Value {
        self.add(operation, inputs, inputs[0].shape.clone())
    }

    /// Applies an operation on two values, one of which may spread.
    pub fn pair(&mut self, operation: Operation, a: &Value, b: &Value) -> Value {
        let shape = spread(&a.shape, &b.shape);
        self.add(operation, &[a, b], shape)
    }

    pub fn plus(&mut self, a: &Value, b: &Value) -> Value {
        self.pair(Operation::Add, a, b)
    }

    pub fn times(&mut self, a: &Value, b: &Value) -> Value {
        self.pair(Operation::Multiply, a, b)
    }

    pub fn linear(&mut self, x: &Value, weight: &Value, bias: Option<&Value>) -> Value {
        let shape = with_last(&x.shape, weight.shape[0]);
        let inputs: Vec<&Value> = [x, weight].into_iter().chain(bias).collect();
        self.add(Operation::Linear, &inputs, shape)
    }

    pub fn matmul(&mut self, a: &Value, b: &Value) -> Value {
        let lead = a.shape[0].max(b.shape[0]);
        self.add(Operation::MatMul, &[a, b], vec![lead, a.shape[1], b.shape[2]])
    }

    pub fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        if x.shape == shape {
            return x.clone();
        }
        self.add(Operation::Reshape(shape.to_vec()), &[x], shape.to_vec())
    }

    pub fn permute(&mut self, x: &Value, axes: &[i64]) -> Value {
        let shape = axes.iter().map(|axis| x.shape[*axis as usize]).collect();
        self.add(Operation::Permute(axes.to_vec()), &[x], shape)
    }

    pub fn slice(&mut self, x: &Value, axis: usize, (start, end): (i64, i64)) -> Value {
        let mut shape = x.shape.clone();
        shape[axis] = end - start;
        if shape == x.shape {
            return x.clone();
        }
        self.add(Operation::Slice { axis, start, end }, &[x], shape)
    }

    pub fn concat(&mut self, parts: &[&Value], axis: usize) -> Value {
        let mut shape = parts[0].shape.clone();
        shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        self.add(Operation::Concat { axis }, parts, shape)
    }

    /// Repeats the first axis to `lead`, and the second to the number of images.
    pub fn expand(&mut self, x: &Value, lead: i64) -> Value {
        let mut shape = x.shape.clone();
        (shape[0], shape[1]) = (lead, IMAGES);
        if shape == x.shape {
            return x.clone();
        }
        self.add(Operation::Expand { lead }, &[x], shape)
    }

    pub fn attention(&mut self, [query, key, value]: [&Value; 3], scores: Option<&Value>) -> Value {
        let inputs: Vec<&Value> = [query, key, value].into_iter().chain(scores).collect();
        self.add(Operation::Attention, &inputs, query.shape.clone())
    }

    pub fn mean(&mut self, x: &Value, axis: usize) -> Value {
        let mut shape = x.shape.clone();
        shape[axis] = 1;
        self.add(Operation::Mean { axis }, &[x], shape)
    }

    pub fn entropy(&mut self, x: &Value) -> Value {
        let shape = with_last(&x.shape, 1);
        self.add(Operation::Entropy, &[x], shape)
    }

    pub fn resize(&mut self, x: &Value, size: i64, interpolation: Interpolation) -> Value {
        self.add(Operation::Resize { size, interpolation }, &[x], vec![IMAGES, 3, size, size])
    }
}

fn with_last(shape: &[i64], last: i64) -> Vec<i64> {
    let mut shape = shape.to_vec();
    if let Some(length) = shape.last_mut() {
        *length = last;
    }
    shape
}

/// Returns the shape of two that spread to each other, aligned at the last axis.
fn spread(a: &[i64], b: &[i64]) -> Vec<i64> {
    let axes = a.len().max(b.len());
    let length = |shape: &[i64], axis: usize| (axis + shape.len()).checked_sub(axes).map_or(1, |at| shape[at]);
    let one = |axis| match (length(a, axis), length(b, axis)) {
        (1, other) | (other, _) => other,
    };
    (0..axes).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_spread_at_the_last_axis() {
        assert_eq!(spread(&[1, IMAGES, 5, 4], &[3, 1, 1, 4]), [3, IMAGES, 5, 4]);
        assert_eq!(spread(&[4], &[IMAGES, 4]), [IMAGES, 4]);
        assert_eq!(spread(&[2, 1], &[1, IMAGES]), [2, IMAGES]);
    }
}
