//! The layout of a user's data: which registered set reads it, and by which keys.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;

use super::folders::{expect_classes, of_class_folders, of_domains, published};
use super::tables::{self, LABELS, TEXTS, one_of, preferred, quoted};
use crate::base::small;
use crate::data::lines::read_lines;
use crate::data::read::class_folders::{entries, folders};
use crate::data::read::known::ordered;
use crate::data::{DATASETS, Hub, SplitName};
use crate::hub;
use crate::schema;

/// A set of the registry with the lines of its table, `validation` excepted.
pub struct Layout {
    pub key: String,
    pub lines: String,
    /// The place of the files; `None` for the embedded set.
    pub root: Option<PathBuf>,
}

impl Layout {
    /// A set whose files lie below a root, with more lines of its table.
    fn rooted(key: &str, root: &Path, more: &str) -> Layout {
        let lines = format!("root = {}\n{more}", toml::Value::from(root.to_string_lossy().into_owned()));
        Layout { key: key.to_string(), lines, root: Some(root.to_path_buf()) }
    }
}

/// Returns the layout of what the user names.
///
/// # Errors
/// Fails if there is no such thing, or if its layout is not known.
pub fn recognised(named: &str) -> Result<Layout> {
    if let Some(found) = of_key(named)? {
        return Ok(found);
    }
    let path = &expanded(Path::new(named))?;
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if path.is_file() && file.ends_with(".csv") {
        let root = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Ok(Layout::rooted("list", root, &format!("list = {}\n", toml::Value::from(file))));
    }
    let keys = schema::keys(DATASETS);
    if let Some(files) = hub::data_files(path)? {
        let found = of_either(path, &files.names)?;
        return found.with_context(|| {
            format!(
                "{named}: has neither tables (.parquet) nor tar archives in a layout that bella knows; a data set of its own is named by \
                 KEY=ROOT, with KEY one of {keys}"
            )
        });
    }
    if !path.is_dir() {
        bail!(
            "{named}: no such folder, and no data set of that name; for a known one: KEY=ROOT, with KEY one of {keys}"
        );
    }
    if let Some(found) = of_folder(path)? {
        return Ok(found);
    }
    folders(path, "<class>/<images>").with_context(|| {
        format!(
            "{named}: no layout that bella knows; a data set of its own is named by KEY=ROOT, with KEY one of {keys}"
        )
    })?;
    expect_classes(path)?;
    Ok(Layout::rooted("image-folder", path, &of_class_folders(path)))
}

/// Returns the layout of the files in a folder; `None` if there are none but class folders perhaps.
///
/// # Errors
/// Fails if the files cannot be read, or if it cannot be told what is in them.
fn of_folder(path: &Path) -> Result<Option<Layout>> {
    for (file, key) in [("list.csv", "list"), ("classnames.txt", "webdataset")] {
        if path.join(file).is_file() {
            return Ok(Some(Layout::rooted(key, path, "")));
        }
    }
    if let Some(key) = published(path)? {
        return Ok(Some(Layout::rooted(key, path, "")));
    }
    if let Some(lines) = of_domains(path)? {
        return Ok(Some(Layout::rooted("domainnet", path, &lines)));
    }
    if let Some(found) = of_either(path, &near(path)?)? {
        return Ok(Some(found));
    }
    Ok(of_lines(path)?.map(|lines| Layout::rooted("jsonl", path, &lines)))
}

/// Returns the layout of a set that is named by its key: `KEY=ROOT`, or `KEY` of one whose files the Hub has or which has none, each
/// also with a task (`KEY/TASK`). `None` if there is no such key, or if a file or a folder has this name.
///
/// # Errors
/// Fails as [`expanded`] does.
fn of_key(named: &str) -> Result<Option<Layout>> {
    let (set, root) = named.split_once('=').map_or((named, None), |(set, root)| (set, Some(PathBuf::from(root))));
    let (key, task) = set.split_once('/').map_or((set, None), |(key, task)| (key, Some(task)));
    let Some(entry) = DATASETS.iter().find(|entry| entry.key == key) else { return Ok(None) };
    if root.is_none() && Path::new(named).exists() {
        return Ok(None);
    }
    let root = root.map(|root| expanded(&root)).transpose()?;
    let task = task.map_or_else(String::new, |task| format!("task = {}\n", toml::Value::from(task)));
    let more = root.as_ref().filter(|_| key == "image-folder").map_or_else(String::new, |root| of_class_folders(root));
    Ok(Some(match root.or_else(|| entry.hub.as_ref().map(Hub::root)) {
        Some(root) => Layout::rooted(key, &root, &(task + &more)),
        None => Layout { key: key.to_string(), lines: task, root: None },
    }))
}

