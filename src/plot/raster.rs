//! Draws a canvas as pixels with a built-in font, so that pictures hold the same text on every machine. The font is DejaVu
//! Sans Condensed, which is about as wide as the Helvetica that the figures are laid out for. Letters are placed one after
//! the other, with kerning and without ligatures; a script whose letters join, or that runs from right to left, is set
//! properly only by the program that shows the SVG.

use std::sync::LazyLock;

use ab_glyph::{Font, FontRef, GlyphId, OutlineCurve};
use anyhow::{Context, Result, ensure};
use image::codecs::png::{CompressionType, FilterType, PngEncoder};
use image::{DynamicImage, RgbImage, RgbaImage};
use tiny_skia::{FillRule, Paint, Path, PathBuilder, Pixmap, Rect, Stroke, StrokeDash, Transform};
use unicode_normalization::UnicodeNormalization;

use super::canvas::{Canvas, Color, Outline, Point, Shape, Side, Style};

/// The largest number of pixels of a picture (400 MB of memory). A larger picture means that the scale is wrong.
const MOST_PIXELS: f64 = 1e8;

/// Returns the bytes of a PNG that shows `canvas` at `scale` pixels per unit.
///
/// # Errors
/// Fails if the picture would have no pixel or more than 10⁸.
pub fn png(canvas: &Canvas, scale: f32) -> Result<Vec<u8>> {
    encoded(pixels(canvas, scale)?)
}

/// Returns the bytes of a PNG that holds `image`.
pub fn encoded(image: RgbImage) -> Result<Vec<u8>> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let encoder = PngEncoder::new_with_quality(&mut bytes, CompressionType::Default, FilterType::Adaptive);
    let written = DynamicImage::from(image).write_with_encoder(encoder);
    written.context("picture: cannot be encoded as PNG")?;
    Ok(bytes.into_inner())
}

/// Returns what [`png`] encodes.
///
/// # Errors
/// Fails like [`png`].
pub fn pixels(canvas: &Canvas, scale: f32) -> Result<RgbImage> {
    let (width, height) = ((canvas.width as f32 * scale).ceil(), (canvas.height as f32 * scale).ceil());
    let fits = width >= 1.0 && height >= 1.0 && f64::from(width) * f64::from(height) <= MOST_PIXELS;
    ensure!(fits, "picture: {width} × {height} pixels; it must have 1 to 10⁸ pixels, choose another scale");
    let mut pixels = Pixmap::new(width as u32, height as u32).context("picture: no memory for its pixels")?;
    pixels.fill(tiny_skia::Color::WHITE);
    let transform = Transform::from_scale(scale, scale);
    for shape in &canvas.shapes {
        match shape {
            Shape::Text { words, at, style } => fill(&mut pixels, letters(words, *at, *style), style.color, transform),
            Shape::Area { outline, fill: inside, stroke } => {
                let path = edge(outline);
                inside.iter().for_each(|color| fill(&mut pixels, path.clone(), *color, transform));
                // A line between equal points is none.
                let is_line = |path: &Path| path.bounds().width() > 0.0 || path.bounds().height() > 0.0;
                if let (Some(path), Some(pen)) = (path.filter(is_line), stroke) {
                    let dash = pen
                        .dashes
                        .and_then(|dashes| StrokeDash::new(vec![dashes.length as f32, dashes.gap as f32], 0.0));
                    let stroke = Stroke { width: pen.width as f32, dash, ..Stroke::default() };
                    pixels.stroke_path(&path, &paint(pen.color), &stroke, transform, None);
                }
            }
        }
    }
    let pixels = RgbaImage::from_raw(width as u32, height as u32, pixels.take()).context("picture: lacks pixels")?;
    Ok(DynamicImage::from(pixels).into_rgb8())
}

/// Fills a path; an empty one (`None`) has nothing to fill.
fn fill(pixels: &mut Pixmap, path: Option<Path>, color: Color, transform: Transform) {
    if let Some(path) = path {
        pixels.fill_path(&path, &paint(color), FillRule::Winding, transform, None);
    }
}

