//! The interface of operations.

use std::sync::{Arc, Mutex, PoisonError};

use tch::{Device, Kind, Tensor};

use crate::machine::fused::{self, Curve, QUICK_SLOPE};
use crate::schema::words;

/// A linear layer, whole or in part.
#[derive(Clone, Copy)]
pub struct Layer<'a> {
    pub name: &'a str,
    /// The output rows that are computed: the first one and their number; `None` for all.
    pub rows: Option<(i64, i64)>,
    /// Whether it computes queries, keys and values of which keys have no bias (`<name>.keyless_bias`).
    pub keyless_bias: bool,
}

/// The tokens that a query reads, and what is added to its scores.
pub enum Mask<V> {
    /// All tokens.
    None,
    /// Query t reads the keys up to t.
    Causal,
    /// Query t reads so many keys up to t, its own among them.
    Window(i64),
    /// Query t reads the keys up to t, and those of a prompt: 1 in `[p, B, T, 1]`.
    Prompt(V),
    /// All tokens, with numbers `[p, 1, heads, queries, T]` added to the scores.
    Scores(V),
    /// The tokens that exist: 1 in `[p, B, T, 1]`.
    Seen(V),
    /// The tokens that exist, with numbers `[p, B, heads, queries, T]` added to the scores; axes of length 1 spread.
    SeenScores { seen: V, scores: V },
}

/// The way from products of queries and keys to scores: c tanh(s q kᵀ / c) with a scale s and a cap c.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scoring {
    /// The factor s; D^(−1/2) of D channels if it is `None`.
    pub scale: Option<f64>,
    /// The bound c, if there is one.
    pub cap: Option<f64>,
}

/// A norm by the root mean square, whose factor is the weight of a layer plus a number.
#[derive(Clone, Copy, Debug)]
pub struct RmsNormed<'a> {
    pub layer: &'a str,
    pub eps: f64,
    /// The number that is added to the weight: 1 where networks store their weights as differences from 1, else 0.
    pub more: f64,
}

/// The channels that one angle rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// k and k + D/2.
    Halves,
    /// 2k and 2k + 1.
    Neighbours,
}

/// The operations of a forward pass.
pub trait Ops: Sized {
    /// A value `[p, B, …]`.
    type Value;

