//! Runs over several MPI processes give what one process gives (feature `mpi`; needs `mpirun`).

mod common;

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bella::base::tensor_file::State;
use common::{Place, assert_has, messages, tensor_bytes};

/// `bella train` on the tiny experiment in `processes` processes.
fn train(place: &Place, processes: usize, sets: &[&str]) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--oversubscribe", "--allow-run-as-root", "-n", &processes.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_bella")).args(place.arguments("train", sets));
    command.arg("--config").arg(place.path("tiny.toml")).current_dir(env!("CARGO_MANIFEST_DIR"));
    command
}

#[track_caller]
fn succeed(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", messages(&output));
    output
}

/// Floats of a file of the only run.
fn floats(place: &Place, file: &str, name: &str) -> Vec<f32> {
    let bytes = tensor_bytes(&place.run().join(file), name);
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[track_caller]
fn same(a: &Place, b: &Place, file: &str, name: &str) {
    let (a, b) = (floats(a, file, name), floats(b, file, name));
    assert!(a.len() == b.len() && !a.is_empty());
    let difference = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(difference < 1e-5, "{name} of {file} differs by {difference}");
}

/// One process against two (rows are divided) and five (batches too), with what differs from `tiny.toml`.
fn check(sets: &[&str], state: &[&str]) {
    let alone = Place::with_tiny();
    succeed(train(&alone, 1, sets));
    for processes in [2, 5] {
        let place = Place::with_tiny();
        let output = succeed(train(&place, processes, sets));
        assert_has(&messages(&output), &[&format!("{processes} processes of 1 threads")]);
        same(&alone, &place, "posterior.safetensors", "theta");
        state.iter().for_each(|name| same(&alone, &place, "resume.safetensors", name));
        same(&alone, &place, "predictions/digits@clean.safetensors", "logits");
        let accuracy = |place: &Place| place.results().get(0, "accuracy_lm").unwrap().to_string();
        assert_eq!(accuracy(&alone), accuracy(&place));
        assert_eq!(place.results().rows.len(), 1);
    }
}

#[test]
fn svgd() {
    check(&["method.svgd.particles=3", "train.accumulate=2"], &["theta", "adamw.first", "adamw.second"]);
}

#[test]
fn svgd_in_weight_space() {
    check(&["method.svgd.particles=3", "method.svgd.drive=\"weight\""], &["theta"]);
}

#[test]
fn svgd_on_a_quantised_base() {
    check(&["method.svgd.particles=3", "checkpoint.quantize=\"nf4\""], &["theta"]);
}

#[test]
fn mixed_images() {
    check(&["method.svgd.particles=3", "train.mixup.alpha=0.8", "train.mixup.cutmix_alpha=1.0"], &["theta"]);
}

#[test]
fn ivon() {
    let place = Place::with_tiny();
    let text = std::fs::read_to_string(place.path("tiny.toml")).unwrap();
    let (start, rest) = text.split_once("[method.svgd]").unwrap();
    let (_, end) = rest.split_once("[train]").unwrap();
    let ivon = "[method.ivon]\nparticles = 2\nlr = 0.1\ness = 30\nhess_init = 0.5\nsamples = 2\n[optimizer.none]\n";
    let text = format!("{start}{ivon}[train]{end}");
    let written = |place: Place| {
        place.write("tiny.toml", text.as_bytes());
        place
    };
    let (alone, place) = (written(place), written(Place::new()));
    succeed(train(&alone, 1, &[]));
    succeed(train(&place, 3, &[]));
    ["theta", "ivon.momentum", "ivon.hessian"].iter().for_each(|name| same(&alone, &place, "resume.safetensors", name));
    same(&alone, &place, "posterior.safetensors", "std");
}

/// A run that is cut off after its first steps goes on in another number of processes.
#[test]
fn a_dead_process_ends_the_run_and_another_number_continues_it() {
    let long = ["train.epochs=30", "train.save_minutes=1e-9"];
    let alone = Place::with_tiny();
    succeed(train(&alone, 1, &long));
    let place = Place::with_tiny();
    let mut first = train(&place, 2, &long);
    let mut running = first.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let checkpoint = loop {
        let found = place.runs().first().map(|run| run.join("resume.safetensors")).filter(|path| path.is_file());
        if let Some(path) = found {
            break path;
        }
        assert!(running.try_wait().unwrap().is_none(), "ended before its first checkpoint");
        std::thread::sleep(Duration::from_millis(1));
    };
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", running.id())).unwrap();
    let last = children.split_whitespace().last().unwrap();
    assert!(Command::new("kill").args(["-9", last]).status().unwrap().success());
    let output = running.wait_with_output().unwrap();
    assert!(!output.status.success());
    assert_has(&messages(&output), &["exited on signal 9", "the last resume file is intact"]);
    State::read(&checkpoint).unwrap();
    let output = succeed(train(&place, 3, &long));
    assert_has(&messages(&output), &["resuming after", "2 processes, now on", "3 processes"]);
    same(&alone, &place, "posterior.safetensors", "theta");
}

/// Mistakes are said once, and every process ends.
#[test]
fn mistakes_are_said_once() {
    let output = train(&Place::with_tiny(), 2, &["train.epoch=1"]).output().unwrap();
    let text = messages(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text.matches("error:").count(), 1, "{text}");
}
