//! Tests on results folders as users have them: complete, half-written or empty.

use std::collections::BTreeMap;
use std::fs;

use super::*;
use crate::base::hash::{seal_json, seal_toml};
use crate::predictions::{Predictions, Shape};

const RESULTS: &str = "experiment,run,config,subspace,method,particles,seed,set,condition,accuracy_lm\n\
    a,r1,c,full,map,1,1,cifar10,clean,0.71\na,r2,c,full,map,1,2,cifar10,clean,0.73\n";

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn predictions(path: &Path, condition: &str) {
    let shape = Shape { members: 1, samples: 2, classes: 2 };
    let metadata = [("set", "cifar10"), ("condition", condition)].map(|(key, text)| (key.into(), text.into()));
    let predictions = Predictions::new(shape, vec![0.0, 1.0, 2.0, 0.0], vec![1, 0]).unwrap();
    predictions.with_metadata(BTreeMap::from(metadata)).unwrap().save(path).unwrap();
}

fn accuracies(sources: &Sources) -> Vec<Option<f64>> {
    sources.result_rows().map(|row| row.number("accuracy_lm")).collect()
}

#[test]
fn result_files_are_merged_and_sorted_by_their_columns() {
    let ood = "run,method,set,ood_set,score,average,auroc\nr1,map,cifar10,svhn,mi,,0.9\n";
    let folder = folder(&[
        ("a.csv", RESULTS),
        ("b.csv", "experiment,run,method,seed,set,condition,nll_lm\nb,r3,svgd,1,cifar10,clean,0.5\n"),
        ("a-ood.csv", ood),
        ("paper/bella-1.csv", "table\nbella-1\n"),
        ("notes.txt", "x"),
    ]);
    let sources = Sources::open(folder.path()).unwrap();
    assert!(sources.problems.is_empty(), "{:?}", sources.problems);
    assert_eq!(accuracies(&sources), [Some(0.71), Some(0.73), None]);
    assert_eq!(sources.ood.get(0, "auroc"), Some("0.9"));
    let series: Vec<_> = sources.series().iter().map(|one| (one.name.clone(), one.rows.clone())).collect();
    assert_eq!(series, [("Single".to_string(), vec![0, 1]), ("svgd".to_string(), vec![2])]);
    assert_eq!(sources.ood_series().len(), 1);
}

#[test]
fn what_is_half_written_is_named_and_never_a_number() {
    let torn = RESULTS.strip_suffix("3\n").unwrap();
    let folder = folder(&[
        ("a.csv", torn),
        ("b.csv", "run,method,condition,accuracy_lm\nr4,map,clean\n"),
        ("c.csv", "run,method,condition,accuracy_lm\nr5,map,clean,0.9x\nr6,map,clean,NaN\n"),
        ("d.csv", "x,y\n1,2\n"),
        ("e.csv", ""),
    ]);
    let sources = Sources::open(folder.path()).unwrap();
    assert_eq!(accuracies(&sources), [Some(0.71), None, None], "row r2 was 0.7 of 0.73");
    let expected = [
        "a.csv: ends within a row",
        "b.csv: line 2: 3 cells where the header has 4",
        "c.csv: row 1, column `accuracy_lm` = `0.9x`",
        "c.csv: row 2, column `accuracy_lm` = `NaN`",
        "d.csv: has neither the columns",
        "e.csv: has neither the columns",
    ];
    assert_eq!(sources.problems.len(), expected.len(), "{:?}", sources.problems);
    for (problem, expected) in sources.problems.iter().zip(expected) {
        assert!(problem.contains(expected), "{problem}: {expected}");
    }
}

#[test]
fn a_row_that_fits_its_hash_is_whole_without_a_line_break() {
    let folder = folder(&[("plain.csv", RESULTS.strip_suffix("3\n").unwrap())]);
    let path = folder.path().join("a.csv");
    let plain = store::read(&folder.path().join("plain.csv")).unwrap();
    store::write(&path, &plain).unwrap();
    fs::write(&path, fs::read_to_string(&path).unwrap().trim_end()).unwrap();
    let sources = Sources::of_files(&[path]).unwrap();
    assert_eq!((accuracies(&sources), sources.problems), (vec![Some(0.71), Some(0.7)], vec![]));
    let alone = RESULTS.lines().take(2).collect::<Vec<_>>().join("\n");
    fs::write(folder.path().join("plain.csv"), alone).unwrap();
    let error = format!("{:#}", Sources::of_files(&[folder.path().join("plain.csv")]).unwrap_err());
    assert!(error.starts_with("no results yet (results file ") && error.contains("ends within a row"), "{error}");
}

