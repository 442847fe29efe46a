//! Marks of the series: a colour and a shape each, both told apart without colour vision. Colours after Okabe and Ito,
//! "Color Universal Design" (2008).

use anyhow::Result;
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{Circle, PathElement, Polygon};
use plotters::style::{Color, RGBColor, WHITE};

pub type Canvas<'a> = DrawingArea<SVGBackend<'a>, Shift>;

const COLORS: [RGBColor; 7] = [
    RGBColor(90, 90, 90),
    RGBColor(230, 159, 0),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
];

/// Corners on a circle of radius 1, y downwards; the circle itself is the shape without corners.
const SHAPES: [&[(f64, f64)]; 5] = [
    &[],
    &[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    &[(0.0, -1.2), (1.1, 0.85), (-1.1, 0.85)],
    &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
    &[(0.0, 1.2), (1.1, -0.85), (-1.1, -0.85)],
];

/// How a mark is painted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Solid,
    Hollow,
}

/// Colour of a series; with its shape it repeats after 35 of them.
pub fn color(series: usize) -> RGBColor {
    COLORS[series % COLORS.len()]
}

/// Draws the mark of `series` around `center`.
pub fn mark(canvas: &Canvas, series: usize, center: (i32, i32), radius: f64, fill: Fill) -> Result<()> {
    let color = color(series);
    let inside = match fill {
        Fill::Solid => color,
        Fill::Hollow => WHITE,
    };
    let corner = |(x, y): &(f64, f64)| (center.0 + (x * radius).round() as i32, center.1 + (y * radius).round() as i32);
    let mut corners: Vec<_> = SHAPES[series % SHAPES.len()].iter().map(corner).collect();
    let Some(first) = corners.first().copied() else {
        canvas.draw(&Circle::new(center, radius.round() as i32, inside.filled()))?;
        return Ok(canvas.draw(&Circle::new(center, radius.round() as i32, color.stroke_width(2)))?);
    };
    canvas.draw(&Polygon::new(corners.clone(), inside.filled()))?;
    corners.extend([first, corners[1]]); // the second corner again, for a closed joint
    Ok(canvas.draw(&PathElement::new(corners, color.stroke_width(2)))?)
}

/// A line of `width` pixels.
pub fn line(canvas: &Canvas, from: (i32, i32), to: (i32, i32), color: impl Color, width: u32) -> Result<()> {
    Ok(canvas.draw(&PathElement::new(vec![from, to], color.stroke_width(width)))?)
}
