//! Labelled texts from files of JSON lines.

use anyhow::Result;

use crate::data::subset::chosen;
use crate::data::{Inputs, Split, SplitName, Subset, Texts};

/// A text with its label.
pub struct Sample {
    pub text: String,
    pub label: u32,
}

/// Returns the split of samples, reduced to `subset`. With `ended`, the end-of-text token follows each text.
///
/// # Errors
/// Fails if the subset asks for more samples than there are.
pub fn split(
    (key, name): (&str, SplitName),
    samples: Vec<Sample>,
    ended: bool,
    subset: Option<Subset>,
) -> Result<Split> {
    let (texts, labels): (Vec<String>, Vec<u32>) = samples.into_iter().map(|one| (one.text, one.label)).unzip();
    let all = Split {
        name: format!("{key}/{name}"),
        inputs: Inputs::Texts(Texts::new(texts, ended)),
        labels,
        groups: None,
        corrupt_skipped: 0,
        decoded_from: None,
    };
    Ok(match chosen(subset, name, &all.labels)? {
        Some(indices) => all.select(&indices),
        None => all,
    })
}