/// Returns a path as the shell would read it if it stood alone.
///
/// # Errors
/// Fails if a variable of the environment is not set.
pub fn expanded(path: &Path) -> Result<PathBuf> {
    let text = path.to_string_lossy();
    let found = small::expanded(&text).map_err(|why| anyhow!("{text}: {why}"))?;
    Ok(if found == Path::new(&*text) { path.to_path_buf() } else { found })
}

/// Returns the layout of tables or archives; `None` if there is neither.
fn of_either(root: &Path, files: &[String]) -> Result<Option<Layout>> {
    let repository = hub::repository_of(root);
    let is_of = |name: &str| repository.as_ref().is_some_and(|repository| repository.eq_ignore_ascii_case(name));
    if let Some(entry) = DATASETS.iter().find(|entry| entry.hub.as_ref().is_some_and(|hub| is_of(hub.repository))) {
        return Ok(Some(Layout::rooted(entry.key, root, "")));
    }
    if let Some(lines) = of_archives(files) {
        return Ok(Some(Layout::rooted("webdataset", root, &lines)));
    }
    Ok(tables::keys(root)?.map(|lines| Layout::rooted("parquet", root, &lines)))
}

/// Returns the archives in a folder and in its folders of splits, as names below it.
fn near(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut add = |before: &str, inside: &Path| -> Result<()> {
        for entry in entries(inside)?.iter().filter(|entry| entry.extension().is_some_and(|ending| ending == "tar")) {
            let name = entry.file_name().unwrap_or_default().to_string_lossy();
            names.push(format!("{before}{name}"));
        }
        Ok(())
    };
    add("", folder)?;
    for word in SplitName::ALL.iter().flat_map(|split| split.names()) {
        let inside = folder.join(word);
        if inside.is_dir() {
            add(&format!("{word}/"), &inside)?;
        }
    }
    Ok(names)
}

/// Returns the lines of `[data.webdataset]` that name archives: none if they lie in a folder a split; `None` if there are no archives
/// of splits.
fn of_archives(files: &[String]) -> Option<String> {
    let archives: Vec<&str> = files.iter().map(String::as_str).filter(|file| file.ends_with(".tar")).collect();
    let is_inside = |file: &str, word: &str| file.strip_prefix(word).is_some_and(|rest| rest.starts_with('/'));
    let mut words = SplitName::ALL.iter().flat_map(|split| split.names());
    if words.any(|word| archives.iter().any(|file| is_inside(file, word))) {
        return Some(String::new());
    }
    let mut lines = String::new();
    for split in SplitName::ALL {
        let starts = |file: &str| {
            let mut rests = split.names().iter().filter_map(|word| file.strip_prefix(word));
            rests.any(|rest| !rest.starts_with(|sign: char| sign.is_alphabetic()))
        };
        let mut of_split: Vec<&str> = archives.iter().copied().filter(|file| starts(file)).collect();
        of_split.sort_unstable();
        if !of_split.is_empty() {
            lines += &format!("{split} = {}\n", toml::Value::from(pattern(&of_split)));
        }
    }
    (!lines.is_empty()).then_some(lines)
}

/// Returns a pattern that means these archives, sorted: a range of their numbers, or all of their names.
fn pattern(names: &[&str]) -> String {
    let numbered = |name: &str| {
        let stem = name.strip_suffix(".tar")?;
        let start = stem.trim_end_matches(|sign: char| sign.is_ascii_digit()).len();
        Some((stem[..start].to_string(), stem[start..].to_string())).filter(|(_, digits)| !digits.is_empty())
    };
    let parts: Option<Vec<(String, String)>> = names.iter().map(|name| numbered(name)).collect();
    let is_range = |parts: &[(String, String)]| {
        let Ok(first) = parts[0].1.parse::<u32>() else { return false };
        (u64::from(first)..).zip(parts).all(|(number, (start, digits))| {
            *start == parts[0].0 && digits.len() == parts[0].1.len() && digits.parse() == Ok(number)
        })
    };
    match (names, parts) {
        ([one], _) => one.to_string(),
        (_, Some(parts)) if is_range(&parts) => {
            format!("{}{{{}..{}}}.tar", parts[0].0, parts[0].1, parts[parts.len() - 1].1)
        }
        _ => format!("{{{}}}", names.join(",")),
    }
}

