//! `bella sweep`: what is tried, what is chosen, that test images are left alone, that a killed search goes on.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Place, assert_has, cells, done, error_line, messages, number, printed, tensor_bytes, with};
use bella::results::store::{Table, read};

const RATES: [&str; 2] = ["--over", "optimizer.adamw.lr=1e-2,1e-9"];

fn sweep(place: &Place, arguments: &[&str]) -> crate::common::Bella {
    let mut command = place.command("sweep", &[]);
    command.arg(place.path("tiny.toml")).args(arguments);
    command
}

/// The folder of the only search.
fn search(place: &Place) -> PathBuf {
    let mut found = std::fs::read_dir(place.path("results/sweeps")).unwrap();
    let folder = found.next().unwrap().unwrap().path();
    assert!(found.next().is_none());
    folder
}

fn trials(place: &Place) -> Table {
    read(&search(place).join("trials.csv")).unwrap()
}

/// As for `bella train`: the key is left out of the files and of `--set`.
#[test]
fn keys_are_left_out_of_every_trial() {
    let place = Place::with_tiny();
    let plan = |more: &[&str]| done(sweep(&place, &[&RATES[..], &["--dry-run"], more].concat()));
    let clipped = ["--set", "train.clip_norm=3"];
    assert_ne!(plan(&clipped), plan(&[]));
    assert_eq!(plan(&[&clipped[..], &["--unset", "clip_norm"]].concat()), plan(&[]));
    for (axis, unset) in [
        ("train.clip_norm=1,2", "train.clip_norm"),
        ("train.clip_norm=1,2", "clip_norm"),
        ("clip_norm=1,2", "train.clip_norm"),
        ("train.clip_norm=1,2", "train"),
        ("optimizer={adamw={lr=1e-2}},{adamw={lr=1e-9}}", "lr"),
    ] {
        let both = [&["--over", axis, "--unset", unset, "--dry-run"], &clipped[..]].concat();
        let line = error_line(sweep(&place, &both), 2);
        let key = if axis.starts_with("optimizer") { "--over optimizer:" } else { "--over train.clip_norm:" };
        assert_has(&line, &[key, &format!("is left out by --unset {unset}, too")]);
    }
    let missing = [&RATES[..], &["--unset", "train.clip_norm"]].concat();
    assert_has(&error_line(sweep(&place, &missing), 2), &["--unset", "the config does not have this key"]);
    done(sweep(&place, &[&RATES[..], &clipped, &["--unset", "clip_norm"]].concat()));
    assert_eq!(cells(&trials(&place), "state")[0], "chosen");
}

#[test]
fn the_best_trial_on_held_out_images_is_chosen_and_losers_stop_early() {
    let place = Place::with_tiny();
    let axes = [&RATES[..], &["--over", "method.svgd.gamma=0.01,0.1", "--halving", "2", "--jobs", "2"]].concat();
    let shown = done(sweep(&place, &axes));
    assert_has(&shown, &["validation_nll_lm", "method.svgd.gamma", "chosen"]);
    let table = trials(&place);
    assert_eq!(cells(&table, "state"), ["chosen", "finished", "dropped", "dropped"]);
    assert_eq!(cells(&table, "epochs"), ["2", "2", "1", "1"]);
    assert_eq!(cells(&table, "optimizer.adamw.lr")[..2], ["1e-2", "1e-2"], "a rate of 1e-9 learns nothing");
    assert!(number(&table, 0, "validation_nll_lm") <= number(&table, 1, "validation_nll_lm"));
    assert!(!place.path("results/tiny.csv").exists(), "test images are not read");
    assert!(search(&place).join("trials.svg").is_file());
    // Trials are listed by their sweep alone, with what became of them.
    let runs = |arguments: &[&str]| {
        let out = place.path("results").display().to_string();
        done(crate::common::bella(&[&["runs", "--out", &out], arguments].concat()))
    };
    assert_has(&runs(&[]), &["no runs below", "4 trials of sweeps: bella runs --sweeps"]);
    assert!(!runs(&["--experiment", "other"]).contains("trials"), "those of another experiment do not count");
    let listed = runs(&["--sweeps"]);
    let states: Vec<&str> =
        ["chosen", "finished", "dropped"].into_iter().filter(|state| listed.contains(state)).collect();
    assert_eq!((states.len(), listed.matches("dropped").count(), listed.lines().count()), (3, 2, 7), "{listed}");
    assert_has(&listed, &["sweep: tiny-", "lr=0.01 ", "validation NLL"]);

    let log = search(&place).join("trial-1.log");
    let before = std::fs::read(&log).unwrap();
    assert_eq!(done(sweep(&place, &axes)), shown, "the same command finds everything done");
    assert_eq!(std::fs::read(&log).unwrap(), before);

    let chosen = search(&place).join("chosen.toml");
    done(with(place.command("train", &[]), &["--config", chosen.to_str().unwrap()]));
    assert_eq!(cells(&place.results(), "run"), [table.get(0, "run").unwrap()], "the chosen run itself is evaluated");
}

