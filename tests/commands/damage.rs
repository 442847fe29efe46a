//! Damage to what bella has written is noticed, named, and never taken for results.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::common::{Place, assert_has, done, error_line, messages, printed, text, with};

/// Changes one bit of the last tensor.
fn flip(path: &Path) -> Vec<u8> {
    let bytes = std::fs::read(path).unwrap();
    let mut flipped = bytes.clone();
    let at = bytes.len() - 5;
    flipped[at] ^= 0x10;
    std::fs::write(path, flipped).unwrap();
    bytes
}

/// A finished run, its predictions and its resume file.
fn finished() -> (Place, PathBuf) {
    let place = Place::with_tiny();
    done(place.train(&["train.epochs=1"]));
    let run = place.run();
    (place, run)
}

fn check(place: &Place) -> crate::common::Bella {
    crate::common::bella(&["check", "--runs", &text(&place.path("results"))])
}

#[test]
fn a_flipped_bit_of_any_file_of_a_run_is_noticed() {
    let (place, run) = finished();
    assert_has(&done(check(&place)), &["results: as written (runs: 1, files: 6)"]);

    let predictions = run.join("predictions/digits@clean.safetensors");
    let whole = flip(&predictions);
    let line = error_line(crate::common::bella(&["score", &text(&predictions)]), 1);
    assert_has(&line, &["digits@clean.safetensors", "evaluate again", "damaged: its content has the hash"]);
    let output = place.train(&["train.epochs=1"]).output().unwrap();
    assert_has(&messages(&output), &["warning: ", "digits@clean.safetensors", "damaged", "evaluated again"]);
    assert!(std::fs::read(&predictions).unwrap() == whole, "the evaluation wrote other predictions");

    let posterior = run.join("posterior.safetensors");
    flip(&posterior);
    let line = error_line(place.command("eval", &[]), 1);
    assert_has(&line, &["posterior.safetensors: damaged", "bella train --force"]);

    flip(&run.join("resume.safetensors"));
    flip(&predictions);
    let output = check(&place).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let faults = printed(&output);
    assert_eq!(faults.lines().count(), 3, "{faults}");
    for (fault, file) in faults.lines().zip(["posterior", "resume", "digits@clean"]) {
        assert_has(fault, &[&format!("{file}.safetensors"), "damaged"]);
    }
    assert_has(&messages(&output), &["faults found: 3 (runs: 1, files: 6)"]);
}

#[test]
fn an_edited_config_of_a_run_is_noticed() {
    let (place, run) = finished();
    let config = run.join("config.toml");
    let stored = std::fs::read_to_string(&config).unwrap();
    // Where things lie is no part of a run's identity, and is said on the command line.
    let moved = place.path("moved.pt");
    std::fs::copy(crate::common::repository("assets/vit-digits.pt"), &moved).unwrap();
    done(place.command("eval", &[&format!("checkpoint.path=\"{}\"", moved.display())]));

    let edited = stored.replace("alpha = 16.0", "alpha = 400.0");
    assert_ne!(edited, stored);
    std::fs::write(&config, edited).unwrap();
    let line = error_line(place.command("eval", &[]), 2);
    let named = ["config.toml: ", "changed since bella wrote it", "undo the change"];
    assert_has(&line, &named);
    let output = check(&place).output().unwrap();
    assert_eq!((output.status.code(), printed(&output).lines().count()), (Some(1), 1));
    assert_has(&printed(&output), &named);
}

#[test]
fn a_folder_without_runs_is_not_called_fine() {
    assert_has(&error_line(check(&Place::new()), 1), &["results/runs: no run to check"]);
}

// Of a process that was killed while it wrote, and of one that kept the first blocks' output on disk.
#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    for force in [&[][..], &["--force"]] {
        let (place, run) = finished();
        std::fs::remove_file(run.join("posterior.safetensors")).unwrap();
        let left = ["prefix.cache", "prefix-1.cache", ".posterior.safetensors.1-2-3.tmp", "predictions/.a.1-2-3.tmp"];
        for name in left {
            let file = std::fs::File::create(run.join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(5)).unwrap();
        }
        done(with(place.train(&["train.epochs=1"]), force));
        left.iter().for_each(|name| assert!(!run.join(name).exists(), "{name} is left"));
    }
}

#[test]
fn a_prefix_cache_that_changes_on_disk_is_not_trained_on() {
    let place = Place::with_tiny();
    let sets = ["subspace.low-rank.blocks=\"2-3\"", "train.prefix_cache=\"disk\"", "train.epochs=100"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
    let mut arguments = place.arguments("train", &[&sets[..], &["train.save_minutes=1e-9"]].concat());
    arguments.extend(["--config".into(), text(&place.path("tiny.toml"))]);
    let mut child = command.args(arguments).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let run = loop {
        match place.runs().first() {
            Some(run) if run.join("resume.safetensors").exists() => break run.clone(),
            _ => assert!(child.try_wait().unwrap().is_none(), "the run ended before it was saved"),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let cache = run.join("prefix.cache");
    let bytes: Vec<u8> = std::fs::read(&cache).unwrap().iter().map(|byte| byte ^ 1).collect();
    // In place, as a disk does it.
    std::io::Write::write_all(&mut std::fs::OpenOptions::new().write(true).open(&cache).unwrap(), &bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = messages(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_has(said.lines().last().unwrap(), &["prefix.cache: damaged while it was in use", "the same command"]);
    assert!(!cache.exists());
}

#[test]
fn the_row_of_a_predictive_that_a_kill_prevented_is_made_by_the_same_command() {
    let place = Place::new();
    let tiny = crate::common::tiny();
    let (start, rest) = (tiny.find("[method.svgd]").unwrap(), tiny.find("[train]").unwrap());
    let ivon = "[method.ivon]\nlr = 0.03\ness = 40\nhess_init = 1e-2\n\n[optimizer.none]\n";
    place.write("tiny.toml", format!("{}{ivon}\n{}", &tiny[..start], &tiny[rest..]).as_bytes());
    done(place.train(&["train.epochs=1"]));
    let results = place.results();
    let predictives: Vec<_> = (0..results.rows.len()).map(|row| results.get(row, "predictive").unwrap()).collect();
    assert_eq!(predictives, ["", "mean"]);

    let csv = place.path("results/tiny.csv");
    let mut without_mean = place.results();
    without_mean.rows.truncate(1);
    bella::results::store::write(&csv, &without_mean).unwrap();
    done(place.train(&["train.epochs=1"]));
    let again = place.results();
    let places = |table: &bella::results::store::Table, row| table.get(row, "nll_lm").unwrap().to_string();
    assert_eq!((again.rows.len(), places(&again, 1)), (2, places(&results, 1)));
}

/// A results file that has lost all of its rows is noticed, and so is a posterior that is none.
#[test]
fn files_without_content_are_noticed() {
    let (place, run) = finished();
    let csv = place.path("results/tiny.csv");
    let whole = std::fs::read_to_string(&csv).unwrap();
    for (content, said) in
        [(whole.lines().next().unwrap(), "all of its rows were removed"), ("[[[[", "tiny.csv: has no row")]
    {
        std::fs::write(&csv, content).unwrap();
        assert_has(&printed(&check(&place).output().unwrap()), &["tiny.csv", said]);
    }
    std::fs::write(&csv, whole).unwrap();
    let posterior = run.join("posterior.safetensors");
    std::fs::remove_file(&posterior).unwrap();
    std::fs::create_dir(&posterior).unwrap();
    let line = error_line(with(place.command("eval", &[]), &[&text(&run)]), 1);
    assert_has(&line, &["posterior.safetensors: is no regular file"]);
}
