//! A panel: its axes and the layers on them, which [`super::frame`] and [`super::layers`] draw. The legend above panels:
//! entries from left to right, in as many lines as they need. Maps: values over a plane as colours, with a key; the colours run
//! from dark to light in even steps and can be distinguished without colour vision (cividis, Nuñez et al. 2018).

use std::ops::Range;

use super::axis::Axis;
use super::canvas::{Canvas, Color, Fill, INK, MUTED, Point, Side, Style, color};
use super::text::{shorten, width};

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
    /// The layer is one of `count` lines, each a little beside the one before, so that their whiskers do not cover each other.
    Beside {
        rank: usize,
        count: usize,
    },
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

    /// Lets the whiskers reach from `low` to `high`.
    pub fn between(self, (low, high): (f64, f64)) -> Self {
        Self { low, high, ..self }
    }

    /// Returns the ends of the whiskers.
    pub fn ends(&self) -> [f64; 2] {
        [self.low, self.high]
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

/// The number of colour steps between the smallest and the largest value.
const LEVELS: usize = 12;
/// The side in pixels of the squares that a map is painted with.
const CELL: i32 = 3;
/// The width in pixels of the key to the right of the plot.
pub(super) const KEY_WIDTH: i32 = 66;

const COLORS: [(f64, f64, f64); 5] =
    [(0.0, 34.0, 78.0), (66.0, 78.0, 108.0), (125.0, 124.0, 120.0), (188.0, 175.0, 111.0), (254.0, 232.0, 56.0)];

/// Values on a full grid of points in a plane.
#[derive(Clone, Debug)]
pub struct Grid {
    /// The coordinates along x in ascending order, at least two. The same holds for `ys`.
    pub xs: Vec<f64>,
    pub ys: Vec<f64>,
    /// The values, indexed `[y][x]`.
    pub values: Vec<Vec<f64>>,
}

impl Grid {
    /// Returns the value at a point of the plane, interpolated linearly between the points of the grid.
    fn at(&self, x: f64, y: f64) -> f64 {
        let between = |axis: &[f64], value: f64| {
            let upper = axis.partition_point(|one| *one <= value).clamp(1, axis.len() - 1);
            let share = (value - axis[upper - 1]) / (axis[upper] - axis[upper - 1]);
            (upper, share.clamp(0.0, 1.0))
        };
        let ((column, right), (row, up)) = (between(&self.xs, x), between(&self.ys, y));
        let along = |row: usize| (1.0 - right) * self.values[row][column - 1] + right * self.values[row][column];
        (1.0 - up) * along(row - 1) + up * along(row)
    }
}

/// A grid drawn as a map that fills its panel from the first to the last coordinate.
#[derive(Clone, Debug)]
pub struct Map(pub Grid);

impl Map {
    /// Returns the width and height of a plot whose longer side has at most `size` pixels and whose two axes share one
    /// scale.
    pub fn plot_size(grid: &Grid, size: i32) -> (i32, i32) {
        let extent = |axis: &[f64]| axis[axis.len() - 1] - axis[0];
        let unit = f64::from(size / CELL) / extent(&grid.xs).max(extent(&grid.ys));
        let pixels = |extent: f64| ((extent * unit).round() as i32).max(20) * CELL;
        (pixels(extent(&grid.xs)), pixels(extent(&grid.ys)))
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, x: &Range<i32>, y: &Range<i32>) {
        let all = || self.0.values.iter().flatten().copied();
        let low = all().fold(f64::INFINITY, f64::min);
        let high = all().fold(f64::NEG_INFINITY, f64::max).max(low + 1e-9);
        let level = |value: f64| (((value - low) / (high - low) * LEVELS as f64) as usize).min(LEVELS - 1);
        // The value at the middle of a cell. y points down on the canvas, so it is inverted.
        let value = |column: i32, row: i32| {
            let share = |at: i32, range: &Range<i32>| {
                (f64::from(at) + 0.5) * f64::from(CELL) / f64::from(range.end - range.start)
            };
            let along = |axis: &[f64], share: f64| axis[0] + share * (axis[axis.len() - 1] - axis[0]);
            self.0.at(along(&self.0.xs, share(column, x)), along(&self.0.ys, 1.0 - share(row, y)))
        };
        for row in 0..(y.end - y.start) / CELL {
            let levels: Vec<_> = (0..(x.end - x.start) / CELL).map(|column| level(value(column, row))).collect();
            let (mut left, top) = (x.start, y.start + row * CELL);
            // Neighbouring cells of one level are drawn as one rectangle.
            for run in levels.chunk_by(|a, b| a == b) {
                let right = left + run.len() as i32 * CELL;
                canvas.rectangle((left, top), (right, top + CELL), shade(run[0]));
                left = right;
            }
        }
        draw_key(canvas, x.end + 14, y, low, high);
    }
}

/// Draws the key: the colours with the values they stand for.
fn draw_key(canvas: &mut Canvas, left: i32, y: &Range<i32>, low: f64, high: f64) {
    let share = |level: usize| level as f64 / LEVELS as f64;
    let edge = |level: usize| y.end - (f64::from(y.end - y.start) * share(level)).round() as i32;
    for level in 0..LEVELS {
        canvas.rectangle((left, edge(level + 1)), (left + 14, edge(level)), shade(level));
    }
    for level in (0..=LEVELS).step_by(3) {
        let value = low + (high - low) * share(level);
        canvas.text(&format!("{value:.1}"), (left + 19, edge(level)), Style::new(13.0, MUTED, Side::Left));
    }
}

fn shade(level: usize) -> Color {
    let at = level as f64 / (LEVELS - 1) as f64 * (COLORS.len() - 1) as f64;
    let lower = (at as usize).min(COLORS.len() - 2);
    let (from, to, share) = (COLORS[lower], COLORS[lower + 1], at - lower as f64);
    let mix = |from: f64, to: f64| (from + share * (to - from)).round() as u8;
    Color::new(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

/// The size of the letters of the legend, and the height of its lines.
const ENTRY_SIZE: f64 = 16.0;
const ENTRY_LINE: i32 = 26;

/// A name in the legend. `paint` is the number of its colour and mark.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub paint: usize,
    pub swatch: Swatch,
}

/// The symbol of an entry in the legend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swatch {
    Mark,
    Line,
    Area,
    /// A bar of this tone.
    Bar(Tone),
    Dot,
}

/// The legend with the positions of its entries.
pub(super) struct Legend<'a> {
    /// Each entry with its name, cut if it is too long, and the position of its swatch.
    entries: Vec<(&'a Entry, String, Point)>,
    pub bottom: i32,
}

impl<'a> Legend<'a> {
    /// Places the entries in a chart of `chart_width` pixels, with `margin` pixels free on both sides and
    /// above, where the chart begins `top` pixels below the upper edge of the picture.
    pub fn place(entries: &'a [Entry], chart_width: i32, (margin, top): (i32, i32)) -> Self {
        let (mut x, mut y) = (margin, top + margin + ENTRY_LINE / 2);
        let mut placed = vec![];
        for entry in entries {
            let name = shorten(&entry.name, ENTRY_SIZE, f64::from(chart_width - 2 * margin - 30));
            let taken = 24 + width(&name, ENTRY_SIZE).ceil() as i32;
            if x + taken > chart_width - margin && x > margin {
                (x, y) = (margin, y + ENTRY_LINE);
            }
            placed.push((entry, name, (x + 8, y)));
            x += taken + 22;
        }
        let bottom = if placed.is_empty() { top + margin } else { y + ENTRY_LINE / 2 + 8 };
        Self { entries: placed, bottom }
    }

    pub fn draw(&self, canvas: &mut Canvas) {
        for (entry, name, (x, y)) in &self.entries {
            let (x, y, paint) = (*x, *y, color(entry.paint));
            match entry.swatch {
                Swatch::Mark => canvas.mark(entry.paint, (x, y), 5.0, Fill::Solid),
                Swatch::Line => canvas.curve(entry.paint, &[(x - 8, y), (x + 8, y)], 3),
                Swatch::Bar(tone) => canvas.rectangle((x - 8, y - 6), (x + 8, y + 6), paint.faint(tone.strength())),
                Swatch::Dot => canvas.dot((x, y), 4, paint.faint(0.55)),
                Swatch::Area => {
                    let (from, to) = ((x - 8, y - 6), (x + 8, y + 6));
                    canvas.rectangle(from, to, paint.faint(0.35));
                    canvas.line(&[from, (to.0, from.1), to, (from.0, to.1), from], paint, 2);
                }
            }
            canvas.text(name, (x + 15, y), Style::new(ENTRY_SIZE, INK, Side::Left));
        }
    }
}