    /// Returns the operations on a part of the network, whose parameters' names begin with `part`, by the rest of their names.
    fn within(&self, part: &'static str) -> Self;

    /// Returns the same value once more.
    fn again(&self, x: &Self::Value) -> Self::Value;

    /// Returns the length of an axis of which it is known: any but that of samples.
    fn length(&self, x: &Self::Value, axis: usize) -> i64;

    /// Returns whether the network has the parameter `name`.
    fn has(&self, name: &str) -> bool;

    /// Maps `[p, B, T, in]` to `[p', B, T, out]` by a linear layer or some of its rows.
    fn layer(&self, layer: Layer, x: &Self::Value) -> Self::Value;

    /// Maps `[p, B, T, in]` to `[p', B, T, out]` by the linear layer `name`.
    fn linear(&self, name: &str, x: &Self::Value) -> Self::Value {
        self.layer(Layer { name, rows: None, keyless_bias: false }, x)
    }

    /// Maps as [`linear`](Self::linear) does. `frozen`, where it is known, is what the network's own layer makes of `x`, without an update.
    fn linear_from(&self, name: &str, x: &Self::Value, _frozen: Option<&Self::Value>) -> Self::Value {
        self.linear(name, x)
    }

    /// Maps the activation of `x` as [`linear`](Self::linear) does. Nothing else may be a view of `x`.
    fn linear_behind(&self, name: &str, activation: Activation, x: Self::Value) -> Self::Value {
        self.linear(name, &self.activation(activation, x))
    }

    /// Normalises the last axis of `[p, B, T, d]` by the layer norm `layer`, which may lack a bias.
    fn norm(&self, layer: &str, x: &Self::Value, eps: f64) -> Self::Value;

    /// Normalises the last axis of `[p, B, T, d]` by its root mean square in f32.
    fn rms_norm(&self, norm: RmsNormed, x: &Self::Value) -> Self::Value;

    /// Returns the rows of the matrix `<layer>.weight` for ids `[p, B, T]`, `[p', B, T, d]`.
    fn embedding(&self, layer: &str, ids: &Self::Value) -> Self::Value;

    /// Returns a parameter of one or two axes with axes of length 1 in front of these, `[p, 1, …]` of four axes.
    fn param(&self, name: &str) -> Self::Value;

    /// Returns the sum of those of some matrices that the network has, of which it takes rows `[k]`: `[p, 1, k, d]`; `None` if it has none
    /// of them.
    fn picked(&self, names: &[String], rows: &Self::Value) -> Option<Self::Value>;

    /// Returns a tensor that follows from the numbers `of`, in the type and on the device of `like` unless `make` chooses others. It
    /// has no axes of particles and samples.
    fn constant(
        &self,
        constant: &Constant,
        of: &[i64],
        like: &Self::Value,
        make: impl Fn((Kind, Device)) -> Tensor,
    ) -> Self::Value;

    fn add(&self, a: Self::Value, b: Self::Value) -> Self::Value;

    fn mul(&self, a: Self::Value, b: Self::Value) -> Self::Value;

    fn activation(&self, activation: Activation, x: Self::Value) -> Self::Value;

    /// Returns a value in the type of the weights.
    fn cast(&self, x: Self::Value) -> Self::Value;

    /// Returns pixels `[p, B, 3, S, S]` from 0 to 255 divided by 255, less a mean, and divided by a deviation.
    fn normalised(&self, pixels: Self::Value, mean: [f64; 3], std: [f64; 3]) -> Self::Value;

    /// Returns `length` entries of an axis from `start` on.
    fn slice(&self, x: &Self::Value, axis: usize, start: i64, length: i64) -> Self::Value;

    /// Joins values along an axis. Values of one particle, or of one sample, are repeated for those of more.
    fn concat(&self, parts: Vec<Self::Value>, axis: usize) -> Self::Value;

    /// Gives the axes after the first two other lengths.
    fn reshape(&self, x: &Self::Value, lengths: &[i64]) -> Self::Value;

    fn permute(&self, x: &Self::Value, axes: &[i64]) -> Self::Value;

    /// Returns the mean over an axis, which stays with length 1.
    fn mean(&self, x: &Self::Value, axis: usize) -> Self::Value;

    /// Splits `[p, B, T, k · heads · D]` into k of `[p, B, heads, T, D]`.
    fn heads(&self, x: &Self::Value, parts: i64, heads: i64) -> Vec<Self::Value>;

    /// Returns each pair (a, b) of channels of heads as (−b, a).
    fn rotated(&self, x: &Self::Value, pairs: Pairs) -> Self::Value;

    /// Returns what queries read, `[p, B, Tq, heads · D]`, from heads of queries, keys and values. Fewer heads of keys serve several
    /// heads of queries each.
    fn attend(&self, heads: [&Self::Value; 3], mask: Mask<Self::Value>, scoring: Scoring) -> Self::Value;

    /// Returns what queries read by plain scores.
    fn attention(&self, heads: [&Self::Value; 3], mask: Mask<Self::Value>) -> Self::Value {
        self.attend(heads, mask, Scoring::default())
    }

    /// Returns what tokens read of each other, `[p, B, T, heads · D]`, by plain scores, from queries, keys and values
    /// `[p, B, T, 3 · heads · D]`.
    fn self_attention(&self, qkv: &Self::Value, heads: i64) -> Self::Value {
        let parts = self.heads(qkv, 3, heads);
        self.attention([&parts[0], &parts[1], &parts[2]], Mask::None)
    }

    /// Returns the products `[p, B, heads, T, S]` of heads `[p, B, heads, T, D]` with rows of `table: [p, 1, heads, R, D]`: that of
    /// token t with row `index[t, s]` of a constant `[T, S]`.
    fn relative(&self, x: &Self::Value, table: &Self::Value, index: &Self::Value) -> Self::Value;

    /// Returns ids and mask, `[p, B, T]` each, with the padding in front of a text moved behind it.
    fn aligned(&self, text: [&Self::Value; 2]) -> [Self::Value; 2];

    /// Returns the number of each token of a mask `[p, B, T]` among those of its text, from 1 on, plus `behind`; where there is no token
    /// this is `behind` alone.
    fn numbered(&self, mask: &Self::Value, behind: i64) -> Self::Value;

    /// Returns a mask `[p, B, T]` as `[p, B, T, 1]` in the type of `like`.
    fn column(&self, mask: &Self::Value, like: &Self::Value) -> Self::Value;

    /// Returns a mask `[p, B, T, 1]` in which only the last `count` tokens of each text are left.
    fn latest(&self, mask: &Self::Value, count: i64) -> Self::Value;

    /// Returns the position `[p, B]` of the last token of each text, from a mask `[p, B, T, 1]`.
    fn last(&self, mask: &Self::Value) -> Self::Value;

    /// Returns the values `[p, B, 1, d]` of `[p, B, T, d]` at positions `[p, B]`.
    fn at(&self, x: &Self::Value, positions: &Self::Value) -> Self::Value;

    /// Returns the rows `[p, B, 1, 1, D]` of a constant `[T, D]` at positions `[p, B]`.
    fn rows_at(&self, table: &Self::Value, positions: &Self::Value) -> Self::Value;

    /// Returns the embeddings `words: [p, B, T, d]` with the rows of `patches: [p, B, P, d]`, one after the other, in place of those of
    /// the token `id`. Ids and mask are `[p, B, T]`.
    fn filled(&self, words: Self::Value, patches: Self::Value, text: &[Self::Value; 2], id: i64) -> Self::Value;
}

words! {
    /// The activation behind a layer, such as the first one of an MLP.
    pub enum Activation { Gelu = "gelu", QuickGelu = "quick-gelu", GeluTanh = "gelu-tanh", Silu = "silu", Tanh = "tanh", Relu = "relu" }
}

impl Activation {
    /// Applies the activation elementwise.
    pub fn apply(self, x: &Tensor) -> Tensor {
        match self {
            Activation::Gelu => x.gelu("none"),
            Activation::GeluTanh => x.gelu("tanh"),
            Activation::QuickGelu => fused::quick_gelu(x).unwrap_or_else(|| x * (x * QUICK_SLOPE).sigmoid()),
            Activation::Silu => x.silu(),
            Activation::Tanh => x.tanh(),
            Activation::Relu => x.relu(),
        }
    }

