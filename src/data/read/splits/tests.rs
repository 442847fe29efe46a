use super::*;

fn touch(root: &Path, files: &[&str]) {
    for file in files {
        std::fs::create_dir_all(root.join(file).parent().unwrap()).unwrap();
        std::fs::write(root.join(file), "").unwrap();
    }
}

fn found(files: &[&str], config: Wanted) -> Result<Vec<(String, usize)>> {
    let root = tempfile::tempdir().unwrap();
    touch(root.path(), files);
    let splits = splits(root.path(), config)?.unwrap_or_default();
    Ok(splits.into_iter().map(|(split, tables)| (split, tables.len())).collect())
}

#[test]
fn names_say_the_split() {
    let is = |files: &[&str], config, expected: &[(&str, usize)]| {
        let expected: Vec<(String, usize)> = expected.iter().map(|(name, count)| (name.to_string(), *count)).collect();
        assert_eq!(found(files, config).unwrap(), expected, "{files:?}");
    };
    is(&["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"], Wanted::Only, &[("train", 2)]);
    is(&["plain_text/test-00000-of-00001.parquet"], Wanted::Published("plain_text"), &[("test", 1)]);
    is(&["data/valid-00000-of-00001-70d52db3c749a935.parquet"], Wanted::Only, &[("valid", 1)]);
    is(&["mnli/validation_matched-00000-of-00001.parquet"], Wanted::Named("mnli"), &[("validation_matched", 1)]);
    is(&["default/train/0000.parquet", "default/train/0001.parquet"], Wanted::Only, &[("train", 2)]);
    is(&["train.parquet", "test.parquet", "notes.txt"], Wanted::Only, &[("test", 1), ("train", 1)]);
    is(&["train/a.jpg", "data/labels.csv"], Wanted::Only, &[]);
    is(&["plain_text/test-00000-of-00001.parquet", "images/a.jpg"], Wanted::Only, &[("test", 1)]);
    is(&["plain_text/test-00000-of-00001.parquet"], Wanted::Published("other"), &[]);
    let several = found(&["small/test.parquet", "large/test.parquet"], Wanted::Only).unwrap_err().to_string();
    assert!(several.ends_with("set config in [data.parquet] to one of large, small"), "{several}");
}

#[test]
fn a_configuration_that_is_not_there_is_no_other_one() {
    let error = |files: &[&str]| found(files, Wanted::Named("mine")).unwrap_err().to_string();
    let none = error(&["data/train-00000-of-00001.parquet"]);
    assert!(
        none.ends_with(
            "has no configuration `mine`: its tables are in no folder of one: leave data.parquet.config out"
        ),
        "{none}"
    );
    assert!(error(&["small/test.parquet"]).ends_with("has no configuration `mine`; known: small"));
    assert_eq!(
        found(&["mine/test.parquet", "test.parquet"], Wanted::Named("mine")).unwrap(),
        [("test".to_string(), 1)]
    );
    assert_eq!(found(&["data/test.parquet"], Wanted::Named("default")).unwrap(), [("test".to_string(), 1)]);
    assert!(found(&["labels.csv"], Wanted::Named("mine")).unwrap().is_empty());
    let root = tempfile::tempdir().unwrap();
    touch(root.path(), &["data/train.parquet"]);
    let card = "---\nconfigs:\n- config_name: full\n  data_files:\n  - split: train\n    path: data/train*\n---\n";
    std::fs::write(root.path().join("README.md"), card).unwrap();
    let error = splits(root.path(), Wanted::Named("mine")).unwrap_err().to_string();
    assert!(error.ends_with("README.md: has no configuration `mine`; known: full"), "{error}");
}

#[test]
fn a_missing_or_second_table_is_named() {
    let error = |files: &[&str]| found(files, Wanted::Only).unwrap_err().to_string();
    let missing = error(&["data/train-00000-of-00003.parquet", "data/train-00002-of-00003.parquet"]);
    assert!(
        missing.ends_with(
            "table 1 of the 3 tables of `train` is missing, where train-00000-of-00003.parquet lies: fetch it, too"
        ),
        "{missing}"
    );
    assert!(
        error(&["train/0000.parquet", "train/0002.parquet"]).contains("table 1 of the 2 tables of `train` is missing")
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
    let counts = |config: Wanted| -> Vec<(String, usize)> {
        splits(root.path(), config).unwrap().unwrap().into_iter().map(|(split, tables)| (split, tables.len())).collect()
    };
    assert_eq!(counts(Wanted::Named("small")), [("test".to_string(), 2), ("train".to_string(), 1)]);
    assert_eq!(counts(Wanted::Only), [("train".to_string(), 1)]);
    let error = splits(root.path(), Wanted::Published("large")).unwrap_err().to_string();
    assert!(error.ends_with("README.md: has no configuration `large`; known: small, big"), "{error}");
}

#[test]
fn patterns_are_those_of_the_hub() {
    assert!(fits("train-00000-of-00001.parquet", "train-*") && fits("a.b.c", "a*b*c") && fits("abc", "abc"));
    assert!(!fits("test-0", "train-*") && !fits("abcd", "abc") && !fits("ac", "a*b*c"));
}
