//! Text of the picture: styles, an estimate of widths (an SVG does not know the reader's fonts), and line breaks.

use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, RGBColor, TextStyle};

pub const INK: RGBColor = RGBColor(31, 35, 40);
pub const MUTED: RGBColor = RGBColor(89, 99, 110);
pub const BAND: RGBColor = RGBColor(245, 247, 249);
pub const GRID: RGBColor = RGBColor(216, 222, 228);

const FAMILY: &str = "Helvetica, Arial, Liberation Sans, sans-serif";

/// The SVG backend divides font sizes by this.
const BACKEND_SCALE: f64 = 1.24;

/// Text of `size` pixels, centred at its point from top to bottom and anchored at `side`.
pub fn style(size: f64, color: RGBColor, side: HPos, weight: FontStyle) -> TextStyle<'static> {
    let font = FontDesc::new(FontFamily::Name(FAMILY), size * BACKEND_SCALE, weight);
    let pos = Pos::new(side, VPos::Center);
    TextStyle { font, color: color.to_backend_color(), pos }
}

/// Pixels that `text` takes at font size `size`: widths of Helvetica and Arial, a little more to be safe.
pub fn width(text: &str, size: f64) -> f64 {
    let em = |letter: char| match letter {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.25,
        ' ' | 'f' | 't' | 'r' | 'I' | '-' | '(' | ')' | '/' => 0.32,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.88,
        'A'..='Z' => 0.69,
        letter if letter.is_ascii() => 0.56,
        _ => 0.6_f64.max(if letter > '\u{2e7f}' { 1.0 } else { 0.0 }),
    };
    1.04 * size * text.chars().map(em).sum::<f64>()
}

/// `text` in at most `lines` lines of `limit` pixels, broken at spaces, hyphens and underscores; what does not fit
/// ends in an ellipsis.
pub fn wrap(text: &str, size: f64, limit: f64, lines: usize) -> Vec<String> {
    let mut wrapped = vec![String::new()];
    for word in words(text) {
        let line = wrapped.last().map_or("", String::as_str);
        if !line.is_empty() && width(format!("{line}{word}").trim_end(), size) > limit {
            wrapped.push(String::new());
        }
        if let Some(line) = wrapped.last_mut() {
            line.push_str(word);
        }
    }
    if wrapped.len() > lines {
        let rest = wrapped.drain(lines - 1..).collect();
        wrapped.push(rest);
    }
    wrapped.iter().map(|line| shorten(line.trim_end(), size, limit)).collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive([' ', '-', '_'])
}

/// Pixels of the widest part of `text` that [`wrap`] does not break.
pub fn longest_word(text: &str, size: f64) -> f64 {
    words(text).map(|word| width(word.trim_end(), size)).fold(0.0, f64::max)
}

/// `text`, or as much of its beginning as fits into `limit` pixels before an ellipsis.
pub fn shorten(text: &str, size: f64, limit: f64) -> String {
    if width(text, size) <= limit {
        return text.to_string();
    }
    let mut short = text.to_string();
    while !short.is_empty() && width(&format!("{short}…"), size) > limit {
        short.pop();
    }
    format!("{}…", short.trim_end())
}
