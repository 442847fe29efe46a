//! A canvas that writes SVG: text, lines, rectangles, polygons and the marks of series. Coordinates are whole pixels,
//! and y points down. Each series has a colour and a shape, so that readers without colour vision can distinguish them.
//! The colours follow Okabe and Ito, "Color Universal Design" (2008).

use std::fmt::{self, Write};

use crate::base::outside::printable;

/// A colour that covers what lies below it with `opacity` between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Color {
    pub rgb: [u8; 3],
    opacity: f64,
}

impl Color {
    pub const fn new(red: u8, green: u8, blue: u8) -> Color {
        Color { rgb: [red, green, blue], opacity: 1.0 }
    }

    /// Returns the same colour with the given opacity.
    pub fn faint(self, opacity: f64) -> Color {
        Color { opacity, ..self }
    }

    /// Returns the SVG attributes that paint `what` (`fill` or `stroke`) of a shape with this colour.
    fn paint(self, what: &str) -> String {
        match self.opacity {
            1.0 => format!("{what}=\"{self}\""),
            opacity => format!("{what}=\"{self}\" {what}-opacity=\"{opacity}\""),
        }
    }
}

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [red, green, blue] = self.rgb;
        write!(f, "#{red:02X}{green:02X}{blue:02X}")
    }
}

pub const WHITE: Color = Color::new(255, 255, 255);
/// The colour of text on dark squares, which stays light where the ground of a page is dark.
pub const PAPER: Color = Color::new(254, 254, 254);
pub const INK: Color = Color::new(31, 35, 40);
pub const MUTED: Color = Color::new(89, 99, 110);
pub const BAND: Color = Color::new(245, 247, 249);
pub const GRID: Color = Color::new(216, 222, 228);

const COLORS: [Color; 7] = [
    Color::new(90, 90, 90),
    Color::new(230, 159, 0),
    Color::new(0, 114, 178),
    Color::new(213, 94, 0),
    Color::new(0, 158, 115),
    Color::new(204, 121, 167),
    Color::new(86, 180, 233),
];

/// The corners of each mark on a circle of about radius 1. The mark without corners is the circle itself.
const SHAPES: [&[(f64, f64)]; 5] = [
    &[],
    &[(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    &[(0.0, -1.2), (1.1, 0.85), (-1.1, 0.85)],
    &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
    &[(0.0, 1.2), (1.1, -0.85), (-1.1, -0.85)],
];

/// Returns the colour of a series. The pair of colour and shape repeats after 35 series.
pub fn color(series: usize) -> Color {
    COLORS[series % COLORS.len()]
}

/// The colour of the inside of a mark: its own colour or white.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Solid,
    Hollow,
}

/// The part of a text that lies at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Left,
    Center,
    Right,
}

/// The style of a text: `size` in pixels, anchored at `side`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Style {
    size: f64,
    color: Color,
    side: Side,
    bold: bool,
}

impl Style {
    pub fn new(size: f64, color: Color, side: Side) -> Style {
        Style { size, color, side, bold: false }
    }

    pub fn bold(self) -> Style {
        Style { bold: true, ..self }
    }
}

/// A point on the canvas.
pub type Point = (i32, i32);

const FAMILY: &str = "Helvetica, Arial, Liberation Sans, sans-serif";

/// An SVG being drawn, on a white background.
#[derive(Clone, Debug)]
pub struct Canvas {
    svg: String,
}

impl Canvas {
    pub fn new(width: i32, height: i32) -> Canvas {
        let size = format!("width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"");
        let mut canvas =
            Canvas { svg: format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {size} font-family=\"{FAMILY}\">\n") };
        canvas.rectangle((0, 0), (width, height), WHITE);
        canvas
    }

    /// Closes the drawing and returns it as SVG text.
    pub fn finish(mut self) -> String {
        self.svg.push_str("</svg>\n");
        self.svg
    }

    fn tag(&mut self, tag: fmt::Arguments) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.svg, "{tag}");
    }

    /// Writes `words` vertically centred at `at`.
    pub fn text(&mut self, words: &str, (x, y): Point, style: Style) {
        let anchor = match style.side {
            Side::Left => "start",
            Side::Center => "middle",
            Side::Right => "end",
        };
        let weight = if style.bold { " font-weight=\"bold\"" } else { "" };
        let place = format!("x=\"{x}\" y=\"{y}\" dy=\"0.35em\" text-anchor=\"{anchor}\"");
        let font = format!("font-size=\"{}\"{weight} {}", style.size, style.color.paint("fill"));
        self.tag(format_args!("<text {place} {font}>{}</text>", escaped(words)));
    }

    /// Draws a line of `width` pixels through `points`.
    pub fn line(&mut self, points: &[Point], color: Color, width: u32) {
        let stroke = color.paint("stroke");
        self.tag(format_args!(
            "<polyline fill=\"none\" {stroke} stroke-width=\"{width}\" points=\"{}\"/>",
            list(points)
        ));
    }

    /// Fills the rectangle between two corners.
    pub fn rectangle(&mut self, from: Point, to: Point, color: Color) {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        let size = format!("width=\"{width}\" height=\"{height}\"");
        self.tag(format_args!("<rect x=\"{x}\" y=\"{y}\" {size} {}/>", color.paint("fill")));
    }

    /// Fills the area within `corners`.
    pub fn polygon(&mut self, corners: &[Point], color: Color) {
        self.tag(format_args!("<polygon {} points=\"{}\"/>", color.paint("fill"), list(corners)));
    }

    /// Fills a circle.
    pub fn dot(&mut self, (x, y): Point, radius: i32, color: Color) {
        self.tag(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" {}/>", color.paint("fill")));
    }

    /// Draws the mark of `series` around `center`.
    pub fn mark(&mut self, series: usize, center: Point, radius: f64, fill: Fill) {
        let color = color(series);
        let inside = if fill == Fill::Solid { color } else { WHITE };
        let paint = format!("{} {} stroke-width=\"2\"", inside.paint("fill"), color.paint("stroke"));
        let corner =
            |(x, y): &(f64, f64)| (center.0 + (x * radius).round() as i32, center.1 + (y * radius).round() as i32);
        let corners: Vec<Point> = SHAPES[series % SHAPES.len()].iter().map(corner).collect();
        if corners.is_empty() {
            let (x, y) = center;
            self.tag(format_args!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{}\" {paint}/>", radius.round()));
        } else {
            self.tag(format_args!("<polygon {paint} points=\"{}\"/>", list(&corners)));
        }
    }
}

fn list(points: &[Point]) -> String {
    points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")
}

/// Escapes text for XML. Hidden characters, which XML does not allow, are written out; tabs, line breaks and characters that are none become spaces.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in printable(text).chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}
