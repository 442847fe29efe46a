//! Folders of class folders that are called as splits usually are.

use std::path::Path;

use super::class_folders::{entries, folders, is_image};
use crate::data::SplitName;
use crate::schema::Choice;

/// Further names, in small letters, by which a folder is meant for a split.
const OTHERS: [(SplitName, &[&str]); 2] =
    [(SplitName::Train, &["training"]), (SplitName::Test, &["testing", "eval", "evaluation"])];

/// Returns the folders in `root` that are called as splits usually are and hold class folders, each with its split; of several of one
/// split the one with bella's own name comes first. A root that cannot be listed has none.
pub fn usual_splits(root: &Path) -> Vec<(SplitName, String)> {
    let split_of = |name: &String| {
        let mut usual = SplitName::ALL.map(|split| (split, split.names())).into_iter().chain(OTHERS);
        let found = usual.find(|(_, words)| words.contains(&name.to_lowercase().as_str()));
        found.map(|(split, _)| split).filter(|_| holds_classes(&root.join(name)))
    };
    let names = folders(root, "<class>/<images>").unwrap_or_default();
    let mut found: Vec<_> = names.into_iter().filter_map(|name| Some((split_of(&name)?, name))).collect();
    found.sort_by_key(|(split, name)| name != split.word());
    found
}

/// Returns whether a folder holds folders, and no image beside them.
pub fn holds_classes(folder: &Path) -> bool {
    let inside = entries(folder).unwrap_or_default();
    inside.iter().any(|entry| entry.is_dir()) && !inside.iter().any(|entry| is_image(entry))
}
