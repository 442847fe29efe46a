//! The keys of `[data.jsonl]` for files of JSON lines of any origin: the keys with texts and labels, the label words, and the files of
//! the splits.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::tables::{LABELS, TEXTS, VALIDATION, one_of, preferred, quoted};
use crate::data::lines::read_lines;

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
pub fn keys(root: &Path) -> Result<Option<String>> {
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

/// Returns the template that is the value of a key alone.
fn template(key: &str) -> toml::Value {
    quoted(&format!("{{{key}}}"))
}

/// Returns the lines that name the files of the splits; where there is no test split, that of validation is tested on.
fn of_splits(root: &Path) -> Result<String> {
    let file = |word: &str| Some(format!("{word}.jsonl")).filter(|file| root.join(file).is_file());
    let val = VALIDATION.iter().find_map(|word| file(word));
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
    fn keys_labels_and_splits_are_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        assert_eq!(keys(root).unwrap(), None);
        let write = |file: &str, text: &str| put(&root.join(file), text).unwrap();
        write(
            "train.jsonl",
            "{\"id\": 1, \"text\": \"a\", \"label\": \"no\"}\n{\"id\": 2, \"text\": \"b\", \"label\": \"go\"}\n",
        );
        assert!(format!("{:#}", keys(root).unwrap_err()).contains("has neither test.jsonl nor validation.jsonl"));
        write("dev.jsonl", "{\"text\": \"a\", \"label\": \"no\"}\n");
        let found = keys(root).unwrap().unwrap();
        assert!(
            found.starts_with(
                "prompt = \"{text}\"\nlabel_key = \"label\"\nlabels = [\"go\", \"no\"]\nval = \"dev.jsonl\""
            )
        );
        write("train.jsonl", "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": 0}\n");
        write("test.jsonl", "{\"premise\": \"a\", \"hypothesis\": \"b\", \"label\": 0}\n");
        let found = keys(root).unwrap().unwrap();
        assert!(found.starts_with("prompt = \"{premise}\"\nsecond = \"{hypothesis}\"\nlabel_key"), "{found}");
        assert!(found.ends_with("labels = [\"0\"]\nval = \"dev.jsonl\"\n"), "{found}");
        write("train.jsonl", "{\"a\": \"x\", \"b\": \"y\", \"label\": 1}\n");
        assert!(
            format!("{:#}", keys(root).unwrap_err()).contains("which of the keys a, b, label has the texts cannot")
        );
    }
}
