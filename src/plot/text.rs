//! Text metrics: estimated widths (an SVG does not know the reader's fonts), line breaks and cuts.

/// The ratio of the width of bold letters to that of regular ones, for which widths are estimated.
pub const BOLD: f64 = 1.09;

/// Returns the width of `text` in pixels at font size `size`: that of Helvetica and Arial plus a small margin.
pub fn width(text: &str, size: f64) -> f64 {
    let em = |letter: char| match letter {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' => 0.25,
        ' ' | 'f' | 't' | 'r' | 'I' | '-' | '(' | ')' | '/' => 0.32,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.88,
        'A'..='Z' => 0.69,
        letter if letter.is_ascii() => 0.56,
        letter if letter > '\u{2e7f}' => 1.0,
        _ => 0.6,
    };
    1.04 * size * text.chars().map(em).sum::<f64>()
}

/// Breaks `text` at its line breaks, and each part at spaces, hyphens and underscores into at most `lines` lines of
/// `limit` pixels. A line that does not fit ends in an ellipsis.
pub fn wrap(text: &str, size: f64, limit: f64, lines: usize) -> Vec<String> {
    text.split('\n').flat_map(|part| wrap_part(part, size, limit, lines)).collect()
}

fn wrap_part(text: &str, size: f64, limit: f64, lines: usize) -> Vec<String> {
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
    text.split_inclusive([' ', '-', '_', '\n'])
}

/// Returns the width in pixels of the widest part of `text` that [`wrap`] does not break.
pub fn longest_word(text: &str, size: f64) -> f64 {
    words(text).map(|word| width(word.trim_end(), size)).fold(0.0, f64::max)
}

/// Returns `text`, or the longest beginning of it that fits into `limit` pixels together with an ellipsis.
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
