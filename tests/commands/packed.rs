//! Runs that are trained together as rows of one matrix: each is the run that trains alone, one that fails or leaves does not touch the others,
//! and what cannot share passes is refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Place, assert_has, cells, done, error_line, messages, number, tiny, with};
use crate::numbers::numbers;
use bella::results::store::{Table, read};
use tch::Tensor;

/// The most by which the numbers of a run may differ from those of its own training, as a share of the largest one: rounding in f32.
const ROUNDING: f64 = 1e-5;

/// Columns that say how long something took.
const TIMES: [&str; 3] = ["wall_seconds", "processor_seconds", "images_per_second"];

fn sweep(place: &Place, arguments: &[&str]) -> crate::common::Bella {
    with(place.command("sweep", &[]), &[&[place.path("tiny.toml").to_str().unwrap(), "--packed"], arguments].concat())
}

fn search(place: &Place) -> PathBuf {
    let mut found = std::fs::read_dir(place.path("results/sweeps")).unwrap();
    found.next().unwrap().unwrap().path()
}

fn trials(place: &Place) -> Table {
    read(&search(place).join("trials.csv")).unwrap()
}

fn names(folders: &[PathBuf]) -> Vec<String> {
    folders.iter().map(|folder| folder.file_name().unwrap().to_string_lossy().into_owned()).collect()
}

/// The tensors of a posterior by name.
fn tensors(run: &Path) -> Vec<(String, Tensor)> {
    let mut all = Tensor::read_safetensors(run.join("posterior.safetensors")).unwrap();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[track_caller]
fn near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= ROUNDING * expected.abs().max(1.0), "{what}: {found} and {expected}");
}

fn record(run: &Path) -> serde_json::Map<String, serde_json::Value> {
    serde_json::from_slice(&std::fs::read(run.join("run.json")).unwrap()).unwrap()
}

/// Checks that two folders hold the same run: its files, config, history, record and posterior. A process that was killed while it wrote a file
/// leaves a hidden one, which goes when it is old.
#[track_caller]
fn same_run(found: &Path, alone: &Path) {
    let files = |run: &Path| -> BTreeSet<String> {
        let names =
            std::fs::read_dir(run).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with('.')).collect()
    };
    assert_eq!(files(found), files(alone));
    let bytes = |run: &Path| std::fs::read(run.join("config.toml")).unwrap();
    assert_eq!(bytes(found), bytes(alone));
    let [history, expected] = [found, alone].map(|run| read(&run.join("train.csv")).unwrap());
    assert_eq!((&history.columns, history.rows.len()), (&expected.columns, expected.rows.len()));
    for column in expected.columns.iter().filter(|column| !TIMES.contains(&column.as_str()) && *column != "row_hash") {
        for row in 0..expected.rows.len() {
            match expected.get(row, column).unwrap().parse() {
                Ok(value) => near(number(&history, row, column), value, column),
                Err(_) => assert_eq!(history.get(row, column), expected.get(row, column), "{column}"),
            }
        }
    }
    let (written, own) = (record(found), record(alone));
    assert_eq!(written.keys().collect::<Vec<_>>(), own.keys().collect::<Vec<_>>());
    let of_this_process = ["peak_memory_bytes", "planned_memory_bytes", "content_hash"];
    for (key, value) in
        own.iter().filter(|(key, _)| !TIMES.contains(&key.as_str()) && !of_this_process.contains(&key.as_str()))
    {
        assert_eq!(&written[key], value, "{key}");
    }
    let (posterior, own) = (tensors(found), tensors(alone));
    assert_eq!(posterior.len(), own.len());
    for ((name, found), (own, expected)) in posterior.iter().zip(&own) {
        let difference =
            (found - expected).abs().max().double_value(&[]) / expected.abs().max().double_value(&[]).max(1e-12);
        println!("{name} differs by {difference:.1e}");
        assert!(name == own && difference < ROUNDING, "{name} differs by {difference:.1e}");
    }
}

