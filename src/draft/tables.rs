//! The keys of `[data.parquet]` for tables of any origin: their splits, and the columns with images or texts and with labels.

use std::path::Path;

use anyhow::{Context, Result};

use crate::data::SplitName;
use crate::data::read::splits::{Wanted, splits};
use crate::data::read::tables::Tables;
use crate::data::sets::parquet;
use crate::data::table::Kind;
use crate::schema::Choice;

/// The line that draws a test split where there is none.
pub const SHARE: &str = "test = 0.2 # this share of each class is the test split, the same for every seed\n";

/// The label of every row of a test split whose labels are hidden.
const HIDDEN: &str = "-1";

/// The usual names of columns, in the order of the search.
const IMAGES: [&str; 3] = ["image", "img", "images"];
pub const TEXTS: [&str; 4] = ["text", "sentence", "content", "question"];
pub const LABELS: [&str; 7] = ["label", "labels", "fine_label", "class", "target", "category", "y"];

/// Returns the lines of `[data.parquet]` for the tables below a root, `root` and `validation` excepted; `None` if there is no table.
///
/// # Errors
/// Fails if the tables cannot be read, or if it cannot be told what their columns are.
pub fn keys(root: &Path) -> Result<Option<String>> {
    let Some(found) = splits(root, Wanted::Only)? else { return Ok(None) };
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let train = one_of(&names, SplitName::Train.names()).with_context(|| {
        format!(
            "{}: has no split `train`; its splits: {}: write [data.parquet] by hand, with train and test",
            root.display(),
            names.join(", ")
        )
    })?;
    let tables = Tables::open(root, Wanted::Only, train)?.context("the tables have gone")?;
    let Columns { key, column, label } = columns(root, &tables)?;
    let is_hidden = names.contains(&SplitName::Test.word()) && hides(root, &label)?;
    let lines = format!("{key} = {}\nlabel = {}\n", quoted(&column), quoted(&label));
    Ok(Some(lines + &of_splits(&names, is_hidden)))
}

/// The column of images or texts, with its key in `[data.parquet]`, and that of labels.
struct Columns {
    key: &'static str,
    column: String,
    label: String,
}

/// Returns whether the labels of the test split are hidden, as benchmarks with a server of their own hide them: the column is not
/// there, or holds -1 in every row.
fn hides(root: &Path, label: &str) -> Result<bool> {
    let Some(tables) = Tables::open(root, Wanted::Only, SplitName::Test.word())? else { return Ok(false) };
    let has_labels = tables.kinds().iter().any(|(name, _)| *name == label);
    Ok(!has_labels || tables.words(label)?.iter().all(|word| word == HIDDEN))
}

/// Tells the columns by their kinds and names.
fn columns(root: &Path, tables: &Tables) -> Result<Columns> {
    let kinds = tables.kinds();
    let of =
        |kind: Kind| -> Vec<&str> { kinds.iter().filter(|(_, other)| *other == kind).map(|(name, _)| *name).collect() };
    let unknown = |what: &str| {
        let all: Vec<&str> = kinds.iter().map(|(name, _)| *name).collect();
        format!(
            "{}: which of the columns {} has the {what} cannot be told: write [data.parquet] by hand, with image or text, and label",
            root.display(),
            all.join(", ")
        )
    };
    let (images, texts, numbers) = (of(Kind::Images), of(Kind::Texts), of(Kind::Numbers));
    let mut named = Vec::new();
    for column in &numbers {
        if tables.names(column)?.is_some() {
            named.push(*column);
        }
    }
    // A column whose numbers the footer names is one of classes.
    let label = one_of(&named, &LABELS).or_else(|| preferred(&numbers, &LABELS)).or_else(|| preferred(&texts, &LABELS));
    let label = label.with_context(|| unknown("labels"))?;
    let texts: Vec<&str> = texts.into_iter().filter(|column| *column != label).collect();
    let (key, column) = match images.is_empty() {
        false => ("image", one_of(&images, &IMAGES).with_context(|| unknown("images"))?),
        true => ("text", one_of(&texts, &TEXTS).with_context(|| unknown("images or texts"))?),
    };
    Ok(Columns { key, column: column.to_string(), label: label.to_string() })
}

