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
use names::{DEFAULT, ENDING, Numbered, USUAL, ambiguous, numbered, of_names};
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
    if let (Place::Names(names), Wanted::Named(config) | Wanted::Published(config), true) =
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
        Wanted::Named(name) | Wanted::Published(name) => Some(name),
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
    if let Wanted::Published(_) = config {
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

/// Checks that no table of a split is missing, and none is there twice.
fn check_whole(root: &Path, split: &str, tables: &[String]) -> Result<()> {
    let shown = root.display();
    let stem = |path: &String| name_of(path).strip_suffix(ENDING).unwrap_or_default().to_string();
    let stems: Vec<String> = tables.iter().map(stem).collect();
    let numbers: Option<Vec<Numbered>> = stems.iter().map(|stem| numbered(stem)).collect();
    let (numbers, count) = match numbers {
        Some(numbers) if !numbers.is_empty() => {
            let count = numbers[0].of;
            ensure!(
                numbers.iter().all(|one| one.of == count),
                "{shown}: the tables of `{split}` are of two versions (`-of-{count:05}` and others): keep one of them"
            );
            (numbers.into_iter().map(|one| one.number).collect::<Vec<_>>(), count)
        }
        _ => match stems.iter().map(|stem| stem.parse().ok()).collect::<Option<Vec<usize>>>() {
            Some(numbers) => (numbers, stems.len()),
            None => return Ok(()),
        },
    };
    for wanted in 0..count {
        let there = numbers.iter().filter(|number| **number == wanted).count();
        ensure!(
            there > 0,
            "{shown}: table {wanted} of the {count} tables of `{split}` is missing, where {} lies: fetch it, too",
            name_of(&tables[0])
        );
        ensure!(
            there == 1,
            "{shown}: table {wanted} of the {count} tables of `{split}` is there twice: keep one of them"
        );
    }
    ensure!(
        numbers.len() == count,
        "{shown}: has {} tables of `{split}`, and their names state {count}: keep those of one version",
        numbers.len()
    );
    Ok(())
}
