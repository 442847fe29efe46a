//! Archives of CLIP under OpenAI's names (Radford et al. 2021, arXiv 2103.00020): `visual.conv1.weight`,
//! `visual.transformer.resblocks.0.mlp.c_fc.weight`, …; the text tower is at the root. The names and shapes stand here, and the code is
//! that of the networks' own passes.
//!
//! The image tower also serves other pre-norm vision transformers: without `ln_pre` and the projection it is timm's.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};

use crate::exchange::formats::torchscript::computed;
use crate::exchange::graph::members::{Inputs, Pixels};
use crate::model::archive::write::{Blueprint, Class, Module, Parameter, number};
use crate::model::network::ops::graph::{Members, SAMPLES, Value};
use crate::model::network::ops::{Writer, Written, origin};
use crate::model::recognition::namings::clip;
use crate::model::recognition::text;
use crate::model::stored::Form;
use crate::model::vit::forward::Vit;
use crate::model::vit::parts::Parts;
use crate::model::vit::text::{TextGeometry, TextTower};
use crate::model::vit::{Geometry, Traits};

/// An image tower, and optionally a text tower.
pub struct Clip {
    pub image: Geometry,
    pub traits: Traits,
    /// The layers around the blocks of the image tower. CLIP has a layer norm and a projection there, and timm has
    /// neither.
    pub around: Around,
    /// The geometry and the number of heads of the text tower; its activation and eps are those of the image tower.
    pub text: Option<(TextGeometry, i64)>,
    /// The type of the matrices. Layer norms and embeddings are f32, as OpenAI publishes them.
    pub kind: Kind,
}

/// The layers before and after the blocks of an image tower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Around {
    /// A layer norm before the blocks, and after them a projection to the width of the features.
    NormAndProjection,
    Nothing,
}

/// The place of the image tower's parameters.
const VISUAL: &str = "visual.";

/// Parameters by their full names.
type Listed = Vec<(String, Vec<i64>)>;

impl Clip {
    /// Returns the module tree with its code. It has the method `encode_image` and, with a text tower, `encode_text`
    /// and a `forward` of both; without one, `forward` is the same as `encode_image`.
    pub fn blueprint(&self) -> Blueprint {
        let mut root = Module::new("Clip");
        for (name, shape) in self.listed() {
            // The type of a matrix is that of the model; norms and embeddings have their own.
            let is_matrix = !name.contains("ln_") && !name.contains("embedding") && !shape.is_empty();
            root.insert(&name, Parameter { shape, kind: if is_matrix { self.kind } else { Kind::Float } });
        }
        let image = self.encode_image();
        let class = Class::of(&root);
        let class = match &self.text {
            None => class.method("forward", "pixels: Tensor", "Tensor", &image),
            Some((geometry, heads)) => class
                .method("forward", "images: Tensor, tokens: Tensor", "Tuple[Tensor, Tensor]", &compared())
                .method("encode_text", "tokens: Tensor", "Tensor", &self.encode_text(geometry, *heads)),
        };
        let class = class.method("encode_image", "pixels: Tensor", "Tensor", &image);
        Blueprint { code: root.inner_classes() + &class.code(), root }
    }

    /// Returns every parameter with its shape.
    fn listed(&self) -> Listed {
        let Geometry { width, blocks, patch, grid, mlp, output, .. } = self.image;
        let projected = self.around == Around::NormAndProjection;
        let mut all = Listed::new();
        let mut add = |name: &str, shape: &[i64]| all.push((name.to_string(), shape.to_vec()));
        if let Some((TextGeometry { width, context, output, .. }, _)) = &self.text {
            add("positional_embedding", &[*context, *width]);
            add("text_projection", &[*width, *output]);
            add("logit_scale", &[]);
        }
        add("visual.class_embedding", &[width]);
        add("visual.positional_embedding", &[1 + grid * grid, width]);
        if projected {
            add("visual.proj", &[width, output]);
        }
        add("visual.conv1.weight", &[width, 3, patch, patch]);
        all.extend(listed_blocks(VISUAL, (width, mlp), blocks));
        all.extend(listed_norm("visual.ln_post", width));
        if projected {
            all.extend(listed_norm("visual.ln_pre", width));
        }
        if let Some((TextGeometry { width, mlp, blocks, vocabulary, .. }, _)) = self.text {
            all.extend(listed_blocks("", (width, mlp), blocks));
            all.push(("token_embedding.weight".into(), vec![vocabulary, width]));
            all.extend(listed_norm("ln_final", width));
        }
        all
    }

    fn encode_image(&self) -> Vec<String> {
        let tower = Tower::of(self.listed(), |name| clip::canonical(name.strip_prefix(VISUAL)?));
        let writer = Writer::new(&tower.members, self.kind);
        let samples = Pixels { side: self.image.image_size() }.samples(&writer);
        let features = Vit::new(self.image.clone(), self.traits, Parts::PLAIN).write(&writer, &samples);
        tower.code(writer, &features)
    }

