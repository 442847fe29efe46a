//! The names of ImageNet's classes, from files with one line per class: `<wnid> <name>, <other name>, …`, separated by
//! a space or a tab.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result};

use crate::base::files::put;

/// The WordNet numbers and names of ImageNet's thousand classes, in the order of their labels.
const IMAGENET: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/assets/imagenet_names.txt"));

/// Returns the WordNet numbers of ImageNet's classes, sorted.
pub fn all() -> Vec<String> {
    IMAGENET.lines().filter_map(|line| line.split('\t').next()).map(str::to_string).collect()
}

/// Returns the WordNet numbers of the first `count` classes of ImageNet.
pub fn first(count: usize) -> Vec<String> {
    all().into_iter().take(count).collect()
}

/// Writes a file that names each class.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write(file: &Path, wnids: &[String]) -> Result<()> {
    put(file, wnids.iter().map(|wnid| format!("{wnid}\tmade-up {wnid}\n")).collect::<String>())
}

/// Returns the first name of each of `wnids` in `file`, or all of its names if two classes share the first one, with its number if they share
/// all: WordNet calls both a bird and a machine `crane`, and nothing else.
///
/// # Errors
/// Fails if the file cannot be read, or if a class has no name.
pub fn names(file: &Path, wnids: &[String]) -> Result<Vec<String>> {
    let at = file.display();
    let text = crate::base::files::read_text(file).with_context(|| format!("{at}: cannot read"))?;
    let lines = text.lines().filter_map(|line| line.trim().split_once([' ', '\t']));
    let all: BTreeMap<&str, &str> = lines.map(|(wnid, names)| (wnid, names.trim())).collect();
    let full = |wnid: &String| all.get(wnid.as_str()).copied().with_context(|| format!("{at}: no name of {wnid}"));
    let full: Vec<&str> = wnids.iter().map(full).collect::<Result<_>>()?;
    let first = |names: &str| names.split(',').next().unwrap_or_default().trim().to_string();
    let (mut seen, mut shared) = (BTreeSet::new(), BTreeSet::new());
    for names in &full {
        if !seen.insert(first(names)) {
            shared.insert(first(names));
        }
    }
    let name = |names: &&str| if shared.contains(&first(names)) { names.to_string() } else { first(names) };
    let mut named: Vec<String> = full.iter().map(name).collect();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    named.iter().for_each(|name| *counts.entry(name.clone()).or_default() += 1);
    for (name, wnid) in named.iter_mut().zip(wnids) {
        if counts[name] > 1 {
            *name += &format!(" ({wnid})");
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_names_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("words.txt");
        std::fs::write(&file, "n1 crane\nn2\tcrane, lifter\nn3 tench, Tinca tinca\nn4 crane\n\n").unwrap();
        let names = |wnids: [&str; 2]| names(&file, &wnids.map(str::to_string));
        assert_eq!(names(["n1", "n2"]).unwrap(), ["crane", "crane, lifter"]);
        assert_eq!(names(["n3", "n2"]).unwrap(), ["tench", "crane"]);
        assert_eq!(names(["n1", "n4"]).unwrap(), ["crane (n1)", "crane (n4)"]);
        assert!(names(["n1", "n5"]).unwrap_err().to_string().contains("words.txt: no name of n5"));
    }
}
