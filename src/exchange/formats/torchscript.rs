//! A whole posterior as one TorchScript archive, which Python or C++ runs without bella.
//!
//! The code is written, not traced, so that every number of samples fits.

use std::path::Path;

use anyhow::{Context, Result};
use tch::{Kind, Tensor};

use crate::data::Interpolation;
use crate::exchange::format::{Described, Format, Leaves, Together};
use crate::exchange::graph::Built;
use crate::model::archive::write::{Blueprint, Class, Module, number, write as write_archive};
use crate::model::network::ops::Scoring;
use crate::model::network::ops::graph::{Graph, Masked, Node, Operation, Value};

pub static FORMAT: Format = Format {
    key: "torchscript",
    about: "all models as one archive that needs no bella",
    leaves: Leaves::Together(Together { write, lines }),
};

/// The name of the archive.
const FILE: &str = "posterior.pt";

fn lines(at: &str, names: &[&str]) -> String {
    let inputs: Vec<String> = names.iter().map(|name| format!("expected[\"{name}\"]")).collect();
    format!(
        "import torch\nfrom safetensors.torch import load_file\nmodel = torch.jit.load(\"{at}/{FILE}\")\n\
         expected = load_file(\"{at}/expected.safetensors\")\nwith torch.no_grad():\n    \
         logits, probabilities, mutual_information = model({})\n    \
         print((logits - expected[\"logits\"]).abs().max() / expected[\"logits\"].abs().max())\n",
        inputs.join(", ")
    )
}

/// Writes a graph as an archive into an existing folder. An archive has no metadata.
fn write(Built { graph, outputs }: &Built, _: &Described, folder: &Path) -> Result<()> {
    let tensors: std::collections::BTreeMap<String, &Tensor> =
        graph.stored.values().map(|(name, tensor)| (attribute(name), tensor)).collect();
    let held = |name: &str, _: &Tensor| format!("self.{}", attribute(name));
    let mut lines = computed(graph, &held);
    let [logits, probabilities, information] = outputs.each_ref().map(|value| expression(graph, value, &held));
    lines.push(format!("return ({logits}, {probabilities}, {information})"));
    let arguments: Vec<String> = graph.inputs.iter().map(|input| format!("{}: Tensor", input.name)).collect();
    let root = tensors
        .iter()
        .fold(Module::new("Posterior"), |root, (name, tensor)| root.parameter(name, &tensor.size(), tensor.kind()));
    let class = Class::of(&root).method("forward", &arguments.join(", "), "Tuple[Tensor, Tensor, Tensor]", &lines);
    write_archive(&folder.join(FILE), &Blueprint { root, code: class.code() }, |name, _| {
        tensors.get(name).map(|tensor| tensor.shallow_clone()).with_context(|| format!("the archive has no {name}"))
    })
}

/// Returns the lines that compute a graph, where `held` gives the expression of a tensor that the graph holds.
pub fn computed(graph: &Graph, held: &dyn Fn(&str, &Tensor) -> String) -> Vec<String> {
    let count = graph.inputs.first().map(|input| format!("samples = torch.size({}, 0)", input.name));
    let line = |node: &Node| {
        let inputs: Vec<String> = node.inputs.iter().map(|value| expression(graph, value, held)).collect();
        format!("x{} = {}", node.output.id, call(node, &inputs))
    };
    count.into_iter().chain(graph.nodes.iter().map(line)).collect()
}

/// Returns the attribute that holds a tensor.
fn attribute(name: &str) -> String {
    name.replace('.', "_")
}

fn expression(graph: &Graph, value: &Value, held: &dyn Fn(&str, &Tensor) -> String) -> String {
    if let Some(input) = graph.inputs.iter().find(|input| input.value.id == value.id) {
        return input.name.to_string();
    }
    match graph.stored.get(&value.id) {
        Some((name, tensor)) => held(name, tensor),
        None => format!("x{}", value.id),
    }
}

/// Returns the call of a node's operation.
fn call(Node { operation, inputs: values, .. }: &Node, inputs: &[String]) -> String {
    let x = &inputs[0];
    let all = inputs.join(", ");
    match operation {
        Operation::Linear => format!("torch.linear({all}{})", if inputs.len() == 2 { ", None" } else { "" }),
        Operation::MatMul => format!("torch.matmul({all})"),
        Operation::Add => format!("torch.add({all})"),
        Operation::Subtract => format!("torch.sub({all})"),
        Operation::Multiply => format!("torch.mul({all})"),
        Operation::Divide => format!("torch.div({all})"),
        Operation::Negate => format!("torch.neg({x})"),
        Operation::LayerNorm { eps } => layer_norm(&values[0], inputs, *eps),
        Operation::RmsNorm { eps } => {
            let mean = format!("torch.mean(torch.mul({x}, {x}), [-1], True)");
            format!("torch.mul({x}, torch.rsqrt(torch.add({mean}, {eps:e})))")
        }
        Operation::Activation(activation) => activation.script(x),
        Operation::Attention { masked, groups, scoring } => match scoring.cap {
            Some(cap) => bounded(*masked, *groups, (*scoring, cap), (values, inputs)),
            None => attention(*masked, *groups, scoring.scale, inputs),
        },
        Operation::Mean { axis } => format!("torch.mean({x}, [{axis}], True)"),
        Operation::Unit => format!(
            "torch.div({x}, torch.clamp_min(torch.linalg_vector_norm({x}, 2., [-1], True), 9.9999999999999998e-13))"
        ),
        Operation::Softmax => format!("torch.softmax({x}, -1)"),
        Operation::Entropy => format!("torch.neg(torch.sum(torch.xlogy({x}, {x}), [-1], True))"),
        Operation::Cast(kind) => format!("torch.to({x}, {})", number(*kind)),
        Operation::Clamp { most: None } => format!("torch.clamp_min({x}, 0.)"),
        Operation::Clamp { most: Some(most) } => format!("torch.clamp({x}, 0., {most:?})"),
        other => moved(other, &values[0], inputs),
    }
}

