//! The nodes of an ONNX graph.

use std::collections::{BTreeMap, HashMap};

use tch::{Kind, Tensor};

use super::proto::{Attribute, Node, element};
use crate::data::Interpolation;
use crate::machine::fused::QUICK_SLOPE;
use crate::model::network::ops::graph::{Graph, Masked, Node as Step, Operation, SAMPLES, Value};
use crate::model::network::ops::{Activation, Scoring};

/// Nodes and the tensors that they use.
pub struct Nodes {
    pub nodes: Vec<Node>,
    /// The tensors by their names in the file.
    pub tensors: BTreeMap<String, Tensor>,
    /// The name of each value.
    names: HashMap<usize, String>,
    kinds: HashMap<usize, Kind>,
    scope: String,
}

/// The name of the number of samples, as a list of one.
const BATCH: &str = "batch_size";

/// Returns the number of an element type.
pub fn element_of(kind: Kind) -> i32 {
    match kind {
        Kind::Half => element::FLOAT16,
        Kind::BFloat16 => element::BFLOAT16,
        Kind::Int64 => element::INT64,
        Kind::Uint8 => element::UINT8,
        Kind::Bool => element::BOOL,
        _ => element::FLOAT,
    }
}

impl Nodes {
    /// Returns the nodes of a graph.
    pub fn of(graph: &Graph) -> Nodes {
        let mut own = Nodes {
            nodes: Vec::new(),
            tensors: BTreeMap::new(),
            names: graph.inputs.iter().map(|input| (input.value.id, input.name.to_string())).collect(),
            kinds: graph.inputs.iter().map(|input| (input.value.id, input.kind)).collect(),
            scope: String::new(),
        };
        let images = [Attribute::int("start", 0), Attribute::int("end", 1)];
        own.push("Shape", &[graph.inputs[0].name], &images, BATCH.to_string());
        for (value, (name, tensor)) in &graph.stored {
            own.names.insert(*value, name.clone());
            own.kinds.insert(*value, tensor.kind());
            own.tensors.insert(name.clone(), tensor.shallow_clone());
        }
        for step in &graph.nodes {
            own.scope.clone_from(&step.scope);
            let output = own.step(step);
            let kind = match step.operation {
                Operation::Cast(kind) => kind,
                _ => own.kind(&step.inputs[0]),
            };
            own.names.insert(step.output.id, output);
            own.kinds.insert(step.output.id, kind);
        }
        own
    }

    /// Gives a value another name.
    pub fn rename(&mut self, value: &Value, to: &str) {
        let from = self.name(value);
        for node in &mut self.nodes {
            for name in node.input.iter_mut().chain(&mut node.output).filter(|name| **name == from) {
                *name = to.to_string();
            }
        }
        self.names.insert(value.id, to.to_string());
    }

    fn name(&self, value: &Value) -> String {
        self.names[&value.id].clone()
    }

    fn kind(&self, value: &Value) -> Kind {
        self.kinds[&value.id]
    }

    fn push(&mut self, operator: &str, inputs: &[&str], attributes: &[Attribute], output: String) {
        let scope = if self.scope.is_empty() { String::new() } else { format!("{}/", self.scope) };
        self.nodes.push(Node {
            input: inputs.iter().map(|name| name.to_string()).collect(),
            output: vec![output],
            name: Some(format!("{scope}{operator}_{}", self.nodes.len())),
            op_type: Some(operator.to_string()),
            attribute: attributes.to_vec(),
        });
    }

    /// Adds a node and returns the name of its output.
    fn node(&mut self, operator: &str, inputs: &[&str], attributes: &[Attribute]) -> String {
        let output = format!("v{}", self.nodes.len());
        self.push(operator, inputs, attributes, output.clone());
        output
    }

    /// Returns the name of a tensor of whole numbers.
    fn whole(&mut self, values: &[i64]) -> String {
        let words: Vec<String> = values.iter().map(i64::to_string).collect();
        let name = format!("constant.[{}]", words.join(","));
        self.tensors.entry(name.clone()).or_insert_with(|| Tensor::from_slice(values));
        name
    }

    /// Returns the name of a number.
    fn number(&mut self, value: f64, kind: Kind) -> String {
        let name = format!("constant.{value:e}.{kind:?}").to_lowercase();
        self.tensors.entry(name.clone()).or_insert_with(|| Tensor::from(value).to_kind(kind));
        name
    }