fn paint(color: Color) -> Paint<'static> {
    let mut paint = Paint::default();
    let [red, green, blue] = color.rgb;
    paint.set_color_rgba8(red, green, blue, (color.opacity * 255.0).round() as u8);
    paint
}

/// Returns the path of an outline; `None` if it has no extent.
fn edge(outline: &Outline) -> Option<Path> {
    let whole = |(x, y): Point| (x as f32, y as f32);
    let through = |points: &[Point], closed: bool| {
        let mut path = PathBuilder::new();
        for (place, (x, y)) in points.iter().copied().map(whole).enumerate() {
            if place == 0 { path.move_to(x, y) } else { path.line_to(x, y) }
        }
        if closed {
            path.close();
        }
        path.finish()
    };
    match outline {
        Outline::Line(points) => through(points, false),
        Outline::Polygon(corners) => through(corners, true),
        Outline::Rectangle { from, size } => {
            let ((x, y), (width, height)) = (whole(*from), whole(*size));
            (width > 0.0 && height > 0.0).then(|| Rect::from_xywh(x, y, width, height))?.map(PathBuilder::from_rect)
        }
        Outline::Circle { center, radius } => {
            let (x, y) = whole(*center);
            PathBuilder::from_circle(x, y, *radius as f32)
        }
    }
}

/// The regular and the bold font; a font that were damaged would draw no letter.
static FONTS: LazyLock<[Option<FontRef<'static>>; 2]> = LazyLock::new(|| {
    [dejavu::sans_condensed::regular(), dejavu::sans_condensed::bold()].map(|font| FontRef::try_from_slice(font).ok())
});

/// Returns the outlines of the letters of `words`. As in SVG, spaces at the ends are left out and several count as one.
fn letters(words: &str, (x, y): Point, style: Style) -> Option<Path> {
    let font = FONTS[usize::from(style.bold)].as_ref()?;
    let size = style.size as f32;
    let scale = size / font.units_per_em()?;
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let glyphs: Vec<GlyphId> = words.nfc().map(|letter| font.glyph_id(letter)).collect();
    let mut starts = vec![0.0];
    for (place, glyph) in glyphs.iter().enumerate() {
        let kern = glyphs.get(place + 1).map_or(0.0, |next| font.kern_unscaled(*glyph, *next));
        starts.push(starts[place] + (font.h_advance_unscaled(*glyph) + kern) * scale);
    }
    let width = starts[glyphs.len()];
    let left = match style.side {
        Side::Left => 0.0,
        Side::Center => width / 2.0,
        Side::Right => width,
    };
    let mut path = PathBuilder::new();
    for (glyph, start) in glyphs.iter().zip(&starts) {
        let origin = (x as f32 - left + start, y as f32 + 0.35 * size);
        push_glyph(&mut path, font, *glyph, |at| (origin.0 + at.x * scale, origin.1 - at.y * scale));
    }
    path.finish()
}

