//! A panel: its axes and the layers on them. [`super::frame`] and [`super::layers`] draw them.

use super::axis::Axis;
use super::canvas::Fill;
use super::map::Map;

/// A pair of axes with the layers drawn on them.
#[derive(Clone, Debug)]
pub struct Panel {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub layers: Vec<Layer>,
    /// Whether the values of means are written beside their marks, if there is room.
    pub values: bool,
}

impl Panel {
    /// Returns the number of marks side by side at each place. 0 if marks do not stand side by side.
    pub(super) fn side_by_side(&self) -> i32 {
        let count = |layer: &Layer| match layer {
            Layer::Means { joined: Joined::Apart { count, .. }, .. } => *count as i32,
            _ => 0,
        };
        self.layers.iter().map(count).max().unwrap_or(0)
    }
}

/// One part of a panel. `paint` is the number of its colour and mark, as in the legend.
#[derive(Clone, Debug)]
pub enum Layer {
    /// Means with whiskers over seeds, each with a mark.
    Means { paint: usize, joined: Joined, points: Vec<Mean> },
    /// A line without marks.
    Curve { paint: usize, points: Vec<(f64, f64)> },
    /// A line with the area below it.
    Area { paint: usize, points: Vec<(f64, f64)> },
    /// A filled rectangle between two corners.
    Bar { paint: usize, from: (f64, f64), to: (f64, f64), tone: Tone },
    /// A thin reference line.
    Reference { from: (f64, f64), to: (f64, f64) },
    /// Values over the whole plane as colours, with their key to the right.
    Map(Map),
    /// Marks with names.
    Named { points: Vec<(String, (f64, f64))> },
    /// Small texts above their points.
    Texts { points: Vec<(String, (f64, f64))> },
    /// Small dots, half transparent.
    Dots { paint: usize, points: Vec<(f64, f64)> },
    /// A matrix whose rows lie from top to bottom, as squares that are the darker the larger their share.
    Matrix(Vec<Vec<Square>>),
}

/// A square of a matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Square {
    /// From 0 to 1.
    pub share: f64,
    /// The text in it; none if there is no room.
    pub text: String,
}

/// The way in which the means of a layer are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    Line,
    /// The layer is one of `count` layers whose marks stand side by side at every named place.
    Apart {
        rank: usize,
        count: usize,
    },
}

/// The strength of a bar's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Full,
    Pale,
}

/// The mean of several seeds at one place. Several means of one layer at one place stand side by side, joined by a
/// line.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    pub x: f64,
    pub mean: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) seeds: Vec<f64>,
    pub(super) fill: Fill,
}

impl Mean {
    /// Returns `None` if there are no seeds.
    pub fn of(x: f64, seeds: &[f64]) -> Option<Self> {
        let low = seeds.iter().copied().reduce(f64::min)?;
        let high = seeds.iter().copied().reduce(f64::max)?;
        let mean = seeds.iter().sum::<f64>() / seeds.len() as f64;
        Some(Self { x, mean, low, high, seeds: seeds.to_vec(), fill: Fill::Solid })
    }

    pub fn filled(self, fill: Fill) -> Self {
        Self { fill, ..self }
    }
}

impl Tone {
    /// Returns the opacity of a bar.
    pub(super) fn strength(self) -> f64 {
        match self {
            Tone::Full => 0.85,
            Tone::Pale => 0.3,
        }
    }
}

impl Layer {
    /// Returns the means of the layer. Empty for other kinds of layers.
    pub(super) fn means(&self) -> &[Mean] {
        match self {
            Self::Means { points, .. } => points,
            _ => &[],
        }
    }
}
