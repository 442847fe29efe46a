//! A canvas of text, lines, rectangles, polygons and the marks of series, which is written as SVG here and drawn as PNG by
//! `raster`. Coordinates are whole pixels, and y points down. Each series has a colour and a shape, so that readers
//! without colour vision can distinguish them. The colours follow Okabe and Ito, "Color Universal Design" (2008).

use std::fmt::{self, Write};

use crate::base::outside::printable;

/// A colour that covers what lies below it with `opacity` between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Color {
    pub rgb: [u8; 3],
    pub opacity: f64,
}

impl Color {
    pub const fn new(red: u8, green: u8, blue: u8) -> Color {
        Color { rgb: [red, green, blue], opacity: 1.0 }
    }

    /// Returns the same colour with the given opacity.
    pub fn faint(self, opacity: f64) -> Color {
        Color { opacity, ..self }
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

/// The dashes of a line, by how often the colours were used up before it. The first lines are in one piece.
const DASHES: [Option<Dashes>; 3] = [None, Some(Dashes { length: 7, gap: 4 }), Some(Dashes { length: 2, gap: 3 })];

/// Returns the colour of a series. The pair of colour and shape repeats after 35 series, that of colour and dashes after 21.
pub fn color(series: usize) -> Color {
    COLORS[series % COLORS.len()]
}

/// The colour of the inside of a mark: its own colour or white.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    Solid,
    Hollow,
}

/// The length of the dashes of a line and that of the gaps between them, in pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dashes {
    pub length: u32,
    pub gap: u32,
}

/// What draws a line: its colour, its width in pixels, and its dashes unless it is in one piece.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pen {
    pub color: Color,
    pub width: u32,
    pub dashes: Option<Dashes>,
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
    pub size: f64,
    pub color: Color,
    pub side: Side,
    pub bold: bool,
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

/// The edge of a shape.
#[derive(Clone, Debug, PartialEq)]
pub enum Outline {
    /// A line through points.
    Line(Vec<Point>),
    /// The corners of an area.
    Polygon(Vec<Point>),
    /// A rectangle from its upper left corner, with its width and height.
    Rectangle {
        from: Point,
        size: (i32, i32),
    },
    Circle {
        center: Point,
        radius: i32,
    },
}

/// What lies on a canvas.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Words in one line without characters that cannot be shown, vertically centred at a point.
    Text { words: String, at: Point, style: Style },
    /// An outline with the colour of its inside, and the pen of its edge.
    Area { outline: Outline, fill: Option<Color>, stroke: Option<Pen> },
}

/// A drawing on a white background.
#[derive(Clone, Debug, PartialEq)]
pub struct Canvas {
    pub width: i32,
    pub height: i32,
    /// What was drawn; a later shape covers an earlier one.
    pub shapes: Vec<Shape>,
}

impl Canvas {
    pub fn new(width: i32, height: i32) -> Canvas {
        let mut canvas = Canvas { width, height, shapes: vec![] };
        canvas.rectangle((0, 0), (width, height), WHITE);
        canvas
    }