/// Adds the contours of a glyph. A curve that does not begin where the last one ended begins a new contour.
fn push_glyph(path: &mut PathBuilder, font: &FontRef, glyph: GlyphId, place: impl Fn(ab_glyph::Point) -> (f32, f32)) {
    let curves = font.outline(glyph).map_or(vec![], |outline| outline.curves);
    let mut end = None;
    for curve in curves {
        let (first, last) = match curve {
            OutlineCurve::Line(a, b) | OutlineCurve::Quad(a, _, b) | OutlineCurve::Cubic(a, _, _, b) => (a, b),
        };
        if end != Some(first) {
            let (x, y) = place(first);
            path.close();
            path.move_to(x, y);
        }
        let (x, y) = place(last);
        match curve {
            OutlineCurve::Line(..) => path.line_to(x, y),
            OutlineCurve::Quad(_, control, _) => {
                let (x1, y1) = place(control);
                path.quad_to(x1, y1, x, y);
            }
            OutlineCurve::Cubic(_, one, two, _) => {
                let ((x1, y1), (x2, y2)) = (place(one), place(two));
                path.cubic_to(x1, y1, x2, y2, x, y);
            }
        }
        end = Some(last);
    }
    path.close();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::canvas::{Fill, INK};

    fn dark(image: &RgbImage) -> usize {
        image.pixels().filter(|pixel| pixel.0[0] < 128).count()
    }

    /// The smallest and the largest column and row that are not white: left, right, top, bottom.
    fn extent(image: &RgbImage) -> [u32; 4] {
        let inked = || image.enumerate_pixels().filter(|(_, _, pixel)| pixel.0 != [255; 3]);
        let (columns, rows) = (|| inked().map(|(x, _, _)| x), || inked().map(|(_, y, _)| y));
        [columns().min(), columns().max(), rows().min(), rows().max()].map(|end| end.unwrap_or(0))
    }

    fn text(words: &str, at: Point, style: Style) -> RgbImage {
        let mut canvas = Canvas::new(80, 20);
        canvas.text(words, at, style);
        pixels(&canvas, 3.0).unwrap()
    }

    #[test]
    fn text_is_drawn_and_bold_is_bolder() {
        let style = Style::new(16.0, INK, Side::Left);
        let (regular, bold) = (text("ε × Ab", (2, 10), style), text("ε × Ab", (2, 10), style.bold()));
        assert_eq!(regular.dimensions(), (240, 60));
        assert!(dark(&regular) > 200 && dark(&bold) > dark(&regular) + 100, "{} {}", dark(&regular), dark(&bold));
        assert_eq!(text("  ε \t×\n  Ab ", (2, 10), style), regular, "spaces count once, as in SVG");
        assert_eq!(text("e\u{301}", (2, 10), style), text("é", (2, 10), style), "an accent of its own is joined");
    }

    /// resvg 0.49 puts ink at the same places for the same texts.
    #[test]
    fn text_lies_where_the_svg_says() {
        for (words, side, bold, expected) in [
            ("AVAToy", Side::Left, false, [120, 239, 11, 47]),
            ("AVAToy", Side::Center, true, [34, 204, 11, 57]),
            ("ε × 0.5", Side::Right, false, [7, 116, 11, 47]),
            ("Wg|é", Side::Center, false, [65, 173, 8, 57]),
        ] {
            let style = Style::new(16.0, INK, side);
            let found = extent(&text(words, (40, 10), if bold { style.bold() } else { style }));
            assert_eq!(found, expected, "{words} {side:?} {bold}");
        }
    }

    #[test]
    fn shapes_have_the_pixels_of_their_places() {
        let mut canvas = Canvas::new(40, 20);
        canvas.rectangle((2, 2), (6, 8), INK);
        canvas.polygon(&[(10, 2), (18, 2), (18, 10), (10, 10)], INK.faint(0.5));
        canvas.line(&[(20, 5), (30, 5)], INK, 2);
        canvas.dot((35, 6), 3, INK);
        canvas.mark(0, (8, 15), 3.0, Fill::Hollow);
        canvas.line(&[(20, 15)], INK, 2); // a point is no line
        let image = pixels(&canvas, 1.0).unwrap();
        let at = |x, y| image.get_pixel(x, y).0;
        assert_eq!(
            [at(1, 2), at(2, 2), at(5, 7), at(6, 7), at(5, 8)],
            [[255; 3], INK.rgb, INK.rgb, [255; 3], [255; 3]]
        );
        assert_eq!(at(14, 6), [143, 145, 147], "half of INK on white");
        assert_eq!([at(25, 3), at(25, 4), at(25, 5), at(25, 6)], [[255; 3], INK.rgb, INK.rgb, [255; 3]]);
        assert_eq!([at(35, 6), at(33, 6), at(38, 9)], [INK.rgb, INK.rgb, [255; 3]]);
        assert_eq!([at(8, 15), at(5, 15)], [[255; 3], super::super::canvas::color(0).rgb]);
        assert_eq!(at(20, 15), [255; 3]);
    }

    #[test]
    fn errors_say_what_is_wrong() {
        for scale in [0.0, -1.0, f32::NAN, 1e6] {
            let failure = format!("{:#}", png(&Canvas::new(40, 20), scale).unwrap_err());
            assert!(failure.contains("choose another scale"), "{scale}: {failure}");
        }
    }
}
