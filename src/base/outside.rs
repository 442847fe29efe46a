//! Text from outside, such as names of files, classes and experiments, as it may reach a terminal, a CSV file or a web page.
//!
//! `print!` and `println!` of this crate write through [`print()`], so that no command can forget it.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

/// Returns whether a character is never shown as itself: a control character other than a line break or a tab, or one that
/// changes the direction or the lines of the text around it.
fn is_hidden(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        letter => letter.is_control(),
    }
}

/// Returns a text in which hidden characters are written out, such as `\u{1b}`, so that a name can neither move the cursor nor
/// show as another one.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 8);
    for letter in text.chars() {
        match is_hidden(letter) {
            true => safe.extend(letter.escape_default()),
            false => safe.push(letter),
        }
    }
    Cow::Owned(safe)
}

/// Writes text to standard output with hidden characters written out.
///
/// # Panics
/// Panics with the message of the standard library's `print!` if standard output fails. The command line turns that into
/// its error.
pub fn print(text: fmt::Arguments) {
    print_drawn(&printable(&text.to_string()));
}

/// Writes to standard output what bella has drawn itself, with its colours. Names in it are [`printable`] already.
///
/// # Panics
/// As [`print()`] does.
pub fn print_drawn(text: &str) {
    if let Err(error) = io::stdout().lock().write_all(text.as_bytes()) {
        panic!("failed printing to stdout: {error}");
    }
}

/// Replaces the standard library's macro in this crate.
macro_rules! print {
    ($($text:tt)*) => { $crate::base::outside::print(format_args!($($text)*)) };
}

/// Replaces the standard library's macro in this crate.
macro_rules! println {
    () => { $crate::base::outside::print(format_args!("\n")) };
    ($($text:tt)*) => { $crate::base::outside::print(format_args!("{}\n", format_args!($($text)*))) };
}

/// Returns whether a spreadsheet would read a cell as a formula. Numbers, also with an interval (`-0.5 ± 0.1`), are none.
fn is_formula(cell: &str) -> bool {
    let numbers = || cell.split(" ± ").all(|part| part.parse::<f64>().is_ok());
    cell.starts_with(['=', '+', '-', '@', '\t', '\r']) && !numbers()
}

/// Returns a cell as it is written to a CSV file: a text that a spreadsheet would compute as a formula gets an apostrophe
/// before it, by which spreadsheets mark texts.
pub fn csv_cell(cell: &str) -> Cow<'_, str> {
    match is_formula(cell.trim_start_matches('\'')) {
        true => Cow::Owned(format!("'{cell}")),
        false => Cow::Borrowed(cell),
    }
}

/// Returns a path as text. Bytes that are no UTF-8 are written as numbers, such as `\xe9`, and not as one sign for all of them.
pub fn path_text(path: &Path) -> Cow<'_, str> {
    if let Some(text) = path.to_str() {
        return Cow::Borrowed(text);
    }
    let mut name = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        name.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| name.extend(std::ascii::escape_default(*byte).map(char::from)));
    }
    Cow::Owned(name)
}

/// Returns a cell of a table that is printed, in which hidden characters are written out besides.
pub fn printed_cell(cell: &str) -> Cow<'_, str> {
    match printable(cell) {
        Cow::Borrowed(cell) => csv_cell(cell),
        Cow::Owned(cell) => Cow::Owned(csv_cell(&cell).into_owned()),
    }
}

/// Returns a line of JSON in which hidden characters, which can only be within texts, are written as JSON's escapes.
pub fn printed_json(line: &str) -> String {
    let mut safe = String::with_capacity(line.len());
    for letter in line.chars() {
        match is_hidden(letter) {
            true => safe.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => safe.push(letter),
        }
    }
    safe
}

/// Returns the text of which [`csv_cell`] made this cell.
pub fn of_csv_cell(cell: &str) -> &str {
    match cell.strip_prefix('\'') {
        Some(text) if is_formula(text.trim_start_matches('\'')) => text,
        _ => cell,
    }
}

/// Returns a text as it may stand in a web page or a Markdown file: it is no markup there, and its hidden characters are written
/// out.
pub fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            other => safe.push(other),
        }
    }
    safe
}

/// Returns a text as it may stand in a cell or a line of Markdown: on one line, without HTML, and ending no cell.
pub fn escape_markdown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in printable(text).chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '\n' => safe.push(' '),
            '|' => safe.push_str("\\|"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_moves_the_cursor_or_turns_the_text_around() {
        assert_eq!(printable("a\u{1b}[2Jb\u{202e}c\u{9b}d\r"), "a\\u{1b}[2Jb\\u{202e}c\\u{9b}d\\r");
        assert_eq!(printable("two\n\tlines, ± é 犬 \u{1f436}"), "two\n\tlines, ± é 犬 \u{1f436}");
    }

    #[test]
    fn a_name_is_no_formula_and_a_number_stays_a_number() {
        for (name, written) in [("=1+1", "'=1+1"), ("@SUM(A1)", "'@SUM(A1)"), ("-2+3", "'-2+3"), ("'=x", "''=x")] {
            assert_eq!(csv_cell(name), written);
            assert_eq!(of_csv_cell(written), name);
        }
        for cell in ["-0.5", "+1e-3", "-inf", "-0.5 ± 0.1", "'a", "a=b", "", "svgd"] {
            assert_eq!((csv_cell(cell), of_csv_cell(cell)), (cell.into(), cell));
        }
    }

    #[test]
    fn a_class_is_no_markup() {
        assert_eq!(escape_html("<script>\u{202e}"), "&lt;script&gt;\\u{202e}");
        assert_eq!(escape_markdown("<b>a|b</b>\nc"), "&lt;b>a\\|b&lt;/b> c");
    }
}
