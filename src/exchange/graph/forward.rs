//! The forward pass of [`Vit`](crate::model::vit::forward::Vit) as a graph: prepared images `[B, 3, S, S]` in, or bytes; the
//! logits `[members, B, C]` of every member, their mean probabilities `[B, C]` and their mutual information `[B]` out.
//!
//! A value has a leading axis of members, which is 1 until members differ.

use tch::{Device, Kind, Tensor};

use super::layers::Layers;
use super::members::Members;
use super::values::{Graph, IMAGES, Operation, Value};
use crate::data::Interpolation;
use crate::model::Normalize;
use crate::model::vit::forward::Vit;
use crate::model::vit::parts::{RELATIVE, Readout};
use crate::model::vit::relative::Distances;
use crate::model::vit::rope::{Pairs, Rope};

/// The way from stored bytes to prepared images.
#[derive(Clone, Copy)]
pub struct Preparing {
    pub normalize: Normalize,
    pub interpolation: Interpolation,
}

/// The graph of a posterior.
pub struct Built {
    pub graph: Graph,
    /// Logits, mean probabilities and mutual information.
    pub outputs: [Value; 3],
}

/// Returns the graph of some members of a network that computes in `kind`. Its input are bytes `[B, 3, h, w]` of any size if
/// they are prepared in it.
pub fn build(vit: &Vit, members: &Members, kind: Kind, preparing: Option<Preparing>) -> Built {
    let size = vit.geometry.image_size();
    let shape = if preparing.is_some() { [IMAGES, 3, IMAGES, IMAGES] } else { [IMAGES, 3, size, size] };
    let (graph, input) = Graph::new(&shape);
    let mut pass = Pass { vit, layers: Layers { graph, members, kind: Kind::Float } };
    let pixels = match preparing {
        Some(preparing) => pass.prepare(&input, preparing),
        None => input,
    };
    pass.layers.kind = kind;
    let pixels = pass.cast(&pixels, kind, kind);
    let mut x = pass.embed(&pixels);
    for block in 0..vit.geometry.blocks {
        x = pass.block(block, &x);
    }
    let features = pass.read_out(&x);
    let outputs = pass.predict(&features);
    Built { graph: pass.layers.graph, outputs }
}

/// The tokens that may stand in front of the patches, in their order.
const TOKENS: [&str; 3] = ["class_token", "distillation_token", "registers"];

struct Pass<'a> {
    vit: &'a Vit,
    layers: Layers<'a>,
}

