//! Every file of a registry's folder is registered, and every key is there once: a file whose `mod` line is missing
//! compiles without a word.

use std::collections::BTreeSet;

use crate::common::repository;

/// Compares the files of `folder` with the registered keys, which name them.
fn check(folder: &str, keys: &[&str]) {
    let entries = std::fs::read_dir(repository(folder)).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    // An entry with tests beside it is a folder.
    let files = names.map(|name| name.trim_end_matches(".rs").to_owned()).filter(|name| name != "mod");
    let registered: BTreeSet<String> = keys.iter().map(|key| key.replace('-', "_")).collect();
    assert_eq!(registered.len(), keys.len(), "a key of {folder} comes twice: {keys:?}");
    assert_eq!(files.collect::<BTreeSet<_>>(), registered, "files of {folder} against registered keys");
}

#[test]
fn every_file_of_a_registry_is_an_entry() {
    check("src/methods/entries", &bella::methods::METHODS.iter().map(|entry| entry.key).collect::<Vec<_>>());
    check("src/subspace/entries", &bella::subspace::SUBSPACES.iter().map(|entry| entry.key).collect::<Vec<_>>());
    check("src/model/head/entries", &bella::model::head::HEADS.iter().map(|entry| entry.key).collect::<Vec<_>>());
    check("src/optimizers/entries", &bella::optimizers::OPTIMIZERS.iter().map(|entry| entry.key).collect::<Vec<_>>());
    check(
        "src/metrics/ood/features/entries",
        &bella::metrics::ood::features::FEATURE_SCORES.iter().map(|entry| entry.key).collect::<Vec<_>>(),
    );
    check(
        "src/metrics/calibrators/entries",
        &bella::metrics::calibrators::CALIBRATORS.iter().map(|entry| entry.key).collect::<Vec<_>>(),
    );
    check(
        "src/evaluate/attacks/entries",
        &bella::evaluate::attacks::ATTACKS.iter().map(|entry| entry.key).collect::<Vec<_>>(),
    );
    check(
        "src/inference/acquire/entries",
        &bella::inference::acquire::RULES.iter().map(|entry| entry.key).collect::<Vec<_>>(),
    );
    check(
        "src/exchange/formats",
        &bella::exchange::formats::FORMATS.iter().map(|format| format.key).collect::<Vec<_>>(),
    );
    check("src/data/sets", &bella::data::DATASETS.iter().map(|entry| entry.key).collect::<Vec<_>>());
    check(
        "src/model/recognition/namings",
        &bella::model::recognition::NAMINGS.iter().map(|naming| naming.key).collect::<Vec<_>>(),
    );
}

/// A file may hold several families that are alike, and a file whose `mod` line is missing is not compiled.
#[test]
fn every_family_of_transformers_is_registered() {
    let entries = std::fs::read_dir(repository("src/model/families")).unwrap();
    let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let texts = files.map(|path| std::fs::read_to_string(path).unwrap());
    let is_entry = |line: &&str| line.starts_with("pub static ") && line.contains(": Family =");
    let count: usize = texts.map(|text| text.lines().filter(is_entry).count()).sum();
    let known: BTreeSet<&str> = bella::model::families::FAMILIES.iter().map(|family| family.model_type).collect();
    assert_eq!(count, known.len(), "{known:?}");
}

#[test]
fn metrics_and_corruptions_have_keys_of_their_own() {
    let metrics: Vec<&str> = bella::metrics::METRICS.iter().map(|metric| metric.key).collect();
    let corruptions: Vec<&str> = bella::data::corruptions::CORRUPTIONS.iter().map(|entry| entry.key).collect();
    let scores: Vec<&str> = bella::metrics::ood::OOD_SCORES.iter().map(|score| score.key).collect();
    let measures: Vec<&str> = bella::metrics::ood::OOD_MEASURES.iter().map(|measure| measure.key).collect();
    let answers: Vec<&str> = bella::metrics::answers::columns();
    let numbers: Vec<&str> = bella::metrics::numbers::NUMBER_METRICS.iter().map(|metric| metric.key).collect();
    for keys in [metrics, answers, numbers, scores, measures, corruptions] {
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len(), "{keys:?}");
    }
}

#[test]
fn list_prints_every_key() {
    let output = crate::common::bella(&["list"]).output().unwrap();
    let text = crate::common::printed(&output);
    let words: BTreeSet<&str> = text.split_whitespace().collect();
    let registries = [
        bella::methods::METHODS.iter().map(|entry| entry.key).collect::<Vec<_>>(),
        bella::subspace::SUBSPACES.iter().map(|entry| entry.key).collect(),
        bella::model::head::HEADS.iter().map(|entry| entry.key).collect(),
        bella::optimizers::OPTIMIZERS.iter().map(|entry| entry.key).collect(),
        bella::data::DATASETS.iter().map(|entry| entry.key).collect(),
        bella::metrics::METRICS.iter().map(|metric| metric.key).collect(),
        bella::metrics::answers::ANSWER_METRICS.iter().map(|metric| metric.key).collect(),
        bella::metrics::numbers::NUMBER_METRICS.iter().map(|metric| metric.key).collect(),
        bella::metrics::ood::OOD_SCORES.iter().map(|score| score.key).collect(),
        bella::metrics::ood::features::FEATURE_SCORES.iter().map(|entry| entry.key).collect(),
        bella::metrics::calibrators::CALIBRATORS.iter().map(|entry| entry.key).collect(),
        bella::inference::acquire::RULES.iter().map(|entry| entry.key).collect(),
    ];
    for key in registries.concat() {
        assert!(words.contains(key), "{key} is not listed: {text}");
    }
}

