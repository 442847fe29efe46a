//! A graph of operations on tensors. Shapes are known but for the number of samples, which is [`SAMPLES`], also where
//! another number multiplies it.

use std::collections::{BTreeMap, BTreeSet};

use tch::{Kind, Tensor};

use crate::data::Interpolation;
use crate::model::network::ops::{Activation, Scoring};

/// The length of an axis that depends on the number of samples.
pub const SAMPLES: i64 = -1;

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
    /// The product of `[…, m, k]` and `[…, k, l]`, whose other axes spread.
    MatMul,
    /// `Add`, `Subtract`, `Multiply` and `Divide` spread axes of length 1 as usual.
    Add,
    Subtract,
    Multiply,
    Divide,
    Negate,
    /// Layer norm over the last axis, with a weight if there is a second input, and a bias if there is a third.
    LayerNorm {
        eps: f64,
    },
    /// x / √(mean x² + eps) over the last axis.
    RmsNorm {
        eps: f64,
    },
    /// The rows of a matrix, the first input, at the indices of the second.
    Embedding,
    /// The entries along an axis at the indices of the second input, whose other axes are as long.
    Gather {
        axis: usize,
    },
    /// The first input where the third is not 0, else the second.
    Where,
    /// 1 where a whole number is this one, else 0.
    Equal(i64),
    /// The remainder of division of whole numbers by this one.
    Remainder(i64),
    /// Raises whole numbers to 0 and lowers them to this one.
    Within(i64),
    /// The sums of all entries up to each, along an axis.
    CumulativeSum {
        axis: usize,
    },
    /// The sum over an axis, which stays with length 1.
    Sum {
        axis: usize,
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
    /// Repeats the first axis to this length, and the second to the number of samples.
    Expand {
        lead: i64,
    },
    Activation(Activation),
    /// softmax(S) V with the scores S of Q and K, `[B, heads, T, D]` each, where a head of keys and values serves `groups` heads of
    /// queries.
    Attention {
        masked: Masked,
        groups: i64,
        scoring: Scoring,
    },
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

/// The tokens that a query reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Masked {
    /// All tokens.
    No,
    /// Query t reads the keys up to t.
    Causal,
    /// All tokens; a fourth input is added to the scores.
    Added,
    /// The tokens for which a fourth input is true.
    Seen,
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

/// An input of a graph.
#[derive(Debug)]
pub struct Input {
    pub name: &'static str,
    pub kind: Kind,
    pub value: Value,
    /// The names of its axes.
    pub axes: &'static [&'static str],
}

/// A graph whose nodes are in an order in which they can be computed.
#[derive(Debug, Default)]
pub struct Graph {
    pub inputs: Vec<Input>,
    pub nodes: Vec<Node>,
    /// The tensors that the graph holds, by their values.
    pub stored: BTreeMap<usize, (String, Tensor)>,
    names: BTreeMap<String, Value>,
    scope: String,
    count: usize,
}

impl Graph {
    /// Adds an input.
    pub fn input(&mut self, name: &'static str, kind: Kind, axes: &'static [&'static str], shape: &[i64]) -> Value {
        let value = self.value(shape.to_vec());
        self.inputs.push(Input { name, kind, value: value.clone(), axes });
        value
    }

    /// Forgets the tensors that no node reads.
    pub fn prune(&mut self) {
        let read: BTreeSet<usize> = self.nodes.iter().flat_map(|node| &node.inputs).map(|value| value.id).collect();
        self.stored.retain(|id, _| read.contains(id));
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
        let tensor = tensor();
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
        let apart = |shape: &[i64]| (shape[..shape.len() - 2].to_vec(), shape[shape.len() - 2], shape[shape.len() - 1]);
        let ((before, rows, _), (other, _, columns)) = (apart(&a.shape), apart(&b.shape));
        let shape = [&spread(&before, &other)[..], &[rows, columns]].concat();
        self.add(Operation::MatMul, &[a, b], shape)
    }

    /// Returns what `fold` makes of a value, at once where the graph holds its tensor; `None` where it does not.
    fn folded(&mut self, x: &Value, how: &str, numbers: &[i64], fold: impl Fn(&Tensor) -> Tensor) -> Option<Value> {
        let (name, tensor) = self.stored.get(&x.id)?;
        let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
        let (name, tensor) = (format!("{name}.{how}_{}", numbers.join("_")), fold(tensor));
        Some(self.stored(&name, || tensor))
    }

    pub fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        if x.shape == shape {
            return x.clone();
        }
        let known = self.folded(x, "shape", shape, |tensor| tensor.reshape(shape));
        known.unwrap_or_else(|| self.add(Operation::Reshape(shape.to_vec()), &[x], shape.to_vec()))
    }

    pub fn permute(&mut self, x: &Value, axes: &[i64]) -> Value {
        let shape = axes.iter().map(|axis| x.shape[*axis as usize]).collect();
        let known = self.folded(x, "axes", axes, |tensor| tensor.permute(axes));
        known.unwrap_or_else(|| self.add(Operation::Permute(axes.to_vec()), &[x], shape))
    }

