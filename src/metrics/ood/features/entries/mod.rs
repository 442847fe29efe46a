//! The registry of scores by features, and scores as they are saved with predictions, under the name of their entry. A new one is one file, its `mod` line and its line here.

mod ash;
mod knn;
mod mahalanobis;
mod react;
mod relative_mahalanobis;
mod vim;

use super::fitting::Entry;
use crate::metrics::ood::OodRow;
use crate::predictions::SampleScores;

pub static FEATURE_SCORES: &[&Entry] =
    &[&knn::ENTRY, &mahalanobis::ENTRY, &relative_mahalanobis::ENTRY, &vim::ENTRY, &react::ENTRY, &ash::ENTRY];

/// The end of the name of scores by detectors that were fitted on held-out images, behind the key.
pub const ON_HELD_OUT: &str = " on val";

/// Returns the key of the entry by which scores of a name were computed.
pub fn key_of(name: &str) -> &str {
    name.strip_suffix(ON_HELD_OUT).unwrap_or(name)
}

/// Returns a row for each name that samples inside and outside have scores of, in the order of the registry.
pub fn compare(inside: &SampleScores, outside: &SampleScores) -> Vec<OodRow> {
    let of_entry = |entry: &'static Entry| {
        let named = inside.iter().filter(move |(name, _)| key_of(name) == entry.key);
        let pairs = named.filter_map(move |(name, inside)| Some((name, inside, outside.get(name)?)));
        pairs.map(move |(name, inside, outside)| OodRow::of_scores(name.clone(), entry.definition, inside, outside))
    };
    FEATURE_SCORES.iter().copied().flat_map(of_entry).collect()
}
