//! The tables of a configuration whose names say the split.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::place::{Place, joined};

/// The ending of tables.
pub const ENDING: &str = ".parquet";

/// The folders in which the tables of a configuration without a name lie.
pub const USUAL: [&str; 3] = ["", "data", "default"];

/// The name of a configuration that has none.
pub const DEFAULT: &str = "default";

/// The words by which Python's `datasets` recognises splits in the names of files and folders.
const SPLITS: [&str; 10] =
    ["train", "training", "validation", "valid", "dev", "val", "test", "testing", "eval", "evaluation"];

/// The configuration whose tables are read.
#[derive(Clone, Copy)]
pub enum Wanted<'a> {
    /// The default one, or the only one.
    Only,
    /// The one of this name.
    Named(&'a str),
    /// The one that a published set has on the Hub, whose tables may also lie where none is named, or where another one is the only one.
    Published(&'a str),
    /// One of several that a published set has, such as a task or a size, whose tables may also lie where none is named.
    Part(&'a str),
}

/// Returns the error for several configurations of which none is named.
pub fn ambiguous<S: std::borrow::Borrow<str>>(place: &Path, configurations: &[S]) -> String {
    let known = configurations.join(", ");
    format!("{}: has several configurations: set config in [data.parquet] to one of {known}", place.display())
}

/// Returns the tables in a folder, or else in its folders one level down, by the split that their names say. Hidden files are none: macOS puts
/// one beside each file.
pub fn of_names(place: &Place, folder: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut files, folders) = place.entries(folder)?;
    files.retain(|file| !file.starts_with('.'));
    for file in files {
        if let Some(stem) = file.strip_suffix(ENDING) {
            found.entry(split_of(stem).to_string()).or_default().push(joined(folder, &file));
        }
    }
    if found.is_empty() {
        for split in folders {
            let inside = joined(folder, &split);
            let (files, _) = place.entries(&inside)?;
            // In a folder with the name of a split all tables are its own: Spark calls them part-00000-….
            let is_own = |stem: &str| match SPLITS.contains(&split.as_str()) {
                true => !stem.starts_with('.'),
                false => stem.bytes().all(|byte| byte.is_ascii_digit()),
            };
            let tables = files.iter().filter(|file| file.strip_suffix(ENDING).is_some_and(is_own));
            let tables: Vec<String> = tables.map(|file| joined(&inside, file)).collect();
            if !tables.is_empty() {
                found.insert(split, tables);
            }
        }
    }
    Ok(found)
}

/// The facts that a name like `train-00000-of-00002-1f3a` states: the split, the number of the table, and the number of all tables.
pub struct Numbered<'a> {
    pub split: &'a str,
    pub number: usize,
    pub of: usize,
}

/// Returns what the name of a table states, if it has this form.
pub fn numbered(stem: &str) -> Option<Numbered<'_>> {
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = stem.split('-').collect();
    let at = parts.windows(3).position(|part| part[1] == "of" && is_number(part[0]) && is_number(part[2]))?;
    let length = parts[..at].iter().map(|part| part.len() + 1).sum::<usize>().checked_sub(1)?;
    Some(Numbered { split: &stem[..length], number: parts[at].parse().ok()?, of: parts[at + 2].parse().ok()? })
}

/// Returns the split that the name of a table without its ending says.
fn split_of(stem: &str) -> &str {
    numbered(stem).map_or_else(|| without_number(stem), |numbered| numbered.split)
}

/// Returns the split of a stem such as `train-0`, `train_0` or `train0`, and any other stem as it is.
fn without_number(stem: &str) -> &str {
    let word = stem.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches(['-', '_', '.', ' ']);
    if SPLITS.contains(&word) { word } else { stem }
}