/// Trains a config with each list of overrides by itself, and with all of them together, and compares the runs.
#[track_caller]
fn compared(config: &str, shared: &[&str], variants: &[&[&str]]) {
    let [packed, alone] = [Place::new(), Place::new()];
    [&packed, &alone].iter().for_each(|place| drop(place.write("tiny.toml", config.as_bytes())));
    for own in variants {
        done(with(alone.train(&[shared, own].concat()), &["--no-eval"]));
    }
    let file = packed.write("variants.json", serde_json::to_string(variants).unwrap().as_bytes());
    let began = Instant::now();
    done(with(packed.train(shared), &["--no-eval", "--variants", file.to_str().unwrap()]));
    let (together, own, took) = (packed.runs(), alone.runs(), began.elapsed().as_secs_f64());
    let seconds: f64 = together.iter().map(|run| record(run)["wall_seconds"].as_f64().unwrap()).sum();
    assert!(seconds > 0.0 && seconds < took, "the runs' seconds add up to {seconds}, and all took {took}");
    assert_eq!((names(&together), together.len()), (names(&own), variants.len()));
    together.iter().zip(&own).for_each(|(found, alone)| same_run(found, alone));
}

#[test]
fn runs_of_two_rates_and_two_seeds_are_their_own() {
    let rates = ["optimizer.adamw.lr=1e-2", "optimizer.adamw.lr=3e-3"];
    compared(
        &tiny(),
        &[],
        &[&[rates[0], "seed=3"], &[rates[0], "seed=4"], &[rates[1], "seed=3"], &[rates[1], "seed=4"]],
    );
}

#[test]
fn runs_follow_their_own_settings() {
    // One early stop, an average, a schedule and a clipped gradient; all particles of a run share their batches.
    let own: [&[&str]; 4] = [
        &["optimizer.adamw.lr=1e-2", "train.early_stop=1"],
        &["optimizer.adamw.weight_decay=0.5", "train.ema.decay=0.9"],
        &["method.svgd.gamma=0.5", "train.schedule=\"constant\"", "train.warmup_steps=3"],
        &["optimizer.adamw.lr=[1e-2,1e-3]", "train.clip_norm=0.1", "train.select=\"last-epoch\""],
    ];
    let shared = ["train.epochs=3", "train.batches=\"shared\""];
    compared(&tiny(), &shared, &own);
    compared(&tiny(), &shared, &[&["seed=1"], &["seed=2"], &["seed=2", "train.b_rate=2"]]);
}

#[test]
fn other_methods_losses_and_images_are_packed_as_well() {
    let map = tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01\n", "[method.map]\n");
    let ensemble = tiny().replace("[method.svgd]", "[method.ensemble]").replace("gamma = 0.01\n", "");
    let augmented =
        ensemble.replace("[data.digits]", "[data.digits]\naugment = { crop = \"random-resized\", flip = 0.5 }");
    let variants: [&[&str]; 3] = [
        &["optimizer.adamw.lr=1e-2", "seed=1"],
        &["optimizer.adamw.lr=2e-3", "seed=1"],
        &["optimizer.adamw.lr=1e-2", "seed=2"],
    ];
    compared(&map, &["train.label_smoothing=0.1", "train.class_weights=\"balanced\""], &variants);
    // The output of the blocks in front is kept.
    compared(&map, &["subspace.low-rank.blocks=\"2-3\"", "train.accumulate=2"], &variants);
    compared(&augmented, &["train.recompute=true"], &variants);
    compared(&ensemble, &["train.mixup.alpha=0.8", "train.mixup.cutmix_alpha=1.0"], &variants);
    compared(&ensemble, &["train.particle_chunk=1"], &variants[..2]);
}

const AXES: [&str; 4] = ["--over", "optimizer.adamw.lr=1e-2,1e-9", "--over", "method.svgd.gamma=0.01,0.1"];

