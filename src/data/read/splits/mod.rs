//! The tables of one split in a folder of the Hub: those that the card (`README.md`) names, or those whose names say so:
//! `data/train-00000-of-00002.parquet`, `<config>/<split>/0000.parquet`, `train.parquet`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::base::files::read_text;
use crate::hub::{data_files, data_folder};

mod card;
#[cfg(test)]
mod tests;

use card::{ENDING, configs};

/// The card of a repository.
const CARD: &str = "README.md";

/// The folders in which the tables of a configuration without a name lie.
const USUAL: [&str; 3] = ["", "data", "default"];

/// The name of a configuration that has none.
const DEFAULT: &str = "default";

/// The configuration whose tables are read.
#[derive(Clone, Copy)]
pub enum Wanted<'a> {
    /// The default one, or the only one.
    Only,
    /// The one of this name.
    Named(&'a str),
    /// The one that a published set has on the Hub, whose tables may also lie where none is named.
    Published(&'a str),
}

/// A folder of tables, or the names of the files of a repository.
enum Place {
    Folder(PathBuf),
    Names(Vec<String>),
}

impl Place {
    /// Returns the names of the files and of the folders in a folder below the root, sorted.
    fn entries(&self, below: &str) -> Result<(Vec<String>, Vec<String>)> {
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
}

fn joined(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_string() } else { format!("{folder}/{name}") }
}

/// Returns the tables of each split of a configuration below the root, by the name of the split; `None` if the folder or the
/// repository of the Hub has no tables of it. Of a repository, the card alone is downloaded.
///
/// # Errors
/// Fails if the folder cannot be read, if a table of several is missing, if there are tables and none of the configuration that is named, or if a
/// repository has none of that of a published set: original files are read from folders only.
pub fn splits(root: &Path, config: Wanted) -> Result<Option<BTreeMap<String, Vec<String>>>> {
    let (place, card) = match data_files(root)? {
        Some(names) => {
            let card = |files: &[String]| files.iter().filter(|file| *file == CARD).cloned().collect();
            (Place::Names(names), data_folder(root, &card)?.join(CARD))
        }
        None => (Place::Folder(root.to_path_buf()), root.join(CARD)),
    };
    let found = match of_card(&place, &card, config)? {
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

fn ambiguous<S: std::borrow::Borrow<str>>(place: &Path, configurations: &[S]) -> String {
    let known = configurations.join(", ");
    format!("{}: has several configurations: set config in [data.parquet] to one of {known}", place.display())
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the tables in a folder, or else in its folders one level down, by the split that their names say.
fn of_names(place: &Place, folder: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (files, folders) = place.entries(folder)?;
    for file in files {
        if let Some(stem) = file.strip_suffix(ENDING) {
            found.entry(split_of(stem).to_string()).or_default().push(joined(folder, &file));
        }
    }
    if found.is_empty() {
        let is_numbered = |file: &&String| {
            file.strip_suffix(ENDING).is_some_and(|stem| stem.bytes().all(|byte| byte.is_ascii_digit()))
        };
        for split in folders {
            let inside = joined(folder, &split);
            let (files, _) = place.entries(&inside)?;
            let tables: Vec<String> = files.iter().filter(is_numbered).map(|file| joined(&inside, file)).collect();
            if !tables.is_empty() {
                found.insert(split, tables);
            }
        }
    }
    Ok(found)
}

/// The facts that a name like `train-00000-of-00002-1f3a` states: the split, the number of the table, and the number of all tables.
struct Numbered<'a> {
    split: &'a str,
    number: usize,
    of: usize,
}

/// Returns what the name of a table states, if it has this form.
fn numbered(stem: &str) -> Option<Numbered<'_>> {
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = stem.split('-').collect();
    let at = parts.windows(3).position(|part| part[1] == "of" && is_number(part[0]) && is_number(part[2]))?;
    let length = parts[..at].iter().map(|part| part.len() + 1).sum::<usize>().checked_sub(1)?;
    Some(Numbered { split: &stem[..length], number: parts[at].parse().ok()?, of: parts[at + 2].parse().ok()? })
}

/// Returns the split that the name of a table without its ending says.
fn split_of(stem: &str) -> &str {
    numbered(stem).map_or(stem, |numbered| numbered.split)
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

/// Returns the tables that a card names; `None` if there is no card, or if it names no tables.
fn of_card(place: &Place, card: &Path, config: Wanted) -> Result<Option<BTreeMap<String, Vec<String>>>> {
    if !card.is_file() {
        return Ok(None);
    }
    let text = read_text(card).with_context(|| format!("{}: cannot read", card.display()))?;
    let configs = configs(&text);
    if configs.is_empty() {
        return Ok(None);
    }
    let named = |name: &str| configs.iter().find(|one| one.name == name);
    let only = || configs.first().filter(|_| configs.len() == 1);
    let chosen = match config {
        Wanted::Named(name) => named(name),
        Wanted::Published(name) => named(name).or_else(only),
        Wanted::Only => configs.iter().find(|one| one.is_default || one.name == DEFAULT).or_else(only),
    };
    let Some(chosen) = chosen else {
        let names: Vec<&str> = configs.iter().map(|one| one.name.as_str()).collect();
        match config {
            Wanted::Named(name) | Wanted::Published(name) => {
                bail!("{}: has no configuration `{name}`; known: {}", card.display(), names.join(", "))
            }
            Wanted::Only => bail!("{}", ambiguous(card, &names)),
        }
    };
    let mut found = BTreeMap::new();
    for (split, patterns) in &chosen.files {
        let mut tables = Vec::new();
        for pattern in patterns {
            matching(place, "", &pattern.split('/').collect::<Vec<_>>(), &mut tables)?;
        }
        tables.retain(|path: &String| path.ends_with(ENDING));
        if !tables.is_empty() {
            found.insert(split.clone(), tables);
        }
    }
    Ok((!found.is_empty()).then_some(found))
}

/// Appends the files below a folder whose path has these parts, in each of which `*` stands for any characters; `**` stands for
/// any folders.
fn matching(place: &Place, folder: &str, parts: &[&str], into: &mut Vec<String>) -> Result<()> {
    let Some((first, rest)) = parts.split_first().filter(|(first, _)| **first != "..") else { return Ok(()) };
    let (files, folders) = place.entries(folder)?;
    if *first == "**" {
        matching(place, folder, rest, into)?;
        return folders.iter().try_for_each(|inside| matching(place, &joined(folder, inside), parts, into));
    }
    if rest.is_empty() {
        into.extend(files.iter().filter(|file| fits(file, first)).map(|file| joined(folder, file)));
        return Ok(());
    }
    let mut fitting = folders.iter().filter(|inside| fits(inside, first));
    fitting.try_for_each(|inside| matching(place, &joined(folder, inside), rest, into))
}

/// Returns whether a name fits a pattern in which `*` stands for any characters.
fn fits(name: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(last)
}
