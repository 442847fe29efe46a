//! Rotary positions on the patch grid (Su et al. 2021, arXiv 2104.09864): the coordinates of each patch rotate pairs of
//! a head's channels by angles of several frequencies.
//!
//! Let a head have D channels, let y and x be the coordinates of a patch, and let f be the frequencies θ^(−4k/D),
//! k < D/4. The D/2 angles are y f followed by x f.
//!
//! - DINOv3 (Siméoni et al. 2025, arXiv 2508.10104): coordinates are 2π times those of the patch's centre in [−1, 1], and
//!   angle k rotates the channels k and k + D/2.
//! - EVA-02 (Fang et al. 2023, arXiv 2303.11331): coordinates are the patch's row and column, scaled to the grid on which
//!   the network was trained first, and angle k rotates the channels 2k and 2k + 1.

use serde::Serialize;
use tch::{Device, Kind, Tensor};

use crate::model::network::ops::{Constant, Ops, Pairs};

/// Rotary positions. θ is the ratio of the largest to the smallest frequency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Rope {
    /// Those of DINOv3.
    Centred { theta: f64 },
    /// Those of EVA-02. `reference` is the number of patches per side of the grid that coordinates are scaled to.
    Indexed { theta: f64, reference: f64 },
}

/// The rotary positions of a grid for a network's heads.
#[derive(Clone, Debug)]
pub struct Angles {
    rope: Rope,
    grid: i64,
    cos: Constant,
    sin: Constant,
}

impl Rope {
    /// Returns the channels that one angle rotates.
    pub fn pairs(self) -> Pairs {
        match self {
            Rope::Centred { .. } => Pairs::Halves,
            Rope::Indexed { .. } => Pairs::Neighbours,
        }
    }

    /// Returns the angles of a grid, `[grid², D]` for heads of D channels.
    fn angles(self, grid: i64, channels: i64, device: Device) -> Tensor {
        let options = (Kind::Double, device);
        let index = Tensor::arange(grid, options);
        let (theta, coordinates) = match self {
            Rope::Centred { theta } => {
                let centres = (index + 0.5) / grid as f64 * 2.0 - 1.0;
                (theta, centres * (2.0 * std::f64::consts::PI))
            }
            Rope::Indexed { theta, reference } => (theta, index / grid as f64 * reference),
        };
        let exponents = Tensor::arange(channels / 4, options) * (4.0 / channels as f64);
        let frequencies = (exponents * -theta.ln()).exp();
        let angles = |coordinate: Tensor| coordinate.reshape([-1, 1]) * &frequencies;
        let y = angles(coordinates.unsqueeze(1).expand([grid, grid], false));
        let x = angles(coordinates.unsqueeze(0).expand([grid, grid], false));
        match self.pairs() {
            Pairs::Halves => Tensor::cat(&[&y, &x, &y, &x], 1),
            Pairs::Neighbours => Tensor::cat(&[y, x], 1).repeat_interleave_self_int(2, 1, None),
        }
    }
}

impl Angles {
    pub fn new(rope: Rope, grid: i64) -> Angles {
        Angles { rope, grid, cos: Constant::new("rope.cos"), sin: Constant::new("rope.sin") }
    }

    /// Rotates queries or keys `[p, B, heads, T, D]`. Only those of the patches, which come last, are rotated.
    pub fn turn<O: Ops>(&self, ops: &O, x: &O::Value) -> O::Value {
        let (front, channels) = (ops.length(x, 3) - self.grid * self.grid, ops.length(x, 4));
        let of = [self.grid, channels];
        let angles = |device| self.rope.angles(self.grid, channels, device);
        let cos = ops.constant(&self.cos, &of, x, |(kind, device)| angles(device).cos().to_kind(kind));
        let sin = ops.constant(&self.sin, &of, x, |(kind, device)| angles(device).sin().to_kind(kind));
        let own = ops.slice(x, 3, front, self.grid * self.grid);
        let rotated = ops.rotated(&own, self.rope.pairs());
        let turned = ops.add(ops.mul(own, cos), ops.mul(rotated, sin));
        ops.concat(vec![ops.slice(x, 3, 0, front), turned], 3)
    }
}
