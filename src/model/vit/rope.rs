//! Rotary positions on the patch grid, as in DINOv3 (Siméoni et al. 2025, arXiv 2508.10104; Su et al. 2021, arXiv
//! 2104.09864): the coordinates of each patch rotate pairs of a head's channels by angles of several frequencies.
//!
//! Let a head have D channels, let y and x in [−1, 1] be the coordinates of a patch's centre, and let f be the
//! frequencies θ^(−4k/D), k < D/4. The D/2 angles are 2π y f followed by 2π x f; they are used once for each half of
//! the channels.

use serde::Serialize;
use tch::{Device, Kind, Tensor};

/// Rotary positions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rope {
    /// θ, the ratio of the largest to the smallest frequency.
    pub theta: f64,
}

/// The cosines and sines of the angles, `[grid², D]` each.
#[derive(Debug)]
pub struct Table {
    cos: Tensor,
    sin: Tensor,
}

impl Rope {
    /// Returns the table of a grid for heads of `channels` channels.
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
    /// Returns whether this is the table of such a grid, for heads of `channels` channels.
    pub fn is_of(&self, grid: i64, channels: i64, options: (Kind, Device)) -> bool {
        self.cos.size() == [grid * grid, channels] && (self.cos.kind(), self.cos.device()) == options
    }

    /// Rotates queries or keys `[B, heads, T, D]`. Only those of the patches, which come last, are rotated.
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
