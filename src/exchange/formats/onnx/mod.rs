//! A whole posterior as an ONNX file, which ONNX Runtime and others run without bella. Its operators are those of opset 20
//! (`Gelu`; antialiased `Resize` is from 18, `LayerNormalization` from 17).

mod nodes;
mod proto;

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

use anyhow::{Context, Result};
use prost::Message;
use tch::{Kind, Tensor};

use self::nodes::{Nodes, axes, element_of};
use self::proto::{Entry, Model, OperatorSet, ValueInfo, element};
use crate::exchange::format::{Described, Format, Leaves, Together};
use crate::exchange::graph::Built;
use crate::model::network::ops::graph::{Input, SAMPLES, Value};

pub static FORMAT: Format =
    Format { key: "onnx", about: "all models as one graph", leaves: Leaves::Together(Together { write, lines }) };

/// The name of the file.
const FILE: &str = "posterior.onnx";

/// The name of the file beside it that holds large tensors.
const DATA: &str = "posterior.onnx.data";

/// The operator set, and the version of the file format that came with it.
const OPSET: i64 = 20;
const IR_VERSION: i64 = 9;

/// The bytes of tensors that a file holds itself. A message of protocol buffers must be smaller than 2 GiB.
const MOST_INSIDE: u64 = 1 << 30;

/// Where external tensors start: at multiples of a page, so that they can be memory-mapped.
const ALIGNMENT: u64 = 4096;

fn write(built: &Built, described: &Described, folder: &Path) -> Result<()> {
    write_parted(built, described, MOST_INSIDE, folder)
}

fn lines(at: &str, names: &[&str]) -> String {
    let inputs: Vec<String> = names.iter().map(|name| format!("\"{name}\": expected[\"{name}\"]")).collect();
    format!(
        "import onnxruntime\nfrom safetensors.numpy import load_file\n\
         model = onnxruntime.InferenceSession(\"{at}/{FILE}\")\nexpected = load_file(\"{at}/expected.safetensors\")\n\
         logits, probabilities, mutual_information = model.run(None, {{{}}})\n\
         print(abs(logits - expected[\"logits\"]).max() / abs(expected[\"logits\"]).max())\n",
        inputs.join(", ")
    )
}

/// Writes a graph into an existing folder. `described` are entries of the file's metadata. Above `most_inside` bytes, the
/// tensors are in a file beside it.
fn write_parted(built: &Built, described: &[(&str, String)], most_inside: u64, folder: &Path) -> Result<()> {
    let mut nodes = Nodes::of(&built.graph);
    for (value, name) in built.outputs.iter().zip(OUTPUTS) {
        nodes.rename(value, name);
    }
    let bytes: u64 = nodes.tensors.values().map(|t| (t.numel() * t.kind().elt_size_in_bytes()) as u64).sum();
    let mut outside = match bytes > most_inside {
        true => Some(Outside::create(&folder.join(DATA))?),
        false => None,
    };
    let initializer =
        nodes.tensors.iter().map(|(name, tensor)| stored(name, tensor, outside.as_mut())).collect::<Result<_>>()?;
    let graph = proto::Graph {
        node: nodes.nodes,
        name: Some("posterior".into()),
        initializer,
        input: built.graph.inputs.iter().map(input_of).collect(),
        output: outputs_of(built),
    };
    let model = Model {
        ir_version: Some(IR_VERSION),
        producer_name: Some("bella".into()),
        producer_version: Some(env!("CARGO_PKG_VERSION").into()),
        doc_string: None,
        graph: Some(graph),
        opset_import: vec![OperatorSet { domain: Some(String::new()), version: Some(OPSET) }],
        metadata: described.iter().map(|(key, value)| Entry::new(key, value)).collect(),
    };
    if let Some(outside) = outside {
        outside.finish()?;
    }
    let path = folder.join(FILE);
    std::fs::write(&path, model.encode_to_vec()).with_context(|| format!("cannot write {}", path.display()))
}

/// The names of the outputs.
const OUTPUTS: [&str; 3] = ["logits", "probabilities", "mutual_information"];

fn input_of(Input { name, kind, value, axes: names }: &Input) -> ValueInfo {
    ValueInfo::new(name, element_of(*kind), &axes(&value.shape, names))
}

fn outputs_of(built: &Built) -> Vec<ValueInfo> {
    let axes_of = |shape: &[i64]| -> Vec<Result<i64, &'static str>> {
        shape.iter().map(|length| if *length == SAMPLES { Err("batch") } else { Ok(*length) }).collect()
    };
    let one = |(value, name): (&Value, &str)| ValueInfo::new(name, element::FLOAT, &axes_of(&value.shape));
    built.outputs.iter().zip(OUTPUTS).map(one).collect()
}