/// Returns the lines that name the splits: where there is no test split with labels, that of validation is tested on, or else a share
/// is drawn.
fn of_splits(names: &[&str], is_hidden: bool) -> String {
    let val = preferred(names, SplitName::Val.names());
    let why = if is_hidden { "the labels of the split test are hidden" } else { "there is no split called test" };
    match (names.contains(&SplitName::Test.word()) && !is_hidden, val) {
        (true, Some(val)) if val != parquet::VAL => format!("val = {}\n", quoted(val)),
        (true, _) => String::new(),
        (false, Some(val)) => format!("val = {0}\ntest = {0} # {why}\n", quoted(val)),
        (false, None) => SHARE.to_string(),
    }
}

/// Returns the first of the usual names that is there.
pub fn preferred<'a>(names: &[&'a str], usual: &[&str]) -> Option<&'a str> {
    usual.iter().find_map(|name| names.iter().copied().find(|known| known == name))
}

/// Returns the first of the usual names that is there, or else the only name.
pub fn one_of<'a>(names: &[&'a str], usual: &[&str]) -> Option<&'a str> {
    preferred(names, usual).or(names.first().copied().filter(|_| names.len() == 1))
}

pub fn quoted(text: &str) -> toml::Value {
    toml::Value::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::table::{Column, write};

    fn table(root: &Path, file: &str, columns: &[(&str, Column)]) {
        write(&root.join(file), columns).unwrap();
    }

    fn numbers() -> Column {
        Column::Numbers(vec![0, 1])
    }

    fn texts() -> Column {
        Column::Texts(vec!["a".into(), "b".into()])
    }

    fn images() -> Column {
        Column::Images(vec![vec![1], vec![2]])
    }

    #[test]
    fn columns_and_splits_are_found() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        assert_eq!(keys(root).unwrap(), None);
        table(
            root,
            "plain/train-00000-of-00001.parquet",
            &[("img", images()), ("id", numbers()), ("label", numbers())],
        );
        let share = "image = \"img\"\nlabel = \"label\"\ntest = 0.2";
        assert!(keys(root).unwrap().unwrap().starts_with(share));
        table(root, "plain/valid-00000-of-00001.parquet", &[("img", images()), ("label", numbers())]);
        let tested = keys(root).unwrap().unwrap();
        assert!(tested.contains("val = \"valid\"\ntest = \"valid\" #"), "{tested}");
        table(root, "plain/test-00000-of-00001.parquet", &[("img", images()), ("label", numbers())]);
        assert!(keys(root).unwrap().unwrap().ends_with("label = \"label\"\nval = \"valid\"\n"));
        // As of GLUE: a test split whose labels only a server knows.
        let hidden = Column::Numbers(vec![-1, -1]);
        table(root, "plain/test-00000-of-00001.parquet", &[("img", images()), ("label", hidden)]);
        let tested = keys(root).unwrap().unwrap();
        assert!(tested.ends_with("test = \"valid\" # the labels of the split test are hidden\n"), "{tested}");
        table(root, "plain/test-00000-of-00001.parquet", &[("img", images()), ("id", numbers())]);
        assert!(keys(root).unwrap().unwrap().contains("test = \"valid\" # the labels of the split test are hidden"));
        table(root, "other/train-00000-of-00001.parquet", &[("label", numbers())]);
        assert!(
            format!("{:#}", keys(root).unwrap_err())
                .ends_with("several configurations: set config in [data.parquet] to one of other, plain")
        );
    }

    #[test]
    fn what_cannot_be_told_is_said() {
        for (columns, expected) in [
            (vec![("words", texts()), ("class", texts())], Ok("text = \"words\"\nlabel = \"class\"\ntest = 0.2")),
            (
                vec![("a", images()), ("b", images()), ("y", numbers())],
                Err("which of the columns a, b, y has the images cannot"),
            ),
            (
                vec![("image", images()), ("id", numbers())],
                Err("has the labels cannot be told: write [data.parquet] by hand"),
            ),
            (vec![("a", texts()), ("b", texts()), ("label", numbers())], Err("has the images or texts cannot be told")),
        ] {
            let place = tempfile::tempdir().unwrap();
            table(place.path(), "train.parquet", &columns);
            match (keys(place.path()), expected) {
                (Ok(lines), Ok(start)) => assert!(lines.as_ref().unwrap().starts_with(start), "{lines:?}"),
                (Err(error), Err(part)) => assert!(format!("{error:#}").contains(part), "{error:#}"),
                (found, expected) => panic!("{found:?}, not {expected:?}"),
            }
        }
        let place = tempfile::tempdir().unwrap();
        table(place.path(), "a.parquet", &[("label", numbers())]);
        table(place.path(), "b.parquet", &[("label", numbers())]);
        assert!(format!("{:#}", keys(place.path()).unwrap_err()).contains("has no split `train`; its splits: a, b"));
    }
}