#[test]
fn a_packed_sweep_comes_to_the_choice_of_jobs_side_by_side() {
    let [packed, jobs] = [Place::with_tiny(), Place::with_tiny()];
    done(sweep(&packed, &[&AXES[..], &["--halving", "2"]].concat()));
    let file = jobs.path("tiny.toml");
    done(with(jobs.command("sweep", &[]), &[&[file.to_str().unwrap(), "--halving", "2"], &AXES[..]].concat()));
    let [found, expected] = [&packed, &jobs].map(trials);
    for column in ["trial", "optimizer.adamw.lr", "method.svgd.gamma", "state", "epochs", "selected_epoch", "run"] {
        assert_eq!(cells(&found, column), cells(&expected, column), "{column}");
    }
    assert_eq!(cells(&found, "state"), ["chosen", "finished", "dropped", "dropped"]);
    (0..4).for_each(|row| {
        near(number(&found, row, "validation_nll_lm"), number(&expected, row, "validation_nll_lm"), "NLL")
    });
    assert_eq!(names(&packed.runs()), names(&jobs.runs()));
    packed
        .runs()
        .iter()
        .zip(&jobs.runs())
        .filter(|(run, _)| run.join("posterior.safetensors").is_file())
        .for_each(|(found, alone)| same_run(found, alone));
    assert!(!packed.path("results/tiny.csv").exists(), "test images are not read");
    let log = std::fs::read_to_string(search(&packed).join("packed-1.log")).unwrap();
    let commands: Vec<&str> = log.lines().filter(|line| line.starts_with("$ ")).collect();
    assert!(commands.len() == 2 && commands[0].contains("--until-epoch 1"), "a process for each rung: {commands:?}");
    assert_has(&log, &["4 runs in one pass: 8 rows", "2 runs in one pass: 4 rows"]);
    let before = log.len();
    done(sweep(&packed, &[&AXES[..], &["--halving", "2"]].concat()));
    assert_eq!(std::fs::read(search(&packed).join("packed-1.log")).unwrap().len(), before, "everything is done");
}

#[test]
fn seeds_are_trained_together_and_tested_each() {
    let [packed, alone] = [Place::with_tiny(), Place::with_tiny()];
    done(with(packed.train(&[]), &["--seeds", "3,4", "--packed"]));
    done(with(alone.train(&[]), &["--seeds", "3,4"]));
    let (found, expected) = (packed.results(), alone.results());
    assert_eq!(cells(&found, "run"), cells(&expected, "run"));
    for column in ["nll_lm", "nll_pm", "accuracy_lm", "ece_pm", "mi"] {
        (0..2).for_each(|row| near(number(&found, row, column), number(&expected, row, column), column));
    }
    packed.runs().iter().zip(&alone.runs()).for_each(|(found, alone)| same_run(found, alone));
    let after = std::fs::read(packed.path("results/tiny.csv")).unwrap();
    done(with(packed.train(&[]), &["--seeds", "3,4", "--packed"]));
    assert_eq!(std::fs::read(packed.path("results/tiny.csv")).unwrap(), after, "the same command finds them done");

    let place = Place::with_tiny();
    let shown = done(sweep(&place, &["--over", "optimizer.adamw.lr=1e-2,1e-9", "--over", "seed=3,4"]));
    assert_has(&shown, &["chosen", "2 seeds", "95 % interval"]);
    // The chosen run is there already, so that the other one is trained and tested before it.
    assert_eq!(cells(&place.results(), "seed"), ["4", "3"]);
}

/// Each process tells its own list of trials to the one that it starts.
#[test]
fn two_packed_sweeps_share_the_trials() {
    let place = Place::with_tiny();
    let arguments = ["--over", "optimizer.adamw.lr=1e-2,3e-3,1e-3,3e-4,1e-4,3e-5", "--halving", "1"];
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| sweep(&place, &arguments).output().unwrap()));
        for process in both {
            let output = process.join().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        }
    });
    let trials = trials(&place);
    let states = cells(&trials, "state");
    assert_eq!(states[0], "chosen");
    assert!(states[1..].iter().all(|state| *state == "finished"), "{states:?}");
}

