//! The layers of a network in a graph, shared by all members or one for each.

use tch::{Kind, Tensor};

use super::members::{Factors, Members};
use super::values::{Graph, IMAGES, Operation, Value};

/// A graph that grows by the layers of some members.
pub struct Layers<'a> {
    pub graph: Graph,
    pub members: &'a Members,
    /// The type in which values are computed.
    pub kind: Kind,
}

/// Some output rows of a layer: the first one and their number.
pub type Rows = Option<(i64, i64)>;

/// Returns rows of a tensor `[n, out, …]`.
fn cut(tensor: &Tensor, rows: Rows) -> Tensor {
    rows.map_or_else(|| tensor.shallow_clone(), |(start, count)| tensor.narrow(1, start, count))
}

impl Layers<'_> {
    /// Returns a tensor that the graph holds in its type.
    pub fn stored(&mut self, name: &str, tensor: impl FnOnce() -> Tensor) -> Value {
        let kind = self.kind;
        self.graph.stored(name, || tensor().to_kind(kind))
    }

    /// Returns a parameter with a leading axis of members, 1 or n, and `axes` axes of length 1 after it.
    pub fn param(&mut self, name: &str, axes: usize) -> Value {
        let members = self.members;
        self.stored(name, || (0..axes).fold(members.led(name), |value, _| value.unsqueeze(1)))
    }

    pub fn linear(&mut self, layer: &str, x: &Value) -> Value {
        self.linear_rows(layer, x, None)
    }

    /// Maps `[p, B, T, in]` to `[p', B, T, rows]` by some rows of a layer.
    pub fn linear_rows(&mut self, layer: &str, x: &Value, rows: Rows) -> Value {
        self.graph.enter(layer);
        let members = self.members;
        let [lead, images, tokens, inputs] = x.shape[..] else { panic!("{layer}: {:?} has not four axes", x.shape) };
        let together = if images == IMAGES { IMAGES } else { images * tokens };
        let flat = self.graph.reshape(x, &[lead, together, inputs]);
        let named = |part: &str| match rows {
            Some((start, _)) => format!("{layer}.{part}.from_{start}"),
            None => format!("{layer}.{part}"),
        };
        let parameter = |part: &str| format!("{layer}.{part}");
        let y = if members.differ(&[&parameter("weight"), &parameter("bias")]) {
            let weight = || cut(&members.led(&parameter("weight")), rows).transpose(1, 2);
            let weight = self.stored(&named("weight"), weight);
            let product = self.graph.matmul(&flat, &weight);
            match members.has(&parameter("bias")) {
                true => {
                    let bias = self.stored(&named("bias"), || cut(&members.led(&parameter("bias")), rows).unsqueeze(1));
                    self.graph.plus(&product, &bias)
                }
                false => product,
            }
        } else {
            let shared = |part: &str| cut(&members.led(&parameter(part)), rows).squeeze_dim(0);
            let weight = self.stored(&named("weight"), || shared("weight"));
            let bias = members.has(&parameter("bias")).then(|| self.stored(&named("bias"), || shared("bias")));
            self.graph.linear(&flat, &weight, bias.as_ref())
        };
        let y = match members.factors.get(layer) {
            Some(factors) => self.updated(layer, (&flat, &y), factors, rows),
            None => y,
        };
        let (lead, outputs) = (y.shape[0], y.shape[2]);
        self.graph.reshape(&y, &[lead, images, tokens, outputs])
    }

    /// Adds the low-rank updates of a layer.
    fn updated(&mut self, layer: &str, (x, y): (&Value, &Value), Factors { a, b }: &Factors, rows: Rows) -> Value {
        let from = rows.map_or(String::new(), |(start, _)| format!(".from_{start}"));
        let a = self.stored(&format!("{layer}.A"), || a.transpose(1, 2));
        let b = self.stored(&format!("{layer}.B{from}"), || cut(b, rows).transpose(1, 2));
        let low = self.graph.matmul(x, &a);
        let low = self.graph.matmul(&low, &b);
        self.graph.plus(y, &low)
    }

    pub fn norm(&mut self, layer: &str, x: &Value, eps: f64) -> Value {
        self.graph.enter(layer);
        let members = self.members;
        let [weight, bias] = ["weight", "bias"].map(|part| format!("{layer}.{part}"));
        let operation = Operation::LayerNorm { eps };
        if members.differ(&[&weight, &bias]) {
            let (weight, bias) = (self.param(&weight, 2), self.param(&bias, 2));
            let normed = self.graph.keep(operation, &[x]);
            let scaled = self.graph.times(&normed, &weight);
            return self.graph.plus(&scaled, &bias);
        }
        let [weight, bias] = [weight, bias].map(|name| self.stored(&name, || members.shared[&name].shallow_clone()));
        self.graph.keep(operation, &[x, &weight, &bias])
    }
}