/// The lists of single registries are the parts of the whole list.
#[test]
fn each_registry_is_listed_by_itself() {
    let list =
        |words: &[&str]| crate::common::printed(&crate::common::bella(&[&["list"], words].concat()).output().unwrap());
    let names = [
        "checkpoints",
        "heads",
        "data",
        "subspaces",
        "methods",
        "optimizers",
        "corruptions",
        "attacks",
        "metrics",
        "rules",
    ];
    assert_eq!(list(&[]).trim(), names.map(|name| list(&[name])).concat().trim());
    let methods = list(&["methods"]);
    assert!(methods.starts_with("[method.*]") && methods.contains("  svgd ") && !methods.contains("cifar10"));
}

/// Everything that runs on a GPU runs on the simulated one, too.
#[test]
fn every_entry_has_a_case_on_the_simulated_gpu() {
    let cases = std::fs::read_to_string(repository("tests/simulated-gpu/cases.py")).unwrap();
    let table = |kind: &str, keys: Vec<&str>| keys.iter().map(|key| format!("[{kind}.{key}]")).collect::<Vec<_>>();
    // Imported particles are not trained.
    let trained = bella::methods::METHODS.iter().map(|entry| entry.key).filter(|key| *key != "imported");
    let mut wanted = table("method", trained.collect());
    wanted.extend(table("subspace", bella::subspace::SUBSPACES.iter().map(|entry| entry.key).collect()));
    wanted.extend(table("optimizer", bella::optimizers::OPTIMIZERS.iter().map(|entry| entry.key).collect()));
    wanted.extend(bella::data::corruptions::CORRUPTIONS.iter().map(|entry| format!("{}:", entry.key)));
    wanted.extend(bella::evaluate::attacks::ATTACKS.iter().map(|entry| format!("\"{}\"", entry.key)));
    let missing: Vec<&String> = wanted.iter().filter(|word| !cases.contains(word.as_str())).collect();
    assert!(missing.is_empty(), "add a line to tests/simulated-gpu/cases.py for {missing:?}");
}

#[test]
fn every_command_has_help_with_an_example() {
    let help = crate::common::printed(&crate::common::bella(&["--help"]).output().unwrap());
    let (_, commands) = help.split_once("\nCommands:\n").unwrap();
    let (commands, _) = commands.split_once("\n\n").unwrap();
    // The lines that continue a description are indented further.
    let names = commands.lines().filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')));
    let names: Vec<&str> =
        names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(names.contains(&"train") && names.contains(&"completions"), "{names:?}");
    for command in names {
        let output = crate::common::bella(&[command, "--help"]).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}");
        crate::common::assert_has(
            &crate::common::printed(&output),
            &["Usage: bella", "Example", &format!("bella {command}")],
        );
    }
    crate::common::assert_has(
        &crate::common::printed(&crate::common::bella(&["completions", "bash"]).output().unwrap()),
        &["_bella()", "BELLA_COMPLETE"],
    );
}

/// The shell asks by a variable, with the words of the line and the number of the one that is typed.
#[test]
fn runs_keys_and_data_sets_are_completed() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("results/runs/mine/low-rank-svgd-s1-0123456789");
    std::fs::create_dir_all(&run).unwrap();
    std::fs::write(run.join("config.toml"), "").unwrap();
    let complete = |words: &[&str]| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_bella"));
        command.current_dir(folder.path()).env("BELLA_COMPLETE", "bash").env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).args(["--", "bella"]).args(words);
        crate::common::printed(&command.output().unwrap())
    };
    assert_eq!(complete(&["runs", "show", "low"]), "low-rank-svgd-s1-0123456789");
    assert_eq!(complete(&["train", "--set", "method.svgd.gam"]), "method.svgd.gamma=");
    assert_eq!(complete(&["train", "--set", "data.digits.valid"]), "data.digits.validation=");
    // Of a run's config, keys that it may not change are left out.
    assert_eq!(complete(&["eval", "--set", "method.svgd.gam"]), "");
    assert_eq!(complete(&["eval", "--set", "data.digits.valid"]), "data.digits.validation=");
    assert_eq!(complete(&["predict", "--set", "data.digits.valid"]), "");
    assert_eq!(complete(&["predict", "--set", "checkpoint.t"]), "checkpoint.tokenizer=");
    assert_eq!(complete(&["eval", "--data", "cifar100-"]), "cifar100-c=");
    assert_eq!(complete(&["init", "--method", "multi-s"]), "multi-swag");
}
