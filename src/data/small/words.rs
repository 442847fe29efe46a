//! The words of made texts.

/// Every word of a made text. The tokenizer of a rehearsal knows each as one token.
pub const WORDS: [&str; 32] = [
    "the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "with", "as", "his", "they", "be",
    "at", "one", "have", "this", "from", "or", "had", "by", "not", "but", "some", "what", "there", "we", "can",
];

/// Returns a text of so many words, which depends on `number`.
pub fn text(words: usize, number: usize) -> String {
    let word = |at: usize| WORDS[(7 * number + at * at + at) % WORDS.len()];
    (0..words).map(word).collect::<Vec<_>>().join(" ")
}
