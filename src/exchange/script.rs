//! A whole posterior as one TorchScript archive, which Python or C++ runs without bella.
//!
//! The code is written, not traced, so that every number of images fits.

use std::path::Path;

use anyhow::{Context, Result};
use tch::Tensor;

use super::graph::forward::Built;
use super::graph::values::{Graph, Node, Operation, Value};
use crate::data::Interpolation;
use crate::model::archive::write::{Blueprint, Class, Module, number, write as write_archive};

/// The name of the archive.
pub const FILE: &str = "posterior.pt";

/// Writes a graph as an archive into an existing folder.
///
/// # Errors
/// Fails if the archive cannot be written.
pub fn write(Built { graph, outputs }: &Built, folder: &Path) -> Result<()> {
    let tensors: std::collections::BTreeMap<String, &Tensor> =
        graph.stored.values().map(|(name, tensor)| (attribute(name), tensor)).collect();
    let mut lines = vec!["images = torch.size(x0, 0)".to_string()];
    lines.extend(graph.nodes.iter().map(|node| line(graph, node)));
    let [logits, probabilities, information] = outputs.each_ref().map(|value| expression(graph, value));
    lines.push(format!("return ({logits}, {probabilities}, {information})"));
    let names: Vec<&str> = tensors.keys().map(String::as_str).collect();
    let class = Class::new("Posterior").parameters(&names);
    let class = class.method("forward", "x0: Tensor", "Tuple[Tensor, Tensor, Tensor]", &lines);
    let root = Module::new("Posterior");
    let root = tensors.iter().fold(root, |root, (name, tensor)| root.parameter(name, &tensor.size(), tensor.kind()));
    write_archive(&folder.join(FILE), &Blueprint { root, code: class.code() }, |name, _| {
        tensors.get(name).map(|tensor| tensor.shallow_clone()).with_context(|| format!("the archive has no {name}"))
    })
}

/// Returns the attribute that holds a tensor.
fn attribute(name: &str) -> String {
    name.replace('.', "_")
}

fn expression(graph: &Graph, value: &Value) -> String {
    match graph.stored.get(&value.id) {
        Some((name, _)) => format!("self.{}", attribute(name)),
        None => format!("x{}", value.id),
    }
}

/// Returns the line that computes a node.
fn line(graph: &Graph, node: &Node) -> String {
    let inputs: Vec<String> = node.inputs.iter().map(|value| expression(graph, value)).collect();
    format!("x{} = {}", node.output.id, call(node, &inputs))
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
        Operation::LayerNorm { eps } => {
            let width = values[0].shape.last().copied().unwrap_or_default();
            let scale = if inputs.len() == 3 { inputs[1..].join(", ") } else { "None, None".to_string() };
            format!("torch.layer_norm({x}, [{width}], {scale}, {eps:e})")
        }
        Operation::Activation(activation) => activation.script(x),
        Operation::Attention => format!("torch.scaled_dot_product_attention({all})"),
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
            format!("torch.expand({x}, [{lead}, images{rest}])")
        }
        Operation::Resize { size, interpolation } => {
            let name = match interpolation {
                Interpolation::Bilinear => "bilinear",
                Interpolation::Bicubic => "bicubic",
            };
            format!("torch._upsample_{name}2d_aa({x}, [{size}, {size}], False, None, None)")
        }
        _ => x.clone(),
    }
}
