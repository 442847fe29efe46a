//! Enums whose variants are named by a word in configs, options and files, and entries of registries, which are named by their key. Each
//! word is written once, in `words!` or in the entry. For a misspelt word, [`hint`] names the known one that it probably stands for.

use std::fmt;

use serde::Serialize;

/// An enum whose variants are named by words. `words!` implements it.
pub trait Choice: Copy + PartialEq + Serialize + 'static {
    /// Every word with its variant, in the order in which messages list them.
    const CHOICES: &'static [(&'static str, Self)];

    /// Returns the word of this variant.
    fn word(self) -> &'static str {
        Self::CHOICES.iter().find(|(_, choice)| *choice == self).map_or("", |(word, _)| word)
    }

    /// Returns the variant with this word.
    fn of_word(word: &str) -> Option<Self> {
        Self::CHOICES.iter().find(|(known, _)| *known == word).map(|(_, choice)| *choice)
    }

    /// Returns all variants.
    fn all() -> impl Iterator<Item = Self> {
        Self::CHOICES.iter().map(|(_, choice)| *choice)
    }

    /// Returns the words in one line, as messages list them.
    fn list() -> String {
        let words: Vec<&str> = Self::CHOICES.iter().map(|(word, _)| *word).collect();
        words.join(", ")
    }

    /// Returns the text "; did you mean `x`?", or an empty text if no word is close to `given`.
    fn hint(given: &str) -> String {
        hint(given, Self::CHOICES.iter().map(|(word, _)| *word))
    }
}

/// A word that no variant has.
#[derive(Debug)]
pub struct UnknownWord {
    given: String,
    known: String,
    hint: String,
}

impl UnknownWord {
    /// Returns the error that `given` is not a word of `E`.
    pub fn of<E: Choice>(given: &str) -> UnknownWord {
        UnknownWord { given: given.to_string(), known: E::list(), hint: E::hint(given) }
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown word `{}`; known: {}{}", self.given, self.known, self.hint)
    }
}

impl std::error::Error for UnknownWord {}

/// Returns a word of a command-line option with its help, which is the variant's documentation without the final
/// period.
pub fn possible_value(word: &'static str, documentation: &'static str) -> clap::builder::PossibleValue {
    let help = documentation.trim();
    let value = clap::builder::PossibleValue::new(word);
    if help.is_empty() { value } else { value.help(help.strip_suffix('.').unwrap_or(help)) }
}

/// Declares an enum and the word of each variant, which names it in configs, command-line options and files. Messages
/// list the words in the order of the variants.
macro_rules! words {
    ($(#[$meta:meta])* $visibility:vis enum $name:ident {
        $($(#[doc = $documentation:literal])* $variant:ident = $word:literal),+ $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility enum $name { $($(#[doc = $documentation])* $variant),+ }

        impl $crate::schema::Choice for $name {
            const CHOICES: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad($crate::schema::Choice::word(*self))
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::schema::UnknownWord;

            fn from_str(word: &str) -> ::std::result::Result<Self, Self::Err> {
                let found = <Self as $crate::schema::Choice>::of_word(word);
                found.ok_or_else(|| $crate::schema::UnknownWord::of::<Self>(word))
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.serialize_str($crate::schema::Choice::word(*self))
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> ::std::result::Result<Self, D::Error> {
                let word = <::std::string::String as ::serde::Deserialize>::deserialize(deserializer)?;
                word.parse().map_err(::serde::de::Error::custom)
            }
        }

        impl ::clap::ValueEnum for $name {
            fn value_variants<'a>() -> &'a [Self] {
                &[$(Self::$variant),+]
            }

            fn to_possible_value(&self) -> ::std::option::Option<::clap::builder::PossibleValue> {
                let documentation = match self { $(Self::$variant => concat!("", $($documentation),*)),+ };
                Some($crate::schema::possible_value($crate::schema::Choice::word(*self), documentation))
            }
        }
    };
}

pub(crate) use words;

/// An entry of a registry. `keyed!` implements it.
pub trait Keyed {
    /// The word that messages use for such an entry.
    const KIND: &'static str;

    /// Returns the word by which options and configs name the entry.
    fn key(&self) -> &'static str;
}

/// Implements [`Keyed`] for a type that has a `key`.
macro_rules! keyed {
    ($name:ty, $kind:literal) => {
        impl $crate::schema::Keyed for $name {
            const KIND: &'static str = $kind;

            fn key(&self) -> &'static str {
                self.key
            }
        }
    };
}

pub(crate) use keyed;

/// Returns the keys of all entries in one line, as messages list them.
pub fn keys<E: Keyed>(entries: &[&E]) -> String {
    entries.iter().map(|entry| entry.key()).collect::<Vec<_>>().join(", ")
}

/// Returns the entry with a key.
///
/// # Errors
/// Fails for an unknown key, and lists the known ones.
pub fn find<E: Keyed>(entries: &[&'static E], key: &str) -> Result<&'static E, String> {
    let found = entries.iter().copied().find(|entry| entry.key() == key);
    found.ok_or_else(|| format!("unknown {} `{key}`; known: {}", E::KIND, keys(entries)))
}

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
    use clap::ValueEnum;

    use super::*;

    words! {
        /// The learning rate over time.
        enum Schedule {
            /// Half a cosine,
            /// down to 0.
            Cosine = "cosine",
            Constant = "constant",
        }
    }

    #[test]
    fn a_word_is_the_same_everywhere() {
        for (word, schedule) in Schedule::CHOICES {
            assert_eq!((schedule.word(), schedule.to_string().as_str()), (*word, *word));
            assert_eq!(word.parse::<Schedule>().unwrap(), *schedule);
            assert_eq!(serde_json::to_string(schedule).unwrap(), format!("{word:?}"));
            assert_eq!(serde_json::from_str::<Schedule>(&format!("{word:?}")).unwrap(), *schedule);
            assert_eq!(schedule.to_possible_value().unwrap().get_name(), *word);
        }
        assert_eq!(Schedule::all().collect::<Vec<_>>(), [Schedule::Cosine, Schedule::Constant]);
    }

    #[test]
    fn help_is_the_documentation() {
        let help = |schedule: Schedule| schedule.to_possible_value().unwrap().get_help().map(|text| text.to_string());
        assert_eq!(help(Schedule::Cosine).as_deref(), Some("Half a cosine, down to 0"));
        assert_eq!(help(Schedule::Constant), None);
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_known_ones() {
        let error = "cosin".parse::<Schedule>().unwrap_err().to_string();
        assert_eq!(error, "unknown word `cosin`; known: cosine, constant; did you mean `cosine`?");
    }

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
