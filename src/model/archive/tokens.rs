//! Splits TorchScript into tokens, like libtorch's own lexer. Comments, which archives do not contain, are refused, so that
//! nothing depends on where one ends. The depth in which expressions and blocks lie in each other is bounded, since libtorch reads each
//! level with another level of its stack, which ends the process when it is used up.

use anyhow::{Result, bail, ensure};

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

/// The largest depth. PyTorch writes expressions of a few levels, and a line for each of the others.
const MAX_DEPTH: usize = 256;

/// The words that make an expression or a block deeper.
const WORDS: [&str; 8] = ["and", "elif", "else", "for", "if", "in", "not", "or"];

/// Checks the brackets and the depth of all statements of a file. Every operator since the last comma counts as a level, since
/// `1 + 1 + …` is read as one sum inside another.
///
/// # Errors
/// Fails at a bracket without its other one, and where something lies too deep.
pub fn check_nesting(text: &str, tokens: &[Token]) -> Result<()> {
    let deep = |what: &str| format!("its code has {what} more than {MAX_DEPTH} levels deep");
    let indented = |line: &str| line.bytes().take_while(u8::is_ascii_whitespace).count();
    ensure!(text.lines().all(|line| indented(line) <= 2 * MAX_DEPTH), deep("blocks"));
    ensure!(tokens.iter().filter(|token| **token == Token::Name("elif")).count() <= MAX_DEPTH, deep("branches"));
    // The closing signs of the open brackets, each with the levels of what lies before it.
    let (mut open, mut levels, mut total): (Vec<(char, usize)>, usize, usize) = (Vec::new(), 0, 0);
    for token in tokens {
        match token {
            Token::LineEnd => (levels, total) = (0, 0),
            Token::Sign(',') => (levels, total) = (0, total - levels),
            Token::Sign(sign @ ('(' | '[' | '{')) => {
                let close = match sign {
                    '(' => ')',
                    '[' => ']',
                    _ => '}',
                };
                open.push((close, levels + 1));
                (levels, total) = (0, total + 1);
            }
            Token::Sign(sign @ (')' | ']' | '}')) => {
                let before = open.pop();
                ensure!(
                    before.is_some_and(|(close, _)| close == *sign),
                    "a bracket `{sign}` in its code closes nothing"
                );
                total -= levels;
                levels = before.map_or(0, |(_, before)| before);
            }
            Token::Sign(_) => (levels, total) = (levels + 1, total + 1),
            Token::Name(name) if WORDS.contains(name) => (levels, total) = (levels + 1, total + 1),
            Token::Name(_) | Token::Text(_) | Token::Number(_) => {}
        }
        ensure!(total <= MAX_DEPTH, deep("expressions"));
    }
    ensure!(open.is_empty(), "a bracket in its code is not closed");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tokens::tokens;
    use super::*;

    fn checked(code: &str) -> Result<()> {
        check_nesting(code, &tokens(code).unwrap())
    }

    #[test]
    fn flat_code_may_be_long() {
        checked(&format!("x = [{}]\n", "(a.b + c), ".repeat(50_000))).unwrap();
        checked(&"_1 = torch.add(a.b, c)\n".repeat(50_000)).unwrap();
        checked(&format!("f(x, y={{{}}}, )[0]\n", "\"a\": f(1, 2), ".repeat(9999))).unwrap();
    }

    #[test]
    fn whatever_lies_in_itself_too_often_is_refused() {
        let (n, m) = (10_000, 200);
        for code in [
            format!("x = {}y{}", "(".repeat(n), ")".repeat(n)),
            format!("x = {}y{}", "[".repeat(n), "]".repeat(n)),
            format!("x : {}int{}", "List[".repeat(n), "]".repeat(n)),
            format!("x = {}{}", "f(a, ".repeat(n), ")".repeat(n)),
            format!("x = y{}", ".a".repeat(n)),
            format!("x = y{}", "[0]".repeat(n)),
            format!("x = {}y", "- ".repeat(n)),
            format!("x = {}y", "not ".repeat(n)),
            format!("x = 1{}", " + 1".repeat(n)),
            format!("x = {}2", "1 if y else ".repeat(n)),
            // What lies before a bracket goes on behind it.
            format!("x = {}y(1){}", "- ".repeat(m), " + 1".repeat(m)),
            (0..n).map(|level| format!("{}if x:\n", " ".repeat(level))).collect(),
            format!("if x:\n  pass\n{}", "elif x:\n  pass\n".repeat(n)),
        ] {
            let said = checked(&code).expect_err(&code[..40]).to_string();
            assert!(said.contains("more than 256 levels deep"), "{said}");
        }
        for code in ["x = (1", "x = 1)", "x = (1]"] {
            assert!(checked(code).unwrap_err().to_string().contains("a bracket"), "{code}");
        }
    }
}
