//! Every shipped config passes `bella check`; every mistake has a message of its own, all of them at once.

mod common;

use std::path::PathBuf;
use std::process::Output;

use common::{Place, bella, messages, printed, repository, tiny};

fn toml_files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository(folder)).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder}");
    files
}

fn check(arguments: &[&str]) -> Output {
    bella(&[&["check"], arguments].concat()).output().unwrap()
}

/// The messages of `bella check` on a text that must have mistakes, with the file as `x.toml`.
#[track_caller]
fn mistakes(text: &str) -> String {
    let place = Place::new();
    let file = place.write("x.toml", text.as_bytes());
    let output = check(&[file.to_str().unwrap()]);
    let shown = messages(&output);
    assert_eq!(output.status.code(), Some(2), "{shown}{}", printed(&output));
    assert_eq!(printed(&output), "");
    assert!(shown.lines().all(|line| line.starts_with("error: ")), "{shown}");
    shown.replace(&format!("{}/", file.parent().unwrap().display()), "")
}

/// [`tiny`] with one text replaced by another.
#[track_caller]
fn with(old: &str, new: &str) -> String {
    let text = tiny();
    assert_eq!(text.matches(old).count(), 1, "{old}");
    text.replace(old, new)
}

#[test]
fn shipped_experiments_are_fine() {
    for file in toml_files("configs") {
        let output = check(&[file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        assert_eq!(printed(&output), format!("{}: fine\n", file.display()));
    }
}

#[test]
fn shipped_methods_are_fine_over_the_quickstart() {
    let base = repository("configs/quickstart.toml");
    for file in toml_files("configs/methods") {
        let output = check(&["--merge", base.to_str().unwrap(), file.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(0), "{}: {}", file.display(), messages(&output));
    }
}

#[test]
fn resolved_config_reads_back_to_itself() {
    let place = Place::with_tiny();
    let first = check(&["--print", place.path("tiny.toml").to_str().unwrap()]);
    let resolved = printed(&first).split_once('\n').unwrap().1.to_string();
    let again = place.write("again.toml", resolved.as_bytes());
    let second = check(&["--print", again.to_str().unwrap()]);
    assert_eq!(second.status.code(), Some(0), "{}", messages(&second));
    assert_eq!(printed(&second).split_once('\n').unwrap().1, resolved);
}

#[test]
fn unknown_key() {
    insta::assert_snapshot!(mistakes(&with("gamma = 0.01", "gama = 0.01\ngamma = 0.01")));
}

#[test]
fn unknown_method() {
    insta::assert_snapshot!(mistakes(&with("[method.svgd]", "[method.svdg]")));
}

#[test]
fn unknown_data_set() {
    insta::assert_snapshot!(mistakes(&with("[data.digits]", "[data.cifar11]")));
}

#[test]
fn unknown_table() {
    insta::assert_snapshot!(mistakes(&format!("{}\n[trian]\nepochs = 3\n", tiny())));
}

#[test]
fn wrong_type() {
    insta::assert_snapshot!(mistakes(&with("particles = 2", "particles = \"two\"")));
}

#[test]
fn out_of_range() {
    insta::assert_snapshot!(mistakes(&with("validation = 0.2", "validation = 1.0")));
}

#[test]
fn two_methods() {
    insta::assert_snapshot!(mistakes(&format!("{}\n[method.map]\n", tiny())));
}

#[test]
fn missing_keys() {
    insta::assert_snapshot!(mistakes(&with("epochs = 2\n", "").replace("normalize", "heads = 4 #")));
}

#[test]
fn missing_table() {
    insta::assert_snapshot!(mistakes(&with("[optimizer.adamw]\nlr = 2e-3\n", "")));
}

#[test]
fn best_epoch_without_validation() {
    insta::assert_snapshot!(mistakes(
        &with("validation = 0.2\n", "").replace("[train]", "[train]\nselect = \"best-epoch\"")
    ));
}

#[test]
fn learning_rates_for_other_particles() {
    insta::assert_snapshot!(mistakes(&with("lr = 2e-3", "lr = [1e-3, 2e-3, 3e-3]")));
}

#[test]
fn particles_that_could_not_separate() {
    let full = with("[subspace.low-rank]\nrank = 2", "[subspace.full]");
    insta::assert_snapshot!(mistakes(&full.replace("[train]", "[train]\nbatches = \"shared\"")));
}

#[test]
fn shared_batches_are_fine_with_a_learning_rate_a_particle() {
    let full = with("[subspace.low-rank]\nrank = 2", "[subspace.full]").replace("lr = 2e-3", "lr = [1e-3, 2e-3]");
    let place = Place::new();
    let file = place.write("x.toml", full.replace("[train]", "[train]\nbatches = \"shared\"").as_bytes());
    let output = check(&[file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
}

#[test]
fn syntax_error() {
    insta::assert_snapshot!(mistakes(&with("rank = 2", "rank = = 2")));
}

#[test]
fn all_mistakes_at_once() {
    let text = tiny()
        .replace("seed = 3", "seed = -3")
        .replace("rank = 2", "rank = 0\nalhpa = 8.0")
        .replace("gamma = 0.01", "gamma = \"much\"\ndrive = \"own2\"")
        .replace("lr = 2e-3", "lr = 0")
        .replace("batch_size = 8", "batch_size = 8\nprecision = \"f16\"\naccumulate = 9");
    insta::assert_snapshot!(mistakes(&text));
}

#[test]
fn missing_file_and_bad_set() {
    let output = check(&["absent.toml", "--set", "train.epochs"]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(messages(&output));
}

#[test]
fn train_and_eval_refuse_bad_configs_with_exit_code_2() {
    let place = Place::with_tiny();
    for command in ["train", "eval"] {
        let line = common::error_line(place.configured(command, &["train.epochs=0"]), 2);
        assert_eq!(line, "--set: train.epochs = 0: must be a whole number from 1 to 1000000", "{command}");
    }
    assert!(!place.path("results").exists(), "a refused config leaves nothing behind");
}
