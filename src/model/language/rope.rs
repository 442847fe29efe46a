//! Rotary positions of a text (Su et al. 2021, arXiv 2104.09864): at position t, angle t f_k turns the channels k and
//! k + D/2 of the first D channels of a head, with the frequencies f_k = θ^(−2k/D), k < D/2.

use std::f64::consts::PI;

use tch::{Device, Kind, Tensor};

use crate::model::network::ops::{Constant, Ops, Pairs};

/// Rotary positions with the base θ.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    pub theta: f64,
    pub scaling: Scaling,
    /// The number D of channels of a head that are turned.
    pub channels: i64,
}

/// A change of the frequencies, by which a network was taught longer texts.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    None,
    /// All frequencies are divided by the factor.
    Linear {
        factor: f64,
    },
    /// The frequencies of longer texts than the network was trained with follow from their length. bella reads none of these.
    Dynamic,
    /// The scaling of Llama 3.1. Let λ = 2π/f be a wavelength in tokens. Frequencies with λ > `original` / `low` are divided by
    /// the factor, those with λ < `original` / `high` stay, and those between are interpolated.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    /// The scaling of YaRN (Peng et al. 2023, arXiv 2309.00071). Frequencies that turn less than `slow` times within `original` tokens
    /// are divided by the factor, those that turn more than `fast` times stay, and those between are interpolated by their numbers k.
    Yarn(Yarn),
    /// Each frequency is divided by a factor of its own (LongRoPE; Ding et al. 2024, arXiv 2402.13753), and cosines and sines are
    /// multiplied by `amplitude`.
    ///
    /// Differs: transformers takes other factors as soon as one text of a batch, or a text that is being written, is longer than the
    /// network was trained with. bella reads no longer texts.
    Long {
        factors: Vec<f64>,
        amplitude: f64,
    },
}

/// The settings of YaRN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Yarn {
    pub factor: f64,
    pub slow: f64,
    pub fast: f64,
    pub original: f64,
    /// Whether the numbers k between which frequencies are interpolated are whole.
    pub is_whole: bool,
    /// What cosines and sines are multiplied by.
    pub amplitude: f64,
}

impl Rope {
    /// Returns the frequencies, `[D/2]` in f32.
    ///
    /// Every step rounds as in transformers: a network was trained with the last bits of its frequencies, which late positions multiply.
    pub fn frequencies(&self) -> Tensor {
        let numbers = Tensor::arange(self.channels / 2, (Kind::Float, Device::Cpu));
        let powers = Tensor::pow_scalar(self.theta, &(&numbers * 2.0 / self.channels as f64));
        let plain = powers.reciprocal();
        match &self.scaling {
            Scaling::None | Scaling::Dynamic => plain,
            Scaling::Linear { factor } => plain / *factor,
            Scaling::Long { factors, .. } => (Tensor::from_slice(factors).to_kind(Kind::Float) * powers).reciprocal(),
            Scaling::Llama3 { factor, low, high, original } => {
                let lengths = plain.reciprocal() * (2.0 * PI);
                let scaled = plain.where_self(&lengths.le(original / low), &(&plain / *factor));
                let share = (lengths.reciprocal() * *original - *low) / (high - low);
                let kept: Tensor = 1.0 - &share;
                let between: Tensor = kept * &scaled / *factor + share * &scaled;
                let is_between = lengths.ge(original / high).logical_and(&lengths.le(original / low));
                between.where_self(&is_between, &scaled)
            }
            Scaling::Yarn(yarn) => {
                let kept: Tensor = 1.0 - yarn.shares(&numbers, self);
                let divided: Tensor = 1.0 - &kept;
                (powers * yarn.factor).reciprocal() * divided + plain * kept
            }
        }
    }

    /// Returns what cosines and sines are multiplied by.
    pub fn amplitude(&self) -> f64 {
        match &self.scaling {
            Scaling::Yarn(Yarn { amplitude, .. }) | Scaling::Long { amplitude, .. } => *amplitude,
            _ => 1.0,
        }
    }

