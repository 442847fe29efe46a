//! The tables of one split in a folder of the Hub: those that the card (`README.md`) names, or those whose names say so:
//! `data/train-00000-of-00002.parquet`, `<config>/<split>/0000.parquet`, `train.parquet`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::base::files::read_text;

/// The ending of tables.
const ENDING: &str = ".parquet";

/// The folders in which the tables of a configuration without a name lie.
const USUAL: [&str; 3] = ["", "data", "default"];

/// The name of a configuration that has none.
const DEFAULT: &str = "default";

/// Returns the tables of each split of a configuration, by the name of the split; `None` if the folder has no tables of it.
/// Without a name, the configuration is the default one, or the only one.
///
/// # Errors
/// Fails if the folder cannot be read, or if a table of several is missing.
pub fn splits(root: &Path, config: Option<&str>) -> Result<Option<BTreeMap<String, Vec<PathBuf>>>> {
    let found = match of_card(root, config)? {
        Some(found) => found,
        None => {
            let folders: Vec<&str> = config.into_iter().chain(USUAL).collect();
            let mut found = BTreeMap::new();
            for folder in folders.into_iter().map(|folder| root.join(folder)) {
                if found.is_empty() && folder.is_dir() {
                    found = of_names(&folder)?;
                }
            }
            found
        }
    };
    for (split, tables) in &found {
        check_whole(root, split, tables)?;
    }
    Ok((!found.is_empty()).then_some(found))
}

/// Returns the entries of a folder, sorted.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let failed = || format!("{}: cannot list the folder", folder.display());
    let listed = std::fs::read_dir(folder).with_context(failed)?.map(|entry| entry.map(|entry| entry.path()));
    let mut listed: Vec<PathBuf> = listed.collect::<std::io::Result<_>>().with_context(failed)?;
    listed.sort();
    Ok(listed)
}

fn name_of(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// Returns the tables in a folder, and in its folders one level down, by the split that their names say.
fn of_names(folder: &Path) -> Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let mut folders = Vec::new();
    for path in entries(folder)? {
        match name_of(&path).strip_suffix(ENDING) {
            Some(stem) if path.is_file() => found.entry(split_of(stem).to_string()).or_default().push(path),
            _ if path.is_dir() && !name_of(&path).starts_with('.') => folders.push(path),
            _ => {}
        }
    }
    if found.is_empty() {
        for inside in folders {
            let is_numbered = |path: &&PathBuf| {
                name_of(path).strip_suffix(ENDING).is_some_and(|stem| stem.bytes().all(|byte| byte.is_ascii_digit()))
            };
            let tables: Vec<PathBuf> = entries(&inside)?.iter().filter(is_numbered).cloned().collect();
            if !tables.is_empty() {
                found.insert(name_of(&inside).to_string(), tables);
            }
        }
    }
    Ok(found)
}

/// Returns the number of a table and the number of all tables, where a name like `train-00000-of-00002-1f3a` states them.
fn numbered(stem: &str) -> Option<(&str, usize, usize)> {
    let is_number = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = stem.split('-').collect();
    let at = parts.windows(3).position(|part| part[1] == "of" && is_number(part[0]) && is_number(part[2]))?;
    let length = parts[..at].iter().map(|part| part.len() + 1).sum::<usize>().checked_sub(1)?;
    Some((&stem[..length], parts[at].parse().ok()?, parts[at + 2].parse().ok()?))
}

/// Returns the split that the name of a table without its ending says.
fn split_of(stem: &str) -> &str {
    numbered(stem).map_or(stem, |(split, ..)| split)
}

