//! The parameters of the members that leave in one file (shared ones, and those in which members differ), and the predictions from
//! their features.

use std::collections::BTreeMap;

use tch::{Device, Kind, Tensor};

use crate::data::Interpolation;
use crate::data::fields::{Fields, IDS, KINDS, MASK, PIXELS};
use crate::exchange::lora::{Lora, updates};
use crate::exchange::outgoing::Outgoing;
use crate::model::language::OUTPUT;
use crate::model::network::ops::graph::{Factors, Members, Operation, SAMPLES, Value};
use crate::model::network::ops::{Activation, Ops, Writer};
use crate::model::{Normalize, Texts};

/// The members that leave, and how they predict together.
pub struct Leaving {
    pub members: Members,
    /// The weights of the members in averages, times their number; `None` if all weigh the same.
    pub weights: Option<Tensor>,
    /// Whether features are L2-normalised before the head.
    pub normalised: bool,
    /// The bound of logits, if there is one.
    pub cap: Option<f64>,
}

fn host(tensor: &Tensor) -> Tensor {
    tensor.detach().to_device(Device::Cpu).to_kind(Kind::Float)
}

impl Leaving {
    pub fn of(outgoing: &Outgoing) -> Leaving {
        let (base, head) = (&outgoing.session.model.base, &outgoing.session.model.head);
        let mut shared: BTreeMap<String, Tensor> =
            base.all().iter().filter_map(|(name, _)| Some((name.clone(), host(&base.value(name)?)))).collect();
        shared.insert("head.weight".into(), host(&head.weight));
        shared.insert("head.bias".into(), host(&head.bias));
        let (mut own, mut factors) = (BTreeMap::new(), BTreeMap::new());
        if outgoing.count() == 1 {
            let new = |name: &String| Some((name.clone(), outgoing.value(0, name)?));
            let changed: Vec<_> = shared.keys().filter_map(new).collect();
            shared.extend(changed);
        } else {
            own = differing(outgoing, &shared);
            factors = low_rank(outgoing);
        }
        with_key_bias(&mut shared, 0);
        with_key_bias(&mut own, 1);
        let mut members = Members { count: outgoing.count() as i64, own, factors, shared };
        let ends_in_output = outgoing.head_is_output(&outgoing.head(0));
        if ends_in_output {
            read_by_output(outgoing, &mut members);
        }
        let count = outgoing.count() as f64;
        let weights = outgoing.weights.as_ref().map(|weights| Tensor::from_slice(weights).to_kind(Kind::Float) * count);
        Leaving { members, weights, normalised: head.normalised, cap: head.cap }
    }
}

/// Makes a language network's output matrix, or its rows of the label words, the head.
fn read_by_output(outgoing: &Outgoing, members: &mut Members) {
    let (base, rows) = (&outgoing.session.model.base, outgoing.session.model.head.rows.as_ref());
    let picked = |tensor: &Tensor, axis: i64| match rows {
        Some(rows) => tensor.index_select(axis, &rows.to_device(Device::Cpu)),
        None => tensor.shallow_clone(),
    };
    let name = format!("{OUTPUT}.weight");
    // Of a tied network, this is the matrix of embeddings.
    let first = base.first_name(&name).to_string();
    let merged = (members.count == 1).then(|| outgoing.value(0, &name)).flatten();
    let weight = picked(&merged.unwrap_or_else(|| members.shared[&first].shallow_clone()), 0);
    members.shared.insert("head.bias".into(), Tensor::zeros([weight.size()[0]], (Kind::Float, Device::Cpu)));
    members.shared.insert("head.weight".into(), weight);
    if let Some(all) = members.own.get(&name).or_else(|| members.own.get(&first)) {
        let all = picked(all, 1);
        members.own.insert("head.weight".into(), all);
    }
    if let Some(Factors { a, b }) = members.factors.get(OUTPUT) {
        let factors = Factors { a: a.shallow_clone(), b: picked(b, 1) };
        members.factors.insert("head".into(), factors);
    }
}

/// Returns the parameters that every member has its own values of, whole.
fn differing(outgoing: &Outgoing, shared: &BTreeMap<String, Tensor>) -> BTreeMap<String, Tensor> {
    let stacked = |name: &String| {
        let values: Option<Vec<Tensor>> = (0..outgoing.count()).map(|model| outgoing.own(model, name)).collect();
        Some((name.clone(), Tensor::stack(&values?, 0)))
    };
    // An output matrix that is tied to the embeddings has no entry of its own, and may have other values now.
    let (output, base) = (format!("{OUTPUT}.weight"), &outgoing.session.model.base);
    let tied = (base.first_name(&output) != output).then_some(&output);
    shared.keys().chain(tied).filter_map(stacked).collect()
}

