//! Every shipped config passes `bella check`; every mistake has a message of its own, all of them at once.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;

use crate::common::{Place, assert_has, bella, messages, printed, repository, tiny};
use bella::data::Medium;
use bella::experiment::{Experiment, load_config};

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

/// The keys of a registry, each as `form` writes it, separated by commas.
fn keys<'a>(keys: impl Iterator<Item = &'a str>, form: impl Fn(&str) -> String) -> String {
    keys.map(form).collect::<Vec<_>>().join(", ")
}

/// [`tiny`] with one text replaced by another.
#[track_caller]
fn with(old: &str, new: &str) -> String {
    let text = tiny();
    assert_eq!(text.matches(old).count(), 1, "{old}");
    text.replace(old, new)
}

/// Folders of files that are experiments by themselves.
pub const EXPERIMENTS: [&str; 6] =
    ["configs", "configs/bayesadapt", "configs/commonsense", "configs/glue", "configs/ivon", "configs/vtab"];
/// Folders of experiments on free answers, which not every method learns.
pub const ANSWERS: [&str; 1] = ["configs/vqa"];
/// Folders of experiments on numbers, which not every method learns.
pub const NUMBERS: [&str; 1] = ["configs/regression"];
/// Folders of files to merge after one.
pub const PARTS: [&str; 2] = ["configs/methods", "configs/layers"];

/// The configs of folders.
pub fn all(folders: &[&str]) -> Vec<PathBuf> {
    folders.iter().flat_map(|folder| toml_files(folder)).collect()
}

fn read(files: &[PathBuf]) -> Experiment {
    let experiment = load_config(files, &[]).and_then(|tree| Experiment::read(&tree));
    experiment.unwrap_or_else(|problems| panic!("{files:?}: {problems}"))
}

#[test]
fn shipped_files_are_fine_alone() {
    for (folders, role) in [
        (&EXPERIMENTS[..], "fine"),
        (&ANSWERS[..], "fine"),
        (&NUMBERS[..], "fine"),
        (&PARTS[..], "fine, to merge after an experiment"),
    ] {
        let files = all(folders);
        let names: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
        let output = check(&names);
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        assert_has(&messages(&output), &["not looked at: checkpoints, heads and images", "check --deep"]);
        assert_eq!(printed(&output), names.iter().map(|name| format!("{name}: {role}\n")).collect::<String>());
    }
}

#[test]
fn every_experiment_is_fine_with_every_method_and_layer() {
    for experiment in all(&EXPERIMENTS) {
        for part in all(&PARTS) {
            let (alone, files) = (read(std::slice::from_ref(&experiment)), [experiment.clone(), part.clone()]);
            if part.ends_with("forde.toml") && alone.data.dataset.medium() != Medium::Images {
                let merged = load_config(&files, &[]).and_then(|tree| Experiment::read(&tree));
                let why = merged.err().map(|problems| problems.to_string()).unwrap_or_default();
                assert!(why.contains("takes gradients by pixels"), "{experiment:?}: {why}");
                continue;
            }
            let merged = read(&files);
            assert_eq!(alone.data.key, merged.data.key);
            let (training, rank) = (merged.training.as_ref().unwrap(), merged.resolved());
            assert_eq!(rank_of(&rank).is_some(), training.subspace.key == "low-rank");
            if training.subspace.key == "low-rank" {
                assert_eq!(rank_of(&rank), rank_of(&alone.resolved()), "{experiment:?} {part:?}: the set's rank stays");
            }
        }
    }
}

#[test]
fn free_answers_and_numbers_are_learnt_by_every_method_that_needs_losses_alone() {
    let classes = ["bayesvlm", "f-svgd", "forde", "ibdr", "repulsive-ensemble", "sngp", "tfb", "vbl", "vbll"];
    // Parts of low rank have no rank of their own.
    let low_rank = |file: &PathBuf| std::fs::read_to_string(file).unwrap().contains("[subspace.low-rank]");
    for experiment in all(&[&ANSWERS[..], &NUMBERS[..]].concat()).into_iter().filter(low_rank) {
        for part in all(&PARTS) {
            // Their steps have nothing to compute again, which the configs of large networks ask for.
            let keeps = ["blob", "vogn"].iter().any(|method| part.ends_with(format!("{method}.toml")));
            let overrides: Vec<String> = keeps.then(|| "train.recompute=false".to_string()).into_iter().collect();
            let merged =
                load_config(&[experiment.clone(), part.clone()], &overrides).and_then(|tree| Experiment::read(&tree));
            let is_refused = classes.iter().any(|method| part.ends_with(format!("{method}.toml")));
            assert_eq!(merged.is_err(), is_refused, "{experiment:?} {part:?}");
        }
    }
}

