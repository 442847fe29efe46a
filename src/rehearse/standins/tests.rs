use std::path::Path;

use super::contract::one;
use super::*;
use crate::data::{DATASETS, Dataset, Interpolation, Request, SplitName};
use crate::schema::{Reader, Tree};

const REQUEST: Request = Request {
    image_size: 16,
    interpolation: Interpolation::Bicubic,
    crop_pct: 1.0,
    cache: None,
    memory_bytes: 1 << 20,
    workers: 1,
    progress: &|_, _| (),
};

/// Returns the data set of a table.
fn set(key: &str, table: &toml::Table) -> Box<dyn Dataset> {
    let entry = DATASETS.iter().find(|entry| entry.key == key).unwrap();
    let tree = Tree::parse("test.toml", &toml::to_string(table).unwrap()).unwrap();
    let reader = Reader::root(&tree);
    let set = (entry.read)(&reader);
    reader.close(set).unwrap_or_else(|problems| panic!("{key}: {problems}"))
}

fn wanted(stand_in: &StandIn, root: &Path) -> (toml::Table, Wanted) {
    let mut table = one("root", root.to_str().unwrap());
    if stand_in.key == "vtab" {
        table.insert("task".into(), "dtd".into());
        table.insert("train".into(), "train800".into());
    }
    if stand_in.key == "glue" {
        table.insert("task".into(), "mnli".into());
    }
    if stand_in.key == "domainnet" {
        table.insert("test".into(), vec!["real".to_string(), "sketch".to_string()].into());
    }
    if stand_in.key == "jsonl" {
        table.insert("prompt".into(), "{text}".into());
        table.insert("labels".into(), ["a", "b", "c", "d"].map(String::from).to_vec().into());
    }
    if stand_in.key == "digits" {
        table.remove("root");
    }
    let described = set(stand_in.key, &table);
    let wanted = Wanted {
        root: root.to_path_buf(),
        settings: described.resolved(),
        classes: described.published().classes.unwrap_or(4),
        present: 2,
        train: 11,
        val: 4,
        test: 6,
        side: 20,
        corruptions: 2,
    };
    (table, wanted)
}

#[test]
fn every_data_set_has_a_stand_in() {
    let keys: Vec<&str> = STAND_INS.iter().map(|stand_in| stand_in.key).collect();
    assert_eq!(keys, DATASETS.iter().map(|entry| entry.key).collect::<Vec<_>>());
}

/// Checks that bella's own readers read the stand-ins with the right counts, labels and classes.
#[test]
fn readers_read_them() {
    for stand_in in STAND_INS.iter().filter(|stand_in| stand_in.key != "digits") {
        let root = tempfile::tempdir().unwrap();
        let (mut table, wanted) = wanted(stand_in, root.path());
        (stand_in.write)(&wanted).unwrap();
        table.extend((stand_in.overrides)(&wanted));
        let made = set(stand_in.key, &table);
        let key = stand_in.key;
        if made.published().classes.is_some() {
            assert_eq!(made.classes().unwrap().len(), wanted.classes, "{key}");
        }
        let versions = made.versions().unwrap();
        if !versions.is_empty() {
            assert_eq!(versions.len(), 10, "{key}");
            let split = made.load_version(&versions[7], &REQUEST).unwrap();
            assert!(split.labels.starts_with(&[0, 1]) || split.labels.starts_with(&[0, 0, 0, 1]), "{key}");
            continue;
        }
        for (name, count) in
            [(SplitName::Train, wanted.train), (SplitName::Val, wanted.val), (SplitName::Test, wanted.test)]
        {
            let Ok(split) = made.load(name, &REQUEST) else {
                assert_eq!(name, SplitName::Val, "{key}: {:#}", made.load(name, &REQUEST).unwrap_err());
                continue;
            };
            let sets = if name == SplitName::Test { made.test_sets().len().max(1) } else { 1 };
            assert_eq!(split.len(), sets * count, "{key}/{name}");
            assert_eq!(split.labels.iter().max(), Some(&1), "{key}/{name}");
        }
    }
}