/// The usual keys of both texts of a pair.
const PAIRS: [[&str; 2]; 5] = [
    ["sentence1", "sentence2"],
    ["premise", "hypothesis"],
    ["question1", "question2"],
    ["question", "sentence"],
    ["text1", "text2"],
];

/// The most label words: more values than this are no classes.
const MOST: usize = 1000;

/// Returns the lines of `[data.jsonl]` for the files in a folder, `root` and `validation` excepted; `None` if it has no `train.jsonl`.
///
/// # Errors
/// Fails if the files cannot be read, or if it cannot be told what their keys are.
fn of_lines(root: &Path) -> Result<Option<String>> {
    let train = root.join("train.jsonl");
    if !train.is_file() {
        return Ok(None);
    }
    let lines = read_lines(&train)?;
    let of = |is_kind: fn(&Value) -> bool| -> Vec<&str> {
        lines[0].table().filter(|(_, value)| is_kind(value)).map(|(key, _)| key).collect()
    };
    let (texts, numbers) = (of(Value::is_string), of(|value| value.is_i64() || value.is_boolean()));
    let unknown = |what: &str| {
        let all = of(|_| true);
        format!(
            "{}: which of the keys {} has the {what} cannot be told: write [data.jsonl] by hand, with prompt and label_key",
            train.display(),
            all.join(", ")
        )
    };
    let label = preferred(&numbers, &LABELS).or_else(|| preferred(&texts, &LABELS)).or_else(|| one_of(&numbers, &[]));
    let label = label.with_context(|| unknown("labels"))?;
    let words: BTreeSet<String> = lines.iter().map(|line| line.text(label)).collect::<Result<_>>()?;
    let words = in_order(words, lines.len());
    ensure!(words.len() <= MOST, "{}: `{label}` has {} values, which are no classes", train.display(), words.len());
    let texts: Vec<&str> = texts.into_iter().filter(|key| *key != label).collect();
    let mut keys = match PAIRS.iter().find(|pair| pair.iter().all(|key| texts.contains(key))) {
        Some([first, second]) => format!("prompt = {}\nsecond = {}\n", template(first), template(second)),
        None => format!("prompt = {}\n", template(one_of(&texts, &TEXTS).with_context(|| unknown("texts"))?)),
    };
    let words: Vec<String> = words.iter().map(|word| quoted(word).to_string()).collect();
    keys += &format!("label_key = {}\nlabels = [{}]\n", quoted(label), words.join(", "));
    Ok(Some(keys + &of_splits(root)?))
}

/// Returns label words in the order of their numbers, if all are numbers, else in their own. Where they count from 0 or 1, no number is
/// left out, unless there are more than lines, so that a classifier's rows are theirs though training texts have not all of them.
fn in_order(words: BTreeSet<String>, lines: usize) -> Vec<String> {
    let of = |word: &String| word.parse::<i64>().ok().filter(|number| number.to_string() == *word);
    let Some(numbers) = words.iter().map(of).collect::<Option<BTreeSet<i64>>>() else {
        return ordered(words);
    };
    let all = match (numbers.first(), numbers.last()) {
        (Some(&first @ (0 | 1)), Some(&last)) if last <= lines as i64 => (first..=last).collect(),
        _ => numbers,
    };
    all.iter().map(i64::to_string).collect()
}

/// Returns the template that is the value of a key alone.
fn template(key: &str) -> toml::Value {
    quoted(&format!("{{{key}}}"))
}