    pub fn slice(&mut self, x: &Value, axis: usize, (start, end): (i64, i64)) -> Value {
        let mut shape = x.shape.clone();
        shape[axis] = end - start;
        if shape == x.shape {
            return x.clone();
        }
        let along = axis as i64;
        let known = self.folded(x, "slice", &[along, start, end], |tensor| tensor.narrow(along, start, end - start));
        known.unwrap_or_else(|| self.add(Operation::Slice { axis, start, end }, &[x], shape))
    }

    pub fn concat(&mut self, parts: &[&Value], axis: usize) -> Value {
        if let [one] = parts {
            return (*one).clone();
        }
        let mut shape = parts[0].shape.clone();
        shape[axis] = parts.iter().map(|part| part.shape[axis]).sum();
        self.add(Operation::Concat { axis }, parts, shape)
    }

    /// Repeats the first axis to `lead`, and the second to the number of samples.
    pub fn expand(&mut self, x: &Value, lead: i64) -> Value {
        let mut shape = x.shape.clone();
        (shape[0], shape[1]) = (lead, SAMPLES);
        if shape == x.shape {
            return x.clone();
        }
        self.add(Operation::Expand { lead }, &[x], shape)
    }

    /// Adds attention of `[B, heads, T, D]` each, and of what its mask needs.
    pub fn attention(
        &mut self,
        [query, key, value]: [&Value; 3],
        masked: Masked,
        mask: Option<&Value>,
        scoring: Scoring,
    ) -> Value {
        let inputs: Vec<&Value> = [query, key, value].into_iter().chain(mask).collect();
        let groups = query.shape[1] / key.shape[1];
        self.add(Operation::Attention { masked, groups, scoring }, &inputs, query.shape.clone())
    }

    /// Returns the rows of `table: [k, d]` at indices `[…]`, `[…, d]`.
    pub fn embedding(&mut self, table: &Value, indices: &Value) -> Value {
        let shape = [&indices.shape[..], &table.shape[1..]].concat();
        self.add(Operation::Embedding, &[table, indices], shape)
    }

    /// Returns the entries of a value along an axis at indices.
    pub fn gather(&mut self, x: &Value, axis: usize, indices: &Value) -> Value {
        self.add(Operation::Gather { axis }, &[x, indices], indices.shape.clone())
    }

    /// Returns `a` where `condition` is not 0, else `b`.
    pub fn choose(&mut self, condition: &Value, a: &Value, b: &Value) -> Value {
        let shape = spread(&spread(&a.shape, &b.shape), &condition.shape);
        self.add(Operation::Where, &[a, b, condition], shape)
    }

    pub fn sum(&mut self, x: &Value, axis: usize) -> Value {
        let mut shape = x.shape.clone();
        shape[axis] = 1;
        self.add(Operation::Sum { axis }, &[x], shape)
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
        self.add(Operation::Resize { size, interpolation }, &[x], vec![SAMPLES, 3, size, size])
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
pub(super) fn spread(a: &[i64], b: &[i64]) -> Vec<i64> {
    let axes = a.len().max(b.len());
    let length = |shape: &[i64], axis: usize| (axis + shape.len()).checked_sub(axes).map_or(1, |at| shape[at]);
    let one = |axis| match (length(a, axis), length(b, axis)) {
        (1, other) | (other, _) => other,
    };
    (0..axes).map(one).collect()
}

/// The low-rank updates of a layer of all members.
pub struct Factors {
    /// A of all members, `[n, r, in]`.
    pub a: Tensor,
    /// s B of all members, `[n, out, r]`.
    pub b: Tensor,
}

/// The parameters of all members by their canonical names, f32 on the CPU. A layer of queries, keys and values has one bias for all
/// of them.
pub struct Members {
    pub count: i64,
    /// The parameters in which members differ, `[n, …]`. There are none of one member alone.
    pub own: BTreeMap<String, Tensor>,
    pub factors: BTreeMap<String, Factors>,
    pub shared: BTreeMap<String, Tensor>,
}

impl Members {
    pub fn has(&self, name: &str) -> bool {
        self.shared.contains_key(name)
    }

    /// Returns a parameter with a leading axis of members, 1 or n.
    pub fn led(&self, name: &str) -> Tensor {
        self.own.get(name).map_or_else(|| self.shared[name].unsqueeze(0), Tensor::shallow_clone)
    }

    /// Returns whether members differ in one of these parameters.
    pub fn differ(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.own.contains_key(*name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_spread_at_the_last_axis() {
        assert_eq!(spread(&[1, SAMPLES, 5, 4], &[3, 1, 1, 4]), [3, SAMPLES, 5, 4]);
        assert_eq!(spread(&[4], &[SAMPLES, 4]), [SAMPLES, 4]);
        assert_eq!(spread(&[2, 1], &[1, SAMPLES]), [2, SAMPLES]);
    }
}
