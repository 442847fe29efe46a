//! Finds the known word that a misspelt word probably stands for.

/// Words that other programs use, and ours.
const SYNONYMS: &[(&str, &str)] = &[
    ("learning-rate", "lr"),
    ("bs", "batch_size"),
    ("batch", "batch_size"),
    ("wd", "weight_decay"),
    ("epoch", "epochs"),
    ("num-epochs", "epochs"),
    ("warmup", "warmup_steps"),
    ("n-particles", "particles"),
    ("num-particles", "particles"),
    ("lora-alpha", "alpha"),
    ("r", "rank"),
    ("target-modules", "targets"),
    ("data-dir", "root"),
    ("model", "checkpoint"),
    ("dataset", "data"),
];

/// Returns the word of `known` that means the same as `word`, or the one closest to `word`, if it is within two typing slips (insertions, deletions, replacements
/// or swaps of neighbours). For words of up to four letters, it must be within one slip.
pub fn suggest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let known: Vec<&str> = known.into_iter().collect();
    let same = SYNONYMS.iter().filter(|(theirs, _)| letters(theirs) == letters(word));
    if let Some(ours) = same.filter_map(|(_, ours)| known.iter().find(|k| *k == ours)).next() {
        return Some(ours);
    }
    let slips = known.into_iter().map(|k| (distance(word, k), k));
    let (slips, nearest) = slips.min_by_key(|(slips, _)| *slips)?;
    let allowed = if nearest.chars().count() <= 4 { 1 } else { 2 };
    (slips <= allowed).then_some(nearest)
}

/// Returns the text "; did you mean `x`?", or an empty text if no word is close.
pub fn hint<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    suggest(word, known).map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// Returns the optimal string alignment distance (Damerau-Levenshtein without edits inside a swapped pair). Case is
/// ignored, and `-` equals `_`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (letters(a), letters(b));
    if a.len().abs_diff(b.len()) > 2 {
        return a.len().abs_diff(b.len());
    }
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

fn letters(word: &str) -> Vec<char> {
    let lower = word.chars().flat_map(char::to_lowercase);
    lower.map(|c| if c == '_' { '-' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_word_that_was_meant() {
        let known = ["map", "ensemble", "svgd", "laplace"];
        assert_eq!(suggest("svdg", known), Some("svgd"));
        assert_eq!(suggest("SVGD", known), Some("svgd"));
        assert_eq!(suggest("esemble", known), Some("ensemble"));
        assert_eq!(suggest("mop", known), Some("map"));
        assert_eq!(suggest("swag", known), None);
        assert_eq!(suggest("x", known), None);
        assert_eq!(suggest("x", []), None);
        assert_eq!(suggest("learning_rate", ["lr", "weight_decay"]), Some("lr"));
        assert_eq!(suggest("learning_rate", ["particles", "gamma"]), None);
        assert_eq!(suggest("wd", ["lr", "weight_decay"]), Some("weight_decay"));
        assert_eq!(suggest("batch-size", ["batch_size"]), Some("batch_size"));
    }

    #[test]
    fn counts_typing_slips() {
        assert_eq!(distance("", ""), 0);
        assert_eq!(distance("ab", "ba"), 1);
        assert_eq!(distance("gamma", "gama"), 1);
        assert_eq!(distance("rank", "bank"), 1);
        assert_eq!(distance("a", "abcd"), 3);
        assert_eq!(distance("abcd", "badc"), 2);
    }
}
