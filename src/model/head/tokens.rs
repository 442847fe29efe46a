//! Turns text into CLIP's tokens. The text is prepared as its package does it, lower-cased, split into byte pairs, put between a
//! start and an end token, and truncated to the context.

use std::sync::LazyLock;

use instant_clip_tokenizer::{Token, Tokenizer};
use tch::Tensor;
use unicode_normalization::UnicodeNormalization;

/// The number of tokens in CLIP's vocabulary. The last two are the start and the end of a text.
pub const VOCABULARY: i64 = 49_408;

/// The tokenizer, created once because reading the vocabulary takes a moment.
static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(Tokenizer::new);

/// The package whose preparation of texts is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Package {
    /// CLIP itself and open_clip, which repair odd characters and unescape HTML entities.
    OpenClip,
    /// transformers, whose tokenizer composes characters (NFC) and joins words with single spaces, and leaves the rest as it is.
    Transformers,
}

/// Returns the tokens of a text from start to end, at most `context` of them. A longer text loses its last words.
pub fn tokens(text: &str, context: usize, package: Package) -> Vec<i64> {
    let prepared = match package {
        Package::OpenClip => clean(text),
        Package::Transformers => composed(text),
    };
    let mut found = vec![TOKENIZER.start_of_text()];
    TOKENIZER.encode(&prepared, &mut found);
    found.push(TOKENIZER.end_of_text());
    if found.len() > context {
        found.truncate(context);
        *found.last_mut().expect("a context holds tokens") = TOKENIZER.end_of_text();
    }
    found.into_iter().map(|token: Token| i64::from(token.to_u16())).collect()
}

/// Returns the texts as `[B, T]`, padded with zeros at the end. T is the length of the longest text.
pub fn matrix(texts: &[Vec<i64>]) -> Tensor {
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    let padded = texts.iter().flat_map(|text| text.iter().copied().chain(std::iter::repeat_n(0, longest - text.len())));
    Tensor::from_slice(&padded.collect::<Vec<i64>>()).view([texts.len() as i64, longest as i64])
}

/// Returns the text as the tokenizer of transformers normalises it: composed, with single spaces, and each character in lower case
/// for itself, so that a sigma at the end of a word is one like others.
fn composed(text: &str) -> String {
    let composed: String = text.nfc().collect();
    let spaced = composed.split_whitespace().collect::<Vec<_>>().join(" ");
    spaced.chars().flat_map(char::to_lowercase).collect()
}

/// The characters of Windows-1252 in place of the control characters U+0080 to U+009F. Its five gaps are unchanged.
const WINDOWS_1252: &str = "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ";

/// Returns the text as CLIP sees it, except for case. It applies ftfy's repairs of single characters (ligatures, width,
/// quotes, control characters) and NFC, unescapes HTML entities twice, and joins words with single spaces. Unlike in
/// CLIP, text in a wrong encoding (mojibake) is not repaired.
pub fn clean(text: &str) -> String {
    let text = if text.contains('<') { text.to_string() } else { htmlize::unescape(text).into_owned() };
    let simple: String =
        text.chars().map(printable).flat_map(simpler).map(straight).filter(|c| !is_control(*c)).collect();
    let composed: String = simple.nfc().collect();
    let plain = htmlize::unescape(htmlize::unescape(composed.as_str())).into_owned();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn printable(c: char) -> char {
    match c {
        '\u{80}'..='\u{9f}' => WINDOWS_1252.chars().nth(c as usize - 0x80).unwrap_or(c),
        _ => c,
    }
}

/// Replaces ligatures and digraphs by their letters, and full-width and half-width characters by the usual ones.
fn simpler(c: char) -> Vec<char> {
    match c {
        'ŉ' => vec!['ʼ', 'n'],
        '\u{fb05}' => vec!['ſ', 't'],
        '\u{132}' | '\u{133}' | '\u{1c4}'..='\u{1cc}' | '\u{1f1}'..='\u{1f3}' | '\u{fb00}'..='\u{fb06}' => {
            c.nfkc().collect()
        }
        '\u{ff01}'..='\u{ffef}' | '\u{3000}' => c.nfkc().collect(),
        _ => vec![c],
    }
}

/// Replaces curly quotes by straight ones.
fn straight(c: char) -> char {
    match c {
        '\u{2bc}' | '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        _ => c,
    }
}

/// Returns whether a control character has no effect on text. Tab, newline, form feed and return are spaces instead.
fn is_control(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffc}')
}

#[cfg(test)]
mod tests;
