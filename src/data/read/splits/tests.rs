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
    // These are splits for `datasets.load_dataset` (version 5.2), too.
    is(&["train-0.parquet", "train-1.parquet", "test_0.parquet"], Wanted::Only, &[("test", 1), ("train", 2)]);
    is(&["train/part-0.parquet", "train/part-00001-3f-c000.snappy.parquet"], Wanted::Only, &[("train", 2)]);
    is(&["data/valid/a.parquet", "data/test/0.parquet"], Wanted::Only, &[("test", 1), ("valid", 1)]);
    is(&["train.parquet", "._train.parquet", "crops-0.parquet"], Wanted::Only, &[("crops-0", 1), ("train", 1)]);
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

#[test]
fn names_that_are_numbers_and_tables_of_several_folders_are_whole() {
    let years = found(&["train/2019.parquet", "train/2020.parquet", "train/7.parquet"], Wanted::Only).unwrap();
    assert_eq!(years, [("train".to_string(), 3)]);
    let root = tempfile::tempdir().unwrap();
    touch(
        root.path(),
        &["en/train-00000-of-00002.parquet", "en/train-00001-of-00002.parquet", "de/train-00000-of-00001.parquet"],
    );
    let card = "---\nconfigs:\n- config_name: all\n  data_files:\n  - split: train\n    path: '*/train-*'\n---\n";
    std::fs::write(root.path().join("README.md"), card).unwrap();
    assert_eq!(splits(root.path(), Wanted::Only).unwrap().unwrap()["train"].len(), 3);
    std::fs::remove_file(root.path().join("en/train-00001-of-00002.parquet")).unwrap();
    let error = splits(root.path(), Wanted::Only).unwrap_err().to_string();
    assert!(error.contains("table 1 of the 2 tables of `train` is missing"), "{error}");
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
    // A copy of a published set may call its only configuration otherwise, but one task is not another.
    std::fs::write(
        root.path().join("README.md"),
        CARD.split("- config_name: big").next().unwrap().to_string() + "---\n",
    )
    .unwrap();
    assert_eq!(counts(Wanted::Published("large")).len(), 2);
    let error = splits(root.path(), Wanted::Part("large")).unwrap_err().to_string();
    assert!(error.ends_with("README.md: has no configuration `large`; known: small"), "{error}");
}

/// The tables of each split.
type Splits = &'static [(&'static str, &'static [&'static str])];

/// Cards with the splits and their tables that `load_dataset` of `datasets` 5.2 (fsspec 2026.9) reads of these files by each; `None` where it
/// refuses the card.
const CARDS: [(&str, Option<Splits>); 20] = [
    ("- data_files: [{path: v/train-*, split: train}]\n  config_name: default", Some(&[("train", &["v/train-0"])])),
    (
        "- config_name: default # usual\n  data_files:\n  - path: 'v/train-*' # y\n    split: train # x\n  - split: test\n    path: v/test-*",
        Some(&[("test", &["v/test-0"]), ("train", &["v/train-0"])]),
    ),
    ("- config_name: d\n  data_dir: w", Some(&[("test", &["w/test"]), ("train", &["w/train"])])),
    ("- config_name: d\n  data_files: v/*.parquet", Some(&[("train", &["v/test-0", "v/train-0"])])),
    ("- config_name: d\n  data_files: [./v/test-0.parquet]", Some(&[("train", &["v/test-0"])])),
    (
        "- config_name: a\n  data_files: v/*\n- config_name: d\n  data_dir: v\n  data_files: test-*\n  default: true",
        Some(&[("train", &["v/test-0"])]),
    ),
    (
        "- config_name: d\n  data_files:\n  - split: train\n    path: ['v/train-[0-9].parquet']",
        Some(&[("train", &["v/train-0"])]),
    ),
    ("- config_name: d\n  data_files: v/t??t-[!1-9]*", Some(&[("train", &["v/test-0"])])),
    ("- config_name: d\n  data_files: v/**", Some(&[("train", &["v/test-0", "v/train-0"])])),
    ("- config_name: d\n  data_files: '**/te*'", Some(&[("train", &["data/test-0", "v/test-0", "w/test"])])),
    ("- config_name: d\n  data_files: .h/*", Some(&[("train", &[".h/test-0"])])),
    (
        "- config_name: d\n  data_files: '*/*-0.parquet'\n- config_name: e\n  data_files: v/test*\n  default: true",
        Some(&[("train", &["v/test-0"])]),
    ),
    ("- config_name: d\n  data_files: v/{train,test}-0.parquet", None),
    ("- config_name: d\n  data_files: v/x-0.parquet", None),
    ("- config_name: d\n  data_files: v/x**", None),
    ("- config_name: d\n  data_files: {train: v/train-0.parquet}", None),
    ("- config_name: d\n  data_files: [{split: train, path: v/train-*}, {split: train, path: v/test-*}]", None),
    ("- config_name: d\n  data_files: [{split: a-b, path: v/train-*}]", None),
    ("- data_files: v/train-*", None),
    (
        "- config_name: d\n  default: true\n  data_files: v/train-*\n- config_name: e\n  default: true\n  data_files: v/test-*",
        None,
    ),
];

