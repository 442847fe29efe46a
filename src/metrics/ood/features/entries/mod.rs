//! The registry of scores by features. A new one is one file, its `mod` line and its line here.

mod ash;
mod knn;
mod mahalanobis;
mod react;
mod relative_mahalanobis;
mod vim;

use super::fitting::Entry;

pub static FEATURE_SCORES: &[&Entry] =
    &[&knn::ENTRY, &mahalanobis::ENTRY, &relative_mahalanobis::ENTRY, &vim::ENTRY, &react::ENTRY, &ash::ENTRY];

/// Returns the keys of all scores in one line.
pub fn keys() -> String {
    FEATURE_SCORES.iter().map(|entry| entry.key).collect::<Vec<_>>().join(", ")
}

/// Finds a score by its key.
///
/// # Errors
/// Fails for an unknown one, and names all.
pub fn find(key: &str) -> Result<&'static Entry, String> {
    let found = FEATURE_SCORES.iter().copied().find(|entry| entry.key == key);
    found.ok_or_else(|| format!("unknown score `{key}`; known: {}", keys()))
}
