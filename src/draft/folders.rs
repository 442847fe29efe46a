//! Recognises data by the files and folders below a user's root: a published set, or the splits of class folders.

use std::path::Path;

use anyhow::{Result, ensure};

use super::tables::{SHARE, quoted};
use crate::data::read::class_folders::{entries, folders};
use crate::data::sets::image_folder::{holds_classes, usual_splits};
use crate::data::{DATASETS, Entry, SplitName};
use crate::schema::Choice;

/// The end of the name of DomainNet's list of training images, behind the domain.
const TRAIN_LIST: &str = "_train.txt";

/// Returns the key of the published set whose files lie in a folder; `None` if there is none.
///
/// # Errors
/// Fails if there are several.
pub fn published(folder: &Path) -> Result<Option<&'static str>> {
    let is_there = |entry: &&&Entry| entry.marks.iter().any(|mark| folder.join(mark).exists());
    let mut keys: Vec<&str> = DATASETS.iter().filter(is_there).map(|entry| entry.key).collect();
    keys.sort_unstable();
    let shown = folder.display();
    ensure!(keys.len() < 2, "{shown}: has the files of {}: name one of them by KEY={shown}", keys.join(", "));
    Ok(keys.first().copied())
}

/// Returns the lines of `[data.domainnet]` for folders of domains with their lists of training images; `None` if there are none.
///
/// # Errors
/// Fails if the folder cannot be listed.
pub fn of_domains(root: &Path) -> Result<Option<String>> {
    let names = entries(root)?.into_iter().filter_map(|entry| Some(entry.file_name()?.to_str()?.to_string()));
    let domain = |list: String| list.strip_suffix(TRAIN_LIST).map(str::to_string);
    let mut domains: Vec<String> = names.filter_map(domain).filter(|domain| root.join(domain).is_dir()).collect();
    domains.sort_by_key(|domain| (domain != "real", domain.clone()));
    Ok(domains.split_first().map(|(first, others)| {
        let also = if others.is_empty() { String::new() } else { format!(" # also {}", others.join(", ")) };
        format!("train = {}{also}\n", quoted(first))
    }))
}

/// Checks that the folders in `root` can be classes: a single one that holds folders itself is the root that an archive brought along.
/// Several that hold folders of the same names, as domains do, are doubted on the terminal.
///
/// # Errors
/// Fails if there is such a folder alone, or no folder.
pub fn expect_classes(root: &Path) -> Result<()> {
    let (classes, splits, shown) = (folders(root, "<class>/<images>")?, usual_splits(root), root.display());
    let has_train = splits.iter().any(|folder| folder.split == SplitName::Train);
    if let [only] = &classes[..]
        && !has_train
    {
        let inside = root.join(only);
        ensure!(
            !holds_classes(&inside),
            "{shown}: its only folder would be a class: is {} what is meant?",
            inside.display()
        );
    }
    if splits.is_empty()
        && let [first, second, ..] = &common(root, &classes)[..]
    {
        tracing::warn!(
            "{shown}: its {} folders become classes, though each holds folders of the same names ({first}, {second}, …): if these are \
             the classes, name one of the folders, or give [data.domainnet] lists of their images",
            classes.len()
        );
    }
    Ok(())
}

/// Returns the names of the folders that each of `classes` below `root` holds; none if one of them holds images, or no folders.
fn common(root: &Path, classes: &[String]) -> Vec<String> {
    let names = |class: &String| {
        let inside = root.join(class);
        if holds_classes(&inside) { folders(&inside, "<images>").unwrap_or_default() } else { Vec::new() }
    };
    let each: Vec<Vec<String>> = classes.iter().map(names).collect();
    let is_common = |name: &String| each.iter().all(|names| names.contains(name));
    each.first().map_or_else(Vec::new, |first| first.iter().filter(|name| is_common(name)).cloned().collect())
}

