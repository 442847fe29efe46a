//! The inputs of a graph, and the prepared samples that they become.

use tch::{Kind, Tensor};

use crate::data::Interpolation;
use crate::data::fields::{Fields, IDS, KINDS, MASK, PIXELS};
use crate::model::network::ops::graph::{Operation, SAMPLES, Value};
use crate::model::network::ops::{Ops, Writer};
use crate::model::{Normalize, Texts};

/// The inputs that a graph takes.
pub enum Taken {
    /// Normalised images `pixels` of so many pixels per side.
    Pixels(i64),
    /// Bytes `images` of any size, which the graph prepares for so many pixels per side.
    Bytes(i64, Preparing),
    /// `input_ids` and `attention_mask`, with `token_type_ids` or normalised images `pixel_values` where the network takes them.
    Texts(Texts),
}

/// The way from stored bytes to prepared images.
#[derive(Clone, Copy)]
pub struct Preparing {
    pub normalize: Normalize,
    pub interpolation: Interpolation,
}

const IMAGE: [&str; 4] = ["batch", "channels", "height", "width"];
const TEXT: [&str; 2] = ["batch", "tokens"];

impl Taken {
    /// Returns the names of the inputs, in their order.
    pub fn names(&self) -> &'static [&'static str] {
        match self {
            Taken::Pixels(_) => &["pixels"],
            Taken::Bytes(..) => &["images"],
            Taken::Texts(Texts { image: Some(_), .. }) => &["input_ids", "attention_mask", "pixel_values"],
            Taken::Texts(Texts { kinds: true, .. }) => &["input_ids", "attention_mask", "token_type_ids"],
            Taken::Texts(_) => &["input_ids", "attention_mask"],
        }
    }

    /// Adds the inputs, and returns prepared samples `[1, B, …]`.
    pub fn samples(&self, writer: &Writer) -> Fields<Value> {
        match *self {
            Taken::Pixels(side) => {
                let pixels = writer.graph().input("pixels", Kind::Float, &IMAGE, &[SAMPLES, 3, side, side]);
                Fields::of(PIXELS, images(writer, &pixels))
            }
            Taken::Bytes(side, preparing) => {
                let bytes = writer.graph().input("images", Kind::Uint8, &IMAGE, &[SAMPLES, 3, SAMPLES, SAMPLES]);
                Fields::of(PIXELS, images(writer, &prepared(writer, &bytes, side, preparing)))
            }
            Taken::Texts(Texts { tokens, kinds, image }) => {
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
        }
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
