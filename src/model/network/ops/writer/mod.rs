//! Operations that become the nodes of a graph. Values are places in it; the number of samples is not known.

mod run;

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use tch::{Kind, Tensor};

use crate::model::network::ops::Mask;
use crate::model::network::ops::graph::{Factors, Graph, Masked, Members, Operation, SAMPLES, Value};

/// Writes the pass of some members into a graph.
pub struct Writer<'a> {
    graph: Rc<RefCell<Graph>>,
    members: &'a Members,
    /// The type in which values are computed.
    kind: Kind,
    /// The beginning of the name of every parameter.
    part: &'static str,
}

/// Some output rows of a layer: the first one and their number.
type Rows = Option<(i64, i64)>;

/// What stands between the name of a parameter and the first one of its rows, where a graph holds some rows alone.
const FROM: &str = ".from_";

/// Returns the parameter of which a graph holds a tensor under `name`, and the first of its rows.
pub fn origin(name: &str) -> (&str, i64) {
    let rows = name.rsplit_once(FROM).and_then(|(name, from)| Some((name, from.parse().ok()?)));
    rows.unwrap_or((name, 0))
}

/// Returns rows of a tensor `[n, out, …]`.
fn cut(tensor: &Tensor, rows: Rows) -> Tensor {
    rows.map_or_else(|| tensor.shallow_clone(), |(start, count)| tensor.narrow(1, start, count))
}

impl<'a> Writer<'a> {
    /// Takes an empty graph.
    pub fn new(members: &'a Members, kind: Kind) -> Writer<'a> {
        Writer { graph: Rc::default(), members, kind, part: "" }
    }

    /// Returns a writer into the same graph that computes in another type.
    pub fn in_kind(&self, kind: Kind) -> Writer<'a> {
        Writer { graph: Rc::clone(&self.graph), kind, ..*self }
    }

    /// Returns the graph, which no other writer may still write.
    pub fn finished(self) -> Graph {
        let mut graph = self.graph.take();
        graph.prune();
        graph
    }