    /// Adds the nodes of an operation and returns the name of its output.
    fn step(&mut self, Step { operation, inputs: values, .. }: &Step) -> String {
        let names: Vec<String> = values.iter().map(|value| self.name(value)).collect();
        let inputs: Vec<&str> = names.iter().map(String::as_str).collect();
        let (x, kind) = (inputs[0], self.kind(&values[0]));
        let last = Attribute::int("axis", -1);
        match operation {
            Operation::Linear => self.linear(&inputs),
            Operation::MatMul => self.node("MatMul", &inputs, &[]),
            Operation::Add => self.node("Add", &inputs, &[]),
            Operation::Subtract => self.node("Sub", &inputs, &[]),
            Operation::Multiply => self.node("Mul", &inputs, &[]),
            Operation::Divide => self.node("Div", &inputs, &[]),
            Operation::Negate => self.node("Neg", &inputs, &[]),
            Operation::LayerNorm { eps } => self.layer_norm(&inputs, &values[0], *eps),
            Operation::Activation(activation) => self.activation(*activation, x, kind),
            Operation::RmsNorm { eps } => self.rms_norm(x, *eps, kind),
            Operation::Attention { masked, scoring, .. } => self.attention((*masked, *scoring), &inputs, values),
            Operation::Mean { axis } => {
                let axes = self.whole(&[*axis as i64]);
                self.node("ReduceMean", &[x, &axes], &[])
            }
            Operation::Sum { axis } => {
                let axes = self.whole(&[*axis as i64]);
                self.node("ReduceSum", &[x, &axes], &[])
            }
            Operation::Unit => self.unit(x, kind),
            Operation::Softmax => self.node("Softmax", &[x], &[last]),
            Operation::Entropy => self.entropy(x, kind),
            Operation::Cast(kind) => self.cast(x, *kind),
            Operation::Clamp { most: None } => self.node("Relu", &[x], &[]),
            Operation::Clamp { most: Some(most) } => {
                let (least, most) = (self.number(0.0, kind), self.number(*most, kind));
                self.node("Clip", &[x, &least, &most], &[])
            }
            other => self.moved(other, &values[0], &inputs),
        }
    }

    /// Adds the division of vectors by their lengths.
    fn unit(&mut self, x: &str, kind: Kind) -> String {
        let (axes, least) = (self.whole(&[-1]), self.number(1e-12, kind));
        let norm = self.node("ReduceL2", &[x, &axes], &[]);
        let norm = self.node("Max", &[&norm, &least], &[]);
        self.node("Div", &[x, &norm], &[])
    }

    /// Adds an operation that moves values, or makes new pixels of them.
    fn moved(&mut self, operation: &Operation, value: &Value, inputs: &[&str]) -> String {
        let x = inputs[0];
        match operation {
            Operation::Reshape(shape) => {
                let shape = self.whole(shape);
                self.node("Reshape", &[x, &shape], &[])
            }
            Operation::Permute(axes) => self.node("Transpose", &[x], &[Attribute::ints("perm", axes)]),
            Operation::Slice { axis, start, end } => {
                let [start, end, axis] = [*start, *end, *axis as i64].map(|number| self.whole(&[number]));
                self.node("Slice", &[x, &start, &end, &axis], &[])
            }
            Operation::Concat { axis } => self.node("Concat", inputs, &[Attribute::int("axis", *axis as i64)]),
            Operation::Expand { lead } => {
                let (lead, rest) = (self.whole(&[*lead]), self.whole(&value.shape[2..]));
                let shape = self.node("Concat", &[&lead, BATCH, &rest], &[Attribute::int("axis", 0)]);
                self.node("Expand", &[x, &shape], &[])
            }
            Operation::Resize { size, interpolation } => {
                let sizes = self.whole(&[*size, *size]);
                self.node("Resize", &[x, "", "", &sizes], &resizing(*interpolation))
            }
            Operation::Embedding => self.node("Gather", inputs, &[Attribute::int("axis", 0)]),
            Operation::Gather { axis } => self.node("GatherElements", inputs, &[Attribute::int("axis", *axis as i64)]),
            Operation::Where => {
                let condition = self.cast(inputs[2], Kind::Bool);
                self.node("Where", &[&condition, x, inputs[1]], &[])
            }
            other => self.counted(other, x),
        }
    }