fn low_rank(outgoing: &Outgoing) -> BTreeMap<String, Factors> {
    // Weights that are no sums of updates leave whole.
    if outgoing.subspace.scaled_by().is_some() {
        return BTreeMap::new();
    }
    let layout = outgoing.subspace.layout();
    let rows: Vec<Vec<(String, Lora)>> =
        (0..outgoing.count()).map(|model| updates(layout, &outgoing.row(model).squeeze_dim(0))).collect();
    let stacked = |index: usize| {
        let of =
            |one: fn(&Lora) -> Tensor| Tensor::stack(&rows.iter().map(|row| one(&row[index].1)).collect::<Vec<_>>(), 0);
        Factors { a: of(|lora| lora.a.shallow_clone()), b: of(|lora| &lora.b * lora.scale) }
    };
    let layers = rows.first().into_iter().flatten().enumerate();
    layers.map(|(index, (layer, _))| (layer.clone(), stacked(index))).collect()
}

/// Gives keys a bias of 0 where queries and values have biases and keys none; the biases lie along `axis`.
fn with_key_bias(parameters: &mut BTreeMap<String, Tensor>, axis: i64) {
    let keyless: Vec<String> = parameters.keys().filter(|name| name.ends_with(".qkv.keyless_bias")).cloned().collect();
    for name in keyless {
        if let Some(both) = parameters.remove(&name) {
            let parts = both.chunk(2, axis);
            let three = Tensor::cat(&[&parts[0], &parts[0].zeros_like(), &parts[1]], axis);
            parameters.insert(name.replace("keyless_bias", "bias"), three);
        }
    }
}

/// Returns the logits, the mean probabilities and the mutual information `H[mean p] − mean H[p]` in nats, all in f32, from features
/// `[p, B, d]`.
pub fn predict(writer: &Writer, leaving: &Leaving, features: &Value) -> [Value; 3] {
    writer.graph().enter("head");
    let x = writer.cast_from(features, Kind::Float);
    let writer = &writer.in_kind(Kind::Float);
    let x = if leaving.normalised { writer.graph().keep(Operation::Unit, &[&x]) } else { x };
    let x = writer.reshape(&x, &[1, x.shape[2]]);
    let x = writer.linear("head", &x);
    let classes = x.shape[3];
    let logits = capped(writer, leaving, writer.reshape(&x, &[classes]));
    let logits = writer.graph().expand(&logits, leaving.members.count);
    writer.graph().enter("predictive");
    let each = writer.graph().keep(Operation::Softmax, &[&logits]);
    let mean = averaged(writer, leaving, &each);
    let (probabilities, total, own) = {
        let mut graph = writer.graph();
        (graph.reshape(&mean, &[SAMPLES, classes]), graph.entropy(&mean), graph.entropy(&each))
    };
    let expected = averaged(writer, leaving, &own);
    let mut graph = writer.graph();
    let information = graph.pair(Operation::Subtract, &total, &expected);
    let information = graph.keep(Operation::Clamp { most: None }, &[&information]);
    let information = graph.reshape(&information, &[SAMPLES]);
    [logits, probabilities, information]
}

/// Returns logits within their bound c: c tanh(z / c).
fn capped(writer: &Writer, leaving: &Leaving, logits: Value) -> Value {
    let Some(cap) = leaving.cap else { return logits };
    let cap = writer.stored("head.cap", || Tensor::from_slice(&[cap]));
    let mut graph = writer.graph();
    let logits = graph.pair(Operation::Divide, &logits, &cap);
    let logits = graph.keep(Operation::Activation(Activation::Tanh), &[&logits]);
    graph.times(&logits, &cap)
}

/// Returns the mean over members `[n, B, k]`, by their weights.
fn averaged(writer: &Writer, leaving: &Leaving, x: &Value) -> Value {
    let weighted = match &leaving.weights {
        Some(weights) => {
            let weights = writer.stored("predictive.weights", || weights.view([-1, 1, 1]));
            writer.graph().times(x, &weights)
        }
        None => x.clone(),
    };
    writer.graph().mean(&weighted, 0)
}

/// The inputs of a graph.
pub trait Inputs {
    /// Returns their names, in their order.
    fn names(&self) -> &'static [&'static str];

    /// Adds the inputs, and returns prepared samples `[1, B, …]`.
    fn samples(&self, writer: &Writer) -> Fields<Value>;

    /// Returns the height and width of the images by which the file is tried, where they are not those of the network.
    fn tried_size(&self) -> Option<[i64; 2]> {
        None
    }

    /// Returns the tokens to which texts are padded; 0 for a network of images.
    fn padded(&self) -> i64 {
        0
    }
}

/// Normalised images `pixels` of so many pixels per side.
pub struct Pixels {
    pub side: i64,
}

/// Bytes `images` of any size, which the graph prepares for so many pixels per side.
pub struct Bytes {
    pub side: i64,
    pub preparing: Preparing,
}

/// The way from stored bytes to prepared images.
#[derive(Clone, Copy)]
pub struct Preparing {
    pub normalize: Normalize,
    pub interpolation: Interpolation,
}

const IMAGE: [&str; 4] = ["batch", "channels", "height", "width"];
const TEXT: [&str; 2] = ["batch", "tokens"];

