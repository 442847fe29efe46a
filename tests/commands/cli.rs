//! The commands end to end on the embedded digits: train, eval, score, results files, runs that are found again.

use std::process::{Child, Command, Stdio};

use crate::common::{Place, assert_has, bella, done, error_line, messages, number, printed, tensor_bytes, with};
use bella::metrics::METRICS;
use bella::results::store::{Table, read};

/// Trains and returns the only row of the experiment's CSV.
#[track_caller]
fn trained(place: &Place, sets: &[&str]) -> Table {
    let output = place.train(sets).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = place.results();
    assert_eq!(table.rows.len(), 1);
    table
}

#[track_caller]
fn assert_cells(table: &Table, row: usize, cells: &[(&str, &str)]) {
    for (column, value) in cells {
        assert_eq!(table.get(row, column), Some(*value), "{column}");
    }
}

/// The columns of the metrics are those of the registry, in its order; the others, and where these stand, are compared literally.
#[track_caller]
fn assert_header(table: &Table) {
    let names = METRICS.iter().flat_map(|metric| metric.columns()).map(|(column, _)| column);
    let header = format!("{}\n", table.columns.join("\n"));
    let metrics: String = names.map(|column| format!("{column}\n")).collect();
    assert_eq!(header.matches(&metrics).count(), 1, "{header}");
    insta::assert_snapshot!("results_header", header.replace(&metrics, "(the metrics)\n"));
}

