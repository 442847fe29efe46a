//! Writes a canvas as SVG.

use std::fmt::{self, Write};

use super::canvas::{Canvas, Color, Dashes, Outline, Pen, Point, Shape, Side, Style};

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
