//! Draws values over a plane as colours, with a key. The colours run from dark to light in even steps and can be
//! distinguished without colour vision (cividis, Nuñez et al. 2018).

use std::ops::Range;

use super::canvas::{Canvas, Color, MUTED, Side, Style};

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
