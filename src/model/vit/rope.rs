//! Rotary positions on the patch grid, as DINOv3 has them (Siméoni et al. 2025, arXiv 2508.10104; Su et al. 2021, arXiv
//! 2104.09864): each patch's coordinates turn pairs of a head's channels by angles of several frequencies.
//!
//! With D channels a head, coordinates y, x in [−1, 1] of the patches' centres and frequencies θ^(−4k/D), k < D/4, the
//! angles are 2π y f and 2π x f one after the other, D/2 of them, and once more for the second half of the channels.

use serde::Serialize;
use tch::{Device, Kind, Tensor};

/// Rotary positions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rope {
    /// θ, the ratio of the largest to the smallest frequency.
    pub theta: f64,
}

/// Cosines and sines of the angles, `[grid², D]` each.
pub struct Table {
    cos: Tensor,
    sin: Tensor,
}

impl Rope {
    /// The table of a grid for heads of `channels` channels.
    pub fn table(self, grid: i64, channels: i64, (kind, device): (Kind, Device)) -> Table {
        let options = (Kind::Double, device);
        let centres = (Tensor::arange(grid, options) + 0.5) / grid as f64 * 2.0 - 1.0;
        let exponents = Tensor::arange(channels / 4, options) * (4.0 / channels as f64);
        let frequencies = (exponents * -self.theta.ln()).exp();
        let angles = |coordinate: Tensor| coordinate.reshape([-1, 1]) * &frequencies * (2.0 * std::f64::consts::PI);
        let y = angles(centres.unsqueeze(1).expand([grid, grid], false));
        let x = angles(centres.unsqueeze(0).expand([grid, grid], false));
        let all = Tensor::cat(&[&y, &x, &y, &x], 1);
        Table { cos: all.cos().to_kind(kind), sin: all.sin().to_kind(kind) }
    }
}

impl Table {
    /// Queries or keys `[B, heads, T, D]`, of which those of the patches, the last ones, are turned.
    pub fn turn(&self, x: &Tensor) -> Tensor {
        let (tokens, channels) = (x.size()[2], x.size()[3]);
        let patches = self.cos.size()[0];
        let turned = x.narrow(2, tokens - patches, patches);
        let halves = turned.chunk(2, 3);
        let rotated = Tensor::cat(&[&-&halves[1], &halves[0]], 3);
        let turned = turned * &self.cos + rotated * &self.sin;
        debug_assert_eq!(self.cos.size()[1], channels);
        Tensor::cat(&[x.narrow(2, 0, tokens - patches), turned], 2)
    }
}