/// The chosen trial is the first, and the numbers beside the trials are those that it was chosen by.
#[test]
fn trials_are_listed_with_the_metric_that_compares_them() {
    let place = Place::with_tiny();
    done(sweep(&place, &[&RATES[..], &["--set", "train.select_by=ece"]].concat()));
    let table = trials(&place);
    let out = place.path("results").display().to_string();
    let listed = done(crate::common::bella(&["runs", "--sweeps", "--out", &out]));
    assert_has(&listed, &["validation ECE"]);
    for (row, line) in listed.lines().filter(|line| line.contains("lr=")).enumerate() {
        let value = format!("{:.4}", number(&table, row, "validation_ece_lm"));
        assert!(line.contains(&value), "no {value} in {listed}");
    }
}

/// Seeds are no settings to choose: the chosen ones are trained and tested with each of them.
#[test]
fn the_chosen_settings_are_tested_with_several_seeds() {
    let place = Place::with_tiny();
    let shown = done(sweep(&place, &[&RATES[..], &["--over", "seed=3,4"]].concat()));
    assert_has(&shown, &["chosen", "digits, clean: ", "2 seeds", "95 % interval"]);
    assert_eq!(cells(&trials(&place), "state"), ["chosen", "finished"]);
    let results = place.results();
    assert_eq!(cells(&results, "seed"), ["3", "4"]);
    assert_eq!(cells(&results, "adamw.lr"), ["[0.01]", "[0.01]"]);
    assert_eq!(place.runs().len(), 3, "the chosen trial is the run of its seed");
}

/// Trials were compared by held-out images; what is not named is never one of them, and no test image is read for one by the way.
#[test]
fn the_latest_run_after_a_search_is_no_trial() {
    let place = Place::with_tiny();
    done(sweep(&place, &RATES));
    let none = error_line(place.command("eval", &[]), 1);
    assert_has(&none, &["no finished run below", "trials of sweeps do not count"]);
    let rejected = trials(&place).get(1, "run").unwrap().to_string();
    let line = error_line(with(place.command("eval", &[]), &[&rejected]), 2);
    assert_has(&line, &["a trial of the sweep", "chooses by held-out images", "chosen.toml"]);
    assert!(!place.path("results/tiny.csv").exists());

    done(place.train(&["seed=8"]));
    let own = cells(&place.results(), "run")[0].to_string();
    done(sweep(&place, &["--over", "method.svgd.gamma=0.02,0.2"]));
    done(with(place.command("eval", &[]), &["--corrupt", "gaussian-noise:1"]));
    assert_eq!(cells(&place.results(), "run"), [own.as_str(), own.as_str()], "the trials are younger");

    // By its folder, a trial is tested all the same, and its row stays there.
    let folder = place.path(&format!("results/runs/tiny/{rejected}"));
    let output = with(place.command("eval", &[]), &[folder.to_str().unwrap()]).output().unwrap();
    let text = messages(&output);
    assert!(output.status.success(), "{text}");
    assert_has(&text, &["a trial of the sweep", "its row stays in"]);
    assert!(!text.contains("results: "), "{text}");
    let foreign = format!("image-folder={}", crate::common::text(&crate::common::folder(&place, "foreign")));
    done(with(place.command("eval", &[]), &[folder.to_str().unwrap(), "--conformal", "0.2"]));
    done(with(place.command("eval", &[]), &[folder.to_str().unwrap(), "--ood", &foreign]));
    for (shared, own) in [("tiny-conformal.csv", "conformal.csv"), ("tiny-ood.csv", "ood.csv")] {
        assert!(!place.path("results").join(shared).exists(), "{shared}");
        assert!(cells(&read(&folder.join(own)).unwrap(), "run").iter().all(|run| *run == rejected), "{own}");
    }
    done(crate::common::bella(&["check", "--runs", place.path("results").to_str().unwrap()]));
    assert_eq!(cells(&read(&folder.join("metrics.csv")).unwrap(), "run"), [rejected]);
    assert_eq!(place.results().rows.len(), 2);
}