/// Returns the lines that name the files of the splits; where there is no test split, that of validation is tested on.
fn of_splits(root: &Path) -> Result<String> {
    let file = |word: &str| Some(format!("{word}.jsonl")).filter(|file| root.join(file).is_file());
    let val = SplitName::Val.names().iter().find_map(|word| file(word));
    match (file("test"), val) {
        (Some(_), Some(val)) if val != "val.jsonl" => Ok(format!("val = {}\n", quoted(&val))),
        (Some(_), _) => Ok(String::new()),
        (None, Some(val)) => Ok(format!("val = {0}\ntest = {0} # there is no test.jsonl\n", quoted(&val))),
        (None, None) => {
            anyhow::bail!("{}: has neither test.jsonl nor validation.jsonl: put lines apart to test on", root.display())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files::put;

    #[test]
    fn archives_are_those_of_folders_or_of_patterns() {
        let of = |files: &[&str]| of_archives(&files.iter().map(|file| file.to_string()).collect::<Vec<_>>());
        assert_eq!(of(&["classnames.txt", "test/0.tar", "train/0.tar"]).as_deref(), Some(""));
        assert_eq!(
            of(&["train-0002.tar", "train-0001.tar", "validation_00.tar", "test.tar", "notes.tar"]).as_deref(),
            Some("train = \"train-{0001..0002}.tar\"\nval = \"validation_00.tar\"\ntest = \"test.tar\"\n")
        );
        assert_eq!(of(&["train-1.tar", "train-3.tar"]).as_deref(), Some("train = \"{train-1.tar,train-3.tar}\"\n"));
        assert_eq!(of(&["dev-0.tar"]).as_deref(), Some("val = \"dev-0.tar\"\n"));
        assert_eq!(of(&["dev/0.tar"]).as_deref(), Some(""));
        assert_eq!(of(&["training.tar", "a.parquet"]), None);
    }

    /// Labels are rows of a checkpoint's classifier, so the class 2 is before the class 10, and a class that no line has keeps its place.
    #[test]
    fn numbers_of_classes_are_in_their_order() {
        let of = |words: &[&str], lines: usize| in_order(words.iter().map(|word| word.to_string()).collect(), lines);
        let counted =
            |numbers: std::ops::RangeInclusive<i64>| numbers.map(|number| number.to_string()).collect::<Vec<_>>();
        assert_eq!(of(&["0", "1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9"], 100), counted(0..=11));
        assert_eq!(of(&["0", "1", "3"], 100), counted(0..=3));
        assert_eq!(of(&["1", "2", "4", "5"], 100), counted(1..=5));
        assert_eq!(of(&["-1", "10", "2"], 100), ["-1", "2", "10"]);
        assert_eq!(of(&["0", "1000000"], 100), ["0", "1000000"]);
        assert_eq!(of(&["10", "2", "b"], 100), ["10", "2", "b"]);
        assert_eq!(of(&["00", "1", "10"], 100), ["00", "1", "10"]);
    }

    #[test]
    fn keys_labels_and_splits_are_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        assert_eq!(of_lines(root).unwrap(), None);
        let write = |file: &str, text: &str| put(&root.join(file), text).unwrap();
        write(
            "train.jsonl",
            "{\"id\": 1, \"text\": \"a\", \"label\": \"no\"}\n{\"id\": 2, \"text\": \"b\", \"label\": \"go\"}\n",
        );
        assert!(format!("{:#}", of_lines(root).unwrap_err()).contains("has neither test.jsonl nor validation.jsonl"));
        write("dev.jsonl", "{\"text\": \"a\", \"label\": \"no\"}\n");
        let found = of_lines(root).unwrap().unwrap();
        assert!(
            found.starts_with(
                "prompt = \"{text}\"\nlabel_key = \"label\"\nlabels = [\"go\", \"no\"]\nval = \"dev.jsonl\""
            )
        );
        write("train.jsonl", "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": 0}\n");
        write("test.jsonl", "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": 0}\n");
        let found = of_lines(root).unwrap().unwrap();
        assert!(found.starts_with("prompt = \"{premise}\"\nsecond = \"{hypothesis}\"\nlabel_key"), "{found}");
        assert!(found.ends_with("labels = [\"0\"]\nval = \"dev.jsonl\"\n"), "{found}");
        write("train.jsonl", "{\"a\": \"x\", \"b\": \"y\", \"label\": 1}\n");
        assert!(
            format!("{:#}", of_lines(root).unwrap_err()).contains("which of the keys a, b, label has the texts cannot")
        );
    }
}