#[test]
fn seeds_that_cannot_be_trained_together_are_refused_before_the_search() {
    let place = Place::with_tiny();
    let arguments =
        ["--set", "data.digits.label_noise=0.1", "--over", "optimizer.adamw.lr=1e-2,1e-3", "--over", "seed=1,2"];
    let error = error_line(sweep(&place, &arguments), 2);
    assert_has(&error, &["--packed with --over seed", "data.digits.label_noise"]);
    assert!(place.runs().is_empty(), "nothing is trained");
}

#[test]
fn numbers_are_trained_together() {
    let [packed, alone] = [(); 2].map(|()| Place::new());
    for (place, together) in [(&packed, &["--packed"][..]), (&alone, &[])] {
        place.write("tiny.toml", numbers().as_bytes());
        done(with(place.train(&[]), &[&["--seeds", "1,2"], together].concat()));
    }
    packed.runs().iter().zip(&alone.runs()).for_each(|(found, alone)| same_run(found, alone));
}

#[test]
fn a_run_that_fails_leaves_the_others_alone() {
    let place = Place::with_tiny();
    let output = sweep(&place, &["--over", "optimizer.adamw.lr=1e-2,1e30,3e-3", "--halving", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["(lr = 1e30) failed: ", "lower optimizer.*.lr", "packed-1.log"]);
    let table = trials(&place);
    assert_eq!(cells(&table, "state")[1..], ["finished", "failed"]);
    assert_has(table.get(2, "why").unwrap(), &["lower optimizer.*.lr"]);
    let alone = Place::with_tiny();
    done(with(alone.train(&["optimizer.adamw.lr=3e-3"]), &["--no-eval", "--trial", "tiny"]));
    let name = names(&alone.runs()).remove(0);
    same_run(&place.path("results/runs/tiny").join(name), &alone.run());
}

/// A run whose predictions cannot be stored is named, and the others are evaluated.
#[test]
fn a_run_that_cannot_be_evaluated_leaves_the_others_alone() {
    let [alone, packed] = [Place::with_tiny(), Place::with_tiny()];
    done(with(alone.train(&["seed=3"]), &[]));
    let run = alone.run();
    let file = std::fs::read_dir(run.join("predictions")).unwrap().next().unwrap().unwrap().path();
    let taken = packed.path("results").join(file.strip_prefix(alone.path("results")).unwrap());
    std::fs::create_dir_all(taken).unwrap();
    let variants = packed.write("variants.json", b"[[\"seed=3\"],[\"seed=4\"]]");
    let output = with(packed.train(&[]), &["--variants", variants.to_str().unwrap()]).output().unwrap();
    let (id, text) = (names(&[run]).remove(0), messages(&output));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_has(&text, &[&format!("error: {id}: "), "error: 1 of 2 packed runs failed"]);
    assert_eq!(cells(&packed.results(), "seed"), ["4"]);
}

/// A run that has come further waits for the others, and one that was paused in a pack goes on alone.
#[test]
fn runs_that_are_not_equally_far_go_on_together_and_alone() {
    let [rate, other] = ["optimizer.adamw.lr=1e-2", "optimizer.adamw.lr=3e-3"];
    let alone = Place::with_tiny();
    for own in [rate, other] {
        done(with(alone.train(&["train.epochs=3", own]), &["--no-eval"]));
    }
    let place = Place::with_tiny();
    done(with(place.train(&["train.epochs=3", rate]), &["--no-eval", "--until-epoch", "1"]));
    let file = place.write("variants.json", format!("[[{rate:?}],[{other:?}]]").as_bytes());
    let packed = ["--no-eval", "--variants", file.to_str().unwrap()];
    let text = messages(
        &with(place.train(&["train.epochs=3"]), &[&packed[..], &["--until-epoch", "2"]].concat()).output().unwrap(),
    );
    assert_has(&text, &["resuming after 4 steps", "but not bit for bit", "paused after 8 steps"]);
    let text = messages(&with(place.train(&["train.epochs=3", other]), &["--no-eval"]).output().unwrap());
    assert_has(&text, &["packed with other runs", "but not bit for bit"]);
    done(with(place.train(&["train.epochs=3"]), &packed));
    place.runs().iter().zip(&alone.runs()).for_each(|(found, alone)| same_run(found, alone));
}

fn started(place: &Place, arguments: &[&str]) -> Child {
    let mut words = place.arguments("sweep", &["train.epochs=6"]);
    words.extend([place.path("tiny.toml").display().to_string(), "--packed".to_string()]);
    words.extend(arguments.iter().map(|word| word.to_string()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(&words).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// A packed sweep that is killed (SIGKILL) in its first epochs comes to the numbers of one that is not.
#[test]
fn a_killed_packed_sweep_goes_on() {
    let place = Place::with_tiny();
    let axes = [&AXES[..], &["--halving", "1"]].concat();
    let mut child = started(&place, &axes);
    while !place.runs().iter().any(|run| run.join("train.csv").is_file()) {
        assert!(child.try_wait().unwrap().is_none(), "the sweep ended before it trained");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let whole = Place::with_tiny();
    for place in [&place, &whole] {
        assert!(started(place, &axes).wait().unwrap().success());
    }
    let [found, expected] = [&place, &whole].map(trials);
    for column in ["run", "state", "selected_epoch"] {
        assert_eq!(cells(&found, column), cells(&expected, column), "{column}");
    }
    place.runs().iter().zip(&whole.runs()).for_each(|(found, whole)| same_run(found, whole));
}

#[test]
fn what_cannot_share_passes_is_refused() {
    let place = Place::with_tiny();
    let rates = ["--over", "optimizer.adamw.lr=1e-2,1e-3"];
    let refused = |arguments: &[&str]| error_line(sweep(&place, arguments), 2);
    let batches = refused(&["--over", "train.batch_size=8,16", rates[0], rates[1]]);
    assert_has(&batches, &["--packed: train.batch_size: is 8 in one run and 16 in another", "share the passes"]);
    assert_has(&refused(&["--over", "method.svgd.particles=2,3"]), &["--packed: method.svgd.particles: is 2"]);
    assert_has(&refused(&["--over", "subspace.low-rank.rank=1,2"]), &["--packed: subspace.low-rank.rank: is 1"]);
    assert_has(&refused(&["--over", "train.epochs=1,2"]), &["--packed: train.epochs: is 1"]);
    for set in ["method.svgd.drive=\"weight\"", "method.svgd.sharpness=0.1"] {
        let line = refused(&["--set", set, rates[0], rates[1]]);
        assert_has(&line, &["--packed: method.svgd: with its settings, a step asks for more", "map, ensemble or svgd"]);
    }
    assert_has(
        &refused(&["--set", "train.precision=\"f16\"", rates[0], rates[1]]),
        &["--packed: train.precision = \"f16\""],
    );
    let seeds = |sets: &[&str]| error_line(with(place.train(sets), &["--seeds", "1,2", "--packed"]), 2);
    assert_has(&seeds(&["data.digits.label_noise=0.1"]), &["--packed: data.digits.label_noise: gives each seed"]);
    let output = with(place.train(&[]), &["--packed"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_has(&messages(&output), &["--seeds"]);
    let output = sweep(&place, &[rates[0], rates[1], "--jobs", "2"]).output().unwrap();
    assert_has(&messages(&output), &["--jobs", "cannot be used with"]);
    assert!(place.runs().is_empty());
}