#[test]
fn a_paused_run_goes_on_bit_for_bit() {
    let place = Place::with_tiny();
    let pause = || with(place.train(&[]), &["--no-eval", "--until-epoch", "1"]);
    let output = pause().output().unwrap();
    assert_has(&messages(&output), &["paused after 4 steps"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(!place.run().join("posterior.safetensors").exists());
    assert_has(&messages(&pause().output().unwrap()), &["paused after 4 steps"]);
    done(with(place.train(&[]), &["--no-eval"]));
    let whole = Place::with_tiny();
    done(with(whole.train(&[]), &["--no-eval"]));
    let theta = |place: &Place| tensor_bytes(&place.run().join("posterior.safetensors"), "theta");
    assert_eq!(theta(&place), theta(&whole));
}

/// A search that is killed (SIGKILL) while its first trial trains comes to the numbers of one that is not.
#[test]
fn a_killed_search_goes_on() {
    let place = Place::with_tiny();
    let mut arguments = place.arguments("sweep", &["train.epochs=6"]);
    arguments.push(place.path("tiny.toml").display().to_string());
    arguments.extend([&RATES[..], &["--halving", "1"]].concat().iter().map(|word| word.to_string()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(&arguments).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    while !place.runs().iter().any(|run| run.join("train.csv").is_file()) {
        assert!(child.try_wait().unwrap().is_none(), "the search ended before it trained");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let again = |place: &Place| {
        done(with(sweep(place, &RATES), &["--halving", "1", "--set", "train.epochs=6"]));
        let table = trials(place);
        ["run", "state", "validation_nll_lm", "selected_epoch"].map(|column| cells(&table, column).join(" "))
    };
    let whole = Place::with_tiny();
    assert_eq!(again(&place), again(&whole));
}

/// The process of a trial, once it trains.
#[cfg(target_os = "linux")]
fn trial_of(search: &mut std::process::Child) -> u32 {
    loop {
        assert!(search.try_wait().unwrap().is_none(), "the search ended before a trial was seen");
        let parent = search.id();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        let is_trial = |child: &u32| {
            std::fs::read_to_string(format!("/proc/{child}/cmdline")).is_ok_and(|words| words.contains("--trial"))
        };
        match children.split_whitespace().map(|child| child.parse().unwrap()).find(is_trial) {
            Some(child) => return child,
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// A trial that is killed, as by a system without memory, is no trial of bad settings: it goes on.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_trial_goes_on() {
    let place = Place::with_tiny();
    let mut search_process = started(&place, &[RATES[0], RATES[1], "--halving", "1"]);
    let killed = trial_of(&mut search_process);
    // SAFETY: the search waits for its trial, so that the number belongs to no other process.
    unsafe { libc::kill(killed as libc::pid_t, libc::SIGKILL) };
    let output = search_process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(
        &messages(&output),
        &["trial 1: its process was ended by signal 9 (SIGKILL), so it goes on in another one"],
    );
    assert_eq!(cells(&trials(&place), "trial"), ["1", "2"]);
    assert_eq!(cells(&trials(&place), "state"), ["chosen", "finished"]);
    assert_eq!(trained_in(&search(&place), 1).len(), 2);
}

/// The accuracy is better where it is higher, unlike the NLL, and the Brier score has a column of its own.
#[test]
fn trials_are_compared_by_the_metric_of_the_run() {
    for (metric, column, chosen_is_lower) in
        [("accuracy", "validation_accuracy_lm", false), ("brier", "validation_brier_lm", true)]
    {
        let place = Place::with_tiny();
        let by = format!("train.select_by={metric:?}");
        let shown = done(sweep(&place, &["--set", &by, "--halving", "1", RATES[0], RATES[1]]));
        assert_has(&shown, &[column]);
        let table = trials(&place);
        assert_eq!(cells(&table, "optimizer.adamw.lr"), ["1e-2", "1e-9"], "{metric}");
        let [chosen, other] = [0, 1].map(|row| number(&table, row, column));
        assert!(if chosen_is_lower { chosen < other } else { chosen >= other }, "{metric}: {chosen} {other}");
        let config = std::fs::read_to_string(search(&place).join("chosen.toml")).unwrap();
        assert_has(
            &config,
            &[if metric == "brier" { "by the Brier of held-out" } else { "by the accuracy of held-out" }],
        );
    }
}

#[test]
fn failing_trials_are_told_and_the_others_are_compared() {
    let place = Place::with_tiny();
    let output = sweep(&place, &["--over", "optimizer.adamw.lr=1e-2,1e30", "--halving", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["(lr = 1e30) failed: "]);
    let table = trials(&place);
    assert_eq!(cells(&table, "state"), ["chosen", "failed"]);
    assert!(!table.get(1, "why").unwrap().is_empty());
}

#[test]
fn a_plan_is_printed_without_training() {
    let place = Place::with_tiny();
    let axes = ["--over", "optimizer.adamw.lr=1e-4..1e-2", "--budget", "9", "--set", "train.epochs=9", "--dry-run"];
    let shown = printed(&sweep(&place, &axes).output().unwrap());
    assert_has(&shown, &["9: lr = ", "rung 1: 9 trials up to epoch 1", "rung 2: 3 trials up to epoch 3"]);
    assert_has(&shown, &["rung 3: 1 trials up to epoch 9"]);
    // The last part of the key names the same search.
    let short = ["--over", "lr=1e-4..1e-2", "--budget", "9", "--set", "epochs=9", "--dry-run"];
    assert_eq!(printed(&sweep(&place, &short).output().unwrap()), shown);
    assert!(place.runs().is_empty());
}

#[test]
fn a_search_without_sense_is_refused() {
    let place = Place::with_tiny();
    let refused = |arguments: &[&str]| error_line(sweep(&place, arguments), 2);
    assert_has(
        &refused(&["--over", "method.svgd.gama=0.1,0.2"]),
        &["--over: method.svgd.gama", "did you mean `gamma`"],
    );
    assert_has(&refused(&["--over", "method.svgd.gamma=0.1,-1"]), &["method.svgd.gamma = -1: must be at least 0"]);
    assert_has(&refused(&["--set", "method.svgd.gamma=-2", RATES[0], RATES[1]]), &["--set: method.svgd.gamma = -2"]);
    let none = refused(&["--set", "data.digits.validation=0", RATES[0], RATES[1]]);
    assert_has(&none, &["data.digits.validation = 0: a sweep chooses by held-out images", "--set data.digits"]);
    assert_has(
        &refused(&["--over", "seed=1,2"]),
        &["--over seed: nothing is left to choose", "train CONFIG --seeds 1,2,3"],
    );
    assert_has(&refused(&[RATES[0], RATES[1], "--over", "seed=1,x"]), &["--over seed=x: must be a whole number"]);
    let by = refused(&["--over", "train.select_by=\"nll\",\"accuracy\""]);
    assert_has(&by, &["--over train.select_by: trials are compared by it"]);
    assert_has(&refused(&["--over", "name=a,b"]), &["--over name: must leave the held-out images as they are"]);
    assert_has(&refused(&["--over", "train.particle_chunk=1,2"]), &["--over train.particle_chunk", "are the same run"]);
    assert_has(&refused(&[RATES[0], RATES[1], RATES[0], RATES[1]]), &["--over optimizer.adamw.lr: comes twice"]);
    assert_has(&refused(&["--over", "optimizer.adamw.lr=1e-4..1e-2"]), &["say how many by --budget"]);
    assert!(place.runs().is_empty() && !place.path("results/sweeps").exists());
}

/// The command lines of the trials in the logs of a search, by trial.
fn trained_in(search: &std::path::Path, trial: usize) -> Vec<String> {
    let log = std::fs::read_to_string(search.join(format!("trial-{trial}.log"))).unwrap();
    log.lines().filter(|line| line.starts_with("$ ")).map(String::from).collect()
}

fn started(place: &Place, more: &[&str]) -> std::process::Child {
    let mut arguments = place.arguments("sweep", &["train.epochs=4"]);
    arguments.push(place.path("tiny.toml").display().to_string());
    arguments.extend(more.iter().map(|word| word.to_string()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

const SHARED: [&str; 6] =
    ["--over", "optimizer.adamw.lr=1e-2,1e-9", "--over", "method.svgd.gamma=0.01,0.1", "--halving", "2"];

/// What a search came to: the rows of its trials, sorted, and the chosen config.
fn outcome(place: &Place) -> (Vec<String>, String) {
    let table = trials(place);
    let mut rows: Vec<String> = table.rows.iter().map(|row| row.join(",")).collect();
    rows.sort();
    (rows, std::fs::read_to_string(search(place).join("chosen.toml")).unwrap())
}

#[test]
fn two_processes_share_the_trials_of_a_search_and_come_to_the_same_choice() {
    let place = Place::with_tiny();
    let both = [started(&place, &SHARED), started(&place, &SHARED)];
    let outputs = both.map(|child| child.wait_with_output().unwrap());
    for output in &outputs {
        assert_eq!(output.status.code(), Some(0), "{}", messages(output));
    }
    assert_eq!(printed(&outputs[0]), printed(&outputs[1]), "both print the same table");
    let joined = outputs.iter().filter(|output| messages(output).contains("they share its trials")).count();
    assert_eq!(joined, 1, "the second one joins the first");
    let found = search(&place);
    for trial in 1..=4 {
        let lines = trained_in(&found, trial);
        let distinct: std::collections::BTreeSet<&String> = lines.iter().collect();
        assert_eq!(lines.len(), distinct.len(), "no trial is trained twice to the same epoch: {lines:?}");
    }
    let alone = Place::with_tiny();
    let output = started(&alone, &SHARED).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_eq!(outcome(&place), outcome(&alone), "as one process would have chosen");
}

#[test]
fn the_trials_of_a_killed_process_are_taken_over() {
    let place = Place::with_tiny();
    let mut first = started(&place, &SHARED);
    while !place.runs().iter().any(|run| run.join("train.csv").is_file()) {
        assert!(first.try_wait().unwrap().is_none(), "the search ended before it trained");
        std::thread::sleep(Duration::from_millis(5));
    }
    let second = started(&place, &SHARED);
    first.kill().unwrap();
    first.wait().unwrap();
    let output = second.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let alone = Place::with_tiny();
    let whole = started(&alone, &SHARED).wait_with_output().unwrap();
    assert_eq!(whole.status.code(), Some(0), "{}", messages(&whole));
    assert_eq!(outcome(&place), outcome(&alone));
}

/// A trial that fails is tried by one of the processes, and again by the same command later.
#[test]
fn a_failure_is_shared_until_the_search_is_started_anew() {
    let place = Place::with_tiny();
    let axes = ["--over", "optimizer.adamw.lr=1e-2,1e30", "--halving", "1"];
    let both = [started(&place, &axes), started(&place, &axes)];
    for child in both {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        assert_has(&messages(&output), &["(lr = 1e30) failed: "]);
    }
    assert_eq!(cells(&trials(&place), "state"), ["chosen", "failed"]);
    let found = search(&place);
    assert_eq!(trained_in(&found, 2).len(), 1, "{:?}", trained_in(&found, 2));
    let again = started(&place, &axes).wait_with_output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", messages(&again));
    assert_eq!(trained_in(&found, 2).len(), 2, "{:?}", trained_in(&found, 2));
}