/// Returns a tensor as the file holds it.
fn stored(name: &str, tensor: &Tensor, outside: Option<&mut Outside>) -> Result<proto::Tensor> {
    let bytes = bytes_of(tensor)?;
    let plain = proto::Tensor {
        dims: tensor.size(),
        data_type: Some(element_of(tensor.kind())),
        name: Some(name.to_string()),
        ..proto::Tensor::default()
    };
    // Shapes and axes are read while the graph is checked, before any file beside it.
    match outside.filter(|_| tensor.kind() != Kind::Int64) {
        None => Ok(proto::Tensor { raw_data: Some(bytes), ..plain }),
        Some(outside) => {
            let external_data = outside.add(&bytes)?;
            Ok(proto::Tensor { external_data, data_location: Some(proto::EXTERNAL), ..plain })
        }
    }
}

/// Returns the elements in row-major order, little-endian.
fn bytes_of(tensor: &Tensor) -> Result<Vec<u8>> {
    let mut bytes = vec![0u8; tensor.numel() * tensor.kind().elt_size_in_bytes()];
    tensor.contiguous().view(-1).f_copy_data_u8(&mut bytes, tensor.numel())?;
    Ok(bytes)
}

/// The file of tensors beside the graph.
struct Outside {
    file: BufWriter<File>,
    shown: String,
}

impl Outside {
    fn create(path: &Path) -> Result<Outside> {
        let shown = path.display().to_string();
        let file = File::create(path).with_context(|| format!("cannot write {shown}"))?;
        Ok(Outside { file: BufWriter::new(file), shown })
    }

    /// Adds a tensor and returns where it is.
    fn add(&mut self, bytes: &[u8]) -> Result<Vec<Entry>> {
        let mut put = || -> std::io::Result<u64> {
            let end = self.file.stream_position()?;
            let start = end.next_multiple_of(ALIGNMENT);
            self.file.write_all(&vec![0u8; (start - end) as usize])?;
            self.file.write_all(bytes)?;
            Ok(start)
        };
        let start = put().with_context(|| format!("cannot write {}", self.shown))?;
        let entry = |key, value: String| Entry::new(key, value);
        Ok(vec![
            entry("location", DATA.to_string()),
            entry("offset", start.to_string()),
            entry("length", bytes.len().to_string()),
        ])
    }

    fn finish(mut self) -> Result<()> {
        self.file.flush().with_context(|| format!("cannot write {}", self.shown))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::network::ops::graph::{Graph, Operation};

    /// Writes x Wᵀ + b, expanded to two members, and reads the file back.
    fn written(most_inside: u64, folder: &Path) -> Model {
        let mut graph = Graph::default();
        let x = graph.input("pixels", Kind::Float, &["one", "batch", "width"], &[1, SAMPLES, 3]);
        let weight = graph.stored("layer.weight", || Tensor::arange(6, (Kind::Float, tch::Device::Cpu)).view([2, 3]));
        let y = graph.linear(&x, &weight, None);
        let y = graph.expand(&y, 2);
        let mean = graph.mean(&y, 0);
        let last = graph.keep(Operation::Negate, &[&mean]);
        let built = Built { graph, outputs: [y, mean, last] };
        write_parted(&built, &[("classes", "[]".to_string())], most_inside, folder).unwrap();
        Model::decode(std::fs::read(folder.join(FILE)).unwrap().as_slice()).unwrap()
    }

    #[test]
    fn a_graph_is_written_with_its_weights_transposed() {
        let place = tempfile::tempdir().unwrap();
        let model = written(MOST_INSIDE, place.path());
        assert!(!place.path().join(DATA).exists());
        let opset = model.opset_import.first().and_then(|set| set.version);
        assert_eq!((opset, model.metadata.len()), (Some(OPSET), 1));
        let graph = model.graph.unwrap();
        let operators: Vec<&str> = graph.node.iter().map(|node| node.op_type.as_deref().unwrap()).collect();
        assert_eq!(operators, ["Shape", "MatMul", "Concat", "Expand", "ReduceMean", "Neg"]);
        let weight = graph.initializer.iter().find(|t| t.name.as_deref() == Some("layer.weight.transposed")).unwrap();
        let numbers = |bytes: &[u8]| -> Vec<f32> {
            bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
        };
        assert_eq!(weight.dims, [3, 2]);
        assert_eq!(numbers(weight.raw_data.as_deref().unwrap()), [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        let names: Vec<&str> = graph.output.iter().map(|value| value.name.as_deref().unwrap()).collect();
        assert_eq!(names, OUTPUTS);
    }

    #[test]
    fn large_tensors_are_in_a_file_beside_it() {
        let place = tempfile::tempdir().unwrap();
        let graph = written(0, place.path()).graph.unwrap();
        let (outside, inside): (Vec<_>, Vec<_>) =
            graph.initializer.iter().partition(|tensor| tensor.data_location == Some(proto::EXTERNAL));
        assert_eq!(outside.len(), 1);
        assert!(inside.iter().all(|tensor| tensor.data_type == Some(element::INT64)));
        let said =
            |key: &str| outside[0].external_data.iter().find(|e| e.key.as_deref() == Some(key)).unwrap().value.clone();
        let number = |key| said(key).unwrap().parse::<usize>().unwrap();
        assert_eq!((said("location").as_deref(), number("offset"), number("length")), (Some(DATA), 0, 24));
        assert_eq!(std::fs::read(place.path().join(DATA)).unwrap().len(), 24);
    }
}
