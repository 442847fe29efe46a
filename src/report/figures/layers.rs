//! What is drawn on the axes of a panel.

use anyhow::Result;
use plotters::element::{PathElement, Polygon, Rectangle};
use plotters::style::Color;

use super::chart::Frame;
use crate::results::picture::labels::MUTED;
use crate::results::picture::marks::{Canvas, Fill, color, line, mark};

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
}

/// Whether neighbouring means are joined by a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    Line,
    /// Side by side: shifted by so many pixels from their place.
    Apart(i32),
}

/// How strong a bar is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Full,
    Pale,
}

/// Mean, least and largest of several seeds at one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    pub x: f64,
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

impl Mean {
    /// `None` without values.
    pub fn of(x: f64, seeds: &[f64]) -> Option<Self> {
        let low = seeds.iter().copied().reduce(f64::min)?;
        let high = seeds.iter().copied().reduce(f64::max)?;
        Some(Self { x, mean: seeds.iter().sum::<f64>() / seeds.len() as f64, low, high })
    }
}

impl Layer {
    pub fn draw(&self, canvas: &Canvas, frame: &Frame) -> Result<()> {
        match self {
            Self::Means { paint, joined, points } => draw_means(canvas, frame, *paint, *joined, points),
            Self::Curve { paint, points } => draw_curve(canvas, frame, *paint, points),
            Self::Area { paint, points } => draw_area(canvas, frame, *paint, points),
            Self::Bar { paint, from, to, tone } => {
                let strength = if *tone == Tone::Full { 0.85 } else { 0.3 };
                let corners = [frame.pixel(*from), frame.pixel(*to)];
                Ok(canvas.draw(&Rectangle::new(corners, color(*paint).mix(strength).filled()))?)
            }
            Self::Reference { from, to } => line(canvas, frame.pixel(*from), frame.pixel(*to), MUTED.mix(0.7), 1),
        }
    }
}

fn draw_means(canvas: &Canvas, frame: &Frame, paint: usize, joined: Joined, points: &[Mean]) -> Result<()> {
    let shift = match joined {
        Joined::Line => 0,
        Joined::Apart(pixels) => pixels,
    };
    let at = |x: f64, y: f64| {
        let (x, y) = frame.pixel((x, y));
        (x + shift, y)
    };
    if joined == Joined::Line && points.len() > 1 {
        let path: Vec<_> = points.iter().map(|point| at(point.x, point.mean)).collect();
        canvas.draw(&PathElement::new(path, color(paint).stroke_width(2)))?;
    }
    for point in points {
        let (low, high) = (at(point.x, point.low), at(point.x, point.high));
        if low.1 - high.1 > 2 {
            line(canvas, low, high, color(paint), 2)?;
            for (x, y) in [low, high] {
                line(canvas, (x - 4, y), (x + 4, y), color(paint), 2)?;
            }
        }
        mark(canvas, paint, at(point.x, point.mean), 4.5, Fill::Solid)?;
    }
    Ok(())
}

fn draw_curve(canvas: &Canvas, frame: &Frame, paint: usize, points: &[(f64, f64)]) -> Result<()> {
    let path: Vec<_> = points.iter().map(|point| frame.pixel(*point)).collect();
    Ok(canvas.draw(&PathElement::new(path, color(paint).stroke_width(2)))?)
}

fn draw_area(canvas: &Canvas, frame: &Frame, paint: usize, points: &[(f64, f64)]) -> Result<()> {
    let mut corners: Vec<_> = points.iter().map(|point| frame.pixel(*point)).collect();
    if let (Some(first), Some(last)) = (corners.first().copied(), corners.last().copied()) {
        corners.extend([(last.0, frame.y.end), (first.0, frame.y.end)]);
        canvas.draw(&Polygon::new(corners, color(paint).mix(0.25).filled()))?;
    }
    draw_curve(canvas, frame, paint, points)
}