fn rank_of(resolved: &toml::Table) -> Option<i64> {
    resolved["subspace"].get("low-rank")?.get("rank")?.as_integer()
}

/// The report finds a published number by the name of the test set.
#[test]
fn published_tables_know_the_names_of_the_shipped_sets() {
    let read_set = |row: csv::StringRecord| row[8].to_string();
    let published = |table: &str| -> BTreeSet<String> {
        let mut file = csv::Reader::from_path(repository(&format!("results/paper/{table}.csv"))).unwrap();
        assert_eq!(&file.headers().unwrap()[8], "set");
        file.records().map(|row| read_set(row.unwrap())).filter(|set| !set.is_empty()).collect()
    };
    let shipped: BTreeSet<String> = toml_files("configs/vtab").into_iter().map(|file| label(&read(&[file]))).collect();
    assert_eq!(shipped, published("ibdr-1"));
    let texts: BTreeSet<String> =
        toml_files("configs/commonsense").into_iter().map(|file| label(&read(&[file]))).collect();
    assert_eq!(texts, published("ibdr-3"));
    for name in ["cifar10", "cifar100", "camelyon17", "imagenet"] {
        let label = label(&read(&[repository(&format!("configs/{name}.toml"))]));
        assert!(published("bella-1").contains(&label), "{label}");
    }
}

/// Name of the data set in results.
fn label(experiment: &Experiment) -> String {
    let resolved = experiment.resolved();
    let given = resolved["data"][&experiment.data.key].get("label").and_then(|label| label.as_str()).map(str::to_owned);
    given.unwrap_or_else(|| experiment.data.dataset.label())
}

/// The header of an experiment has the command that runs it, and names files that exist.
#[test]
fn headers_say_how_to_run() {
    for file in all(&[&EXPERIMENTS[..], &PARTS[..]].concat()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let header: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        let from_command = header.iter().skip_while(|line| !line.contains("bella train --config"));
        let command = from_command.copied().collect::<Vec<_>>().join(" ");
        let named: Vec<&str> = command.split_whitespace().filter(|word| word.ends_with(".toml")).collect();
        assert!(named.iter().any(|name| repository(name) == file), "{}: names itself", file.display());
        assert!(
            named.iter().all(|name| name.contains('*') || !name.starts_with("configs/") || repository(name).is_file()),
            "{named:?}"
        );
    }
}

#[test]
fn mistakes_of_a_part_are_its_own() {
    let shown = mistakes("[method.svgd]\nparticles = 0\n");
    assert!(shown.starts_with("error: x.toml:2: method.svgd.particles = 0"), "{shown}");
}

#[test]
fn a_fixed_bandwidth_has_no_median() {
    let shown = mistakes(&with("gamma = 0.01", "gamma = 0.01\nbandwidth = 2.0\nlog_n = \"n\""));
    crate::common::assert_has(&shown, &["method.svgd.bandwidth", "median and log_n do nothing"]);
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
    let known = keys(bella::methods::METHODS.iter().map(|entry| entry.key), str::to_string);
    assert_eq!(
        mistakes(&with("[method.svgd]", "[method.svdg]")),
        format!("error: x.toml:17: unknown method `svdg`; known: {known}; did you mean `svgd`?\n")
    );
}

#[test]
fn unknown_data_set() {
    let known = keys(bella::data::DATASETS.iter().map(|entry| entry.key), str::to_string);
    assert_eq!(
        mistakes(&with("[data.digits]", "[data.cifar11]")),
        format!("error: x.toml:10: unknown data `cifar11`; known: {known}; did you mean `cifar10`?\n")
    );
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
    let tables = keys(bella::optimizers::OPTIMIZERS.iter().map(|entry| entry.key), |key| format!("[optimizer.{key}]"));
    assert_eq!(
        mistakes(&with("[optimizer.adamw]\nlr = 2e-3\n", "")),
        format!("error: x.toml: optimizer is required: one of {tables}\n")
    );
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
        .replace("batch_size = 8", "batch_size = 8\nprecision = \"fp16\"\naccumulate = 9");
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
        let line = crate::common::error_line(place.configured(command, &["train.epochs=0"]), 2);
        assert_eq!(line, "--set: train.epochs = 0: must be a whole number from 1 to 1000000", "{command}");
    }
    assert!(!place.path("results").exists(), "a refused config leaves nothing behind");
}

