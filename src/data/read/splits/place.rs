//! The files of a data set: a folder, or the names of the files of a repository.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result};
use glob::Pattern;

/// A folder of tables, or the names of the files of a repository.
pub enum Place {
    Folder(PathBuf),
    Names(Vec<String>),
}

impl Place {
    /// Returns the names of the files and of the folders in a folder below the root, sorted.
    pub fn entries(&self, below: &str) -> Result<(Vec<String>, Vec<String>)> {
        let (mut files, mut folders) = (BTreeSet::new(), BTreeSet::new());
        match self {
            Place::Folder(root) => {
                let folder = root.join(below);
                if !folder.is_dir() {
                    return Ok((Vec::new(), Vec::new()));
                }
                let failed = || format!("{}: cannot list the folder", folder.display());
                for entry in std::fs::read_dir(&folder).with_context(failed)? {
                    let path = entry.with_context(failed)?.path();
                    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
                    let _ =
                        if path.is_dir() { folders.insert(name.to_string()) } else { files.insert(name.to_string()) };
                }
            }
            Place::Names(names) => {
                let start = if below.is_empty() { String::new() } else { format!("{below}/") };
                for name in names.iter().filter_map(|name| name.strip_prefix(&start)) {
                    let _ = match name.split_once('/') {
                        Some((folder, _)) => folders.insert(folder.to_string()),
                        None => files.insert(name.to_string()),
                    };
                }
            }
        }
        Ok((files.into_iter().collect(), folders.into_iter().collect()))
    }

    /// Returns the files whose path fits a pattern, sorted: `*`, `?` and `[…]` stand for characters of a name, and `**` for any folders. As
    /// in Python's `datasets`, names that begin with `.` and folders that begin with `__` are left out unless the pattern names them.
    ///
    /// # Errors
    /// Fails if a folder cannot be listed, or with the rest of a sentence about the pattern if it is none.
    pub fn fitting(&self, pattern: &str) -> Result<Vec<String>> {
        let mut parts: Vec<&str> = pattern.split('/').collect();
        // What ends in any folders means the files in them.
        if parts.last() == Some(&"**") {
            parts.push("*");
        }
        let parts: Vec<Part> = parts.into_iter().map(Part::of).collect::<Result<_>>()?;
        let mut found = Vec::new();
        self.add_fitting("", &parts, &mut found)?;
        found.retain(|path| hidden(path) == hidden(pattern) && special(path) == special(pattern));
        found.sort();
        found.dedup();
        Ok(found)
    }

    /// Appends the files below a folder whose path has these parts.
    fn add_fitting(&self, folder: &str, parts: &[Part], into: &mut Vec<String>) -> Result<()> {
        let Some((first, rest)) = parts.split_first() else { return Ok(()) };
        let (files, folders) = self.entries(folder)?;
        let name = match first {
            Part::AnyFolders => {
                self.add_fitting(folder, rest, into)?;
                return folders.iter().try_for_each(|inside| self.add_fitting(&joined(folder, inside), parts, into));
            }
            Part::Name(name) => name,
        };
        if rest.is_empty() {
            into.extend(files.iter().filter(|file| name.matches(file)).map(|file| joined(folder, file)));
            return Ok(());
        }
        let mut fitting = folders.iter().filter(|inside| name.matches(inside));
        fitting.try_for_each(|inside| self.add_fitting(&joined(folder, inside), rest, into))
    }
}

/// A part of a pattern between two strokes.
enum Part {
    AnyFolders,
    Name(Pattern),
}

impl Part {
    fn of(part: &str) -> Result<Part> {
        if part == "**" {
            return Ok(Part::AnyFolders);
        }
        Pattern::new(part).map(Part::Name).map_err(|error| anyhow::anyhow!("`{part}` is no pattern: {}", error.msg))
    }
}

/// Returns the number of parts of a path that begin with a dot.
fn hidden(path: &str) -> usize {
    path.split('/').filter(|part| part.starts_with('.')).count()
}

/// Returns the number of folders of a path that begin with two underscores.
fn special(path: &str) -> usize {
    path.rsplit('/').skip(1).filter(|part| part.starts_with("__")).count()
}

/// Returns the path of a name in a folder below the root, which is the root if it is empty.
pub fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") }
}
