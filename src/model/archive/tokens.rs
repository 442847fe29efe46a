//! Splits TorchScript into tokens, like libtorch's own lexer. Comments, which archives do not contain, are refused, so that
//! nothing depends on where one ends.

use anyhow::{Result, bail};

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Token<'a> {
    Name(&'a str),
    /// The text between quotes, with escapes as they are written.
    Text(&'a str),
    /// A number without its sign, as it is written.
    Number(&'a str),
    /// Any other sign; `==`, `!=`, `<=` and `>=` are all given as `!`.
    Sign(char),
    /// The end of a line outside parentheses.
    LineEnd,
}

/// Splits code into tokens.
///
/// # Errors
/// Fails at a character that the language does not have, or at a text without an end.
pub fn tokens(code: &str) -> Result<Vec<Token<'_>>> {
    let (bytes, mut at, mut depth, mut found) = (code.as_bytes(), 0, 0i64, Vec::new());
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        match byte {
            b'\n' if depth == 0 => found.push(Token::LineEnd),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'"' | b'\'' => {
                let (text, end) = quoted(code, at)?;
                found.push(Token::Text(text));
                at = end;
                continue;
            }
            b'0'..=b'9' => {
                at = number_end(bytes, at);
                found.push(Token::Number(&code[start..at]));
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                at += run(bytes, at, |byte| byte.is_ascii_alphanumeric() || *byte == b'_');
                found.push(Token::Name(&code[start..at]));
                continue;
            }
            b'#' | b'\\' => bail!("its code has a comment or a line that goes on, which PyTorch does not write"),
            0x21..=0x7e => {
                let two = matches!(bytes[at..], [b'=' | b'!' | b'<' | b'>', b'=', ..]);
                depth += i64::from(b"([{".contains(&byte)) - i64::from(b")]}".contains(&byte));
                found.push(Token::Sign(if two { '!' } else { byte as char }));
                at += usize::from(two);
            }
            _ => bail!("its code has a sign that TorchScript does not have (byte {byte:#04x})"),
        }
        at += 1;
    }
    Ok(found)
}

/// Returns the number of bytes from `at` on for which `of` holds.
fn run(bytes: &[u8], at: usize, of: fn(&u8) -> bool) -> usize {
    bytes.get(at..).unwrap_or_default().iter().take_while(|byte| of(byte)).count()
}

/// Returns the end of the number at `at`: that of all of `1.5e-05`, but of `1.save` only that of `1.`.
fn number_end(bytes: &[u8], mut at: usize) -> usize {
    at += run(bytes, at, u8::is_ascii_digit);
    if bytes.get(at) == Some(&b'.') {
        at += 1 + run(bytes, at + 1, u8::is_ascii_digit);
    }
    let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
    let exponent = run(bytes, at + 1 + sign, u8::is_ascii_digit);
    if matches!(bytes.get(at), Some(b'e' | b'E')) && exponent > 0 { at + 1 + sign + exponent } else { at }
}

/// Returns the text whose opening quote is at `at`, and its end.
fn quoted(code: &str, at: usize) -> Result<(&str, usize)> {
    let bytes = code.as_bytes();
    let quote = bytes[at];
    let long = bytes[at..].starts_with(&[quote; 3]);
    let ends = if long { &bytes[at..at + 3] } else { &bytes[at..at + 1] };
    let from = at + ends.len();
    let mut end = from;
    loop {
        match bytes.get(end) {
            Some(b'\\') => end += 2,
            Some(b'\n') if !long => break,
            Some(_) if bytes[end..].starts_with(ends) => {
                return Ok((code.get(from..end).unwrap_or_default(), end + ends.len()));
            }
            Some(_) => end += 1,
            None => break,
        }
    }
    bail!("a text in its code does not end")
}
