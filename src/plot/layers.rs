//! Draws the layers of a panel on its axes.

use super::canvas::{Canvas, Fill, INK, MUTED, PAPER, Point, Side, Style, WHITE, color};
use super::frame::Frame;
use super::panel::{Joined, Layer, Mean, Square};
use super::text::width;

/// The radius of a mark, in pixels.
const RADIUS: f64 = 5.0;

/// The room in pixels that lines beside each other share at a place, and the most between two of them.
const BESIDE: f64 = 40.0;
const MOST_BESIDE: f64 = 11.0;

/// The number of the colour of matrices.
const MATRIX: usize = 2;

/// Draws a layer on the axes of `frame`.
pub(super) fn draw(layer: &Layer, canvas: &mut Canvas, frame: &Frame) {
    match layer {
        Layer::Means { paint, joined, points } => draw_means(canvas, frame, *paint, *joined, points),
        Layer::Curve { paint, points } => draw_curve(canvas, frame, *paint, points),
        Layer::Area { paint, points } => draw_area(canvas, frame, *paint, points),
        Layer::Bar { paint, from, to, tone } => {
            canvas.rectangle(frame.pixel(*from), frame.pixel(*to), color(*paint).faint(tone.strength()));
        }
        Layer::Reference { from, to } => {
            canvas.line(&[frame.pixel(*from), frame.pixel(*to)], MUTED.faint(0.7), 1);
        }
        Layer::Map(map) => map.draw(canvas, &frame.x, &frame.y),
        Layer::Texts { points } => points.iter().for_each(|(words, at)| {
            let (x, y) = frame.pixel(*at);
            canvas.text(words, (x, (y - 7).max(frame.y.start + 6)), Style::new(10.0, INK, Side::Center));
        }),
        Layer::Dots { paint, points } => {
            points.iter().for_each(|at| canvas.dot(frame.pixel(*at), 3, color(*paint).faint(0.55)));
        }
        Layer::Matrix(rows) => draw_matrix(canvas, frame, rows),
        Layer::Named { points } => points.iter().for_each(|(name, at)| draw_named(canvas, name, frame.pixel(*at))),
    }
}

fn draw_means(canvas: &mut Canvas, frame: &Frame, paint: usize, joined: Joined, points: &[Mean]) {
    let (shift, slot) = match joined {
        Joined::Line => (0.0, f64::INFINITY),
        Joined::Beside { rank, count } => {
            let step = (BESIDE / count.saturating_sub(1).max(1) as f64).min(MOST_BESIDE);
            ((rank as f64 - (count as f64 - 1.0) / 2.0) * step, f64::INFINITY)
        }
        Joined::Apart { rank, count } => frame.slot(rank, count),
    };
    if !matches!(joined, Joined::Apart { .. }) {
        let at = |point: &Mean| {
            let (x, y) = frame.pixel((point.x, point.mean));
            (x + shift.round() as i32, y)
        };
        draw_path(canvas, paint, &points.iter().map(at).collect::<Vec<_>>());
    }
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
        return; // The mark will cover the whiskers.
    }
    canvas.line(&[(x, low), (x, high)], color(paint), 2);
    for end in [low, high] {
        canvas.line(&[(x - 4, end), (x + 4, end)], color(paint), 2);
    }
    mean.seeds.iter().for_each(|seed| canvas.dot((x, y(*seed)), 2, INK.faint(0.75)));
}

/// Writes the largest value above its mark and any other value below.
fn draw_values(canvas: &mut Canvas, frame: &Frame, place: &[Mean], x: i32, size: f64) {
    let mut order: Vec<_> = place.iter().collect();
    order.sort_by(|one, other| other.mean.total_cmp(&one.mean));
    for (rank, mean) in order.into_iter().enumerate() {
        let (end, away) = if rank == 0 { (mean.high, -15) } else { (mean.low, 15) };
        let at = (x, frame.pixel((0.0, end)).1 + away);
        canvas.text(&frame.value(mean.mean), at, Style::new(size, INK, Side::Center));
    }
}

/// Draws the squares of a matrix over the whole panel.
fn draw_matrix(canvas: &mut Canvas, frame: &Frame, rows: &[Vec<Square>]) {
    let edge = |from: i32, to: i32, at: usize, count: usize| {
        from + (f64::from(to - from) * at as f64 / count as f64).round() as i32
    };
    for (down, row) in rows.iter().enumerate() {
        let (top, bottom) = (
            edge(frame.y.start, frame.y.end, down, rows.len()),
            edge(frame.y.start, frame.y.end, down + 1, rows.len()),
        );
        for (right, square) in row.iter().enumerate().filter(|(_, square)| square.share > 0.0) {
            let from = (edge(frame.x.start, frame.x.end, right, row.len()), top);
            let to = (edge(frame.x.start, frame.x.end, right + 1, row.len()), bottom);
            // A share of 1 in 1000 is seen beside the empty squares.
            canvas.rectangle(from, to, color(MATRIX).faint(((0.08 + 0.92 * square.share) * 100.0).round() / 100.0));
            if !square.text.is_empty() {
                let ink = if square.share > 0.55 { PAPER } else { INK };
                let middle = ((from.0 + to.0) / 2, (from.1 + to.1) / 2);
                canvas.text(&square.text, middle, Style::new(12.0, ink, Side::Center));
            }
        }
    }
}

fn draw_curve(canvas: &mut Canvas, frame: &Frame, paint: usize, points: &[(f64, f64)]) {
    draw_path(canvas, paint, &points.iter().map(|point| frame.pixel(*point)).collect::<Vec<_>>());
}

fn draw_path(canvas: &mut Canvas, paint: usize, path: &[Point]) {
    if path.len() > 1 {
        canvas.curve(paint, path, 2);
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

/// Draws a grey circle with a white inside and a white label, visible on dark and on light backgrounds.
fn draw_named(canvas: &mut Canvas, name: &str, (x, y): Point) {
    canvas.mark(0, (x, y), 6.0, Fill::Hollow);
    let right = x + 16 + width(name, 14.0).ceil() as i32;
    canvas.rectangle((x + 9, y - 19), (right, y - 2), WHITE.faint(0.85));
    canvas.text(name, (x + 12, y - 10), Style::new(14.0, INK, Side::Left));
}
