//! The tables of one split in a folder of the Hub: those that the card (`README.md`) names, or those whose names say so:
//! `data/train-00000-of-00002.parquet`, `<config>/<split>/0000.parquet`, `train.parquet`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail, ensure};

use crate::hub::{data_files, data_folder, repository_of};

mod card;
mod names;
mod of_card;
mod place;
#[cfg(test)]
mod tests;
mod yaml;

pub use names::Wanted;
use names::{DEFAULT, ENDING, USUAL, ambiguous, numbered, of_names};
use of_card::Described;
use place::Place;

/// The card of a repository.
const CARD: &str = "README.md";

/// Returns the tables of each split of a configuration below the root, by the name of the split; `None` if the folder or the
/// repository of the Hub has no tables of it. Of a repository, the card alone is downloaded.
///
/// # Errors
/// Fails if the folder cannot be read, if a table of several is missing, if there are tables and none of the configuration that is named, or if a
/// repository has none of that of a published set: original files are read from folders only.
pub fn splits(root: &Path, config: Wanted) -> Result<Option<BTreeMap<String, Vec<String>>>> {
    let (place, card, is_partial) = match data_files(root)? {
        Some(files) => {
            let card = |files: &[String]| files.iter().filter(|file| *file == CARD).cloned().collect();
            (Place::Names(files.names), data_folder(root, &card)?.join(CARD), !files.are_all)
        }
        None => (Place::Folder(root.to_path_buf()), root.join(CARD), repository_of(root).is_some()),
    };
    let found = match (Described { place: &place, card: &card, is_partial }).tables(config)? {
        Some(found) => found,
        None => of_folders(&place, root, config)?,
    };
    for (split, tables) in &found {
        check_whole(root, split, tables)?;
    }
    if let (Place::Names(names), Wanted::Named(config) | Wanted::Published(config) | Wanted::Part(config), true) =
        (&place, config, found.is_empty())
    {
        bail!("{}", without_tables(root, config, names));
    }
    Ok((!found.is_empty()).then_some(found))
}

/// Returns the error for a repository without the tables of a configuration.
fn without_tables(root: &Path, config: &str, files: &[String]) -> String {
    const SHOWN: usize = 3;
    let few = files.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    let more = if files.len() > SHOWN { ", …" } else { "" };
    format!(
        "{}: has no tables of the configuration `{config}` (.parquet) among its files ({few}{more}): name a repository that has them, or the folder of the original files",
        root.display()
    )
}

/// Returns the folders below the root that hold the tables of a configuration, by name; those of tables without one are not among them.
fn configurations(place: &Place) -> Result<Vec<String>> {
    let (_, folders) = place.entries("")?;
    let mut found = Vec::new();
    for folder in folders.into_iter().filter(|folder| !USUAL.contains(&folder.as_str())) {
        if !of_names(place, &folder)?.is_empty() {
            found.push(folder);
        }
    }
    Ok(found)
}

/// Returns the tables of a configuration that no card names, by split: those in the folder of its name or in a usual one.
fn of_folders(place: &Place, root: &Path, config: Wanted) -> Result<BTreeMap<String, Vec<String>>> {
    let own = match config {
        Wanted::Only => None,
        Wanted::Named(name) | Wanted::Published(name) | Wanted::Part(name) => Some(name),
    };
    let has_to_be_named = matches!(config, Wanted::Named(name) if name != DEFAULT);
    for folder in own.into_iter().chain(USUAL) {
        let found = of_names(place, folder)?;
        ensure!(
            found.is_empty() || !has_to_be_named || own == Some(folder),
            "{}: has no configuration `{}`: its tables are in no folder of one: leave data.parquet.config out",
            root.display(),
            own.unwrap_or_default()
        );
        if !found.is_empty() {
            return Ok(found);
        }
    }
    if let Wanted::Published(_) | Wanted::Part(_) = config {
        return Ok(BTreeMap::new());
    }
    match (own, &configurations(place)?[..]) {
        (_, []) => Ok(BTreeMap::new()),
        (None, [only]) => of_names(place, only),
        (None, several) => bail!("{}", ambiguous(root, several)),
        (Some(name), known) => {
            bail!("{}: has no configuration `{name}`; known: {}", root.display(), known.join(", "))
        }
    }
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A table whose name says that it is one of several.
struct Part<'a> {
    table: &'a str,
    /// The folder and the beginning of the names of all that belong together.
    beginning: &'a str,
    number: usize,
    /// The number of all, if the name states it.
    of: Option<usize>,
}

/// Returns what the path of a table says of its number. The Hub's converted form counts from `0000.parquet` on; `2019.parquet` is only a name.
fn part(table: &str) -> Option<Part<'_>> {
    let name = name_of(table);
    let (stem, folder) = (name.strip_suffix(ENDING)?, table.len() - name.len());
    if let Some(numbered) = numbered(stem) {
        let beginning = &table[..folder + numbered.split.len()];
        return Some(Part { table, beginning, number: numbered.number, of: Some(numbered.of) });
    }
    let is_counted = stem.len() == 4 && stem.starts_with('0');
    let number = stem.parse().ok().filter(|_| is_counted)?;
    Some(Part { table, beginning: &table[..folder], number, of: None })
}

/// Checks that no table of a split is missing, and none is there twice. A card may give a split the tables of several folders, each of which
/// is counted for itself.
fn check_whole(root: &Path, split: &str, tables: &[String]) -> Result<()> {
    let mut groups: BTreeMap<&str, Vec<Part>> = BTreeMap::new();
    for part in tables.iter().filter_map(|table| part(table)) {
        groups.entry(part.beginning).or_default().push(part);
    }
    groups.into_values().try_for_each(|parts| check_parts(root, split, &parts))
}

/// Checks that numbered tables are all of one version.
fn check_parts(root: &Path, split: &str, parts: &[Part]) -> Result<()> {
    let shown = root.display();
    let count = parts[0].of.unwrap_or(parts.len());
    ensure!(
        parts.iter().all(|part| part.of.unwrap_or(count) == count),
        "{shown}: the tables of `{split}` are of two versions (`-of-{count:05}` and others): keep one of them"
    );
    for wanted in 0..count {
        let there = parts.iter().filter(|part| part.number == wanted).count();
        ensure!(
            there > 0,
            "{shown}: table {wanted} of the {count} tables of `{split}` is missing, where {} lies: fetch it, too",
            name_of(parts[0].table)
        );
        ensure!(
            there == 1,
            "{shown}: table {wanted} of the {count} tables of `{split}` is there twice: keep one of them"
        );
    }
    ensure!(
        parts.len() == count,
        "{shown}: has {} tables of `{split}`, and their names state {count}: keep those of one version",
        parts.len()
    );
    Ok(())
}