/// Returns the call of a layer norm, which may have no scale or no bias.
fn layer_norm(value: &Value, inputs: &[String], eps: f64) -> String {
    let width = value.shape.last().copied().unwrap_or_default();
    let scale = match inputs.len() {
        1 => "None, None".to_string(),
        2 => format!("{}, None", inputs[1]),
        _ => inputs[1..].join(", "),
    };
    format!("torch.layer_norm({}, [{width}], {scale}, {eps:e})", inputs[0])
}

/// Returns the call of attention.
fn attention(masked: Masked, groups: i64, scale: Option<f64>, inputs: &[String]) -> String {
    let heads = inputs[..3].join(", ");
    let mask = inputs.get(3).map_or("None", String::as_str);
    let causal = if masked == Masked::Causal { "True" } else { "False" };
    let grouped = match (groups > 1, scale) {
        (false, None) => String::new(),
        (true, None) => ", scale=None, enable_gqa=True".to_string(),
        (_, Some(scale)) => {
            format!(", scale={scale:?}, enable_gqa={}", if groups > 1 { "True" } else { "False" })
        }
    };
    format!("torch.scaled_dot_product_attention({heads}, {mask}, 0., {causal}{grouped})")
}

/// Returns the expression of attention by bounded scores, for which torch has no function.
fn bounded(
    masked: Masked,
    groups: i64,
    (scoring, cap): (Scoring, f64),
    (values, inputs): (&[Value], &[String]),
) -> String {
    let (tokens, channels) = (values[0].shape[2], values[0].shape[3]);
    let scale = scoring.scale.unwrap_or_else(|| (channels as f64).powf(-0.5));
    let shared = |x: &String| match groups {
        1 => x.clone(),
        _ => format!("torch.repeat_interleave({x}, {groups}, 1)"),
    };
    let (query, key, value) = (&inputs[0], shared(&inputs[1]), shared(&inputs[2]));
    let scores = format!("torch.mul(torch.matmul({query}, torch.transpose({key}, 2, 3)), {scale:?})");
    let scores = format!("torch.mul(torch.tanh(torch.div({scores}, {cap:?})), {cap:?})");
    let forbidden = |absent: String| format!("torch.masked_fill({scores}, {absent}, float(\"-inf\"))");
    let scores = match masked {
        Masked::No => scores.clone(),
        Masked::Added => format!("torch.add({scores}, {})", inputs[3]),
        Masked::Seen => forbidden(format!("torch.logical_not({})", inputs[3])),
        Masked::Causal => {
            let all = format!("torch.new_ones({query}, [{tokens}, {tokens}])");
            forbidden(format!("torch.to(torch.triu({all}, 1), {})", number(Kind::Bool)))
        }
    };
    format!("torch.matmul(torch.softmax({scores}, -1), {value})")
}

/// Returns the call of an operation that moves values, or makes new pixels of them.
fn moved(operation: &Operation, value: &Value, inputs: &[String]) -> String {
    let x = &inputs[0];
    match operation {
        Operation::Reshape(shape) => format!("torch.reshape({x}, {shape:?})"),
        Operation::Permute(axes) => format!("torch.permute({x}, {axes:?})"),
        Operation::Slice { axis, start, end } => format!("torch.slice({x}, {axis}, {start}, {end})"),
        Operation::Concat { axis } => format!("torch.cat([{}], {axis})", inputs.join(", ")),
        Operation::Expand { lead } => {
            let rest = ", -1".repeat(value.shape.len() - 2);
            format!("torch.expand({x}, [{lead}, samples{rest}])")
        }
        Operation::Resize { size, interpolation } => {
            let name = match interpolation {
                Interpolation::Bilinear => "bilinear",
                Interpolation::Bicubic => "bicubic",
            };
            format!("torch._upsample_{name}2d_aa({x}, [{size}, {size}], False, None, None)")
        }
        Operation::Embedding => format!("torch.embedding({})", inputs.join(", ")),
        Operation::Gather { axis } => format!("torch.gather({x}, {axis}, {})", inputs[1]),
        Operation::Where => {
            format!("torch.where(torch.to({}, {}), {x}, {})", inputs[2], number(Kind::Bool), inputs[1])
        }
        other => counted(other, x),
    }
}

/// Returns the call of an operation on whole numbers.
fn counted(operation: &Operation, x: &str) -> String {
    match operation {
        Operation::Equal(value) => format!("torch.to(torch.eq({x}, {value}), {})", number(Kind::Int64)),
        Operation::Remainder(of) => format!("torch.remainder({x}, {of})"),
        Operation::Within(most) => format!("torch.clamp({x}, 0, {most})"),
        Operation::CumulativeSum { axis } => format!("torch.cumsum({x}, {axis})"),
        Operation::Sum { axis } => format!("torch.sum({x}, [{axis}], True)"),
        _ => x.to_string(),
    }
}