#[test]
fn runs_of_other_experiments_than_the_named_files_have_are_left_out() {
    let config = seal_toml("seed = 1\n");
    let folder = folder(&[
        ("a.csv", RESULTS),
        ("runs/a/r1/config.toml", &config),
        ("runs/b/r3/config.toml", &config),
        ("runs/b/r4/run.json", "half"),
    ]);
    let sources = Sources::of_files(&[folder.path().join("a.csv")]).unwrap();
    let runs: Vec<&str> = sources.runs.iter().map(|run| run.run.as_str()).collect();
    assert_eq!((runs, &sources.problems[..]), (vec!["r1"], &[][..]));
    assert!(sources.by_experiment().iter().all(|one| one.experiment.is_empty()), "one experiment has no name");
    assert_eq!(Sources::open(folder.path()).unwrap().runs.iter().count(), 3);
}

#[test]
fn run_folders_are_read_and_broken_files_left_out() {
    let folder = folder(&[
        ("a.csv", RESULTS),
        ("runs/a/r1/config.toml", &seal_toml("seed = 1\n[subspace.low-rank]\nrank = 4\n")),
        ("runs/a/r1/train.csv", ""),
        ("runs/a/r1/run.json", &seal_json("{\n  \"run\": \"r1\",\n  \"particles\": 1\n}")),
        ("runs/a/r2/config.toml", "seed = "),
        ("runs/a/r2/run.json", "{\"partic"),
        ("runs/a/r2/predictions/cifar10@clean.safetensors", "half"),
        ("runs/a/r2/predictions/.x.tmp", "half"),
    ]);
    let mut history = Table::new(["epoch", "train_loss", "run"]);
    history.rows.push(["1", "0.5", "r1"].map(String::from).to_vec());
    store::write(&folder.path().join("runs/a/r1/train.csv"), &history).unwrap();
    let path = folder.path().join("runs/a/r1/predictions");
    fs::create_dir(&path).unwrap();
    predictions(&path.join("cifar10@clean.safetensors"), "clean");
    predictions(&path.join("cifar10@other.safetensors"), "fgsm 0.01");
    let sources = Sources::open(folder.path()).unwrap();
    assert_eq!(sources.problems.len(), 3, "{:?}", sources.problems);
    let run = |name: &str| sources.runs.named(name).next();
    let history = |name: &str| run(name)?.history.as_ref();
    assert_eq!(history("r1").unwrap().get(0, "train_loss"), Some("0.5"));
    assert!(history("r2").is_none() && history("r9").is_none());
    assert_eq!(run("r1").unwrap().record.as_ref().unwrap()["particles"], 1);
    let predictions = |condition: &str| {
        let files = &run("r1").unwrap().predictions;
        files.iter().find(|file| file.set == "cifar10" && file.condition == condition).map(|file| file.path.clone())
    };
    assert_eq!(predictions("fgsm 0.01"), Some(path.join("cifar10@other.safetensors")));
    assert_eq!(predictions("jpeg"), None);
    let row = sources.result_rows().next().unwrap();
    assert_eq!(sources.predictions_of(&row), Some(path.join("cifar10@clean.safetensors")));
}

#[test]
fn empty_and_missing_folders_are_errors_with_a_way_out() {
    let empty = tempfile::tempdir().unwrap();
    let failure = |path: &Path| format!("{:#}", Sources::open(path).unwrap_err());
    assert!(failure(empty.path()).ends_with("no results in it; run `bella train` first"));
    assert!(failure(&empty.path().join("none")).contains("no results folder"));
    let broken = folder(&[("a.csv", "x\n1\n")]);
    assert!(failure(broken.path()).contains("a.csv: has neither"));
}

#[test]
fn files_named_by_the_user_must_be_readable() {
    let folder = folder(&[("a.csv", RESULTS), ("b.csv", "x\n1\n"), ("c.csv", "method,condition\n")]);
    let open = |name: &str| Sources::of_files(&[folder.path().join(name)]);
    assert_eq!(open("a.csv").unwrap().results.rows.len(), 2);
    assert!(format!("{:#}", open("b.csv").unwrap_err()).contains("b.csv: has neither"));
    assert!(format!("{:#}", open("c.csv").unwrap_err()).contains("no results yet"));
    assert!(format!("{:#}", open("none.csv").unwrap_err()).contains("none.csv"));
}