#[test]
fn low_rank_svgd_trains_and_scores_itself_again() {
    let place = Place::with_tiny();
    let table = trained(&place, &[]);
    assert_header(&table);
    let described = [("experiment", "tiny"), ("subspace", "low-rank"), ("method", "svgd"), ("rank", "2")];
    assert_cells(&table, 0, &described);
    let counted = [("particles", "2"), ("members", "2"), ("samples", "30"), ("classes", "10"), ("seed", "3")];
    assert_cells(&table, 0, &counted);
    // 4 blocks, rank 2, width 64, MLP 128, two particles.
    assert_cells(&table, 0, &[("trainable_parameters", &(2 * 4 * 2 * 2 * (64 + 128)).to_string())]);
    assert!(number(&table, 0, "accuracy_pm") > 0.5);

    let run = place.run();
    for file in ["config.toml", "run.json", "train.csv", "resume.safetensors", "posterior.safetensors", "metrics.csv"] {
        assert!(run.join(file).is_file(), "{file}");
    }
    let history = read(&run.join("train.csv")).unwrap();
    assert_eq!(history.rows.len(), 2);
    assert_cells(&history, 1, &[("epoch", "2"), ("step", "8")]);
    for column in ["train_loss", "validation_nll_lm", "bandwidth", "mean_kernel", "repulsion_ratio", "mean_distance"] {
        assert!(number(&history, 1, column).is_finite(), "{column}");
    }

    let predictions = run.join("predictions/digits@clean.safetensors");
    let output = bella(&["score", "--csv", predictions.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let of_run = bella(&["score", "--csv", run.to_str().unwrap()]).output().unwrap();
    assert_eq!(printed(&of_run), printed(&output), "{}", messages(&of_run));
    let mut by_position = place.command("train", &[]);
    let again = by_position.arg(place.path("tiny.toml")).output().unwrap();
    assert_has(&messages(&again), &["this run is finished"]);
    let scored = read(&place.write("scored.csv", &output.stdout)).unwrap();
    assert!(scored.columns.len() > 25);
    assert_eq!(scored.get(0, "file"), predictions.to_str());
    for column in scored.columns.iter().filter(|column| *column != "file") {
        assert_eq!(scored.get(0, column), table.get(0, column), "{column}");
    }
    let metrics = read(&run.join("metrics.csv")).unwrap();
    assert_eq!((metrics.columns, metrics.rows), (table.columns, table.rows));
}

#[test]
fn ensemble_low_rank() {
    let table = trained(&Place::with_tiny(), &["method.ensemble.particles=2"]);
    assert_cells(&table, 0, &[("method", "ensemble"), ("members", "2"), ("trainable_parameters", "6144")]);
    assert!(number(&table, 0, "mi") > 0.0);
}

#[test]
fn map_low_rank_has_no_mutual_information() {
    let table = trained(&Place::with_tiny(), &["method.map={}"]);
    assert_cells(&table, 0, &[("method", "map"), ("members", "1"), ("mi", ""), ("mi_wrong_pm", "")]);
    assert_cells(&table, 0, &[("trainable_parameters", "3072")]);
    assert!(number(&table, 0, "nll_pm") > 0.0);
}

#[test]
fn full_with_every_method() {
    let place = Place::with_tiny();
    for method in ["method.map={}", "method.ensemble.particles=2", "method.svgd={particles=2,gamma=0.01}"] {
        let sets = ["subspace.full={}", method, "optimizer.adamw.lr=1e-4", "train.epochs=1"];
        let output = place.train(&sets).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{method}: {}", messages(&output));
    }
    let table = place.results();
    assert_eq!((table.rows.len(), place.runs().len()), (3, 3));
    let parameters = [136_650, 2 * 136_650, 2 * 136_650];
    for (row, (method, parameters)) in ["map", "ensemble", "svgd"].into_iter().zip(parameters).enumerate() {
        let parameters = parameters.to_string();
        assert_cells(&table, row, &[("subspace", "full"), ("method", method), ("rank", "")]);
        assert_cells(&table, row, &[("trainable_parameters", &parameters)]);
    }
}

#[test]
fn new_head_sgd_and_a_learning_rate_a_particle() {
    let sets = ["head.linear={}", "optimizer.sgd={lr=[0.1,0.01],momentum=0.9}", "train.clip_norm=1.0"];
    let table = trained(&Place::with_tiny(), &sets);
    // The new head of 64 × 10 weights and 10 biases is each particle's own.
    let parameters = (2 * (3072 + 650)).to_string();
    assert_cells(&table, 0, &[("trainable_parameters", &parameters), ("sgd.lr", "[0.1, 0.01]")]);
}

#[test]
fn another_cut_of_the_work_is_the_same_run() {
    let place = Place::with_tiny();
    trained(&place, &[]);
    let cut = ["train.particle_chunk=1", "train.eval_batch_size=7", "train.save_minutes=1"];
    let output = place.train(&cut).output().unwrap();
    assert_has(&messages(&output), &["this run is finished"]);
    assert_eq!((place.runs().len(), place.results().rows.len()), (1, 1));
    let other = place.train(&["seed=4"]).output().unwrap();
    assert_eq!(other.status.code(), Some(0));
    assert_eq!((place.runs().len(), place.results().rows.len()), (2, 2));
}

#[test]
fn a_finished_run_is_recognised_and_force_repeats_it_bit_for_bit() {
    let place = Place::with_tiny();
    let first = trained(&place, &[]);
    let posterior = place.run().join("posterior.safetensors");
    let theta = tensor_bytes(&posterior, "theta");
    assert_eq!(theta.len(), 2 * 3072 * 4);
    let written = posterior.metadata().unwrap().modified().unwrap();

    let output = place.train(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_has(&messages(&output), &["this run is finished (--force repeats it)"]);
    assert!(!messages(&output).contains("epoch 1/2"), "{}", messages(&output));
    assert_eq!(posterior.metadata().unwrap().modified().unwrap(), written);

    let analysis = place.run().join("similarity.csv");
    std::fs::write(&analysis, "of the former particles").unwrap();
    let output = place.train(&[]).arg("--force").output().unwrap();
    assert_has(&messages(&output), &["epoch 1/2", "epoch 2/2"]);
    assert!(!analysis.exists());
    assert_ne!(posterior.metadata().unwrap().modified().unwrap(), written);
    assert_eq!(tensor_bytes(&posterior, "theta"), theta);
    let again = place.results();
    assert_eq!(again.rows.len(), 1, "the repeated run replaces its row");
    assert_eq!(again.get(0, "nll_lm"), first.get(0, "nll_lm"));
}

#[test]
fn eval_of_the_latest_run_clean_and_corrupted() {
    let place = Place::with_tiny();
    let trained = trained(&place, &[]);
    let output = place.command("eval", &[]).args(["--corrupt", "gaussian-noise:5,contrast:3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = place.results();
    assert_eq!(table.rows.len(), 3);
    assert_cells(&table, 1, &[("condition", "gaussian-noise:5 (bella)"), ("set", "digits"), ("method", "svgd")]);
    assert_cells(&table, 2, &[("condition", "contrast:3 (bella)")]);
    assert_ne!(table.get(1, "nll_lm"), table.get(0, "nll_lm"));
    assert_eq!(table.get(0, "trainable_parameters"), table.get(1, "trainable_parameters"));

    // The clean set again, by the run's id, in other batches: the same numbers in the same row.
    let id = table.get(0, "run").unwrap().to_string();
    let output = place.command("eval", &[]).args([&id, "--batch-size", "30"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let again = place.results();
    assert_eq!(again.rows.len(), 3);
    assert_eq!(again.get(0, "accuracy_lm"), trained.get(0, "accuracy_lm"));
    assert!((number(&again, 0, "nll_lm") - number(&trained, 0, "nll_lm")).abs() < 1e-5);

    let table = printed(&bella(&["report", place.path("results/tiny.csv").to_str().unwrap()]).output().unwrap());
    assert_has(&table, &["gaussian-noise:5 (bella)", "contrast:3 (bella)", "clean", "accuracy"]);
}

#[test]
fn eval_of_another_split() {
    let place = Place::with_tiny();
    trained(&place, &[]);
    let output = place.command("eval", &[]).args(["--split", "train"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_cells(&place.results(), 1, &[("set", "digits-train"), ("samples", "40")]);
}

#[test]
fn eval_with_config_alone_is_the_checkpoint_as_it_is() {
    let place = Place::with_tiny();
    let output = place.configured("eval", &["data.digits.subset=300"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = place.results();
    assert_eq!(table.rows.len(), 1);
    assert_cells(&table, 0, &[("method", "checkpoint"), ("subspace", ""), ("members", "1"), ("samples", "300")]);
    // It was trained on printed digits: 71 % of all handwritten ones.
    let accuracy = number(&table, 0, "accuracy_lm");
    assert!((0.6..0.85).contains(&accuracy), "{accuracy}");
    let line = error_line(place.configured("eval", &["head.linear={}"]), 1);
    assert_has(&line, &["head.linear is new and untrained"]);
}

/// Two plain images per class, at a size that has to be resized.
fn photographs(place: &Place, classes: usize) {
    for class in 0..classes {
        for image in 0..2u8 {
            let path = place.write(&format!("photographs/{class}/{image}.png"), &[]);
            let shade = image::Rgb([20 * class as u8 + image, 128, 200 - 20 * class as u8]);
            image::RgbImage::from_pixel(12, 10, shade).save(path).unwrap();
        }
    }
}

#[test]
fn eval_on_a_folder_of_images() {
    let place = Place::with_tiny();
    trained(&place, &[]);
    photographs(&place, 10);
    let data = format!("image-folder={}", place.path("photographs").display());
    let output = place.command("eval", &[]).args(["--data", &data]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = place.results();
    assert_cells(&table, 1, &[("set", "photographs"), ("samples", "20"), ("condition", "clean"), ("members", "2")]);
    assert!(place.run().join("predictions/photographs@clean.safetensors").is_file());
}

/// The config has a set of its own, whose keys these are not.
#[test]
fn short_keys_of_another_set_and_the_number_type_count() {
    let place = Place::with_tiny();
    photographs(&place, 10);
    let data = format!("image-folder={}", place.path("photographs").display());
    done(with(place.configured("eval", &["subset=10", "train.precision=f64"]), &["--data", &data]));
    assert_cells(&place.results(), 0, &[("set", "photographs"), ("samples", "10"), ("precision", "f64")]);
    done(place.train(&["train.epochs=1"]));
    done(with(place.command("eval", &["subset=10"]), &["--data", &data]));
    assert_cells(&place.results(), 2, &[("set", "photographs"), ("samples", "10"), ("precision", "f32")]);
    let foreign = with(place.command("eval", &["data.image-folder.subset=3"]), &["--ood", &data]);
    assert_has(&error_line(foreign, 2), &["--set data.image-folder.subset=3", "data.digits", "--ood a TOML file"]);
}

#[test]
fn another_folder_of_the_same_kind_is_another_row() {
    let place = Place::with_tiny();
    photographs(&place, 10);
    let root = place.path("photographs").display().to_string();
    let trained_on = [format!("data.image-folder={{root={root:?},train=\".\",test=\".\"}}"), "train.epochs=1".into()];
    trained(&place, &trained_on.each_ref().map(String::as_str));
    std::fs::rename(place.path("photographs"), place.path("scans")).unwrap();
    let data = format!("image-folder={}", place.path("scans").display());
    let output = place.command("eval", &[]).args(["--data", &data]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    let table = place.results();
    assert_eq!(table.rows.len(), 2, "the second set must not replace the first");
    assert_cells(&table, 0, &[("set", "photographs")]);
    assert_cells(&table, 1, &[("set", "scans")]);
    assert_eq!(table.get(0, "nll_lm"), table.get(1, "nll_lm"), "the same images");
}

#[test]
fn eval_refuses_classes_that_the_model_does_not_know() {
    let place = Place::with_tiny();
    trained(&place, &[]);
    photographs(&place, 3);
    std::fs::rename(place.path("photographs/2"), place.path("photographs/cat")).unwrap();
    let mut command = place.command("eval", &[]);
    command.args(["--data", &format!("image-folder={}", place.path("photographs").display())]);
    assert_has(&error_line(command, 1), &["cat", "take their samples out of the set"]);
    assert_eq!(place.results().rows.len(), 1);
}

#[test]
fn a_set_with_some_of_the_classes_is_matched_by_name() {
    let place = Place::with_tiny();
    trained(&place, &[]);
    photographs(&place, 3);
    std::fs::rename(place.path("photographs/0"), place.path("photographs/7")).unwrap();
    let data = format!("image-folder={}", place.path("photographs").display());
    let output = place.command("eval", &[]).args(["--data", &data]).output().unwrap();
    assert_has(&messages(&output), &["3 of the model's 10 classes: matched by name"]);
    let labels = tensor_bytes(&place.run().join("predictions/photographs@clean.safetensors"), "labels");
    let labels: Vec<u32> = labels.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    assert_eq!(labels, [1, 1, 2, 2, 7, 7]);
}

#[test]
fn a_trained_run_keeps_its_settings_in_eval() {
    let place = Place::with_tiny();
    trained(&place, &[]);
    let line = error_line(place.command("eval", &["subspace.low-rank.rank=4"]), 2);
    assert_has(
        &line,
        &[
            "--set subspace.low-rank.rank=4",
            "only checkpoint.path, checkpoint.tokenizer",
            "data.*, train.particle_chunk and train.precision can be set",
        ],
    );
    let mut command = place.command("eval", &[]);
    command.args(["--corrupt", "gaussian-noise:9"]);
    assert_has(&error_line(command, 2), &["--corrupt: ", "9"]);
}

#[test]
fn processes_that_write_one_csv_lose_no_row() {
    let place = Place::with_tiny();
    trained(&place, &["train.epochs=1"]);
    let start = |corrupt: &&str| -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
        command.args(place.arguments("eval", &[])).args(["--corrupt", corrupt]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let corruptions = ["gaussian-noise:1,gaussian-noise:2,gaussian-noise:3", "contrast:1,contrast:2,contrast:3"];
    let running: Vec<Child> = corruptions.iter().map(start).collect();
    for mut child in running {
        assert!(child.wait().unwrap().success());
    }
    let table = place.results();
    let conditions: std::collections::BTreeSet<&str> =
        (0..table.rows.len()).map(|row| table.get(row, "condition").unwrap()).collect();
    assert_eq!((table.rows.len(), conditions.len()), (7, 7), "{conditions:?}");
    assert_eq!(read(&place.run().join("metrics.csv")).unwrap().rows.len(), 7);
}

#[test]
fn messages_go_to_the_log_of_the_run() {
    let place = Place::with_tiny();
    trained(&place, &["train.epochs=1"]);
    let log = std::fs::read_to_string(place.run().join("log.txt")).unwrap();
    assert_has(&log, &["checkpoint: timm ViT", "2 particles of 3072 parameters", "epoch 1/1"]);
}

/// libgomp shows the settings with which it was loaded.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn threads_wait_as_asked_and_the_results_are_the_same() {
    let place = Place::with_tiny();
    let train = |wait: &str, policy: &str| {
        let mut command = bella(&["train", "--device", "cpu", "--threads", "2", "--workers", "1", "--force"]);
        command.args(["--wait", wait, "--config"]).arg(place.path("tiny.toml")).arg("--out").arg(place.path("results"));
        command.env_remove("OMP_WAIT_POLICY").env_remove("GOMP_SPINCOUNT").env("OMP_DISPLAY_ENV", "verbose");
        if !policy.is_empty() {
            command.env("OMP_WAIT_POLICY", policy);
        }
        let output = command.output().unwrap();
        let text = messages(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        let spins = text.lines().rev().find_map(|line| line.split("GOMP_SPINCOUNT = ").nth(1).map(String::from));
        let said = text.lines().filter(|line| line.starts_with("threads wait")).count();
        (spins.unwrap(), said, tensor_bytes(&place.run().join("posterior.safetensors"), "theta"))
    };
    // Nothing waits where nothing is computed.
    let mistaken = bella(&["train", "--wait", "passive", "--threads", "2", "--config", "nowhere.toml"]);
    assert_has(&crate::common::error_line(mistaken, 2), &["nowhere.toml"]);
    let mut mistaken = bella(&["train", "--wait", "passive", "--threads", "2", "--config", "nowhere.toml"]);
    assert!(!messages(&mistaken.output().unwrap()).contains("threads wait"));
    let (spins, said, theta) = train("passive", "");
    assert_eq!((spins.as_str(), said), ("'0'", 1));
    let (spins, said, other) = train("active", "");
    assert_eq!((spins.as_str(), said), ("'300000'", 0));
    assert!(theta == other);
    let (spins, said, _) = train("active", "passive");
    assert_eq!((spins.as_str(), said), ("'300000'", 1));
    // The environment decides unless the command line does.
    let (spins, said, _) = train("auto", "passive");
    assert_eq!((spins.as_str(), said), ("'0'", 0));
}

/// Also where the other option conflicts with a third one that is given: clap does not ask for it then.
#[test]
fn an_option_of_another_one_asks_for_it() {
    for (words, asked) in [
        (&["eval", "--epsilon", "0.1"][..], "--attack <NAME>"),
        (&["eval", "--corrupt", "contrast:1", "--epsilon", "0.1"], "--attack <NAME>"),
        (&["eval", "--attack", "fgsm", "--ood-by", "mahalanobis"], "--ood <"),
        (&["score", "a.safetensors", "--ood", "b.safetensors", "--calibrate", "temperature"], "--validation <FILE>"),
        (&["score", "a.jsonl", "--levels", "--raps-rank", "2"], "--conformal <"),
    ] {
        let output = bella(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", messages(&output));
        assert_has(&messages(&output), &["required arguments were not provided", asked]);
    }
}