    /// Adds an operation on whole numbers.
    fn counted(&mut self, operation: &Operation, x: &str) -> String {
        match operation {
            Operation::Equal(value) => {
                let value = self.number(*value as f64, Kind::Int64);
                let equal = self.node("Equal", &[x, &value], &[]);
                self.cast(&equal, Kind::Int64)
            }
            Operation::Remainder(of) => {
                let of = self.number(*of as f64, Kind::Int64);
                self.node("Mod", &[x, &of], &[])
            }
            Operation::Within(most) => {
                let [least, most] = [0, *most].map(|bound| self.number(bound as f64, Kind::Int64));
                self.node("Clip", &[x, &least, &most], &[])
            }
            Operation::CumulativeSum { axis } => {
                let axis = self.number(*axis as f64, Kind::Int64);
                self.node("CumSum", &[x, &axis], &[])
            }
            _ => x.to_string(),
        }
    }

    fn cast(&mut self, x: &str, kind: Kind) -> String {
        self.node("Cast", &[x], &[Attribute::int("to", i64::from(element_of(kind)))])
    }

    fn rms_norm(&mut self, x: &str, eps: f64, kind: Kind) -> String {
        let (axes, eps) = (self.whole(&[-1]), self.number(eps, kind));
        let squares = self.node("Mul", &[x, x], &[]);
        let mean = self.node("ReduceMean", &[&squares, &axes], &[]);
        let mean = self.node("Add", &[&mean, &eps], &[]);
        let root = self.node("Sqrt", &[&mean], &[]);
        self.node("Div", &[x, &root], &[])
    }

    /// Adds x Wᵀ + b. The file holds Wᵀ, so that nothing has to be transposed when it runs.
    fn linear(&mut self, inputs: &[&str]) -> String {
        let (weight, turned) = (inputs[1], format!("{}.transposed", inputs[1]));
        if let Some(tensor) = self.tensors.remove(weight) {
            self.tensors.insert(turned.clone(), tensor.transpose(0, 1).contiguous());
        }
        let product = self.node("MatMul", &[inputs[0], &turned], &[]);
        match inputs.get(2) {
            Some(bias) => self.node("Add", &[&product, bias], &[]),
            None => product,
        }
    }

    fn layer_norm(&mut self, inputs: &[&str], value: &Value, eps: f64) -> String {
        let attributes = [Attribute::int("axis", -1), Attribute::float("epsilon", eps)];
        if inputs.len() > 1 {
            return self.node("LayerNormalization", inputs, &attributes);
        }
        let (width, kind) = (value.shape.last().copied().unwrap_or(1), self.kind(value));
        let ones = format!("constant.ones.{width}.{kind:?}").to_lowercase();
        self.tensors.entry(ones.clone()).or_insert_with(|| Tensor::ones([width], (kind, tch::Device::Cpu)));
        self.node("LayerNormalization", &[inputs[0], &ones], &attributes)
    }

    fn activation(&mut self, activation: Activation, x: &str, kind: Kind) -> String {
        match activation {
            Activation::Gelu => self.node("Gelu", &[x], &[]),
            Activation::GeluTanh => self.node("Gelu", &[x], &[Attribute::text("approximate", "tanh")]),
            Activation::QuickGelu => {
                let slope = self.number(QUICK_SLOPE, kind);
                let gate = self.node("Mul", &[x, &slope], &[]);
                let gate = self.node("Sigmoid", &[&gate], &[]);
                self.node("Mul", &[x, &gate], &[])
            }
            Activation::Tanh => self.node("Tanh", &[x], &[]),
            Activation::Relu => self.node("Relu", &[x], &[]),
            Activation::Silu => {
                let gate = self.node("Sigmoid", &[x], &[]);
                self.node("Mul", &[x, &gate], &[])
            }
        }
    }

