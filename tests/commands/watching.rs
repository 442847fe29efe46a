//! What follows a run while it trains: `bella watch`, the hook of an epoch, and TensorBoard's event files.

use crate::common::{Place, assert_has, bella, messages, number, printed};

fn watch(place: &Place, arguments: &[&str]) -> std::process::Output {
    let out = place.path("results").display().to_string();
    bella(&[&["watch", "--out", &out], arguments].concat()).env("COLUMNS", "60").output().unwrap()
}

#[test]
fn the_curves_of_runs_are_drawn() {
    let place = Place::with_tiny();
    let empty = watch(&place, &[]);
    assert_eq!(empty.status.code(), Some(1));
    assert_has(&messages(&empty), &["no run below", "is training or has trained"]);
    place.train(&[]).arg("--no-eval").assert().success();
    place.train(&["seed=4"]).arg("--no-eval").assert().success();
    let one = printed(&watch(&place, &["low-rank-svgd-s3"]));
    assert_has(
        &one,
        &["low-rank-svgd-s3-", "trained, 2 of 2 epochs\n", "training loss: ", "validation accuracy (%): "],
    );
    let two = printed(&watch(&place, &["low-rank-svgd-s3", "low-rank-svgd-s4", "--columns", "bandwidth"]));
    assert_has(&two, &["a low-rank-svgd-s3-", "b low-rank-svgd-s4-", "bandwidth\n"]);
    assert!(!two.contains("training loss"), "{two}");
    for text in [one, two] {
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 60), "{text}");
    }
    let unknown = watch(&place, &["--columns", "train_los"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_has(&messages(&unknown), &["train.csv has no column `train_los`", "train_loss"]);
}

/// A long first epoch can be followed, too.
#[test]
fn the_steps_of_the_first_epoch_are_shown() {
    let place = Place::with_tiny();
    let sets = ["data.digits.subset.train=1000", "train.batch_size=1", "train.epochs=1"];
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(place.arguments("train", &sets)).arg("--no-eval");
    command.arg("--config").arg(place.path("tiny.toml")).stderr(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let text = loop {
        let out = place.path("results").display().to_string();
        let text = printed(&bella(&["watch", "--out", &out]).env("COLUMNS", "80").output().unwrap());
        if text.contains(", step ") {
            break text;
        }
        assert!(child.try_wait().unwrap().is_none(), "no step was shown: {text}");
    };
    child.kill().unwrap();
    child.wait().unwrap();
    assert_has(&text, &["training, epoch 1 of 1, step ", " of 799\n", "no epoch is finished", "training loss: "]);
}

#[cfg(unix)]
#[test]
fn a_command_gets_the_row_of_each_epoch() {
    let place = Place::with_tiny();
    let rows = place.path("rows.jsonl");
    let hook = format!("train.on_epoch={:?}", format!("cat >> '{}'", rows.display()));
    place.train(&[&hook]).arg("--no-eval").assert().success();
    let history = bella::results::store::read(&place.run().join("train.csv")).unwrap();
    let text = std::fs::read_to_string(&rows).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2);
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["run"], place.run().file_name().unwrap().to_string_lossy().as_ref());
        assert_eq!((&line["epochs"], &line["seed"]), (&2.into(), &3.into()));
        for column in history.columns.iter().filter(|column| *column != "run") {
            let stored: f64 = history.get(at, column).unwrap().parse().unwrap();
            assert_eq!(line[column].as_f64(), Some(stored), "{column}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_command_that_fails_does_not_end_training() {
    let place = Place::with_tiny();
    let sets = ["train.on_epoch=[\"sh\", \"-c\", \"echo no network >&2; exit 7\"]"];
    let output = place.train(&sets).arg("--no-eval").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let warning = "warning: train.on_epoch: epoch 2: exit code 7: no network (";
    assert_has(&messages(&output), &[&warning.replace("epoch 2", "epoch 1"), warning]);
    let bad = place.train(&["train.on_epoch=3"]).output().unwrap();
    assert_eq!(bad.status.code(), Some(2));
    assert_has(&messages(&bad), &["train.on_epoch = 3: must be a shell command in quotes, or a list of a program"]);
}

/// The epoch is saved before it waits for a slow command, a stop does not wait for that, and the run goes on behind the epoch.
#[cfg(unix)]
#[test]
fn a_slow_command_keeps_no_epoch_from_being_saved() {
    let place = Place::with_tiny();
    let sets = ["train.epochs=3", "train.on_epoch=\"sleep 300\"", "train.on_epoch_seconds=120"];
    let arguments = place.arguments("train", &sets);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).arg("--no-eval").envs(crate::common::preload());
    command.arg("--config").arg(place.path("tiny.toml")).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let begun = std::time::Instant::now();
    let epochs = || {
        let history = place.runs().first().map(|run| run.join("train.csv"));
        history.and_then(|path| std::fs::read_to_string(path).ok()).map_or(0, |text| text.lines().count() - 1)
    };
    while epochs() < 2 {
        assert!(begun.elapsed().as_secs() < 60, "the second epoch waits for the command of the first");
        assert!(child.try_wait().unwrap().is_none(), "it ends by itself");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(begun.elapsed().as_secs() < 90, "the stop waits for the command");
    assert_eq!(output.status.code(), Some(1), "{}", messages(&output));
    let late = "train.on_epoch: epoch 2: it did not end within 5 s after training was stopped, and was ended";
    assert_has(
        &messages(&output),
        &["stopping after this step", late, "error: stopped after 8 steps, which are saved"],
    );
    let output = place.train(&sets[..1]).arg("--no-eval").output().unwrap();
    assert_has(&messages(&output), &["resuming after 8 steps (epoch 3)", "epoch 3/3"]);
}

/// Whoever runs a config of somebody else learns of its command from every command that would run it, and may look before.
#[test]
fn the_command_of_a_config_is_named_before_it_runs() {
    let place = Place::with_tiny();
    let mark = place.path("ran");
    let set = format!("train.on_epoch=\"echo x\\u001b[2J >> '{}'\"", mark.display());
    let named = format!(
        "train.on_epoch: training runs this command after every epoch: echo x\\u{{1b}}[2J >> '{}'",
        mark.display()
    );
    let config = place.path("tiny.toml").display().to_string();
    let checks: [&[&str]; 2] =
        [&["check", &config, "--set", &set], &["check", "--deep", &config, "--set", &set, "--device", "cpu"]];
    for words in checks {
        let output = bella(words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        assert_has(&printed(&output), &[&named, ": fine"]);
    }
    let over = ["--over", "optimizer.adamw.lr=1e-2,1e-3", "--dry-run"];
    let mut sweep = place.command("sweep", &[&set]);
    assert_has(&messages(&sweep.arg(&config).args(over).output().unwrap()), &[&named]);
    assert!(!mark.exists(), "looking runs nothing");
    let output = place.train(&[&set]).arg("--no-eval").output().unwrap();
    assert_has(&messages(&output), &[&named]);
    assert!(mark.exists());
}

#[test]
fn a_rehearsal_runs_no_command_of_the_config() {
    let place = Place::new();
    let mark = place.path("ran");
    let mut command =
        bella(&["rehearse", "--tiny", "--device", "cpu", "--threads", "1", "--workers", "1", "--then", ""]);
    command.arg("--out").arg(place.path("results")).arg(crate::common::repository("configs/cifar10.toml"));
    command.arg(crate::common::repository("configs/methods/ensemble.toml"));
    command.arg("--set").arg(format!("train.on_epoch={:?}", format!("touch '{}'", mark.display())));
    let output = command.args(["--set", "train.on_epoch_seconds=5"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}{}", printed(&output), messages(&output));
    assert_has(&printed(&output), &["  train.on_epoch: left out (was \"touch '"]);
    assert!(!mark.exists());
}

/// The records of an event file: the step, and the bytes behind it. Checksums are compared.
fn records(path: &std::path::Path) -> Vec<(u64, Vec<u8>)> {
    let masked = |bytes: &[u8]| crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes();
    let bytes = std::fs::read(path).unwrap();
    let (mut rest, mut found) = (&bytes[..], vec![]);
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        let content = &rest[12..12 + length];
        assert_eq!((&rest[8..12], &rest[12 + length..16 + length]), (&masked(&rest[..8])[..], &masked(content)[..]));
        // Field 1 is the wall time in 8 bytes, field 2 the step, which is left out where it is 0.
        assert_eq!(content[0], 0x09);
        let (step, behind) = if content[9] == 0x10 { (u64::from(content[10]), 11) } else { (0, 9) };
        found.push((step, content[behind..].to_vec()));
        rest = &rest[16 + length..];
    }
    found
}

#[test]
fn tensorboard_gets_every_step_once() {
    let place = Place::with_tiny();
    let event_files = || -> Vec<std::path::PathBuf> {
        let entries = std::fs::read_dir(place.run()).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<_> = entries.filter(|path| path.to_string_lossy().contains("tfevents")).collect();
        files.sort();
        files
    };
    place.train(&[]).args(["--no-eval", "--log", "tensorboard", "--until-epoch", "1"]).assert().success();
    place.train(&["train.log=[\"tensorboard\"]"]).arg("--no-eval").assert().success();
    let [first, second] = &event_files()[..] else { panic!("{:?}", event_files()) };
    let (first, second) = (records(first), records(second));
    let steps = |records: &[(u64, Vec<u8>)]| records.iter().map(|(step, _)| *step).collect::<Vec<_>>();
    // A header, the steps of an epoch, and its end.
    assert_eq!(steps(&first), [0, 1, 2, 3, 4, 4]);
    // SessionLog START (field 7, status 1) at step 5 makes TensorBoard drop what it has of steps from 5 on.
    assert_eq!(steps(&second), [0, 5, 5, 6, 7, 8, 8]);
    assert_eq!(second[1].1, [0x3a, 2, 8, 1]);
    let names = |content: &[u8]| String::from_utf8_lossy(content).into_owned();
    assert_has(&names(&first[5].1), &["epoch/train_loss", "epoch/validation_nll_lm", "epoch/bandwidth"]);
    assert_has(&names(&second[2].1), &["step/loss", "step/rate_factor"]);
    // The log does not belong to what the run is: switched off, the run is the same.
    place.train(&[]).arg("--no-eval").assert().success();
    assert_eq!(event_files().len(), 2);
}

#[test]
fn a_run_that_fails_before_its_first_step_leaves_no_folder() {
    let place = Place::with_tiny();
    let output = place.train(&["data.digits.subset.train=5000"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", messages(&output));
    assert_has(&messages(&output), &["5000"]);
    assert!(!place.path("results/runs").exists());
}

/// Each image counts once for each particle. The time between steps is no part of the rate.
#[test]
fn the_rate_of_images_is_that_of_all_particles() {
    let place = Place::with_tiny();
    place.train(&["method.svgd.particles=16", "train.epochs=1"]).arg("--no-eval").assert().success();
    let history = bella::results::store::read(&place.run().join("train.csv")).unwrap();
    let [rate, seconds] = ["images_per_second", "wall_seconds"].map(|column| number(&history, 0, column));
    assert!(rate * seconds > 0.99 * 30.0 * 16.0, "{rate} images a second, {seconds} s");
}

/// A command that waits for the content of a file ends by a signal with a message and the exit code of a stopped training.
#[cfg(unix)]
#[test]
fn a_signal_ends_every_command_alike() {
    let place = Place::with_tiny();
    let mut long = place.arguments("train", &["train.epochs=1000000"]);
    long.extend(["--config".into(), place.path("tiny.toml").display().to_string()]);
    let listening = ["tokenize".to_string()];
    for (arguments, signal, number) in
        [(&listening[..], "INT", 2), (&long[..], "TERM", 15), (&listening[..], "USR1", 10)]
    {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
        child.args(arguments).envs(crate::common::preload()).stdin(std::process::Stdio::piped());
        let mut child = child.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        // The mask of the signals that the process catches.
        let status = format!("/proc/{}/status", child.id());
        let listens = || {
            let status = std::fs::read_to_string(&status).unwrap();
            let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
            u64::from_str_radix(mask.trim(), 16).unwrap() >> (number - 1) & 1 == 1
        };
        while !listens() {
            assert!(child.try_wait().unwrap().is_none(), "{arguments:?} ends before it listens");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        std::process::Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        drop(input);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {}", messages(&output));
        let said = messages(&output);
        // The signal comes before or after the run's folder is there.
        let ends = ["stopped; what was finished before is saved", "stopped before the first step: nothing was trained"];
        assert!(ends.iter().any(|end| said.ends_with(&format!("error: {end}\n"))), "{arguments:?}: {said}");
    }
}