impl Pass<'_> {
    fn graph(&mut self) -> &mut Graph {
        &mut self.layers.graph
    }

    fn has(&self, name: &str) -> bool {
        self.layers.members.has(name)
    }

    /// Returns a value in another type, unless that is f32 anyway.
    fn cast(&mut self, x: &Value, reduced: Kind, to: Kind) -> Value {
        if reduced == Kind::Float { x.clone() } else { self.graph().keep(Operation::Cast(to), &[x]) }
    }

    /// Returns prepared images of bytes, as [`Preprocess::images`](crate::model::Preprocess::images) makes them.
    fn prepare(&mut self, bytes: &Value, Preparing { normalize, interpolation }: Preparing) -> Value {
        self.graph().enter("preprocessing");
        let size = self.vit.geometry.image_size();
        let channels = |values: [f64; 3]| move || Tensor::from_slice(&values).to_kind(Kind::Float).view([1, 3, 1, 1]);
        let most = self.layers.stored("preprocessing.most", || Tensor::from_slice(&[255f32]));
        let mean = self.layers.stored("preprocessing.mean", channels(normalize.mean));
        let std = self.layers.stored("preprocessing.std", channels(normalize.std));
        let x = self.graph().keep(Operation::Cast(Kind::Float), &[bytes]);
        let x = self.graph().pair(Operation::Divide, &x, &most);
        let x = self.graph().resize(&x, size, interpolation);
        let x = self.graph().keep(Operation::Clamp { most: Some(1.0) }, &[&x]);
        let x = self.graph().pair(Operation::Subtract, &x, &mean);
        self.graph().pair(Operation::Divide, &x, &std)
    }

    /// Returns patches with positions and the tokens in front of them, `[p, B, T, d]`.
    fn embed(&mut self, pixels: &Value) -> Value {
        let (grid, patch) = (self.vit.geometry.grid, self.vit.geometry.patch);
        self.graph().enter("patch");
        let x = self.graph().reshape(pixels, &[IMAGES, 3, grid, patch, grid, patch]);
        let x = self.graph().permute(&x, &[0, 2, 4, 1, 3, 5]);
        let x = self.graph().reshape(&x, &[1, IMAGES, grid * grid, 3 * patch * patch]);
        let x = self.layers.linear("patch", &x);
        self.graph().enter("embeddings");
        let members = self.layers.members;
        let differ = members.differ(&TOKENS) || members.differ(&["position"]);
        let x = if differ { self.graph().expand(&x, members.count) } else { x };
        let x = self.placed(&x);
        if self.has("ln_pre.weight") { self.norm("ln_pre", &x) } else { x }
    }

    /// Adds tokens and positions to patches `[p, B, grid², d]`.
    fn placed(&mut self, patches: &Value) -> Value {
        let parts = self.vit.parts;
        let (lead, rest) = TOKENS.split_at(match parts.positioned {
            0 => 0,
            all if all == parts.prefix => TOKENS.len(),
            _ => 2,
        });
        let mut x = self.in_front(lead, patches);
        if self.has("position") {
            let position = self.layers.param("position", 1);
            x = self.graph().plus(&x, &position);
        }
        if !rest.iter().any(|name| self.has(name)) {
            return x;
        }
        let first = parts.positioned;
        let patches = self.graph().slice(&x, 2, (first, x.shape[2]));
        let behind = self.in_front(rest, &patches);
        if first == 0 {
            return behind;
        }
        let front = self.graph().slice(&x, 2, (0, first));
        self.graph().concat(&[&front, &behind], 2)
    }

    /// Puts the tokens that exist in front of `x`.
    fn in_front(&mut self, names: &[&str], x: &Value) -> Value {
        let mut parts = Vec::new();
        for name in names.iter().filter(|name| self.layers.members.has(name)) {
            let axes = if self.layers.members.shared[*name].dim() == 1 { 2 } else { 1 };
            let token = self.layers.param(name, axes);
            parts.push(self.graph().expand(&token, x.shape[0]));
        }
        if parts.is_empty() {
            return x.clone();
        }
        let all: Vec<&Value> = parts.iter().chain([x]).collect();
        self.graph().concat(&all, 2)
    }

    fn norm(&mut self, layer: &str, x: &Value) -> Value {
        self.layers.norm(layer, x, self.vit.traits.eps)
    }

    fn activated(&mut self, x: &Value) -> Value {
        let activation = self.vit.traits.activation;
        self.graph().keep(Operation::Activation(activation), &[x])
    }

    /// Returns the output of a block. If only the class token is read, the last block computes nothing else.
    fn block(&mut self, block: usize, x: &Value) -> Value {
        let layer = |name: &str| format!("blocks.{block}.{name}");
        let parts = self.vit.parts.block;
        let first = block + 1 == self.vit.geometry.blocks && self.vit.parts.readout == Readout::Class;
        let normed = self.norm(&layer("ln_1"), x);
        let mut y = self.attend(block, &normed, first);
        if parts.attention_norm {
            y = self.norm(&layer("attn.norm"), &y);
        }
        let y = self.layers.linear(&layer("attn.proj"), &y);
        let x = if first { self.graph().slice(x, 2, (0, 1)) } else { x.clone() };
        let x = self.add_half(&layer("ls_1"), &x, y);
        let normed = self.norm(&layer("ln_2"), &x);
        let fc = self.layers.linear(&layer("mlp.fc"), &normed);
        let mut hidden = if parts.gated {
            let gate = self.layers.linear(&layer("mlp.gate"), &normed);
            let gate = self.activated(&gate);
            self.graph().times(&gate, &fc)
        } else {
            self.activated(&fc)
        };
        if parts.mlp_norm {
            hidden = self.norm(&layer("mlp.norm"), &hidden);
        }
        let y = self.layers.linear(&layer("mlp.proj"), &hidden);
        self.add_half(&layer("ls_2"), &x, y)
    }

    /// Adds half a block's result `y` to `x`, times its learnt scale if there is one.
    fn add_half(&mut self, scale: &str, x: &Value, y: Value) -> Value {
        self.graph().enter(scale);
        if !self.vit.parts.block.layer_scale {
            return self.graph().plus(x, &y);
        }
        let scale = self.layers.param(&format!("{scale}.gamma"), 2);
        let y = self.graph().times(&y, &scale);
        self.graph().plus(x, &y)
    }

    /// Returns the attention `[p, B, T, d]` of normalised tokens, or that of the first one alone.
    fn attend(&mut self, block: usize, x: &Value, first: bool) -> Value {
        let (heads, width) = (self.vit.traits.heads, self.vit.geometry.width);
        let layer = format!("blocks.{block}.attn.qkv");
        let token = if first { self.graph().slice(x, 2, (0, 1)) } else { x.clone() };
        let (query, both) = match first {
            true => {
                let query = self.layers.linear_rows(&layer, &token, Some((0, width)));
                (Some(query), self.layers.linear_rows(&layer, x, Some((width, 2 * width))))
            }
            false => (None, self.layers.linear(&layer, x)),
        };
        self.graph().enter(&format!("blocks.{block}.attn"));
        let scores = self.scores(block, first);
        let lead = if self.scores_differ(block) { self.layers.members.count } else { both.shape[0] };
        let both = self.graph().expand(&both, lead);
        let [query, key, value] = match query {
            Some(query) => {
                let query = self.graph().expand(&query, lead);
                let [query] = self.split(&query, heads);
                let [key, value] = self.split(&both, heads);
                // The class token has no place of its own.
                [query, self.turned(key), value]
            }
            None => {
                let [query, key, value] = self.split(&both, heads);
                [self.turned(query), self.turned(key), value]
            }
        };
        let read = self.graph().attention([&query, &key, &value], scores.as_ref());
        self.merge(&read, lead)
    }

    /// Splits `[p, B, T, k·d]` into k of `[p·B, heads, T, d / heads]`.
    fn split<const K: usize>(&mut self, x: &Value, heads: i64) -> [Value; K] {
        let (parts, tokens) = (K as i64, x.shape[2]);
        let width = x.shape[3] / parts;
        let x = self.graph().reshape(x, &[IMAGES, tokens, parts, heads, width / heads]);
        let x = self.graph().permute(&x, &[2, 0, 3, 1, 4]);
        std::array::from_fn(|part| {
            let part = self.graph().slice(&x, 0, (part as i64, part as i64 + 1));
            self.graph().reshape(&part, &[IMAGES, heads, tokens, width / heads])
        })
    }

    /// Joins `[p·B, heads, T, d / heads]` to `[p, B, T, d]`.
    fn merge(&mut self, x: &Value, lead: i64) -> Value {
        let [_, heads, tokens, channels] = x.shape[..] else { panic!("{:?} are no heads", x.shape) };
        let x = self.graph().permute(x, &[0, 2, 1, 3]);
        self.graph().reshape(&x, &[lead, IMAGES, tokens, heads * channels])
    }

    /// Rotates the patches of queries or keys `[p·B, heads, T, D]`, as [`Table::turn`](crate::model::vit::rope::Table::turn).
    fn turned(&mut self, x: Value) -> Value {
        let Some(rope) = self.vit.parts.rope else { return x };
        let (prefix, tokens, channels) = (self.vit.parts.prefix, x.shape[2], x.shape[3]);
        let table = rope.table(self.vit.geometry.grid, channels, (Kind::Float, Device::Cpu));
        let [cos, sin] = table.parts().map(Tensor::shallow_clone);
        let cos = self.layers.stored("rope.cos", || cos);
        let sin = self.layers.stored("rope.sin", || sin);
        let own = self.graph().slice(&x, 2, (prefix, tokens));
        let rotated = self.rotated(&own, rope);
        let graph = self.graph();
        let (stays, moves) = (graph.times(&own, &cos), graph.times(&rotated, &sin));
        let own = graph.plus(&stays, &moves);
        if prefix == 0 {
            return own;
        }
        let front = graph.slice(&x, 2, (0, prefix));
        graph.concat(&[&front, &own], 2)
    }

    /// Returns each pair (a, b) of channels as (−b, a).
    fn rotated(&mut self, x: &Value, rope: Rope) -> Value {
        let [_, heads, tokens, channels] = x.shape[..] else { panic!("{:?} are no heads", x.shape) };
        let graph = self.graph();
        // The pairs as an axis of length 2.
        let (shape, axis) = match rope.pairs() {
            Pairs::Halves => ([IMAGES, heads, tokens, 2, channels / 2], 3),
            Pairs::Neighbours => ([IMAGES, heads, tokens, channels / 2, 2], 4),
        };
        let pairs = graph.reshape(x, &shape);
        let (a, b) = (graph.slice(&pairs, axis, (0, 1)), graph.slice(&pairs, axis, (1, 2)));
        let minus = graph.keep(Operation::Negate, &[&b]);
        let turned = graph.concat(&[&minus, &a], axis);
        graph.reshape(&turned, &[IMAGES, heads, tokens, channels])
    }

    fn scores_differ(&self, block: usize) -> bool {
        let own = format!("blocks.{block}.attn.relative.weight");
        self.layers.members.differ(&[RELATIVE[0], &own])
    }

    /// Returns what distances add to the scores of a block, `[1 or p·B, heads, queries, T]`.
    fn scores(&mut self, block: usize, first: bool) -> Option<Value> {
        if !self.vit.parts.relative {
            return None;
        }
        let names = [RELATIVE[0].to_string(), format!("blocks.{block}.attn.relative.weight")];
        let members = self.layers.members;
        let tables = names.iter().filter(|name| members.has(name)).map(|name| members.led(name));
        let table = tables.reduce(|all, own| all + own)?;
        let scores = Distances::of(self.vit.geometry.grid, Device::Cpu).scores(&table);
        let scores = if first { scores.narrow(2, 0, 1) } else { scores };
        let name = format!("blocks.{block}.attn.scores");
        let lead = scores.size()[0];
        if lead == 1 {
            return Some(self.layers.stored(&name, || scores));
        }
        let value = self.layers.stored(&name, || scores.unsqueeze(1));
        let value = self.graph().expand(&value, lead);
        let [_, _, heads, queries, tokens] = value.shape[..] else { return None };
        Some(self.graph().reshape(&value, &[IMAGES, heads, queries, tokens]))
    }

    /// Returns the features `[p, B, 1, d]` of the last block's output.
    fn read_out(&mut self, x: &Value) -> Value {
        let post = "ln_post";
        let x = match self.vit.parts.readout {
            Readout::Class => {
                let x = self.graph().slice(x, 2, (0, 1));
                self.norm(post, &x)
            }
            Readout::ClassDistillation => {
                let x = self.graph().slice(x, 2, (0, 2));
                let x = self.norm(post, &x);
                let (lead, width) = (x.shape[0], x.shape[3]);
                self.graph().reshape(&x, &[lead, IMAGES, 1, 2 * width])
            }
            Readout::Mean => {
                let x = self.mean_of_patches(x);
                self.norm(post, &x)
            }
            Readout::NormedMean => {
                let x = self.norm(post, x);
                self.mean_of_patches(&x)
            }
            Readout::ClassMean => {
                let x = self.norm(post, x);
                let (class, mean) = (self.graph().slice(&x, 2, (0, 1)), self.mean_of_patches(&x));
                self.graph().concat(&[&class, &mean], 3)
            }
            Readout::Map => self.pool(x),
        };
        if self.has("proj.weight") { self.layers.linear("proj", &x) } else { x }
    }

    fn mean_of_patches(&mut self, x: &Value) -> Value {
        let prefix = self.vit.parts.prefix;
        let patches = self.graph().slice(x, 2, (prefix, x.shape[2]));
        self.graph().mean(&patches, 2)
    }

    /// Returns the attention of a learnt query over all normalised tokens, `[p, B, 1, d]`.
    fn pool(&mut self, x: &Value) -> Value {
        let heads = self.vit.traits.heads;
        let x = self.norm("ln_post", x);
        let query = self.layers.param("pool.query", 2);
        let query = self.layers.linear("pool.q", &query);
        let both = self.layers.linear("pool.kv", &x);
        self.graph().enter("pool");
        let lead = query.shape[0].max(both.shape[0]);
        let query = self.graph().expand(&query, lead);
        let both = self.graph().expand(&both, lead);
        let [query] = self.split(&query, heads);
        let [key, value] = self.split(&both, heads);
        let read = self.graph().attention([&query, &key, &value], None);
        let read = self.merge(&read, lead);
        let x = self.layers.linear("pool.proj", &read);
        let y = self.norm("pool.ln", &x);
        let hidden = self.layers.linear("pool.fc", &y);
        let hidden = self.activated(&hidden);
        let y = self.layers.linear("pool.out", &hidden);
        self.graph().plus(&x, &y)
    }

    /// Returns the logits, the mean probabilities and the mutual information H[mean p] − mean H[p] in nats, all in f32.
    fn predict(&mut self, features: &Value) -> [Value; 3] {
        self.graph().enter("head");
        let kind = std::mem::replace(&mut self.layers.kind, Kind::Float);
        let mut x = self.cast(features, kind, Kind::Float);
        let members = self.layers.members;
        if members.normalised {
            x = self.graph().keep(Operation::Unit, &[&x]);
        }
        let x = self.layers.linear("head", &x);
        let graph = self.graph();
        let classes = x.shape[3];
        let logits = graph.reshape(&x, &[x.shape[0], IMAGES, classes]);
        let logits = graph.expand(&logits, members.count);
        graph.enter("predictive");
        let each = graph.keep(Operation::Softmax, &[&logits]);
        let mean = graph.mean(&each, 0);
        let probabilities = graph.reshape(&mean, &[IMAGES, classes]);
        let total = graph.entropy(&mean);
        let own = graph.entropy(&each);
        let expected = graph.mean(&own, 0);
        let information = graph.pair(Operation::Subtract, &total, &expected);
        let information = graph.keep(Operation::Clamp { most: None }, &[&information]);
        let information = graph.reshape(&information, &[IMAGES]);
        [logits, probabilities, information]
    }
}
