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
mod tests {
    use super::*;

    // The tokens come from this Python (open_clip_torch 3.3, ftfy 6.3):
    //   t = open_clip.tokenizer.SimpleTokenizer(); [t.sot_token_id] + t.encode(text) + [t.eot_token_id]
    const GOLDEN: &[(&str, &[i64])] = &[
        ("", &[49406, 49407]),
        ("a photo of a cat.", &[49406, 320, 1125, 539, 320, 2368, 269, 49407]),
        ("a photo of the number: \"7\".", &[49406, 320, 1125, 539, 518, 2842, 281, 257, 278, 2811, 49407]),
        (
            "A Blurry  photo of\u{9}the\u{3000}MAPLE tree.",
            &[49406, 320, 21977, 1125, 539, 518, 10570, 2677, 269, 49407],
        ),
        (
            "colt's foot, l'été, I'll we're",
            &[49406, 19726, 568, 4738, 267, 331, 262, 3459, 39694, 267, 328, 1342, 649, 982, 49407],
        ),
        ("crème brûlée", &[49406, 1075, 12138, 614, 711, 127, 119, 75, 13489, 49407]),
        ("cre\u{300}me bru\u{302}le\u{301}e", &[49406, 1075, 12138, 614, 711, 127, 119, 75, 13489, 49407]),
        (
            "it\u{2019}s \u{201c}quoted\u{201d} \u{2018}x\u{2019}",
            &[49406, 585, 568, 257, 27706, 257, 262, 343, 262, 49407],
        ),
        (
            "rock &amp; roll &amp;amp; caf&eacute; &lt;b&gt;",
            &[49406, 2172, 261, 3341, 261, 15304, 283, 321, 285, 49407],
        ),
        ("<b> &amp; x", &[49406, 283, 321, 285, 261, 343, 49407]),
        ("o\u{fb03}ce \u{fb02}ag \u{133}s \u{fb05}", &[49406, 2171, 4859, 7337, 338, 129, 123, 339, 49407]),
        ("\u{ff21}\u{ff22}\u{ff23}\u{ff01}", &[49406, 5334, 256, 49407]),
        ("snoopy (cartoon beagle)!!! ...", &[49406, 41967, 263, 7651, 30044, 8, 995, 678, 49407]),
        (
            "\u{65e5}\u{672c}\u{8a9e} \u{306e}\u{30c6}\u{30b9}\u{30c8} 12345",
            &[49406, 39121, 44353, 34002, 508, 21575, 2429, 228, 32421, 486, 272, 273, 274, 275, 276, 49407],
        ),
        ("emoji \u{1f600} ok\u{200d}", &[49406, 16327, 7334, 2481, 728, 491, 49407]),
        ("<start_of_text>hi<end_of_text>", &[49406, 49406, 1883, 49407, 49407]),
        ("zero\u{0}width\u{feff}bom", &[49406, 14867, 11886, 513, 19469, 49407]),
        ("polka-dotted_thing/1.5", &[49406, 29476, 268, 47950, 318, 946, 270, 272, 269, 276, 49407]),
        ("\u{130}stanbul \u{391}\u{3a3}", &[49406, 328, 16384, 11231, 138, 109, 139, 480, 49407]),
        ("don't 's 'S x'll", &[49406, 847, 713, 568, 568, 343, 1342, 49407]),
        ("line\u{d}\u{a}break\u{2028}sep\u{85}nel", &[49406, 1148, 2568, 10434, 959, 2693, 49407]),
        ("1st 2nd 3 \u{bd} \u{b2}", &[49406, 272, 545, 273, 1764, 274, 33613, 41175, 49407]),
    ];

    #[test]
    fn tokens_are_those_of_open_clip() {
        for (text, expected) in GOLDEN {
            assert_eq!(tokens(text, 77, Package::OpenClip), *expected, "{text:?} is read as {:?}", clean(text));
        }
    }

    #[test]
    fn a_long_text_keeps_its_start_and_an_end() {
        let long = "word ".repeat(100);
        let cut = tokens(&long, 77, Package::OpenClip);
        assert_eq!((cut.len(), cut[0], cut[76]), (77, 49_406, 49_407));
        assert!(cut[1..76].iter().all(|token| *token == 2653), "{cut:?}");
        assert_eq!(tokens(&long, 200, Package::OpenClip).len(), 102);
    }

    /// 400 generated texts with HTML entities, odd characters and spaces, as both packages read them
    /// (scripts/make_tokenizer_goldens.py).
    #[test]
    fn generated_texts_are_read_as_each_package_reads_them() {
        let path = format!("{}/tests/fixtures/tokens/clip.json", env!("CARGO_MANIFEST_DIR"));
        let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        let context = golden["context"].as_u64().unwrap() as usize;
        let mut wrong = Vec::new();
        for row in golden["rows"].as_array().unwrap() {
            let text = row["text"].as_str().unwrap();
            for (name, package) in [("open_clip", Package::OpenClip), ("transformers", Package::Transformers)] {
                let expected: Vec<i64> = serde_json::from_value(row[name].clone()).unwrap();
                let found = tokens(text, context, package);
                if found != expected {
                    wrong.push(format!("{name}: {text:?}\n  found    {found:?}\n  expected {expected:?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{} differ, the first:\n{}", wrong.len(), wrong[..wrong.len().min(8)].join("\n"));
    }

    #[test]
    fn a_matrix_is_as_long_as_its_longest_text() {
        let matrix = matrix(&[vec![1, 2, 3], vec![4]]);
        assert_eq!(matrix, Tensor::from_slice(&[1i64, 2, 3, 4, 0, 0]).view([2, 3]));
    }
}
