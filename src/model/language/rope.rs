//! Rotary positions of a text (Su et al. 2021, arXiv 2104.09864): at position t, angle t f_k turns the channels k and
//! k + D/2 of a head of D channels, with the frequencies f_k = θ^(−2k/D), k < D/2.

use serde::Serialize;
use tch::{Device, Kind, Tensor};

use crate::model::network::ops::{Constant, Ops, Pairs};

/// Rotary positions with the base θ.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rope {
    pub theta: f64,
    pub scaling: Scaling,
}

/// A change of the frequencies, by which a network was taught longer texts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Scaling {
    None,
    /// All frequencies are divided by the factor.
    Linear {
        factor: f64,
    },
    /// The scaling of Llama 3.1. Let λ = 2π/f be a wavelength in tokens. Frequencies with λ > `original` / `low` are divided by
    /// the factor, those with λ < `original` / `high` stay, and those between are interpolated.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
}

impl Rope {
    /// Returns the frequencies, `[D/2]`.
    pub fn frequencies(self, channels: i64) -> Vec<f64> {
        let plain = (0..channels / 2).map(|k| self.theta.powf(-2.0 * k as f64 / channels as f64));
        plain.map(|frequency| self.scaling.apply(frequency)).collect()
    }

    /// Returns the angles of `positions` positions, `[T, D]`. They are computed in f32, as the networks were trained with.
    fn angles(self, positions: i64, channels: i64, device: Device) -> Tensor {
        let frequencies: Vec<f32> = self.frequencies(channels).into_iter().map(|frequency| frequency as f32).collect();
        let half = Tensor::arange(positions, (Kind::Float, device)).unsqueeze(1)
            * Tensor::from_slice(&frequencies).to_device(device);
        Tensor::cat(&[&half, &half], 1)
    }
}

/// The rotary positions of a network.
#[derive(Debug)]
pub struct Angles {
    rope: Rope,
    channels: i64,
    cos: Constant,
    sin: Constant,
}

/// The cosines and sines of the angles of the first positions, `[T, D]` each.
pub struct Table<V> {
    cos: V,
    sin: V,
}

impl Angles {
    /// Returns those of heads of `channels` channels.
    pub fn new(rope: Rope, channels: i64) -> Angles {
        Angles { rope, channels, cos: Constant::new("rope.cos"), sin: Constant::new("rope.sin") }
    }

    /// Returns the table of so many positions for values like `x`.
    pub fn table<O: Ops>(&self, ops: &O, positions: i64, like: &O::Value) -> Table<O::Value> {
        let of = [positions];
        let angles = |device| self.rope.angles(positions, self.channels, device);
        let cos = ops.constant(&self.cos, &of, like, |(kind, device)| angles(device).cos().to_kind(kind));
        let sin = ops.constant(&self.sin, &of, like, |(kind, device)| angles(device).sin().to_kind(kind));
        Table { cos, sin }
    }
}

impl Scaling {
    fn apply(self, frequency: f64) -> f64 {
        match self {
            Scaling::None => frequency,
            Scaling::Linear { factor } => frequency / factor,
            Scaling::Llama3 { factor, low, high, original } => {
                let turns = original * frequency / (2.0 * std::f64::consts::PI);
                let share = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                frequency * (share + (1.0 - share) / factor)
            }
        }
    }
}

impl<V> Table<V> {
    /// Turns queries or keys `[p, B, heads, T, D]` at the first positions.
    pub fn turn<O: Ops<Value = V>>(&self, ops: &O, x: &V) -> V {
        let tokens = ops.length(x, 3);
        turned(ops, x, [&self.cos, &self.sin].map(|table| ops.slice(table, 0, 0, tokens)))
    }

    /// Turns queries or keys `[p, B, heads, 1, D]` at the positions `[q, B]`, with q = 1 or p.
    pub fn turn_at<O: Ops<Value = V>>(&self, ops: &O, x: &V, positions: &V) -> V {
        turned(ops, x, [&self.cos, &self.sin].map(|table| ops.rows_at(table, positions)))
    }
}

fn turned<O: Ops>(ops: &O, x: &O::Value, [cos, sin]: [O::Value; 2]) -> O::Value {
    let rotated = ops.rotated(x, Pairs::Halves);
    ops.add(ops.mul(ops.again(x), cos), ops.mul(rotated, sin))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `python3 -c "
    /// import torch, transformers as hf
    /// from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS as R
    /// p = dict(rope_theta=1e4, rope_type='llama3', factor=8., low_freq_factor=1., high_freq_factor=4., original_max_position_embeddings=64)
    /// c = hf.LlamaConfig(hidden_size=32, num_attention_heads=2, rope_parameters=p)
    /// torch.set_printoptions(precision=9); print(R['llama3'](c, None)[0])"`
    #[test]
    fn llama_3_scales_as_transformers_does() {
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 64.0 };
        let found = Rope { theta: 1e4, scaling }.frequencies(16);
        let expected = [
            1.0,
            0.24438458681106567,
            0.013042256236076355,
            0.0039528473280370235,
            0.00125,
            3.9528473280370235e-4,
            1.25e-4,
            3.9528473280370235e-5,
        ];
        for (found, expected) in found.iter().zip(expected) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        }
    }
}
