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

/// Rotary positions. θ is the ratio of the largest to the smallest frequency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Rope {
    /// Those of DINOv3.
    Centred { theta: f64 },
    /// Those of EVA-02. `reference` is the number of patches per side of the grid that coordinates are scaled to.
    Indexed { theta: f64, reference: f64 },
}

/// The channels that one angle rotates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairs {
    /// k and k + D/2.
    Halves,
    /// 2k and 2k + 1.
    Neighbours,
}

/// The cosines and sines of the angles, `[grid², D]` each.
#[derive(Debug)]
pub struct Table {
    cos: Tensor,
    sin: Tensor,
    pairs: Pairs,
}

impl Rope {
    /// Returns the channels that one angle rotates.
    pub fn pairs(self) -> Pairs {
        match self {
            Rope::Centred { .. } => Pairs::Halves,
            Rope::Indexed { .. } => Pairs::Neighbours,
        }
    }

    /// Returns the table of a grid for heads of `channels` channels.
    pub fn table(self, grid: i64, channels: i64, (kind, device): (Kind, Device)) -> Table {
        let options = (Kind::Double, device);
        let index = Tensor::arange(grid, options);
        let pairs = self.pairs();
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
        let all = match pairs {
            Pairs::Halves => Tensor::cat(&[&y, &x, &y, &x], 1),
            Pairs::Neighbours => Tensor::cat(&[y, x], 1).repeat_interleave_self_int(2, 1, None),
        };
        Table { cos: all.cos().to_kind(kind), sin: all.sin().to_kind(kind), pairs }
    }
}

impl Table {
    /// Returns whether this is the table of such a grid, for heads of `channels` channels.
    pub fn is_of(&self, grid: i64, channels: i64, options: (Kind, Device)) -> bool {
        self.cos.size() == [grid * grid, channels] && (self.cos.kind(), self.cos.device()) == options
    }

    /// Returns the cosines and sines, `[grid², D]` each.
    pub fn parts(&self) -> [&Tensor; 2] {
        [&self.cos, &self.sin]
    }

    /// Rotates queries or keys `[B, heads, T, D]`. Only those of the patches, which come last, are rotated.
    pub fn turn(&self, x: &Tensor) -> Tensor {
        let (tokens, channels) = (x.size()[2], x.size()[3]);
        let patches = self.cos.size()[0];
        let turned = x.narrow(2, tokens - patches, patches);
        let rotated = match self.pairs {
            Pairs::Halves => {
                let halves = turned.chunk(2, 3);
                Tensor::cat(&[&-&halves[1], &halves[0]], 3)
            }
            Pairs::Neighbours => {
                let pairs = turned.unflatten(3, [-1, 2]).unbind(4);
                Tensor::stack(&[&-&pairs[1], &pairs[0]], 4).flatten(3, 4)
            }
        };
        let turned = turned * &self.cos + rotated * &self.sin;
        debug_assert_eq!(self.cos.size()[1], channels);
        Tensor::cat(&[x.narrow(2, 0, tokens - patches), turned], 2)
    }
}