/// Checks that no table of a split is missing, and none is there twice.
fn check_whole(root: &Path, split: &str, tables: &[PathBuf]) -> Result<()> {
    let shown = root.display();
    let stem = |path: &PathBuf| name_of(path).strip_suffix(ENDING).unwrap_or_default().to_string();
    let stems: Vec<String> = tables.iter().map(stem).collect();
    let numbers: Option<Vec<(usize, usize)>> =
        stems.iter().map(|stem| numbered(stem).map(|(_, number, of)| (number, of))).collect();
    let (numbers, count) = match numbers {
        Some(numbers) if !numbers.is_empty() => {
            let count = numbers[0].1;
            ensure!(
                numbers.iter().all(|(_, of)| *of == count),
                "{shown}: the tables of `{split}` are of two versions (`-of-{count:05}` and others): keep one of them"
            );
            (numbers.into_iter().map(|(number, _)| number).collect::<Vec<_>>(), count)
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

/// A configuration of a card: its name, and the patterns of the files of each split.
#[derive(Debug, Default, PartialEq)]
struct Config {
    name: String,
    is_default: bool,
    files: Vec<(String, Vec<String>)>,
}

/// Returns the tables that the card of a folder names; `None` if there is no card, or if it names no tables.
fn of_card(root: &Path, config: Option<&str>) -> Result<Option<BTreeMap<String, Vec<PathBuf>>>> {
    let card = root.join("README.md");
    if !card.is_file() {
        return Ok(None);
    }
    let text = read_text(&card).with_context(|| format!("{}: cannot read", card.display()))?;
    let configs = configs(&text);
    if configs.is_empty() {
        return Ok(None);
    }
    let chosen = match config {
        Some(name) => configs.iter().find(|one| one.name == name).or(configs.iter().find(|_| configs.len() == 1)),
        None => configs
            .iter()
            .find(|one| one.is_default || one.name == DEFAULT)
            .or(configs.first().filter(|_| configs.len() == 1)),
    };
    let Some(chosen) = chosen else {
        let names: Vec<&str> = configs.iter().map(|one| one.name.as_str()).collect();
        match config {
            Some(name) => bail!("{}: has no configuration `{name}`; known: {}", card.display(), names.join(", ")),
            None => {
                bail!("{}: has several configurations, so set config to one of {}", card.display(), names.join(", "))
            }
        }
    };
    let mut found = BTreeMap::new();
    for (split, patterns) in &chosen.files {
        let mut tables = Vec::new();
        for pattern in patterns {
            matching(root, &pattern.split('/').collect::<Vec<_>>(), &mut tables)?;
        }
        tables.retain(|path: &PathBuf| name_of(path).ends_with(ENDING));
        if !tables.is_empty() {
            found.insert(split.clone(), tables);
        }
    }
    Ok((!found.is_empty()).then_some(found))
}

/// Appends the files below a folder whose path has these parts, in each of which `*` stands for any characters; `**` stands for
/// any folders.
fn matching(folder: &Path, parts: &[&str], into: &mut Vec<PathBuf>) -> Result<()> {
    let Some((first, rest)) = parts.split_first() else { return Ok(()) };
    if *first == ".." || !folder.is_dir() {
        return Ok(());
    }
    if *first == "**" {
        matching(folder, rest, into)?;
    }
    for path in entries(folder)? {
        if path.is_dir() && *first == "**" && !path.is_symlink() {
            matching(&path, parts, into)?;
        } else if fits(name_of(&path), first) {
            if rest.is_empty() && path.is_file() {
                into.push(path);
            } else if !rest.is_empty() && path.is_dir() {
                matching(&path, rest, into)?;
            }
        }
    }
    Ok(())
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

/// Reads the entry `configs` of the metadata at the top of a card. It is YAML, of which only the forms that the Hub writes are
/// understood: `- config_name: x`, below it `data_files:` with `- split: s` and `path: p` or a list of paths.
fn configs(card: &str) -> Vec<Config> {
    let mut configs: Vec<Config> = Vec::new();
    let mut is_inside = false;
    let head = card.strip_prefix("---").unwrap_or_default();
    for line in head.lines().take_while(|line| line.trim_end() != "---") {
        let (is_top, text) = (!line.starts_with([' ', '-']) && !line.is_empty(), line.trim());
        if is_top {
            is_inside = text == "configs:";
            continue;
        }
        let item = text.strip_prefix("- ").map(str::trim);
        let (key, value) = item.unwrap_or(text).split_once(':').unwrap_or((item.unwrap_or(text), ""));
        let value = value.trim().trim_matches(['"', '\'']);
        match (key, configs.last_mut()) {
            _ if !is_inside => {}
            ("config_name", _) => configs.push(Config { name: value.to_string(), ..Config::default() }),
            ("default", Some(config)) => config.is_default = value == "true",
            ("split", Some(config)) => config.files.push((value.to_string(), Vec::new())),
            ("path", Some(Config { files, .. })) if !value.is_empty() => {
                files.last_mut().into_iter().for_each(|(_, paths)| paths.push(value.to_string()));
            }
            (path, Some(Config { files, .. })) if item.is_some() && path.contains(ENDING) || path.contains('*') => {
                let path = path.trim_matches(['"', '\'']);
                files.last_mut().into_iter().for_each(|(_, paths)| paths.push(path.to_string()));
            }
            _ => {}
        }
    }
    configs.retain(|config| !config.files.is_empty());
    configs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(root: &Path, files: &[&str]) {
        for file in files {
            std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
            std::fs::write(root.join(file), "").unwrap();
        }
    }

    fn found(files: &[&str], config: Option<&str>) -> Result<Vec<(String, usize)>> {
        let root = tempfile::tempdir().unwrap();
        touch(root.path(), files);
        let splits = splits(root.path(), config)?.unwrap_or_default();
        Ok(splits.into_iter().map(|(split, tables)| (split, tables.len())).collect())
    }

    #[test]
    fn names_say_the_split() {
        let is = |files: &[&str], config, expected: &[(&str, usize)]| {
            let expected: Vec<(String, usize)> =
                expected.iter().map(|(name, count)| (name.to_string(), *count)).collect();
            assert_eq!(found(files, config).unwrap(), expected, "{files:?}");
        };
        is(&["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"], None, &[("train", 2)]);
        is(&["plain_text/test-00000-of-00001.parquet"], Some("plain_text"), &[("test", 1)]);
        is(&["data/valid-00000-of-00001-70d52db3c749a935.parquet"], None, &[("valid", 1)]);
        is(&["mnli/validation_matched-00000-of-00001.parquet"], Some("mnli"), &[("validation_matched", 1)]);
        is(&["default/train/0000.parquet", "default/train/0001.parquet"], None, &[("train", 2)]);
        is(&["train.parquet", "test.parquet", "notes.txt"], None, &[("test", 1), ("train", 1)]);
        is(&["train/a.jpg", "data/labels.csv"], None, &[]);
    }

    #[test]
    fn a_missing_or_second_table_is_named() {
        let error = |files: &[&str]| found(files, None).unwrap_err().to_string();
        let missing = error(&["data/train-00000-of-00003.parquet", "data/train-00002-of-00003.parquet"]);
        assert!(
            missing.ends_with(
                "table 1 of the 3 tables of `train` is missing, where train-00000-of-00003.parquet lies: fetch it, too"
            ),
            "{missing}"
        );
        assert!(
            error(&["train/0000.parquet", "train/0002.parquet"])
                .contains("table 1 of the 2 tables of `train` is missing")
        );
        assert!(error(&["t-00000-of-00001-aa.parquet", "t-00000-of-00001-bb.parquet"]).contains("is there twice"));
        assert!(error(&["t-00000-of-00001.parquet", "t-00000-of-00002.parquet"]).contains("of two versions"));
    }

    const CARD: &str = "---\nlicense: mit\nconfigs:\n- config_name: small\n  data_files:\n  - split: train\n    path: small/tr*\n  \
                        - split: test\n    path:\n    - \"small/a.parquet\"\n    - small/b.parquet\n- config_name: big\n  default: true\n  \
                        data_files:\n  - split: train\n    path: big/**/x-*.parquet\ntags:\n- split: none\n---\n# Title\n";

    #[test]
    fn the_card_names_the_files() {
        let root = tempfile::tempdir().unwrap();
        touch(
            root.path(),
            &["small/train.parquet", "small/tr.txt", "small/a.parquet", "small/b.parquet", "big/u/v/x-1.parquet"],
        );
        std::fs::write(root.path().join("README.md"), CARD).unwrap();
        let counts = |config| -> Vec<(String, usize)> {
            splits(root.path(), config)
                .unwrap()
                .unwrap()
                .into_iter()
                .map(|(split, tables)| (split, tables.len()))
                .collect()
        };
        assert_eq!(counts(Some("small")), [("test".to_string(), 2), ("train".to_string(), 1)]);
        assert_eq!(counts(None), [("train".to_string(), 1)]);
        let error = splits(root.path(), Some("large")).unwrap_err().to_string();
        assert!(error.ends_with("README.md: has no configuration `large`; known: small, big"), "{error}");
    }

    #[test]
    fn patterns_are_those_of_the_hub() {
        assert!(fits("train-00000-of-00001.parquet", "train-*") && fits("a.b.c", "a*b*c") && fits("abc", "abc"));
        assert!(!fits("test-0", "train-*") && !fits("abcd", "abc") && !fits("ac", "a*b*c"));
    }
}