    /// Returns the angles of `positions` positions, `[T, D]`. They are computed in f32, as the networks were trained with.
    fn angles(&self, positions: i64, device: Device) -> Tensor {
        let positions = Tensor::arange(positions, (Kind::Float, device)).unsqueeze(1);
        let half = positions * self.frequencies().to_device(device);
        Tensor::cat(&[&half, &half], 1)
    }
}

impl Yarn {
    /// Returns the shares of the interpolated frequencies in all f_k, of which the numbers k are given.
    fn shares(&self, numbers: &Tensor, rope: &Rope) -> Tensor {
        let channels = rope.channels as f64;
        // The number, not whole, of the frequency that turns so many times within the original length.
        let turning = |turns: f64| channels * (self.original / (turns * 2.0 * PI)).ln() / (2.0 * rope.theta.ln());
        let (low, high) = (turning(self.fast), turning(self.slow));
        let (low, high) = if self.is_whole { (low.floor(), high.ceil()) } else { (low, high) };
        let (low, high) = (low.max(0.0), high.min(channels - 1.0));
        let high = if low == high { high + 0.001 } else { high };
        ((numbers - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// The rotary positions of a network.
#[derive(Debug)]
pub struct Angles {
    rope: Rope,
    cos: Constant,
    sin: Constant,
}

/// The cosines and sines of the angles of the first positions, `[T, D]` each.
pub struct Table<V> {
    cos: V,
    sin: V,
}

impl Angles {
    /// Returns those of some positions, the first or the second ones of a network.
    pub fn new(rope: Rope, number: usize) -> Angles {
        const NAMES: [[&str; 2]; 2] = [["rope.cos", "rope.sin"], ["rope.local_cos", "rope.local_sin"]];
        let [cos, sin] = NAMES[number].map(Constant::new);
        Angles { rope, cos, sin }
    }

    /// Returns the table of so many positions for values like `x`.
    pub fn table<O: Ops>(&self, ops: &O, positions: i64, like: &O::Value) -> Table<O::Value> {
        let (of, amplitude) = ([positions], self.rope.amplitude());
        let scaled = |table: Tensor| if amplitude == 1.0 { table } else { table * amplitude };
        let angles = |device| self.rope.angles(positions, device);
        let cos = ops.constant(&self.cos, &of, like, |(kind, device)| scaled(angles(device).cos()).to_kind(kind));
        let sin = ops.constant(&self.sin, &of, like, |(kind, device)| scaled(angles(device).sin()).to_kind(kind));
        Table { cos, sin }
    }
}

impl<V> Table<V> {
    /// Turns queries or keys `[p, B, heads, T, D]` at the first positions.
    pub fn turn<O: Ops<Value = V>>(&self, ops: &O, x: &V) -> V {
        let tokens = ops.length(x, 3);
        self.turned(ops, x, |table| ops.slice(table, 0, 0, tokens))
    }

    /// Turns queries or keys `[p, B, heads, 1, D]` at the positions `[q, B]`, with q = 1 or p.
    pub fn turn_at<O: Ops<Value = V>>(&self, ops: &O, x: &V, positions: &V) -> V {
        self.turned(ops, x, |table| ops.rows_at(table, positions))
    }

    /// Turns the first channels of heads, and leaves the others.
    fn turned<O: Ops<Value = V>>(&self, ops: &O, x: &V, at: impl Fn(&V) -> V) -> V {
        let [cos, sin] = [&self.cos, &self.sin].map(at);
        let turn = |x: &V| {
            let rotated = ops.rotated(x, Pairs::Halves);
            ops.add(ops.mul(ops.again(x), ops.again(&cos)), ops.mul(rotated, ops.again(&sin)))
        };
        let (own, all) = (ops.length(&self.cos, 1), ops.length(x, 4));
        if own == all {
            return turn(x);
        }
        ops.concat(vec![turn(&ops.slice(x, 4, 0, own)), ops.slice(x, 4, own, all - own)], 4)
    }
}
