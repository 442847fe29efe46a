//! From text to CLIP's tokens: the text is cleaned as CLIP and open_clip clean it, lower-cased, cut into byte pairs, put
//! between start and end, and truncated to the context.

use std::sync::LazyLock;

use instant_clip_tokenizer::{Token, Tokenizer};
use tch::Tensor;
use unicode_normalization::UnicodeNormalization;

/// Tokens that CLIP's vocabulary has; the last two are start and end of a text.
pub const VOCABULARY: i64 = 49_408;

/// Reading the vocabulary takes a moment, so once.
static TOKENIZER: LazyLock<Tokenizer> = LazyLock::new(Tokenizer::new);

/// The tokens of a text from its start to its end, at most `context` of them: a longer text loses its last words.
pub fn tokens(text: &str, context: usize) -> Vec<i64> {
    let mut found = vec![TOKENIZER.start_of_text()];
    TOKENIZER.encode(&clean(text), &mut found);
    found.push(TOKENIZER.end_of_text());
    if found.len() > context {
        found.truncate(context);
        *found.last_mut().expect("a context holds tokens") = TOKENIZER.end_of_text();
    }
    found.into_iter().map(|token: Token| i64::from(token.to_u16())).collect()
}

/// `[B, T]` with zeros after each text's end; T is the longest text.
pub fn matrix(texts: &[Vec<i64>]) -> Tensor {
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    let padded = texts.iter().flat_map(|text| text.iter().copied().chain(std::iter::repeat_n(0, longest - text.len())));
    Tensor::from_slice(&padded.collect::<Vec<i64>>()).view([texts.len() as i64, longest as i64])
}

/// What Windows-1252 has in place of the control characters U+0080 to U+009F; its five gaps stay.
const WINDOWS_1252: &str = "€\u{81}‚ƒ„…†‡ˆ‰Š‹Œ\u{8d}Ž\u{8f}\u{90}‘’“”•–—˜™š›œ\u{9d}žŸ";

/// The text as CLIP sees it, but for case: ftfy's repairs of single characters (ligatures, width, quotes, control
/// characters) and NFC, HTML entities twice, single spaces. Differs: text of a wrong encoding (mojibake) is left as it is.
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

/// Ligatures and digraphs as their letters; full and half width as the usual one.
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

/// Curly quotes as straight ones.
fn straight(c: char) -> char {
    match c {
        '\u{2bc}' | '\u{2018}'..='\u{201b}' => '\'',
        '\u{201c}'..='\u{201f}' => '"',
        _ => c,
    }
}

/// Control characters without an effect on text; tab, newline, form feed and return are spaces.
fn is_control(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{e}'..='\u{1f}' | '\u{7f}' | '\u{206a}'..='\u{206f}' | '\u{feff}'
        | '\u{fff9}'..='\u{fffc}')
}

#[cfg(test)]
mod tests;