/// Returns the lines of `[data.image-folder]` that name the folders of splits where they are not called as bella calls them, and the line
/// that draws a test split where there is none.
pub fn of_class_folders(root: &Path) -> String {
    let found = usual_splits(root);
    let of = |split: SplitName| found.iter().find(|folder| folder.split == split).map(|folder| folder.name.as_str());
    // A stray image beside the classes hides them from `usual_splits`, but not from a training.
    let is_there =
        |split: SplitName| of(split).is_some() || folders(&root.join(split.word()), "<class>/<images>").is_ok();
    let is_other = |(split, name): &(SplitName, &str)| is_there(SplitName::Train) && *name != split.word();
    let others = SplitName::ALL.into_iter().filter_map(|split| Some((split, of(split)?))).filter(is_other);
    let lines: String = others.map(|(split, name)| format!("{split} = {}\n", quoted(name))).collect();
    if is_there(SplitName::Test) { lines } else { lines + SHARE }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::files::put;

    #[test]
    fn folders_of_splits_are_named() {
        let place = tempfile::tempdir().unwrap();
        let lines = |name: &str, files: &[&str]| {
            let root = place.path().join(name);
            files.iter().for_each(|file| put(&root.join(file), "").unwrap());
            of_class_folders(&root)
        };
        assert_eq!(lines("flat", &["ant/1.png", "bee/1.png"]), SHARE);
        assert_eq!(lines("own", &["train/ant/1.png", "val/ant/1.png", "test/ant/1.png"]), "");
        let stray = ["train/ant/1.png", "train/logo.png", "valid/ant/1.png", "test/ant/1.png"];
        assert_eq!(lines("logo", &stray), "val = \"valid\"\n");
        let valid = lines("roboflow", &["train/ant/1.png", "valid/ant/1.png", "test/ant/1.png"]);
        assert_eq!(valid, "val = \"valid\"\n");
        let tumours = lines("kaggle", &["Training/ant/1.png", "Testing/ant/1.png"]);
        assert_eq!(tumours, "train = \"Training\"\ntest = \"Testing\"\n");
        // Images for a competition have no labels, and a class may be called like a split.
        assert_eq!(lines("hidden", &["train/ant/1.png", "test/1.png"]), SHARE);
        assert_eq!(lines("classes", &["train/1.png", "Valid/1.png"]), SHARE);
        assert_eq!(lines("stray", &["train/ant/1.png", "test/ant/1.png", "test/logo.png"]), "");
    }

    #[test]
    fn published_sets_are_known_by_their_files() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path();
        for (file, key) in [
            ("a/cifar-10-batches-py/data_batch_1", "cifar10"),
            ("b/train_32x32.mat", "svhn"),
            ("c/tiny-imagenet-200/wnids.txt", "tiny-imagenet"),
        ] {
            put(&root.join(file), "").unwrap();
            assert_eq!(published(&root.join(&file[..1])).unwrap(), Some(key));
            assert_eq!(published(root.join(file).parent().unwrap()).unwrap(), Some(key));
        }
        assert_eq!(published(root).unwrap(), None);
        put(&root.join("a/stl10_binary/train_X.bin"), "").unwrap();
        let error = published(&root.join("a")).unwrap_err().to_string();
        assert!(error.contains("a: has the files of cifar10, stl10: name one of them by KEY="), "{error}");
    }

    #[test]
    fn lists_of_domains_are_known() {
        let place = tempfile::tempdir().unwrap();
        put(&place.path().join("photo/dog/1.png"), "").unwrap();
        put(&place.path().join("notes_train.txt"), "").unwrap();
        assert_eq!(of_domains(place.path()).unwrap(), None);
        put(&place.path().join("photo_train.txt"), "").unwrap();
        assert_eq!(of_domains(place.path()).unwrap().as_deref(), Some("train = \"photo\"\n"));
        for domain in ["cartoon", "real"] {
            put(&place.path().join(domain).join("dog/1.png"), "").unwrap();
            put(&place.path().join(format!("{domain}_train.txt")), "").unwrap();
        }
        let found = of_domains(place.path()).unwrap();
        assert_eq!(found.as_deref(), Some("train = \"real\" # also cartoon, photo\n"));
    }

    #[test]
    fn a_folder_around_the_classes_is_no_class() {
        let place = tempfile::tempdir().unwrap();
        put(&place.path().join("mine/ant/1.png"), "").unwrap();
        let error = expect_classes(place.path()).unwrap_err().to_string();
        assert!(error.ends_with("mine what is meant?"), "{error}");
        expect_classes(&place.path().join("mine")).unwrap();
        put(&place.path().join("more/1.png"), "").unwrap();
        expect_classes(place.path()).unwrap();
        let alone = tempfile::tempdir().unwrap();
        put(&alone.path().join("train/ant/1.png"), "").unwrap();
        expect_classes(alone.path()).unwrap();
    }
}
