//! The class names in the prompts of a zero-shot head: `class_names` and `class_names_file`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::built_in::{IMAGENET, named_keys, names, of_data};
use crate::schema::Reader;

/// The value that selects the data set's own names.
const OWN: &str = "data-set";

/// The source of the class names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClassNames {
    /// Nothing is set; the data set decides once it is known.
    Usual,
    /// The data set's own names, with spaces in place of `_`.
    DataSet,
    /// The key of a built-in list of names.
    Known(String),
    /// A list with one name per class, in the order of the labels.
    Listed(Vec<String>),
    /// A file with one name per line in the order of the labels, or with a class, a tab and its name per line.
    File(PathBuf),
}

/// Warns if all classes are numbers or WordNet ids, which mean nothing to a text tower.
fn warn_of_mute(classes: &[String]) {
    let is_mute = |class: &String| class.strip_prefix('n').unwrap_or(class).parse::<u64>().is_ok();
    if let (true, Some(first)) = (classes.iter().all(is_mute), classes.first()) {
        tracing::warn!(
            "head.zero-shot: the classes are called {first} and the like, which says nothing to a text tower: set \
             head.zero-shot.class_names or class_names_file"
        );
    }
}

impl ClassNames {
    /// Reads `class_names` and `class_names_file`.
    pub fn read(reader: &Reader) -> ClassNames {
        let file = reader
            .path("class_names_file")
            .about("Text file with a class name a line, instead of `class_names`.")
            .optional();
        if let Some(path) = file {
            if reader.has("class_names") {
                reader.problem("class_names", "give either this or class_names_file");
            }
            return ClassNames::File(path);
        }
        if !reader.has("class_names") {
            return ClassNames::Usual;
        }
        const ABOUT: &str = "Class names: a list, or the key of a known one; by default the data set's.";
        if reader.is_list("class_names") {
            return ClassNames::Listed(reader.strings("class_names").about(ABOUT).or_else(Vec::new));
        }
        let key = reader.string("class_names").about(ABOUT).or_else(|| OWN.to_string());
        if key == OWN {
            return ClassNames::DataSet;
        }
        let known = named_keys();
        if !known.contains(&key.as_str()) {
            let rule = format!("must be a list of names, or one of {OWN}, {}", known.join(", "));
            reader.problem("class_names", rule);
        }
        ClassNames::Known(key)
    }

    /// Returns the default names of a data set if nothing is set.
    pub fn settled(&self, data: &str) -> ClassNames {
        match self {
            ClassNames::Usual if named_keys().contains(&data) => ClassNames::Known(data.to_string()),
            // The classes of the sets that share ImageNet's templates are its WordNet numbers.
            ClassNames::Usual if of_data(data) == IMAGENET => ClassNames::Known(IMAGENET.to_string()),
            ClassNames::Usual => ClassNames::DataSet,
            said => said.clone(),
        }
    }

    /// Returns the key and value for the resolved config.
    pub fn resolved(&self) -> (&'static str, toml::Value) {
        match self {
            ClassNames::Usual | ClassNames::DataSet => ("class_names", OWN.into()),
            ClassNames::Known(key) => ("class_names", key.clone().into()),
            ClassNames::Listed(names) => ("class_names", names.clone().into()),
            ClassNames::File(path) => ("class_names_file", path.display().to_string().into()),
        }
    }

    /// Returns one name per class of the data set.
    ///
    /// # Errors
    /// Fails if the number of names is wrong, if a class has no name, if a name is empty, or if the file cannot be
    /// read.
    pub fn of(&self, classes: &[String]) -> Result<Vec<String>> {
        let names = match self {
            ClassNames::Usual | ClassNames::DataSet => {
                warn_of_mute(classes);
                classes.iter().map(|class| class.replace('_', " ")).collect()
            }
            ClassNames::Known(key) => {
                let pairs = names(key).with_context(|| format!("no class names are known as `{key}`"))?;
                matched(&pairs, classes).with_context(|| format!("head.zero-shot.class_names = \"{key}\""))?
            }
            ClassNames::Listed(names) => {
                check_count(names.len(), classes.len()).context("head.zero-shot.class_names")?;
                names.clone()
            }
            ClassNames::File(path) => read_file(path, classes)
                .with_context(|| format!("{}: head.zero-shot.class_names_file", path.display()))?,
        };
        if let Some(empty) = names.iter().position(|name: &String| name.trim().is_empty()) {
            anyhow::bail!("class {empty} of the data set has an empty name: set head.zero-shot.class_names");
        }
        Ok(names)
    }
}