    /// Adds softmax(S) V, of scores that a mask changes. Q is scaled first, so that products stay small in half precision.
    fn attention(&mut self, (masked, scoring): (Masked, Scoring), inputs: &[&str], values: &[Value]) -> String {
        let ([query, key], kind) = ([&values[0], &values[1]], self.kind(&values[0]));
        let scale = scoring.scale.unwrap_or_else(|| 1.0 / (query.shape[3] as f64).sqrt());
        let scale = self.number(scale, kind);
        let scaled = self.node("Mul", &[inputs[0], &scale], &[]);
        let [keys, shown] = [1, 2].map(|part| self.repeated(inputs[part], &key.shape, query.shape[1]));
        let keys = self.node("Transpose", &[&keys], &[Attribute::ints("perm", &[0, 1, 3, 2])]);
        let scores = self.node("MatMul", &[&scaled, &keys], &[]);
        let scores = match scoring.cap {
            Some(cap) => {
                let cap = self.number(cap, kind);
                let scores = self.node("Div", &[&scores, &cap], &[]);
                let scores = self.node("Tanh", &[&scores], &[]);
                self.node("Mul", &[&scores, &cap], &[])
            }
            None => scores,
        };
        let scores = match masked {
            Masked::No => scores,
            Masked::Added => self.node("Add", &[&scores, inputs[3]], &[]),
            Masked::Seen => {
                let never = self.number(f64::NEG_INFINITY, kind);
                self.node("Where", &[inputs[3], &scores, &never], &[])
            }
            Masked::Causal => {
                let later = self.later(query.shape[2], kind);
                self.node("Add", &[&scores, &later], &[])
            }
        };
        let shares = self.node("Softmax", &[&scores], &[Attribute::int("axis", -1)]);
        self.node("MatMul", &[&shares, &shown], &[])
    }

    /// Repeats each head of keys or values `[B, k, T, D]`, so that there are `heads`.
    fn repeated(&mut self, x: &str, shape: &[i64], heads: i64) -> String {
        let (own, tokens, channels) = (shape[1], shape[2], shape[3]);
        if own == heads {
            return x.to_string();
        }
        let [apart, groups, together] = [
            self.whole(&[SAMPLES, own, 1, tokens, channels]),
            self.whole(&[1, 1, heads / own, 1, 1]),
            self.whole(&[SAMPLES, heads, tokens, channels]),
        ];
        let x = self.node("Reshape", &[x, &apart], &[]);
        let x = self.node("Expand", &[&x, &groups], &[]);
        self.node("Reshape", &[&x, &together], &[])
    }

    /// Returns the name of what forbids T queries to read later keys: −∞ there, and 0 elsewhere.
    fn later(&mut self, tokens: i64, kind: Kind) -> String {
        let name = format!("constant.later.{tokens}.{kind:?}").to_lowercase();
        let made = || Tensor::full([tokens, tokens], f64::NEG_INFINITY, (Kind::Float, tch::Device::Cpu)).triu(1);
        self.tensors.entry(name.clone()).or_insert_with(|| made().to_kind(kind));
        name
    }

    /// Adds −Σ p ln p, where 0 ln 0 is 0: the logarithm is that of at least the smallest normal number.
    fn entropy(&mut self, x: &str, kind: Kind) -> String {
        let (axes, least) = (self.whole(&[-1]), self.number(f64::from(f32::MIN_POSITIVE), kind));
        let positive = self.node("Max", &[x, &least], &[]);
        let log = self.node("Log", &[&positive], &[]);
        let terms = self.node("Mul", &[x, &log], &[]);
        let sum = self.node("ReduceSum", &[&terms, &axes], &[]);
        self.node("Neg", &[&sum], &[])
    }
}

/// Returns the attributes of antialiased resizing as libtorch computes it: Keys' kernel with a = −1/2 over the pixels that
/// exist.
fn resizing(interpolation: Interpolation) -> Vec<Attribute> {
    let mut attributes = vec![
        Attribute::int("antialias", 1),
        Attribute::ints("axes", &[2, 3]),
        Attribute::text("coordinate_transformation_mode", "half_pixel"),
        Attribute::int("exclude_outside", 1),
    ];
    match interpolation {
        Interpolation::Bilinear => attributes.push(Attribute::text("mode", "linear")),
        Interpolation::Bicubic => {
            attributes.push(Attribute::text("mode", "cubic"));
            attributes.push(Attribute::float("cubic_coeff_a", -0.5));
        }
    }
    attributes
}

/// Returns the axes of a value for the description of an input or output.
pub fn axes(shape: &[i64], names: &[&'static str]) -> Vec<Result<i64, &'static str>> {
    let named = |(length, name): (&i64, &&'static str)| if *length == SAMPLES { Err(*name) } else { Ok(*length) };
    shape.iter().zip(names).map(named).collect()
}
