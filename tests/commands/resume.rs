//! A run that was stopped, interrupted or killed at any moment continues bit for bit.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use crate::common::{
    Place, assert_has, bella, done, error_line, messages, repository, tensor_bytes, tiny, train_with_a_pause, with,
};
use bella::base::tensor_file::State;
use bella::results::store::read;

/// 40 steps, each followed by a checkpoint.
const LONG: [&str; 2] = ["train.epochs=10", "train.save_minutes=1e-9"];

/// The arguments of the long run in `place`.
fn arguments(place: &Place) -> Vec<String> {
    let mut arguments = place.arguments("train", &LONG);
    arguments.extend(["--no-eval".into(), "--config".into(), place.path("tiny.toml").display().to_string()]);
    arguments
}

fn spawn(place: &Place) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments(place)).envs(crate::common::preload());
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The same command to its end.
#[track_caller]
fn to_the_end(place: &Place, more: &[&str]) -> Output {
    let output = bella(&[]).args(arguments(place)).args(more).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    output
}

/// Steps of the checkpoint that lies there, which must be readable whenever there is one.
fn steps(checkpoint: &Path) -> Option<u64> {
    if !checkpoint.is_file() {
        return None;
    }
    let state = State::read(checkpoint).unwrap();
    let progress: serde_json::Value = serde_json::from_str(&state.text("progress").unwrap()).unwrap();
    Some(progress["steps"].as_u64().unwrap())
}