    pub fn graph(&self) -> RefMut<'_, Graph> {
        self.graph.borrow_mut()
    }

    /// Returns a tensor that the graph holds in the type of its values.
    pub fn stored(&self, name: &str, tensor: impl FnOnce() -> Tensor) -> Value {
        self.graph().stored(name, || tensor().to_kind(self.kind))
    }

    /// Returns whole numbers that the graph holds.
    fn whole(&self, name: &str, tensor: impl FnOnce() -> Tensor) -> Value {
        self.graph().stored(name, tensor)
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.part)
    }

    fn keep(&self, operation: Operation, x: &Value) -> Value {
        self.graph().keep(operation, &[x])
    }

    /// Returns a value in another type, unless it is computed in that anyway.
    pub fn cast_from(&self, x: &Value, to: Kind) -> Value {
        if self.kind == to { x.clone() } else { self.keep(Operation::Cast(to), x) }
    }

    /// Returns a value for so many members, of all samples.
    fn expanded(&self, x: &Value, lead: i64) -> Value {
        self.graph().expand(x, lead)
    }

    /// Returns a parameter of a layer with axes of length 1 after that of members, for values of four axes.
    fn vector(&self, name: &str) -> Value {
        self.stored(name, || {
            let value = self.members.led(name);
            (value.dim()..4).fold(value, |value, _| value.unsqueeze(1))
        })
    }

    /// Maps `[lead, M, in]` to `[lead', M, out]`.
    fn product(&self, layer: &str, x: &Value, rows: Rows) -> Value {
        let members = self.members;
        let [weight, bias] = ["weight", "bias"].map(|part| format!("{layer}.{part}"));
        let named = |name: &str| rows.map_or(name.to_string(), |(start, _)| format!("{name}{FROM}{start}"));
        let has_bias = members.has(&bias);
        if members.differ(&[&weight, &bias]) {
            let own = self.stored(&named(&weight), || cut(&members.led(&weight), rows).transpose(1, 2));
            let product = self.graph().matmul(x, &own);
            if !has_bias {
                return product;
            }
            let own = self.stored(&named(&bias), || cut(&members.led(&bias), rows).unsqueeze(1));
            return self.graph().plus(&product, &own);
        }
        let shared = |name: &str| self.stored(&named(name), || cut(&members.led(name), rows).squeeze_dim(0));
        let (weight, bias) = (shared(&weight), has_bias.then(|| shared(&bias)));
        self.graph().linear(x, &weight, bias.as_ref())
    }

    /// Adds the low-rank updates of a layer.
    fn updated(&self, layer: &str, x: &Value, y: &Value, Factors { a, b }: &Factors, rows: Rows) -> Value {
        let from = rows.map_or(String::new(), |(start, _)| format!("{FROM}{start}"));
        let a = self.stored(&format!("{layer}.A"), || a.transpose(1, 2));
        let b = self.stored(&format!("{layer}.B{from}"), || cut(b, rows).transpose(1, 2));
        let low = self.graph().matmul(x, &a);
        let low = self.graph().matmul(&low, &b);
        self.graph().plus(y, &low)
    }

    /// Returns what forbids queries to read other keys than so many up to their own: −∞ there, and 0 elsewhere, `[1, 1, T, T]`.
    fn recent(&self, tokens: i64, count: i64) -> Value {
        self.stored(&format!("text.recent_{count}"), || {
            let all = Tensor::full([1, 1, tokens, tokens], f64::NEG_INFINITY, (Kind::Float, tch::Device::Cpu));
            all.triu(1) + all.tril(-count)
        })
    }

    /// Returns what a mask adds to attention of so many members to so many keys.
    fn masked(&self, mask: Mask<Value>, lead: i64, tokens: i64) -> (Masked, Option<Value>) {
        match mask {
            Mask::None => (Masked::No, None),
            Mask::Causal => (Masked::Causal, None),
            Mask::Window(count) => (Masked::Added, Some(self.recent(tokens, count))),
            Mask::Prompt(prompt) => {
                let nothing = self.stored("text.nothing", || Tensor::from_slice(&[0f32]));
                let recent = self.recent(tokens, tokens);
                let prompt = self.graph().reshape(&prompt, &[prompt.shape[0], SAMPLES, 1, 1, tokens]);
                let each = self.graph().choose(&prompt, &nothing, &recent);
                let each = self.expanded(&each, lead);
                let shape = [&[SAMPLES], &each.shape[2..]].concat();
                (Masked::Added, Some(self.graph().reshape(&each, &shape)))
            }
            Mask::Scores(scores) => {
                let each = if scores.shape[0] == 1 { scores } else { self.expanded(&scores, lead) };
                let count = if each.shape[0] == 1 { 1 } else { SAMPLES };
                let shape = [&[count], &each.shape[2..]].concat();
                (Masked::Added, Some(self.graph().reshape(&each, &shape)))
            }
            Mask::SeenScores { seen, scores } => {
                let never = self.stored("text.never", || Tensor::from_slice(&[f32::NEG_INFINITY]));
                let seen = self.graph().reshape(&seen, &[seen.shape[0], SAMPLES, 1, 1, tokens]);
                let each = self.graph().choose(&seen, &scores, &never);
                let each = self.expanded(&each, lead);
                let shape = [&[SAMPLES], &each.shape[2..]].concat();
                (Masked::Added, Some(self.graph().reshape(&each, &shape)))
            }
            Mask::Seen(mask) => {
                let (each, tokens) = (self.expanded(&mask, lead), mask.shape[2]);
                let each = self.graph().reshape(&each, &[SAMPLES, 1, 1, tokens]);
                (Masked::Seen, Some(self.keep(Operation::Cast(Kind::Bool), &each)))
            }
        }
    }
}