/// `bella check --deep` on [`tiny`] with one text replaced by another.
fn deep(old: &str, new: &str) -> Output {
    let place = Place::new();
    let file = place.write("x.toml", with(old, new).as_bytes());
    let mut command = place.command("check", &[]);
    let output = command.arg("--deep").arg(file).output().unwrap();
    assert!(place.runs().is_empty());
    output
}

#[test]
fn a_deep_check_opens_what_training_would_open() {
    let fine = deep("seed = 3", "seed = 4");
    let shown = printed(&fine);
    assert!(!messages(&fine).contains("not looked at"), "{}", messages(&fine));
    assert!(fine.status.success(), "{}", messages(&fine));
    let expected = [
        "training: 30 images, validation: 10 images",
        "a step: 2 particles x 8 images go through the network at once",
        "x.toml: fine",
    ];
    expected.iter().for_each(|line| assert!(shown.contains(line), "{shown}"));

    let archive = repository("assets/vit-digits.pt");
    let missing = deep(archive.to_str().unwrap(), "nowhere.pt");
    let blocks = deep("rank = 2", "rank = 2\nblocks = \"70\"");
    let head_rate = deep("[train]", "[train]\nhead_rate = 10");
    let cache = deep("[train]", "[train]\nprefix_cache = \"memory\"");
    let useless =
        [(head_rate, "train.head_rate = 10: no head is trained"), (cache, "train.prefix_cache: the first block")];
    for (output, part) in [(missing, "nowhere.pt"), (blocks, "70")].into_iter().chain(useless) {
        let shown = messages(&output);
        let error = shown.lines().last().unwrap();
        assert_eq!(output.status.code(), Some(1), "{shown}");
        assert!(error.starts_with("error: ") && error.contains("x.toml: ") && error.contains(part), "{shown}");
    }
}

/// The values of the resolved config that `bella check --print` prints for [`tiny`].
fn resolved(arguments: &[&str]) -> Result<toml::Table, String> {
    let place = Place::with_tiny();
    let file = place.path("tiny.toml");
    let mut command = bella(&["check", "--print", file.to_str().unwrap()]);
    let output = command.env("BELLA_PLACE", "/somewhere").env("HOME", "/home/me").args(arguments).output().unwrap();
    if output.status.code() != Some(0) {
        return Err(messages(&output).trim_end().to_string());
    }
    let text = printed(&output);
    Ok(toml::from_str(text.split_once('\n').unwrap().1).unwrap())
}

#[test]
fn the_last_part_of_a_key_is_enough_where_it_is_unique() {
    let table = resolved(&["--set", "lr=0.125", "--set", "epochs=7"]).unwrap();
    assert_eq!(table["optimizer"]["adamw"]["lr"].to_string(), "[0.125]");
    assert_eq!(table["train"]["epochs"].as_integer(), Some(7));
    let several = resolved(&["--set", "eps=1e-5"]).unwrap_err();
    assert_eq!(several, "error: --set: `eps` may be checkpoint.eps or optimizer.adamw.eps: write one of them");
    let unknown = resolved(&["--set", "lrr=1"]).unwrap_err();
    assert!(unknown.contains("lrr") && unknown.contains("unknown"), "{unknown}");
}

#[test]
fn keys_are_left_out() {
    let with = resolved(&["--set", "train.clip_norm=3"]).unwrap();
    let without = resolved(&["--set", "train.clip_norm=3", "--unset", "clip_norm"]).unwrap();
    assert_eq!(with["train"]["clip_norm"].as_float(), Some(3.0));
    assert_eq!(without, resolved(&[]).unwrap());
    let missing = resolved(&["--unset", "train.clip_norm"]).unwrap_err();
    assert_eq!(missing, "error: --unset: `train.clip_norm`: the config does not have this key: leave it out");
    let needed = resolved(&["--unset", "train.epochs"]).unwrap_err();
    assert!(needed.contains("train.epochs is required"), "{needed}");
}

#[test]
fn paths_may_start_at_home_or_at_a_variable() {
    let root = |given: &str| {
        let data = format!("data={{image-folder={{root=\"{given}\",classes=[\"a\",\"b\"]}}}}");
        resolved(&["--set", &data]).map(|table| table["data"]["image-folder"]["root"].as_str().unwrap().to_string())
    };
    assert_eq!(root("~/photos").unwrap(), "/home/me/photos");
    assert_eq!(root("$BELLA_PLACE/photos").unwrap(), "/somewhere/photos");
    let unset = root("${BELLA_NOWHERE}/photos").unwrap_err();
    assert!(unset.contains("the variable BELLA_NOWHERE of the environment is not set"), "{unset}");
}
