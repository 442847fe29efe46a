//! Every file of a registry's folder is registered, and every key is there once: a file whose `mod` line is missing
//! compiles without a word.

mod common;

use std::collections::BTreeSet;

use common::repository;

/// Compares the files below `folder` (helpers left out) with registered keys, whose files are named as `file_of` says.
fn check(folder: &str, helpers: &[&str], keys: &[&str], file_of: impl Fn(&str) -> String) {
    let entries = std::fs::read_dir(repository(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = names.filter_map(|name| name.strip_suffix(".rs").map(str::to_owned)).collect();
    for helper in helpers {
        assert!(files.contains(*helper), "{folder}/{helper}.rs is gone: take it off this test's list");
    }
    let entries: BTreeSet<String> = files.into_iter().filter(|file| !helpers.contains(&file.as_str())).collect();
    let registered: BTreeSet<String> = keys.iter().map(|key| file_of(key)).collect();
    assert_eq!(registered.len(), keys.len(), "a key of {folder} comes twice: {keys:?}");
    assert_eq!(entries, registered, "files of {folder} against registered keys");
}

fn snake(key: &str) -> String {
    key.replace('-', "_")
}

#[test]
fn methods() {
    let keys: Vec<&str> = bella::methods::METHODS.iter().map(|entry| entry.key).collect();
    check("src/methods", &["mod", "kernel", "noise"], &keys, snake);
}

#[test]
fn subspaces() {
    let keys: Vec<&str> = bella::subspace::SUBSPACES.iter().map(|entry| entry.key).collect();
    check("src/subspace", &["mod", "combine", "dense", "geometry", "layout"], &keys, snake);
}

#[test]
fn heads() {
    let keys: Vec<&str> = bella::head::HEADS.iter().map(|entry| entry.key).collect();
    // [head.checkpoint] is the checkpoint's own; a file named checkpoint.rs would say something else.
    check("src/head", &["mod", "cache", "names", "prompts", "templates", "tokens"], &keys, |key| {
        if key == "checkpoint" { "own".into() } else { snake(key) }
    });
}

#[test]
fn optimizers() {
    let keys: Vec<&str> = bella::optimizers::OPTIMIZERS.iter().map(|entry| entry.key).collect();
    check("src/optimizers", &["mod"], &keys, snake);
}

#[test]
fn attacks() {
    let keys: Vec<&str> = bella::attacks::ATTACKS.iter().map(|entry| entry.key).collect();
    check("src/attacks", &["mod", "victim"], &keys, snake);
}

#[test]
fn data_sets() {
    let keys: Vec<&str> = bella::data::DATASETS.iter().map(|entry| entry.key).collect();
    let readers = ["cifar", "cifar_c", "class_folders", "columns", "image_files", "mat", "npy", "wordnet"];
    let others =
        ["mod", "check", "decode", "images", "labels", "order", "published", "stream", "subset", "testing", "versions"];
    check("src/data", &[&readers[..], &others, &["augment", "cache", "fingerprint"]].concat(), &keys, snake);
}

#[test]
fn namings() {
    let keys: Vec<&str> = bella::backbone::NAMINGS.iter().map(|naming| naming.key).collect();
    check(
        "src/backbone",
        &["mod", "block", "identify", "low_rank", "recognise", "settle", "shapes", "text", "vit", "weights"],
        &keys,
        |key| format!("names_{key}"),
    );
}

#[test]
fn metrics_and_corruptions_have_keys_of_their_own() {
    let metrics: Vec<&str> = bella::metrics::METRICS.iter().map(|metric| metric.key).collect();
    let corruptions: Vec<&str> = bella::data::corruptions::CORRUPTIONS.iter().map(|entry| entry.key).collect();
    let scores: Vec<&str> = bella::metrics::ood::OOD_SCORES.iter().map(|score| score.key).collect();
    let measures: Vec<&str> = bella::metrics::ood::OOD_MEASURES.iter().map(|measure| measure.key).collect();
    for keys in [metrics, scores, measures, corruptions] {
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
    }
}

#[test]
fn list_prints_every_key() {
    let output = common::bella(&["list"]).output().unwrap();
    let text = common::printed(&output);
    let words: BTreeSet<&str> = text.split_whitespace().collect();
    let registries = [
        bella::methods::METHODS.iter().map(|entry| entry.key).collect::<Vec<_>>(),
        bella::subspace::SUBSPACES.iter().map(|entry| entry.key).collect(),
        bella::head::HEADS.iter().map(|entry| entry.key).collect(),
        bella::optimizers::OPTIMIZERS.iter().map(|entry| entry.key).collect(),
        bella::data::DATASETS.iter().map(|entry| entry.key).collect(),
        bella::metrics::METRICS.iter().map(|metric| metric.key).collect(),
        bella::metrics::ood::OOD_SCORES.iter().map(|score| score.key).collect(),
    ];
    for key in registries.concat() {
        assert!(words.contains(key), "{key} is not listed: {text}");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "train",
        "eval",
        "score",
        "compare",
        "merge",
        "inspect",
        "head",
        "tokenize",
        "bench",
        "check",
        "data",
        "report",
        "list",
        "completions",
    ] {
        let output = common::bella(&[command, "--help"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}");
        common::assert_has(&common::printed(&output), &["Usage: bella", "Example", &format!("bella {command}")]);
    }
    common::assert_has(&common::printed(&common::bella(&["completions", "bash"]).output().unwrap()), &["_bella()"]);
}