impl Inputs for Pixels {
    fn names(&self) -> &'static [&'static str] {
        &["pixels"]
    }

    fn samples(&self, writer: &Writer) -> Fields<Value> {
        let pixels = writer.graph().input("pixels", Kind::Float, &IMAGE, &[SAMPLES, 3, self.side, self.side]);
        Fields::of(PIXELS, images(writer, &pixels))
    }
}

impl Inputs for Bytes {
    fn names(&self) -> &'static [&'static str] {
        &["images"]
    }

    fn samples(&self, writer: &Writer) -> Fields<Value> {
        let bytes = writer.graph().input("images", Kind::Uint8, &IMAGE, &[SAMPLES, 3, SAMPLES, SAMPLES]);
        Fields::of(PIXELS, images(writer, &prepared(writer, &bytes, self.side, self.preparing)))
    }

    /// Images of another size show that resizing is in the file, too.
    fn tried_size(&self) -> Option<[i64; 2]> {
        Some([2 * self.side, self.side + self.side / 2])
    }
}

/// `input_ids` and `attention_mask`, with `token_type_ids` and normalised images `pixel_values` where the network takes them.
impl Inputs for Texts {
    fn names(&self) -> &'static [&'static str] {
        match self {
            Texts { image: Some(_), kinds: true, .. } => {
                &["input_ids", "attention_mask", "token_type_ids", "pixel_values"]
            }
            Texts { image: Some(_), .. } => &["input_ids", "attention_mask", "pixel_values"],
            Texts { kinds: true, .. } => &["input_ids", "attention_mask", "token_type_ids"],
            Texts { .. } => &["input_ids", "attention_mask"],
        }
    }

    fn samples(&self, writer: &Writer) -> Fields<Value> {
        let Texts { tokens, kinds, image } = *self;
        let rows = [(IDS, "input_ids"), (MASK, "attention_mask"), (KINDS, "token_type_ids")];
        let rows = rows.into_iter().take(if kinds { 3 } else { 2 });
        let rows: Vec<_> = rows.map(|(name, input)| (name, text(writer, input, tokens))).collect();
        let pixels = image.map(|(side, normalize)| {
            let axes = &[SAMPLES, 3, side, side];
            let pixels = writer.graph().input("pixel_values", Kind::Float, &IMAGE, axes);
            let bytes = unnormalised(writer, &pixels, normalize);
            (PIXELS, writer.graph().reshape(&bytes, &[1, SAMPLES, 3, side, side]))
        });
        Fields::new(rows.into_iter().chain(pixels).collect())
    }

    fn padded(&self) -> i64 {
        self.tokens
    }
}

/// Returns images `[B, 3, S, S]` as `[1, B, 3, S, S]` in the type of the network.
fn images(writer: &Writer, pixels: &Value) -> Value {
    let pixels = writer.cast(pixels.clone());
    let shape = [&[1], &pixels.shape[..]].concat();
    writer.graph().reshape(&pixels, &shape)
}

fn as_float(writer: &Writer, x: &Value) -> Value {
    writer.graph().keep(Operation::Cast(Kind::Float), &[x])
}

/// Adds whole numbers, one for each token of a text, `[1, B, T]`.
fn text(writer: &Writer, name: &'static str, tokens: i64) -> Value {
    let mut graph = writer.graph();
    let row = graph.input(name, Kind::Int64, &TEXT, &[SAMPLES, tokens]);
    graph.reshape(&row, &[1, SAMPLES, tokens])
}

/// Returns prepared images of bytes, as [`Preprocess::images`](crate::model::Preprocess::images) makes them.
fn prepared(writer: &Writer, bytes: &Value, side: i64, Preparing { normalize, interpolation }: Preparing) -> Value {
    let [most, mean, std] = scales(writer, normalize);
    let x = as_float(writer, bytes);
    let mut graph = writer.graph();
    graph.enter("preprocessing");
    let x = graph.pair(Operation::Divide, &x, &most);
    let x = graph.resize(&x, side, interpolation);
    let x = graph.keep(Operation::Clamp { most: Some(1.0) }, &[&x]);
    let x = graph.pair(Operation::Subtract, &x, &mean);
    graph.pair(Operation::Divide, &x, &std)
}

/// Returns the bytes of normalised images, as numbers.
fn unnormalised(writer: &Writer, pixels: &Value, normalize: Normalize) -> Value {
    let [most, mean, std] = scales(writer, normalize);
    let mut graph = writer.graph();
    graph.enter("preprocessing");
    let x = graph.times(pixels, &std);
    let x = graph.plus(&x, &mean);
    graph.times(&x, &most)
}

/// Returns the largest byte, and mean and deviation of the channels.
fn scales(writer: &Writer, normalize: Normalize) -> [Value; 3] {
    let own = writer.in_kind(Kind::Float);
    let channels = |values: [f64; 3]| move || Tensor::from_slice(&values).to_kind(Kind::Float).view([1, 3, 1, 1]);
    [
        own.stored("preprocessing.most", || Tensor::from_slice(&[255f32])),
        own.stored("preprocessing.channel_mean", channels(normalize.mean)),
        own.stored("preprocessing.channel_std", channels(normalize.std)),
    ]
}