/// Waits until `child` has a checkpoint of at least `count` steps.
fn wait_for_steps(place: &Place, child: &mut Child, count: u64) -> PathBuf {
    loop {
        let checkpoint = place.runs().first().map(|run| run.join("resume.safetensors"));
        if let Some(path) = checkpoint.filter(|path| steps(path).is_some_and(|steps| steps >= count)) {
            return path;
        }
        assert!(child.try_wait().unwrap().is_none(), "the run ended before step {count}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The results of a run: theta, and the history without its times.
fn outcome(place: &Place) -> (Vec<u8>, Vec<Vec<String>>) {
    let run = place.run();
    let history = read(&run.join("train.csv")).unwrap();
    let timeless: Vec<usize> = (0..history.columns.len()).filter(|i| !history.columns[*i].contains("second")).collect();
    let rows = history.rows.iter().map(|row| timeless.iter().map(|i| row[*i].clone()).collect()).collect();
    (tensor_bytes(&run.join("posterior.safetensors"), "theta"), rows)
}

/// A run on the same config as the one in `as_in`.
fn uninterrupted(as_in: &Place) -> (Vec<u8>, Vec<Vec<String>>) {
    let place = Place::new();
    place.write("tiny.toml", &std::fs::read(as_in.path("tiny.toml")).unwrap());
    to_the_end(&place, &[]);
    let outcome = outcome(&place);
    assert_eq!(outcome.1.len(), 10);
    outcome
}

/// The run in `place` ended as one that nobody stopped.
#[track_caller]
fn assert_as_uninterrupted(place: &Place) {
    let ((theta, history), (expected_theta, expected_history)) = (outcome(place), uninterrupted(place));
    assert!(theta == expected_theta, "theta of the resumed run differs");
    assert_eq!(history, expected_history);
}

fn signal(child: &Child, name: &str) {
    // The shell's own `kill`: the program of that name is not everywhere.
    let status = Command::new("sh").args(["-c", &format!("kill -{name} {}", child.id())]).status().unwrap();
    assert!(status.success());
}

/// Sends a signal after `step`; the run stops with a checkpoint, says so, and continues to the same end.
fn stopped_by(name: &str, step: u64, resume: &[&str]) {
    stopped_in(Place::with_tiny(), name, step, resume);
}

fn stopped_in(place: Place, name: &str, step: u64, resume: &[&str]) {
    let mut child = spawn(&place);
    let checkpoint = wait_for_steps(&place, &mut child, step);
    signal(&child, name);
    let output = child.wait_with_output().unwrap();
    let text = messages(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    let at = steps(&checkpoint).unwrap();
    assert!((step..40).contains(&at), "{at}");
    let last = text.lines().last().unwrap();
    assert_has(last, &[&format!("error: stopped after {at} steps"), "which are saved", "the same command continues"]);
    assert_has(&text, &["stopping after this step; again to stop now\n"]);
    assert!(!place.run().join("posterior.safetensors").exists());

    let output = to_the_end(&place, resume);
    assert_has(&messages(&output), &[&format!("resuming after {at} steps")]);
    assert_as_uninterrupted(&place);
}

#[test]
fn ctrl_c_and_the_same_command() {
    stopped_by("INT", 3, &[]);
}

#[test]
fn sigterm_and_resume() {
    stopped_by("TERM", 9, &["--resume"]);
}

#[test]
fn gradients_mixed_in_weight_space() {
    let place = Place::new();
    place.write(
        "tiny.toml",
        crate::common::tiny().replace("gamma = 0.01", "gamma = 0.01\ndrive = \"weight\"").as_bytes(),
    );
    stopped_in(place, "TERM", 6, &[]);
}

#[test]
fn random_views_of_images() {
    let place = Place::new();
    let augmented = "[data.digits]\naugment = { crop = \"random-resized\", flip = 0.5 }";
    place.write("tiny.toml", crate::common::tiny().replace("[data.digits]", augmented).as_bytes());
    stopped_in(place, "TERM", 6, &[]);
}

#[test]
fn killed_at_several_moments() {
    let place = Place::with_tiny();
    // Before anything is written, within the first epoch, around an epoch's end, later.
    for step in [0, 1, 4, 13] {
        let mut child = spawn(&place);
        if step > 0 {
            wait_for_steps(&place, &mut child, step);
        }
        child.kill().unwrap();
        child.wait().unwrap();
        if let Some(run) = place.runs().first() {
            let found = steps(&run.join("resume.safetensors"));
            assert!(found.is_none_or(|steps| steps >= step), "{found:?}");
            assert!(!run.join("posterior.safetensors").exists(), "the run ended before it was killed");
        }
    }
    let output = to_the_end(&place, &["--resume"]);
    assert_has(&messages(&output), &["resuming after"]);
    assert_as_uninterrupted(&place);
}

#[test]
fn other_threads_are_refused() {
    let place = Place::with_tiny();
    let mut child = {
        let mut arguments = arguments(&place);
        let at = arguments.iter().position(|word| word == "--threads").unwrap();
        arguments[at + 1] = "2".into();
        let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
        command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let checkpoint = wait_for_steps(&place, &mut child, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = std::fs::read(&checkpoint).unwrap();
    let line = error_line(place.train(&LONG), 2);
    assert_has(&line, &["--threads 1: this run started with 2 threads", "leave --threads out", "--force"]);
    assert_eq!(std::fs::read(&checkpoint).unwrap(), before);
}

#[test]
fn nothing_to_resume_is_an_error() {
    let place = Place::with_tiny();
    let mut command = place.train(&[]);
    command.arg("--resume");
    assert_has(&error_line(command, 2), &["nothing to resume from", "leave --resume out"]);
}

#[test]
fn a_damaged_resume_file_is_named() {
    let place = Place::with_tiny();
    let mut child = spawn(&place);
    let checkpoint = wait_for_steps(&place, &mut child, 1);
    child.kill().unwrap();
    child.wait().unwrap();
    let bytes = std::fs::read(&checkpoint).unwrap();
    std::fs::write(&checkpoint, &bytes[..bytes.len() / 2]).unwrap();
    let line = error_line(place.train(&LONG), 1);
    assert_has(&line, &["--force starts anew", "resume.safetensors: damaged"]);
}

#[test]
fn a_run_in_training_is_not_trained_twice() {
    let place = Place::with_tiny();
    let mut child = spawn(&place);
    wait_for_steps(&place, &mut child, 1);
    // Held still, so that it cannot end first.
    signal(&child, "STOP");
    let line = error_line(place.train(&LONG), 1);
    signal(&child, "CONT");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_has(&line, &["another bella process is training this run"]);
}

/// Learning far too fast, the validation NLL soon rises; a run that was paused on the way ends at the same epoch.
#[test]
fn training_ends_where_the_validation_nll_no_longer_falls() {
    let sets = ["train.epochs=12", "train.early_stop=2", "optimizer.adamw.lr=5e-2"];
    let place = Place::with_tiny();
    let output = place.train(&sets).arg("--no-eval").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["gives the posterior: its validation NLL", "after 2 epochs without a lower one"]);
    let history = read(&place.run().join("train.csv")).unwrap();
    let nlls: Vec<f64> =
        crate::common::cells(&history, "validation_nll_lm").iter().map(|nll| nll.parse().unwrap()).collect();
    let best = (0..nlls.len()).min_by(|a, b| nlls[*a].total_cmp(&nlls[*b])).unwrap();
    assert_eq!((nlls.len(), nlls.len() < 12), (best + 3, true), "{nlls:?}");

    let paused = Place::with_tiny();
    let until = (nlls.len() - 1).to_string();
    for more in [&["--no-eval", "--until-epoch", &until][..], &["--no-eval"]] {
        assert_eq!(paused.train(&sets).args(more).output().unwrap().status.code(), Some(0));
    }
    let posterior = |place: &Place| tensor_bytes(&place.run().join("posterior.safetensors"), "theta");
    assert_eq!(posterior(&paused), posterior(&place));
    let line = error_line(place.train(&["train.early_stop=2", "data.digits.validation=0"]), 2);
    assert_has(&line, &["train.early_stop", "needs validation images"]);
}

/// Trains the tiny experiment with these settings, in one command for each of `legs`, and returns the bytes of theta.
#[track_caller]
fn posterior(sets: &[&str], legs: &[&[&str]]) -> Vec<u8> {
    let place = Place::with_tiny();
    for more in legs {
        let output = place.train(sets).args(*more).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    }
    tensor_bytes(&place.run().join("posterior.safetensors"), "theta")
}

/// Weights, smoothing and balanced draws train, and a paused run goes on with the same draws; what does not follow them is named.
#[test]
fn classes_are_weighted_and_balanced() {
    // The images of this set are balanced already, so that weights that balance them would all be 1.
    let sets =
        ["train.class_weights=[1, 2, 1, 1, 1, 1, 1, 1, 1, 4]", "train.label_smoothing=0.1", "train.sampling=balanced"];
    let whole = posterior(&sets, &[&["--no-eval"]]);
    assert!(posterior(&sets, &[&["--no-eval", "--until-epoch", "1"], &["--no-eval"]]) == whole, "a paused run");
    let plain = posterior(&[], &[&["--no-eval"]]);
    assert!(posterior(&["train.class_weights=balanced"], &[&["--no-eval"]]) == plain, "all weights are 1");
    for fewer in [&sets[1..], &sets[..2]] {
        assert!(posterior(fewer, &[&["--no-eval"]]) != whole, "{fewer:?}");
    }
    let place = Place::with_tiny();
    let line = error_line(place.train(&["train.class_weights=[1.0, 2.0]"]), 1);
    assert_has(&line, &["train.class_weights", "2 numbers for 10 classes"]);
    let line = error_line(place.train(&["train.class_weights=even"]), 2);
    assert_has(&line, &["train.class_weights", "must be \"balanced\", or a list"]);
    let ibdr = tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01", "[method.ibdr]\nparticles = 2\nstd = 0.01");
    place.write("tiny.toml", ibdr.as_bytes());
    let line = error_line(place.train(&["train.label_smoothing=0.1"]), 2);
    assert_has(&line, &["label_smoothing", "method.ibdr has a loss of its own"]);
    let laplace = tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01", "[method.laplace]\nparticles = 2");
    place.write("tiny.toml", laplace.as_bytes());
    let line = error_line(place.train(&["train.sampling=balanced"]), 2);
    assert_has(&line, &["sampling", "method.laplace is fitted to the plain likelihood"]);
}

/// Mixed images train, a paused run goes on with the same mixes, the cut of a batch hardly matters, and what has no mixed labels is named.
#[test]
fn images_are_mixed() {
    let sets = ["train.mixup.alpha=0.8", "train.mixup.cutmix_alpha=1.0", "train.label_smoothing=0.1"];
    let whole = posterior(&sets, &[&["--no-eval"]]);
    assert!(posterior(&sets, &[&["--no-eval", "--until-epoch", "1"], &["--no-eval"]]) == whole, "a paused run");
    for others in [&sets[..1], &sets[1..], &[][..]] {
        assert!(posterior(others, &[&["--no-eval"]]) != whole, "{others:?}");
    }
    let augmented = |more: &[&str]| {
        let sets = [&sets[..], &["data.digits.augment.flip=0.5", "train.mixup.mode=elem"], more].concat();
        posterior(&sets, &[&["--no-eval"]])
    };
    assert!(augmented(&[]) == augmented(&["data.digits.augment.scale=[0.08, 1.0]"]) && augmented(&[]) != whole);
    let place = Place::with_tiny();
    for (sets, code, expected) in [
        (&["train.mixup.alpha=0.8", "train.class_weights=balanced"][..], 2, "class weights are those of one"),
        (&["train.mixup.alpha=0.8", "train.batch_size=1"], 2, "a batch of one image has nothing to mix it with"),
        (&["train.mixup.alpha=0"], 2, "nothing would be mixed"),
        (&["train.mixup.alpha=0.8", "train.prefix_cache=memory"], 2, "train.mixup changes the images in every epoch"),
    ] {
        assert_has(&error_line(place.train(sets), code), &["mixup", expected]);
    }
    for (method, expected) in [
        ("[method.ibdr]\nparticles = 2\nstd = 0.01", "method.ibdr has a loss of its own"),
        ("[method.svgd]\nparticles = 2\ngamma = 0.01\nspace = \"logits\"", "method.svgd has a loss of its own"),
        ("[method.laplace]\nparticles = 2", "method.laplace is fitted to the plain likelihood"),
        ("[method.vogn]\nparticles = 2\nlr = 0.1\ness = 32", "method.vogn takes squared gradients of single images"),
    ] {
        let other = tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01", method);
        let other = if method.contains("vogn") {
            other.replace("[optimizer.adamw]\nlr = 2e-3", "[optimizer.none]")
        } else {
            other
        };
        place.write("tiny.toml", other.as_bytes());
        assert_has(&error_line(place.train(&["train.mixup.alpha=0.8"]), 2), &["mixup", expected]);
    }
    let blob = tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01", "[method.blob]\ncycle = 9");
    place.write("tiny.toml", blob.as_bytes());
    let refused = error_line(place.train(&["subspace.low-rank.dora=true"]), 2);
    assert_has(
        &refused,
        &["flipout: subspace.low-rank.dora divides by the lengths of the drawn rows", "flipout = false"],
    );
    // The loss of these is that of the table, whatever pushes the particles apart.
    let place = Place::with_tiny();
    let features = |more: &[&str]| {
        let sets = [&["method.svgd.space=features", "train.epochs=1", "train.batches=shared"], more].concat();
        place.train(&sets).args(["--no-eval", "--force"]).output().unwrap()
    };
    assert_has(&messages(&features(&["train.mixup.alpha=0.8"])), &["mixup: method.svgd takes outputs with one label"]);
    let losses =
        [&[][..], &["train.label_smoothing=0.3"], &["train.class_weights=[1,1,1,1,1,1,1,1,1,4]"]].map(|more| {
            let output = features(more);
            assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
            let shown = messages(&output);
            shown.split("loss ").nth(1).unwrap().split_whitespace().next().unwrap().to_string()
        });
    assert!(losses[0] != losses[1] && losses[0] != losses[2], "{losses:?}");
}

/// The average of theta is what is validated and kept, a paused run goes on with it, and one that takes in theta alone is theta.
#[test]
fn theta_is_averaged() {
    let run = |sets: &[&str], legs: &[&[&str]]| {
        let place = Place::with_tiny();
        for more in legs {
            let output = place.train(sets).args(*more).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        }
        outcome(&place)
    };
    let last = "train.select=last-epoch";
    let sets = [last, "train.ema.decay=0.9", "train.ema.use_warmup=true"];
    let whole = run(&sets, &[&["--no-eval"]]);
    assert_eq!(run(&sets, &[&["--no-eval", "--until-epoch", "1"], &["--no-eval"]]), whole, "a paused run");
    let plain = run(&[last], &[&["--no-eval"]]);
    let losses = |(_, rows): &(Vec<u8>, Vec<Vec<String>>)| rows.iter().map(|row| row[3].clone()).collect::<Vec<_>>();
    assert_eq!(losses(&whole), losses(&plain), "theta itself follows the same steps");
    let nlls = |(_, rows): &(Vec<u8>, Vec<Vec<String>>)| rows.iter().map(|row| row[4].clone()).collect::<Vec<_>>();
    assert!(whole.0 != plain.0 && nlls(&whole) != nlls(&plain), "the average predicts");
    let theta = run(&[last, "train.ema.decay=0"], &[&["--no-eval"]]);
    assert!(theta.0 == plain.0 && nlls(&theta) == nlls(&plain), "an average of one step");
    let place = Place::with_tiny();
    let line = error_line(place.train(&["train.ema.decay=1.0"]), 2);
    assert_has(&line, &["train.ema.decay"]);
    for (method, expected) in [
        (
            "[method.ivon]\nparticles = 2\nlr = 0.1\ness = 30\nhess_init = 0.5",
            "ema: method.ivon keeps Gaussians or draws",
        ),
        (
            "[method.sgld]\nparticles = 2\nlr = 0.1\ness = 32\nevery = 2\nstart = 0",
            "ema: method.sgld keeps Gaussians or draws",
        ),
    ] {
        let other = tiny().replace("[method.svgd]\nparticles = 2\ngamma = 0.01", method);
        place.write("tiny.toml", other.replace("[optimizer.adamw]\nlr = 2e-3", "[optimizer.none]").as_bytes());
        assert_has(&error_line(place.train(&["train.ema.decay=0.9", last]), 2), &[expected]);
    }
}

/// Layers with ranks and scales of their own train, make soups and leave as an adapter; patterns that fit nothing are named.
#[test]
fn layers_have_ranks_of_their_own() {
    let place = Place::with_tiny();
    let sets = ["subspace.low-rank.rslora=true", "subspace.low-rank.rank_pattern=[\"0.mlp.fc=3\", \"mlp.proj=1\"]"];
    done(place.train(&sets));
    done(place.command("soup", &[]));
    let state = State::read(&place.run().join("posterior.safetensors")).unwrap();
    // Four blocks of width 64 with MLPs of 128: three layers without a pattern keep the rank 2.
    let of = |rank: i64| rank * (64 + 128);
    assert_eq!(state.get("theta").unwrap().size()[1], of(3) + 3 * of(2) + 4 * of(1));
    let line = error_line(place.train(&["subspace.low-rank.rank_pattern=[\"mlp.gate=3\"]"]), 1);
    assert_has(&line, &["subspace.low-rank.rank_pattern", "`mlp.gate=3` fits no layer"]);
    for bad in ["mlp.fc", "mlp.fc=0", "mlp.fc=1.5"] {
        let line = error_line(place.train(&[&format!("subspace.low-rank.rank_pattern=[\"{bad}\"]")]), 2);
        assert_has(&line, &["subspace.low-rank.rank_pattern", "LAYER=VALUE"]);
    }
    let line = error_line(place.train(&["subspace.low-rank.rank_pattern=[\"mlp.fc=4000\"]"]), 1);
    assert_has(&line, &["subspace.low-rank.rank_pattern = 4000", "cannot exceed"]);
}

/// Particles with trained lengths of rows, and those that start from the principal part of the weights or along the inputs of layers, are
/// trained, resumed and evaluated; what is not computed for them is named.
#[test]
fn dora_pissa_and_eva_are_trained() {
    for set in ["dora=true", "init=pissa", "init=eva"] {
        let place = Place::with_tiny();
        let (key, value) = set.split_once('=').unwrap();
        let value = if key == "init" { format!("{value:?}") } else { value.to_string() };
        let text = tiny().replace("[subspace.low-rank]", &format!("[subspace.low-rank]\n{key} = {value}"));
        place.write("tiny.toml", text.as_bytes());
        train_with_a_pause(&place);
        done(place.command("eval", &[]));
        done(place.command("similarity", &[]));
        match key {
            "dora" => {
                assert_has(&error_line(place.command("soup", &[]), 1), &["subspace.low-rank.dora", "--space factors"])
            }
            _ => drop(done(place.command("soup", &[]))),
        }
        done(with(place.command("soup", &[]), &["--space", "factors"]));
    }
    let place = Place::with_tiny();
    let line = error_line(place.train(&["subspace.low-rank.init=pissa", "subspace.low-rank.gain=2.0"]), 2);
    assert_has(&line, &["subspace.low-rank.gain", "init = \"pissa\""]);
    let line = error_line(place.train(&["subspace.low-rank.init=pissa", "subspace.low-rank.rank=4000"]), 1);
    assert_has(&line, &["subspace.low-rank.rank = 4000", "cannot exceed"]);
    let line = error_line(place.train(&["subspace.low-rank.init=eva", "subspace.low-rank.gain=2.0"]), 2);
    assert_has(&line, &["subspace.low-rank.gain", "init = \"eva\""]);
    let line = error_line(place.train(&["subspace.low-rank.init=olora"]), 2);
    assert_has(&line, &["subspace.low-rank.init", "uniform, normal, pissa, eva"]);
    let large = ["subspace.low-rank.init=eva", "subspace.low-rank.rank=40", "train.batch_size=1"];
    assert_has(
        &error_line(place.train(&large), 1),
        &["init = \"eva\"", "inputs for its rank", "raise train.batch_size"],
    );
    let full = tiny().replace("[subspace.low-rank]\nrank = 2", "[subspace.full]\ninit = \"eva\"");
    place.write("tiny.toml", full.as_bytes());
    assert_has(&error_line(place.train(&[]), 2), &["subspace.full.init"]);
}

/// Factors of inputs and outputs are trained, resumed, evaluated and exported; means of weights are refused.
#[test]
fn factors_of_layers_are_trained() {
    for head in ["[head.checkpoint]", "[head.linear]"] {
        let place = Place::with_tiny();
        let layers = "[subspace.rank-one]\ntargets = [\"attn.qkv\", \"mlp.fc\"]";
        let text = tiny().replace("[subspace.low-rank]\nrank = 2", layers).replace("[head.checkpoint]", head);
        place.write("tiny.toml", text.as_bytes());
        train_with_a_pause(&place);
        done(place.command("eval", &[]));
        done(with(place.command("eval", &[]), &["--attack", "fgsm", "--epsilon", "0.05"]));
        done(with(place.command("soup", &[]), &["--space", "factors"]));
        assert_has(&error_line(place.command("soup", &[]), 1), &["[subspace.rank-one]", "--space factors"]);
        let mut export = place.command("export", &[]);
        export.arg("--output").arg(place.path("out")).args(["--to", "onnx"]);
        done(export);
    }
    let place = Place::with_tiny();
    let text = tiny().replace("[subspace.low-rank]\nrank = 2", "[subspace.rank-one]\ninit = \"signs\"\nstd = 0.2");
    place.write("tiny.toml", text.as_bytes());
    assert_has(&error_line(place.train(&[]), 2), &["subspace.rank-one.std", "init = \"signs\""]);
    place.write("tiny.toml", text.replace("init = \"signs\"\nstd = 0.2", "std = 0.0").as_bytes());
    assert_has(&error_line(place.train(&["train.batches=shared"]), 2), &["subspace.rank-one", "would stay equal"]);
    let line = error_line(Place::with_tiny().train(&["subspace.low-rank.std=0.1"]), 2);
    assert_has(&line, &["subspace.low-rank.std", "init = \"normal\""]);
    done(Place::with_tiny().train(&["subspace.low-rank.init=normal", "train.epochs=1"]));
}

/// The AUROC of errors has no value where no held-out image is wrong, as in some epochs here, of ten images.
#[test]
fn epochs_without_a_value_of_the_metric_are_not_the_best() {
    let place = Place::with_tiny();
    let checkpoint = repository("assets/vit-digits.pt");
    let config = format!(
        "name = \"tiny\"\nseed = 1\n[checkpoint]\npath = {checkpoint:?}\nnormalize = {{ mean = [0.5, 0.5, 0.5], std = [0.5, 0.5, 0.5] }}\n\
         [head.checkpoint]\n[data.digits]\nsubset = {{ train = 150, test = 10 }}\nvalidation = 0.05\n\
         [subspace.low-rank]\nrank = 4\ntargets = [\"mlp.fc\", \"mlp.proj\"]\n[method.map]\n[optimizer.adamw]\nlr = 5e-3\n\
         [train]\nepochs = 4\nbatch_size = 32\nwarmup_steps = 0\nselect_by = \"auroc_entropy_error\"\n"
    );
    place.write("tiny.toml", config.as_bytes());
    let output = place.train(&[]).arg("--no-eval").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let history = read(&place.run().join("train.csv")).unwrap();
    let values = crate::common::cells(&history, "validation_auroc_entropy_error_lm");
    let without: Vec<usize> = (0..4).filter(|epoch| values[*epoch].is_empty()).collect();
    assert!(!without.is_empty() && without.len() < 4, "{values:?}");
    for epoch in without {
        let said = format!("epoch {}: train.select_by = \"auroc_entropy_error\": has no value", epoch + 1);
        assert_has(&messages(&output), &[&said]);
        assert!(!messages(&output).contains(&format!("epoch {} of 4 gives the posterior", epoch + 1)));
    }
}

/// Each metric has its own direction: the epoch with its best value is kept, and training ends two epochs later.
#[test]
fn epochs_are_chosen_by_any_metric() {
    for (by, is_higher) in [("balanced_accuracy", true), ("brier", false)] {
        let place = Place::with_tiny();
        let key = format!("train.select_by={by}");
        let sets = ["train.epochs=12", "train.early_stop=2", "optimizer.adamw.lr=5e-2", key.as_str()];
        let output = place.train(&sets).arg("--no-eval").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
        let history = read(&place.run().join("train.csv")).unwrap();
        let column = crate::common::cells(&history, &format!("validation_{by}_lm"));
        let values: Vec<f64> = column.iter().map(|value| value.parse().unwrap()).collect();
        let better = |a: f64, b: f64| if is_higher { a > b } else { a < b };
        let best =
            (0..values.len()).reduce(|best, at| if better(values[at], values[best]) { at } else { best }).unwrap();
        assert_eq!(values.len(), (best + 3).min(12), "{values:?}");
        assert_has(
            &messages(&output),
            &[&format!("epoch {} of", best + 1), if is_higher { "highest" } else { "lowest" }],
        );
    }
    let place = Place::with_tiny();
    let line = error_line(place.train(&["train.select_by=acuracy"]), 2);
    assert_has(&line, &["train.select_by", "did you mean `accuracy`?"]);
    let line = error_line(place.train(&["train.select_by=mi"]), 2);
    assert_has(&line, &["train.select_by", "must be one of"]);
    let line = error_line(place.train(&["train.select_by=auroc"]), 1);
    assert_has(&line, &["train.select_by = \"auroc\"", "has no value for 10 classes", "choose another metric"]);
    let line = error_line(place.train(&["train.select_by=ece", "train.select=last-epoch"]), 2);
    assert_has(&line, &["train.select_by", "has no meaning without"]);
}