    /// Returns the activation as one that the layer behind it can take over, if it is one.
    pub fn curve(self) -> Option<Curve> {
        match self {
            Activation::Gelu => Some(Curve::Gelu),
            Activation::QuickGelu => Some(Curve::QuickGelu),
            Activation::GeluTanh | Activation::Silu | Activation::Tanh | Activation::Relu => None,
        }
    }

    /// Returns the activation of an expression as a TorchScript expression.
    pub fn script(self, x: &str) -> String {
        match self {
            Activation::Gelu => format!("torch.gelu({x})"),
            Activation::GeluTanh => format!("torch.gelu({x}, approximate=\"tanh\")"),
            Activation::QuickGelu => format!("torch.mul({x}, torch.sigmoid(torch.mul({x}, {QUICK_SLOPE})))"),
            Activation::Silu => format!("torch.silu({x})"),
            Activation::Tanh => format!("torch.tanh({x})"),
            Activation::Relu => format!("torch.relu({x})"),
        }
    }
}

/// A tensor that a network computes from a few numbers. The latest one is kept, and all blocks and threads share it.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The name under which a graph holds the tensor.
    pub name: &'static str,
    latest: Arc<Mutex<Option<Made>>>,
}

#[derive(Debug)]
struct Made {
    of: Vec<i64>,
    options: (Kind, Device),
    tensor: Tensor,
}

impl Constant {
    pub fn new(name: &'static str) -> Constant {
        Constant { name, latest: Arc::default() }
    }

    /// Returns the tensor that follows from `of`, which is made only if the latest one was made of other numbers or for other options.
    pub fn get(&self, of: &[i64], options: (Kind, Device), make: impl Fn((Kind, Device)) -> Tensor) -> Tensor {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = latest.take().filter(|made| made.of == of && made.options == options);
        let made = known.unwrap_or_else(|| Made { of: of.to_vec(), options, tensor: make(options) });
        latest.insert(made).tensor.shallow_clone()
    }
}
