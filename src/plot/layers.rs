//! What is drawn on the axes of a panel.

use super::canvas::{Canvas, Fill, INK, MUTED, Point, Side, Style, WHITE, color};
use super::frame::Frame;
use super::map::Map;
use super::text::width;

/// The radius of a mark, in pixels.
const RADIUS: f64 = 5.0;

/// One part of a panel; `paint` numbers colour and mark, as in the legend.
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
}

/// Whether the means of a layer are joined by a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    Line,
    /// One of `count` layers whose marks stand side by side at every named place.
    Apart {
        rank: usize,
        count: usize,
    },
}

/// How strong a bar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Full,
    Pale,
}

/// Several seeds at one place. Means of one layer at one place stand side by side, joined by a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    pub x: f64,
    pub mean: f64,
    low: f64,
    high: f64,
    seeds: Vec<f64>,
    fill: Fill,
}

impl Mean {
    /// `None` without values.
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

impl Layer {
    /// The means of the layer.
    pub(super) fn means(&self) -> &[Mean] {
        match self {
            Self::Means { points, .. } => points,
            _ => &[],
        }
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, frame: &Frame) {
        match self {
            Self::Means { paint, joined, points } => draw_means(canvas, frame, *paint, *joined, points),
            Self::Curve { paint, points } => draw_curve(canvas, frame, *paint, points),
            Self::Area { paint, points } => draw_area(canvas, frame, *paint, points),
            Self::Bar { paint, from, to, tone } => {
                let strength = if *tone == Tone::Full { 0.85 } else { 0.3 };
                canvas.rectangle(frame.pixel(*from), frame.pixel(*to), color(*paint).faint(strength));
            }
            Self::Reference { from, to } => {
                canvas.line(&[frame.pixel(*from), frame.pixel(*to)], MUTED.faint(0.7), 1);
            }
            Self::Map(map) => map.draw(canvas, &frame.x, &frame.y),
            Self::Named { points } => points.iter().for_each(|(name, at)| draw_named(canvas, name, frame.pixel(*at))),
        }
    }
}

fn draw_means(canvas: &mut Canvas, frame: &Frame, paint: usize, joined: Joined, points: &[Mean]) {
    let (shift, slot) = match joined {
        Joined::Line => {
            draw_curve(canvas, frame, paint, &points.iter().map(|point| (point.x, point.mean)).collect::<Vec<_>>());
            (0.0, f64::INFINITY)
        }
        Joined::Apart { rank, count } => frame.slot(rank, count),
    };
    let size = frame.value_size(slot);
    for place in points.chunk_by(|one, other| one.x == other.x) {
        let step = (slot / 5.0).min(7.0);
        let center = f64::from(frame.pixel((place[0].x, 0.0)).0) + shift;
        let x = |rank: usize| (center + step * (2.0 * rank as f64 - (place.len() as f64 - 1.0))).round() as i32;
        let y = |value: f64| frame.pixel((0.0, value)).1;
        let marks: Vec<Point> = place.iter().enumerate().map(|(rank, mean)| (x(rank), y(mean.mean))).collect();
        if marks.len() > 1 {
            canvas.line(&marks, color(paint).faint(0.6), 2);
        }
        for (mean, at) in place.iter().zip(&marks) {
            draw_whiskers(canvas, mean, at.0, y, paint);
            canvas.mark(paint, *at, RADIUS, mean.fill);
        }
        if let Some(size) = size {
            draw_values(canvas, frame, place, center.round() as i32, size);
        }
    }
}

fn draw_whiskers(canvas: &mut Canvas, mean: &Mean, x: i32, y: impl Fn(f64) -> i32, paint: usize) {
    let (low, high) = (y(mean.low), y(mean.high));
    if low - high <= 2 * RADIUS as i32 + 2 {
        return; // no larger than the mark that will cover it
    }
    canvas.line(&[(x, low), (x, high)], color(paint), 2);
    for end in [low, high] {
        canvas.line(&[(x - 4, end), (x + 4, end)], color(paint), 2);
    }
    mean.seeds.iter().for_each(|seed| canvas.dot((x, y(*seed)), 2, INK.faint(0.75)));
}

/// The largest value above its mark, a second one below.
fn draw_values(canvas: &mut Canvas, frame: &Frame, place: &[Mean], x: i32, size: f64) {
    let mut order: Vec<_> = place.iter().collect();
    order.sort_by(|one, other| other.mean.total_cmp(&one.mean));
    for (rank, mean) in order.into_iter().enumerate() {
        let (end, away) = if rank == 0 { (mean.high, -15) } else { (mean.low, 15) };
        let at = (x, frame.pixel((0.0, end)).1 + away);
        canvas.text(&frame.value(mean.mean), at, Style::new(size, INK, Side::Center));
    }
}

fn draw_curve(canvas: &mut Canvas, frame: &Frame, paint: usize, points: &[(f64, f64)]) {
    if points.len() > 1 {
        let path: Vec<_> = points.iter().map(|point| frame.pixel(*point)).collect();
        canvas.line(&path, color(paint), 2);
    }
}

fn draw_area(canvas: &mut Canvas, frame: &Frame, paint: usize, points: &[(f64, f64)]) {
    let mut corners: Vec<_> = points.iter().map(|point| frame.pixel(*point)).collect();
    if let (Some(first), Some(last)) = (corners.first().copied(), corners.last().copied()) {
        corners.extend([(last.0, frame.y.end), (first.0, frame.y.end)]);
        canvas.polygon(&corners, color(paint).faint(0.25));
    }
    draw_curve(canvas, frame, paint, points);
}

/// A grey circle with a white inside and a white label: seen on dark and on light ground.
fn draw_named(canvas: &mut Canvas, name: &str, (x, y): Point) {
    canvas.mark(0, (x, y), 6.0, Fill::Hollow);
    let right = x + 16 + width(name, 14.0).ceil() as i32;
    canvas.rectangle((x + 9, y - 19), (right, y - 2), WHITE.faint(0.85));
    canvas.text(name, (x + 12, y - 10), Style::new(14.0, INK, Side::Left));
}