    /// Writes `words` vertically centred at `at`. Hidden characters are written out; tabs, line breaks and characters that are none
    /// become spaces.
    pub fn text(&mut self, words: &str, at: Point, style: Style) {
        let shown = |letter: char| match letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') {
            true => ' ',
            false => letter,
        };
        self.shapes.push(Shape::Text { words: printable(words).chars().map(shown).collect(), at, style });
    }

    fn filled(&mut self, outline: Outline, color: Color) {
        self.shapes.push(Shape::Area { outline, fill: Some(color), stroke: None });
    }

    /// Draws a line of `width` pixels through `points`.
    pub fn line(&mut self, points: &[Point], color: Color, width: u32) {
        self.drawn(points, Pen { color, width, dashes: None });
    }

    /// Draws the line of `series` through `points`.
    pub fn curve(&mut self, series: usize, points: &[Point], width: u32) {
        let dashes = DASHES[series / COLORS.len() % DASHES.len()];
        self.drawn(points, Pen { color: color(series), width, dashes });
    }

    fn drawn(&mut self, points: &[Point], pen: Pen) {
        let outline = Outline::Line(points.to_vec());
        self.shapes.push(Shape::Area { outline, fill: None, stroke: Some(pen) });
    }

    /// Fills the rectangle between two corners.
    pub fn rectangle(&mut self, from: Point, to: Point, color: Color) {
        let size = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        self.filled(Outline::Rectangle { from: (from.0.min(to.0), from.1.min(to.1)), size }, color);
    }

    /// Fills the area within `corners`.
    pub fn polygon(&mut self, corners: &[Point], color: Color) {
        self.filled(Outline::Polygon(corners.to_vec()), color);
    }

    /// Fills a circle.
    pub fn dot(&mut self, center: Point, radius: i32, color: Color) {
        self.filled(Outline::Circle { center, radius }, color);
    }

    /// Draws the mark of `series` around `center`.
    pub fn mark(&mut self, series: usize, center: Point, radius: f64, fill: Fill) {
        let color = color(series);
        let inside = if fill == Fill::Solid { color } else { WHITE };
        let corner =
            |(x, y): &(f64, f64)| (center.0 + (x * radius).round() as i32, center.1 + (y * radius).round() as i32);
        let corners: Vec<Point> = SHAPES[series % SHAPES.len()].iter().map(corner).collect();
        let outline = match corners.is_empty() {
            true => Outline::Circle { center, radius: radius.round() as i32 },
            false => Outline::Polygon(corners),
        };
        let stroke = Some(Pen { color, width: 2, dashes: None });
        self.shapes.push(Shape::Area { outline, fill: Some(inside), stroke });
    }
}

const FAMILY: &str = "Helvetica, Arial, Liberation Sans, sans-serif";

impl fmt::Display for Color {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let [red, green, blue] = self.rgb;
        write!(f, "#{red:02X}{green:02X}{blue:02X}")
    }
}

impl Color {
    /// Returns the attributes that paint `what` (`fill` or `stroke`) of a shape with this colour.
    fn paint(self, what: &str) -> String {
        match self.opacity {
            1.0 => format!("{what}=\"{self}\""),
            opacity => format!("{what}=\"{self}\" {what}-opacity=\"{opacity}\""),
        }
    }
}

impl Canvas {
    /// Returns the drawing as SVG text.
    pub fn svg(&self) -> String {
        let Canvas { width, height, shapes } = self;
        let size = format!("width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\"");
        let mut svg = format!("<svg xmlns=\"http://www.w3.org/2000/svg\" {size} font-family=\"{FAMILY}\">\n");
        for shape in shapes {
            let tag = match shape {
                Shape::Text { words, at, style } => text(words, *at, *style),
                Shape::Area { outline, fill, stroke } => area(outline, &paint(*fill, *stroke)),
            };
            // Writing to a String cannot fail.
            let _ = writeln!(svg, "{tag}");
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn text(words: &str, (x, y): Point, style: Style) -> String {
    let anchor = match style.side {
        Side::Left => "start",
        Side::Center => "middle",
        Side::Right => "end",
    };
    let weight = if style.bold { " font-weight=\"bold\"" } else { "" };
    let place = format!("x=\"{x}\" y=\"{y}\" dy=\"0.35em\" text-anchor=\"{anchor}\"");
    let font = format!("font-size=\"{}\"{weight} {}", style.size, style.color.paint("fill"));
    format!("<text {place} {font}>{}</text>", escaped(words))
}

fn paint(fill: Option<Color>, stroke: Option<Pen>) -> String {
    let inside = fill.map_or("fill=\"none\"".to_string(), |color| color.paint("fill"));
    let Some(Pen { color, width, dashes }) = stroke else { return inside };
    let dashes = dashes.map_or(String::new(), |Dashes { length, gap }| format!(" stroke-dasharray=\"{length} {gap}\""));
    format!("{inside} {} stroke-width=\"{width}\"{dashes}", color.paint("stroke"))
}

fn area(outline: &Outline, paint: &str) -> String {
    match outline {
        Outline::Line(points) => format!("<polyline {paint} points=\"{}\"/>", list(points)),
        Outline::Polygon(corners) => format!("<polygon {paint} points=\"{}\"/>", list(corners)),
        Outline::Rectangle { from: (x, y), size: (width, height) } => {
            format!("<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {paint}/>")
        }
        Outline::Circle { center: (x, y), radius } => format!("<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" {paint}/>"),
    }
}

fn list(points: &[Point]) -> String {
    points.iter().map(|(x, y)| format!("{x},{y}")).collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