    /// Returns the lines of `encode_text`. Texts end at their largest token.
    fn encode_text(&self, geometry: &TextGeometry, heads: i64) -> Vec<String> {
        let tower = Tower::of(self.listed(), text::canonical);
        let writer = Writer::new(&tower.members, self.kind);
        let tokens = geometry.context;
        let [ids, ends] = {
            let mut graph = writer.graph();
            let ids = graph.input("tokens", Kind::Int64, &["batch", "tokens"], &[SAMPLES, tokens]);
            let ends = graph.input("ends", Kind::Int64, &["batch"], &[SAMPLES]);
            [graph.reshape(&ids, &[1, SAMPLES, tokens]), graph.reshape(&ends, &[1, SAMPLES])]
        };
        let network = TextTower { geometry: geometry.clone(), traits: Traits { heads, ..self.traits } };
        let features = network.features_by(&writer, [&ids, &ends]);
        let end = "ends = torch.argmax(tokens, -1)".to_string();
        [end].into_iter().chain(tower.code(writer, &features)).collect()
    }
}

fn listed_norm(name: &str, width: i64) -> Listed {
    ["weight", "bias"].map(|part| (format!("{name}.{part}"), vec![width])).into()
}

fn listed_blocks(prefix: &str, (width, mlp): (i64, i64), blocks: usize) -> Listed {
    let block = |block: usize| {
        let name = move |rest: &str| format!("{prefix}transformer.resblocks.{block}.{rest}");
        let layer = move |weight: &str, bias: &str, rows: i64, columns: i64| {
            [(name(weight), vec![rows, columns]), (name(bias), vec![rows])]
        };
        let attention = [
            layer("attn.in_proj_weight", "attn.in_proj_bias", 3 * width, width),
            layer("attn.out_proj.weight", "attn.out_proj.bias", width, width),
        ];
        let mlp = [
            layer("mlp.c_fc.weight", "mlp.c_fc.bias", mlp, width),
            layer("mlp.c_proj.weight", "mlp.c_proj.bias", width, mlp),
        ];
        let [first, second] = ["ln_1", "ln_2"].map(|norm| listed_norm(&name(norm), width));
        attention.into_iter().flatten().chain(first).chain(mlp.into_iter().flatten()).chain(second)
    };
    (0..blocks).flat_map(block).collect()
}

/// Returns the lines of a `forward` that compares images and texts.
fn compared() -> Vec<String> {
    let normalised = |of: &str| format!("{of} = torch.div({of}, torch.linalg_vector_norm({of}, 2., [-1], True))");
    vec![
        "features = (self).encode_image(images, )".to_string(),
        "words = (self).encode_text(tokens, )".to_string(),
        normalised("features"),
        normalised("words"),
        "logits = torch.matmul(torch.mul(torch.exp(self.logit_scale), features), torch.t(words))".to_string(),
        "return (logits, torch.t(logits))".to_string(),
    ]
}

/// The parameters of one of the two towers.
struct Tower {
    /// The name and form in the archive, by canonical names.
    stored: BTreeMap<String, (String, Form)>,
    /// Canonical parameters, which have shapes and take no memory.
    members: Members,
}

impl Tower {
    /// Takes the parameters to which `canonical` gives a name.
    fn of(listed: Listed, canonical: impl Fn(&str) -> Option<(String, Form)>) -> Tower {
        let (mut stored, mut shared) = (BTreeMap::new(), BTreeMap::new());
        for (name, shape) in listed {
            let Some((known, form)) = canonical(&name) else { continue };
            let shape = match form {
                Form::Flattened => vec![shape[0], shape[1..].iter().product()],
                Form::Transposed => shape.into_iter().rev().collect(),
                _ => shape,
            };
            let nothing = Tensor::zeros([1], (Kind::Float, Device::Cpu));
            shared.insert(known.clone(), nothing.expand(&shape, false));
            stored.insert(known, (name, form));
        }
        Tower { stored, members: Members { count: 1, own: BTreeMap::new(), factors: BTreeMap::new(), shared } }
    }

    /// Returns the lines that compute and return `features: [1, B, d]` as `[B, d]`.
    fn code(&self, writer: Writer, features: &Value) -> Vec<String> {
        let result = writer.graph().reshape(features, &[SAMPLES, features.shape[2]]);
        let mut lines = computed(&writer.finished(), &|name, tensor| self.expression(name, tensor));
        lines.push(format!("return x{}", result.id));
        lines
    }

    /// Returns the expression of a tensor that a graph holds: rows of a parameter of the archive, or one number throughout.
    fn expression(&self, name: &str, tensor: &Tensor) -> String {
        let (size, kind, (parameter, from)) = (tensor.size(), number(tensor.kind()), origin(name));
        let Some((stored, form)) = self.stored.get(parameter) else {
            return format!("torch.full({size:?}, {}, dtype={kind})", tensor.max().int64_value(&[]));
        };
        let whole = path(stored);
        let whole = match form {
            Form::Flattened => format!("torch.flatten({whole}, 1)"),
            Form::Transposed => format!("torch.t({whole})"),
            _ => whole,
        };
        let canonical = self.members.shared[parameter].size();
        if size.len() > canonical.len() {
            return format!("torch.reshape(torch.to({whole}, {kind}), {size:?})");
        }
        let rows = match size == canonical {
            true => whole,
            false => format!("torch.slice({whole}, 0, {from}, {})", from + size[0]),
        };
        format!("torch.to({rows}, {kind})")
    }
}

/// Returns the path of a parameter in code, where names that are numbers are asked for.
fn path(name: &str) -> String {
    name.split('.').fold("self".to_string(), |path, part| match part.parse::<usize>() {
        Ok(_) => format!("getattr({path}, \"{part}\")"),
        Err(_) => format!("{path}.{part}"),
    })
}

#[cfg(test)]
mod tests;