fn check_count(names: usize, classes: usize) -> Result<()> {
    ensure!(
        names == classes,
        "{names} names for the data set's {classes} classes: give one name per class, in the order of the labels"
    );
    Ok(())
}

/// Matches names by class if all classes are known, else by position.
fn matched(pairs: &[(String, String)], classes: &[String]) -> Result<Vec<String>> {
    let find = |class: &String| pairs.iter().find(|(known, _)| known == class).map(|(_, name)| name.clone());
    let unknown = classes.iter().find(|class| find(class).is_none());
    match unknown {
        None => Ok(classes.iter().filter_map(find).collect()),
        Some(_) if pairs.len() == classes.len() && classes.iter().all(|class| find(class).is_none()) => {
            Ok(pairs.iter().map(|(_, name)| name.clone()).collect())
        }
        Some(class) => anyhow::bail!(
            "has no name for the data set's class `{class}` ({} names, {} classes): give a list of names",
            pairs.len(),
            classes.len()
        ),
    }
}

fn read_file(path: &Path, classes: &[String]) -> Result<Vec<String>> {
    let text = crate::base::files::read_text(path).context("cannot be read as text")?;
    let lines: Vec<&str> = text.lines().collect();
    if let Some(empty) = lines.iter().position(|line| line.trim().is_empty()) {
        anyhow::bail!("line {} is empty: each line is a name, or a class, a tab and its name", empty + 1);
    }
    let pairs: Vec<(String, String)> = lines
        .iter()
        .filter_map(|line| line.split_once('\t'))
        .map(|(c, n)| (c.trim().into(), n.trim().into()))
        .collect();
    if pairs.is_empty() {
        check_count(lines.len(), classes.len())?;
        return Ok(lines.iter().map(|line| line.trim().to_string()).collect());
    }
    ensure!(
        pairs.len() == lines.len(),
        "some lines have a tab and some have none: each line is a name, or a class, a tab and its name"
    );
    matched(&pairs, classes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| word.to_string()).collect()
    }

    #[test]
    fn the_data_sets_own_names_have_spaces() {
        let names = ClassNames::DataSet.of(&strings(&["maple_tree", "bus"])).unwrap();
        assert_eq!(names, ["maple tree", "bus"]);
    }

    #[test]
    fn known_names_are_found_by_class_and_by_position() {
        let known = ClassNames::Usual.settled("camelyon17");
        assert_eq!(known, ClassNames::Known("camelyon17".into()));
        for (classes, first) in [(["tumor", "normal"], "lymph node containing"), (["no", "yes"], "lymph node")] {
            let names = known.of(&strings(&classes)).unwrap();
            assert!(names[0].starts_with(first) && names[0] != names[1], "{names:?}");
        }
        assert_eq!(ClassNames::Usual.settled("image-folder"), ClassNames::DataSet);
        let some = ClassNames::Usual.settled("tiny-imagenet").of(&strings(&["n03126707", "n02012849"])).unwrap();
        assert_eq!(some, ["construction crane", "crane bird"]);
        let error = format!("{:#}", known.of(&strings(&["normal", "a", "b"])).unwrap_err());
        assert!(error.contains("camelyon17") && error.contains("class `a`"), "{error}");
    }

    #[test]
    fn files_hold_names_or_classes_and_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("names.txt");
        let of = |text: &str, classes: &[&str]| {
            std::fs::write(&path, text).unwrap();
            ClassNames::File(path.clone()).of(&strings(classes)).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(of("a dog\na cat\n", &["d", "c"]).unwrap(), ["a dog", "a cat"]);
        assert_eq!(of("c\ta cat\nd\ta dog\n", &["d", "c"]).unwrap(), ["a dog", "a cat"]);
        assert!(of("a dog\n\n", &["d", "c"]).unwrap_err().contains("line 2 is empty"));
        assert!(of("a dog\n", &["d", "c"]).unwrap_err().contains("1 names for the data set's 2 classes"));
        assert!(of("d\ta dog\na cat\n", &["d", "c"]).unwrap_err().contains("some have none"));
        assert!(of("d\ta dog\nd\ta dog\n", &["d", "c"]).unwrap_err().contains("class `c`"));
    }

    #[test]
    fn an_empty_class_name_is_refused() {
        let error = ClassNames::DataSet.of(&strings(&["a", " "])).unwrap_err().to_string();
        assert_eq!(error, "class 1 of the data set has an empty name: set head.zero-shot.class_names");
    }
}