#[test]
fn cards_are_read_as_by_the_hubs_package() {
    let root = tempfile::tempdir().unwrap();
    let tables =
        ["data/train-0", "data/test-0", "v/train-0", "v/test-0", ".h/test-0", "v/__x/test-0", "w/train", "w/test"];
    touch(root.path(), &tables.map(|table| format!("{table}.parquet")).each_ref().map(String::as_str));
    for (entries, expected) in CARDS {
        std::fs::write(root.path().join("README.md"), format!("---\nconfigs:\n{entries}\n---\n")).unwrap();
        let found = splits(root.path(), Wanted::Only).ok().map(Option::unwrap_or_default);
        let expected = expected.map(|splits| {
            let tables = |tables: &[&str]| tables.iter().map(|table| format!("{table}.parquet")).collect::<Vec<_>>();
            splits.iter().map(|(split, of_it)| (split.to_string(), tables(of_it))).collect()
        });
        assert_eq!(found, expected, "{entries}");
    }
}

#[test]
fn a_card_that_is_not_understood_or_fits_nothing_is_refused_in_one_line() {
    let root = tempfile::tempdir().unwrap();
    touch(root.path(), &["data/train-0.parquet", "v/a.csv"]);
    let error = |entries: &str| {
        std::fs::write(root.path().join("README.md"), format!("---\nconfigs:\n{entries}\n---\n")).unwrap();
        let error = format!("{:#}", splits(root.path(), Wanted::Only).unwrap_err());
        error.split_once("README.md: ").unwrap().1.to_string()
    };
    let rest = ": fetch what it names, mend it, or take `configs` out of it, and names of files say the splits";
    let is = |entries: &str, expected: &str| assert_eq!(error(entries), format!("{expected}{rest}"));
    is(
        "- config_name: d\n  data_files: [{split: train, path: v/tr*}, {split: test, path: data/*}]",
        "the configuration `d`: no table (.parquet) here is one of the split `train` (path `v/tr*`)",
    );
    is(
        "- config_name: d\n  data_dir: w",
        "the configuration `d`: no table (.parquet) here is in its folder (data_dir `w`)",
    );
    is("- config_name: d\n  data_files: ../x", "`configs`, entry 1: `d`: `../x` leads out of the repository");
    is(
        "- config_name: d\n  data_files: *x",
        "its metadata is no YAML: while parsing node, found unknown anchor at byte 40 line 3 column 15",
    );
    is(
        "- config_name: d\n  <<: &x {}",
        "`configs`, entry 1: takes keys from elsewhere (`<<`), which bella does not follow",
    );
    let deep = format!("- {}{}", "[".repeat(100), "]".repeat(100));
    is(&deep, "its metadata has more than 64 lists and mappings in each other");
    // The original files of a published set may lie beside its card, and tables of another format are none of its kind.
    std::fs::write(root.path().join("README.md"), "---\nconfigs:\n- config_name: d\n  data_files: w/*\n---\n").unwrap();
    assert_eq!(splits(root.path(), Wanted::Published("d")).unwrap().unwrap().len(), 1);
    std::fs::write(root.path().join("README.md"), "---\nconfigs:\n- config_name: d\n  data_files: v/*\n---\n").unwrap();
    assert_eq!(splits(root.path(), Wanted::Only).unwrap(), None);
}
