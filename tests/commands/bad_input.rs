//! Every kind of bad input is one clear line, exit code 1, and nothing is lost.

use crate::common::{Place, assert_has, bella, error_in, error_line, fixture, messages, printed, tiny};
use bella::base::tensor_file::State;

/// The error line of `bella train` on the tiny experiment with `sets`.
#[track_caller]
fn refused(place: &Place, sets: &[&str]) -> String {
    error_line(place.train(sets), 1)
}

fn checkpoint(path: &std::path::Path) -> String {
    format!("checkpoint.path={}", path.display())
}

#[test]
fn names_whose_files_hold_something_else() {
    let line = error_line(Place::with_tiny().train(&["name=x-ood"]), 2);
    assert_has(
        &line,
        &["name", "x-ood", "must not be `bench` or end in `-ood`", "experiment `x`", "choose another name"],
    );
    let line = error_line(Place::with_tiny().train(&["name=Bench"]), 2);
    assert_has(&line, &["name", "Bench", "bench.csv holds the measurements of `bella bench`"]);
    let line = error_line(Place::with_tiny().train(&[&format!("name={}", "x".repeat(201))]), 2);
    assert_has(&line, &["name", "must be usable as a file name", "at most 200 bytes"]);
}

#[test]
fn missing_checkpoint() {
    let line = refused(&Place::with_tiny(), &["checkpoint.path=absent.pt"]);
    assert_has(&line, &["absent.pt"]);
}

/// What a file would have said is not asked of the user where the file is not there.
#[test]
fn a_mistyped_checkpoint_is_the_only_mistake() {
    let place = Place::with_tiny();
    let config = tiny().lines().filter(|line| !line.starts_with("normalize")).collect::<Vec<_>>().join("\n");
    place.write("tiny.toml", config.replace("vit-digits.pt", "vit-digitz.pt").as_bytes());
    for command in ["train", "eval", "check"] {
        let output = match command {
            "check" => bella(&["check", &place.path("tiny.toml").display().to_string()]).output().unwrap(),
            command => place.configured(command, &[]).output().unwrap(),
        };
        let text = messages(&output) + &printed(&output);
        assert_ne!(output.status.code(), Some(0), "{command}: {text}");
        assert_has(&text, &["vit-digitz.pt: no such file"]);
        assert!(!text.contains("normalize"), "{command}: {text}");
    }
}

#[test]
fn truncated_and_foreign_checkpoints() {
    for (name, reason) in [
        ("truncated.pt", "not a TorchScript archive, or a truncated one"),
        ("not_torchscript.pt", "has no config.json"),
        ("refused_no_parameters.pt", "lists no parameters"),
        ("fixtures.json", "not a TorchScript archive"),
    ] {
        let line = refused(&Place::with_tiny(), &[&checkpoint(&fixture(name))]);
        assert_has(&line, &[name, reason]);
    }
}

#[test]
fn empty_checkpoint() {
    let place = Place::with_tiny();
    let path = place.write("empty.pt", &[]);
    assert_has(&refused(&place, &[&checkpoint(&path)]), &["empty.pt: not a TorchScript archive"]);
}

/// `count` whole CIFAR-10 records, all black, of class `label`.
fn records(count: usize, label: u8) -> Vec<u8> {
    let mut record = vec![0u8; 3073];
    record[0] = label;
    record.repeat(count)
}

/// The error of training on CIFAR-10 with these bytes as its only training file.
fn cifar(bytes: Option<&[u8]>) -> String {
    let place = Place::with_tiny();
    place.write("cifar-10-batches-bin/test_batch.bin", &records(10, 1));
    if let Some(bytes) = bytes {
        place.write("cifar-10-batches-bin/data_batch_1.bin", bytes);
    }
    let data = format!("data.cifar10={{root={:?},batches=[1]}}", place.path(""));
    refused(&place, &[&data, "train.select=last-epoch"])
}

#[test]
fn cifar_files() {
    assert_has(&cifar(None), &["data_batch_1.bin: cannot read", "as the root of the set"]);
    let odd = [records(2, 1), vec![0; 7]].concat();
    assert_has(&cifar(Some(&odd)), &["data_batch_1.bin: 6153 bytes", "no whole number of records of 3073 bytes"]);
    assert_has(&cifar(Some(&records(3, 10))), &["data_batch_1.bin: record 0 has label 10", "10 classes"]);
}

/// Ten classes of two JPEGs each for train and test; of the class `3` of train, one is damaged.
fn jpegs(place: &Place) -> String {
    for split in ["train", "test"] {
        for class in 0..10u8 {
            for number in 0..2 {
                let path = place.write(&format!("images/{split}/{class}/{number}.jpg"), &[]);
                image::RgbImage::from_pixel(16, 16, image::Rgb([25 * class, 90, 10])).save(path).unwrap();
            }
        }
    }
    let path = place.path("images/train/3/1.jpg");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() * 2 / 3]).unwrap();
    format!("data.image-folder.root={}", place.path("images").display())
}

#[test]
fn a_corrupt_jpeg_is_named_and_counted_and_may_be_skipped() {
    let place = Place::with_tiny();
    let root = jpegs(&place);
    let line = refused(&place, &[&root, "train.epochs=1"]);
    assert_has(&line, &["train/3/1.jpg", "1 of 20 images cannot be decoded", "skip_corrupt = true"]);

    let output = place.train(&[&root, "train.epochs=1", "data.image-folder.skip_corrupt=true"]).output().unwrap();
    let text = messages(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert_has(&text, &["warning: ", "train/3/1.jpg", "1 of 20 images cannot be decoded", "19 images"]);
    assert_eq!(place.results().get(0, "samples"), Some("20"));
}

#[test]
fn a_head_of_another_width() {
    let head = format!("head.zero-shot.weights={}", fixture("heads/head_tiny.safetensors").display());
    let line = refused(&Place::with_tiny(), &[&head]);
    assert_has(&line, &["head_tiny.safetensors: the head is 24 wide, but the checkpoint's features are 64 wide"]);
}

#[test]
fn a_head_that_is_no_head() {
    let place = Place::with_tiny();
    let line = refused(&place, &["head.zero-shot.weights=absent.safetensors"]);
    assert_has(&line, &["absent.safetensors"]);
    let junk = place.write("junk.safetensors", b"no tensors here");
    let line = refused(&place, &[&format!("head.zero-shot.weights={}", junk.display())]);
    assert_has(&line, &["junk.safetensors: not a readable safetensors file"]);
    let mut whole = std::fs::read(fixture("heads/head_tiny.safetensors")).unwrap();
    whole.pop();
    let cut = place.write("cut.safetensors", &whole);
    let line = refused(&place, &[&format!("head.zero-shot.weights={}", cut.display())]);
    assert_has(&line, &["cut.safetensors: ", "its length is not what its header says"]);
}

#[test]
fn a_classifier_for_another_number_of_classes() {
    let place = Place::with_tiny();
    for class in ["cat", "dog"] {
        let path = place.write(&format!("images/train/{class}/0.png"), &[]);
        image::RgbImage::new(8, 8).save(path).unwrap();
    }
    let root = format!("data.image-folder.root={}", place.path("images").display());
    let line = refused(&place, &[&root, "train.select=last-epoch"]);
    assert_has(&line, &["the checkpoint's classifier has 10 classes, but the data set has 2", "[head.linear]"]);
}

#[test]
fn a_checkpoint_without_a_classifier() {
    let line = refused(&Place::with_tiny(), &[&checkpoint(&fixture("openai_visual.pt"))]);
    assert_has(&line, &["head.checkpoint", "no classifier of its own", "[head.zero-shot]"]);
}

#[test]
fn an_image_size_that_the_patches_do_not_divide() {
    let line = refused(&Place::with_tiny(), &["checkpoint.image_size=9"]);
    assert_has(&line, &["checkpoint.image_size = 9", "multiple of the patch size 2"]);
}

#[test]
fn blocks_and_ranks_that_the_checkpoint_does_not_have() {
    let place = Place::with_tiny();
    let line = refused(&place, &["subspace.low-rank.blocks=3-9"]);
    assert_has(&line, &["subspace.low-rank.blocks = \"3-9\"", "the checkpoint has blocks 0 to 3"]);
    let line = refused(&place, &["subspace.low-rank.rank=100"]);
    assert_has(&line, &["subspace.low-rank.rank = 100", "cannot exceed 64"]);
}

#[test]
fn more_images_than_there_are() {
    let line = refused(&Place::with_tiny(), &["data.digits.subset=1001"]);
    assert_has(&line, &["subset = 1001", "train has 1000 images"]);
}

#[test]
fn an_output_folder_that_is_a_file() {
    let place = Place::with_tiny();
    place.write("results", b"in the way");
    let line = refused(&place, &[]);
    assert_has(&line, &["output folder", "results", "must be a folder that can be created and written to"]);
    assert_eq!(std::fs::read(place.path("results")).unwrap(), b"in the way");
}

#[test]
fn a_results_file_that_a_spreadsheet_has_saved_is_made_anew_from_the_runs() {
    let place = Place::with_tiny();
    crate::common::done(place.train(&["train.epochs=1"]));
    let csv = place.path("results/tiny.csv");
    let own = std::fs::read_to_string(&csv).unwrap();
    let table = place.results();
    // Semicolons, as where a comma divides decimals; numbers as pandas writes them; a file cut off.
    let digits = with_another_digit(&own);
    for (at, changed) in [own.replace(',', ";"), digits, own[..own.len() - 9].to_string()].into_iter().enumerate() {
        std::fs::write(&csv, &changed).unwrap();
        let report = bella(&["report", place.path("results").to_str().unwrap()]).output().unwrap();
        assert_has(&messages(&report), &["tiny.csv", "count as not run (`bella report --rebuild` makes it anew"]);
        let output = place.train(&["train.epochs=1", &format!("seed={}", 10 + at)]).output().unwrap();
        let said = messages(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert_eq!(said.matches("another program had changed it").count(), 1, "{said}");
        let kept = if at == 0 { "tiny.csv.old".to_string() } else { format!("tiny.csv.old{}", at + 1) };
        assert_has(&said, &[&format!("; as it was: {}", place.path("results").join(&kept).display())]);
        assert_eq!(std::fs::read_to_string(place.path("results").join(kept)).unwrap(), changed);
        let found = place.results();
        assert_eq!((found.rows.len(), &found.rows[0]), (at + 2, &table.rows[0]));
    }
    let results = place.path("results").display().to_string();
    assert_has(&crate::common::done(bella(&["report", "--rebuild", &results])), &["tiny.csv: 4 rows, as its runs say"]);
    // A copy of a run's folder is no run of its own, and blocks nothing.
    let run = place.runs()[0].clone();
    let copy = run.with_file_name(format!("{}-backup", run.file_name().unwrap().to_str().unwrap()));
    std::fs::create_dir(&copy).unwrap();
    for file in std::fs::read_dir(&run).unwrap().flatten().filter(|file| file.path().is_file()) {
        std::fs::copy(file.path(), copy.join(file.file_name())).unwrap();
    }
    let rebuilt = bella(&["report", "--rebuild", &results]).output().unwrap();
    assert_eq!(rebuilt.status.code(), Some(0), "{}", messages(&rebuilt));
    assert_has(&messages(&rebuilt), &["-backup/metrics.csv: belongs to the run", "its rows are left out"]);
    let latest = bella::run::RunFolder::find(&place.path("results"), None).unwrap();
    assert!(!latest.id().ends_with("-backup"), "{}", latest.id());
}

/// A CSV text whose first accuracy has another last digit.
fn with_another_digit(text: &str) -> String {
    let place = text.lines().nth(1).unwrap().find("0.").unwrap() + text.find('\n').unwrap() + 3;
    let other = if text.as_bytes()[place] == b'1' { "2" } else { "1" };
    format!("{}{other}{}", &text[..place], &text[place + 1..])
}

#[test]
fn a_diverging_run_names_step_and_particle_and_keeps_its_checkpoint() {
    let place = Place::with_tiny();
    // The first step is taken on finite losses and throws the second particle out of every bound.
    let sets = ["optimizer.adamw.lr=[1e-3,1e30]", "method.ensemble.particles=2"];
    let line = refused(&place, &sets);
    assert_has(&line, &["the loss of particle 1 is ", " in step 2 (epoch 1)", "optimizer.*.lr", "train.clip_norm"]);
    let run = place.run();
    assert!(!run.join("posterior.safetensors").exists(), "a diverged run has no posterior");
    let checkpoint = run.join("resume.safetensors");
    if checkpoint.is_file() {
        let theta = State::read(&checkpoint).unwrap();
        let theta = bella::base::tensor::host_f64(&theta.get("theta").unwrap()).unwrap();
        assert!(theta.iter().all(|value| value.is_finite()), "the checkpoint holds diverged particles");
    }
}

#[test]
fn damaged_predictions() {
    let place = Place::new();
    let path = place.write("predictions.safetensors", b"\x10\0\0\0\0\0\0\0{not json at all");
    let line = error_line(crate::common::bella(&["score", path.to_str().unwrap()]), 1);
    assert_has(&line, &["predictions.safetensors", "not a safetensors file, or is truncated"]);
}

#[test]
fn cuda_without_a_gpu_is_an_error() {
    if std::path::Path::new("/dev/nvidia0").exists() {
        return; // this machine has one
    }
    let place = Place::with_tiny();
    let mut command = crate::common::bella(&["train", "--device", "cuda", "--out"]);
    command.arg(place.path("results")).arg("--config").arg(place.path("tiny.toml"));
    assert_has(&error_line(command, 1), &["device cuda: "]);
}

#[test]
fn an_unknown_device_is_a_usage_error() {
    let output = crate::common::bella(&["train", "--device", "gpu", "-c", "x.toml"]).output().unwrap();
    assert_eq!((output.status.code(), printed(&output)), (Some(2), String::new()));
    assert_has(&messages(&output), &["unknown device `gpu`; known: auto, cpu, cuda, cuda:N"]);
}

#[test]
fn eval_without_a_run_says_what_to_do() {
    let place = Place::with_tiny();
    assert_has(&error_line(place.command("eval", &[]), 1), &["no finished run below", "bella train --config"]);
    let line = error_line(place.command("eval", &["train.epochs=3"]), 1);
    assert_has(&line, &["no finished run"]);
    let line = error_line(place.command("train", &[]), 2);
    assert_has(&line, &["train needs a config: bella train configs/quickstart.toml"]);
}

#[test]
fn one_class_is_refused_before_training() {
    let place = Place::with_tiny();
    for number in 0..4 {
        let path = place.write(&format!("images/train/cat/{number}.png"), &[]);
        image::RgbImage::new(8, 8).save(path).unwrap();
    }
    let root = format!("data.image-folder.root={}", place.path("images").display());
    let line = refused(&place, &[&root, "train.select=last-epoch"]);
    assert_has(&line, &["data.image-folder: 1 class (cat): there is nothing to tell apart"]);
}

/// Lists of images that are separated by other marks, have no header, or do not say what is for training.
#[test]
fn lists_that_are_no_lists_for_training() {
    let place = Place::new();
    place.write("tiny.toml", tiny().replace("[head.checkpoint]", "[head.linear]").as_bytes());
    for number in 0..2 {
        image::RgbImage::new(8, 8).save(place.path(&format!("{number}.png"))).unwrap();
    }
    let root = format!("data.list.root={}", place.path("").display());
    for (name, text, parts) in [
        ("a.csv", "path;label;split\n0.png;a;train\n", ["a.csv: has semicolons between its columns", "commas"]),
        ("b.tsv", "path\tlabel\n0.png\ta\n", ["b.tsv: has tabs between its columns", "commas"]),
        ("c.csv", "0.png,a\n1.png,b\n", ["c.csv: no column `path`", "its columns: 0.png, a"]),
        ("d.csv", "path,label\n0.png,a\n1.png,b\n", ["d.csv: has no column `split`", "train, val and test"]),
        ("e.csv", "path,label\n", ["e.csv: no row below the header", ""]),
    ] {
        place.write(name, text.as_bytes());
        let line = refused(&place, &[&root, &format!("data.list.list={name}"), "train.select=last-epoch"]);
        assert_has(&line, &parts);
    }
    let missing = format!("data.image-folder.root={}", place.path("photoz").display());
    let line = refused(&place, &[&missing, "train.select=last-epoch"]);
    assert_has(&line, &["photoz: no such folder: the data set's `root` must name an existing one"]);
}

#[test]
fn files_and_names_that_are_no_config_or_checkpoint() {
    let place = Place::with_tiny();
    let csv = place.write("mine.csv", b"path,label,split\n0.png,a,train\n1.png,b,test\n");
    for command in ["train", "check"] {
        let line = error_line(bella(&[command, csv.to_str().unwrap()]), 2);
        assert_has(&line, &["mine.csv:1: no TOML: has neither [tables] nor key = value", "`path,label,split`"]);
    }
    let line = refused(&place, &["checkpoint.path=openai/clip-vit-base-patch32"]);
    assert_has(&line, &["checkpoint.path: ", "openai/clip-vit-base-patch32: no such file", "hf://ORG/NAME"]);
}

#[test]
fn a_broken_pipe_is_told_by_its_kind_and_not_by_a_name() {
    let place = Place::new();
    let missing = place.path("Broken pipe (os error 32)");
    assert_has(
        &error_line(crate::common::bella(&["score", missing.to_str().unwrap()]), 1),
        &["Broken pipe", "No such file"],
    );
    let mut listing = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
    for arguments in [&["list", "keys"][..], &["completions", "bash"]] {
        let mut child = listing.args(arguments).stdout(std::process::Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{arguments:?}");
        listing = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
    }
}

#[test]
fn a_file_that_may_not_become_so_large_is_an_error_of_writing() {
    let place = Place::with_tiny();
    let bella = env!("CARGO_BIN_EXE_bella");
    // The network fits in a file of that size, particles with all weights do not.
    let all_weights = tiny().replace("[subspace.low-rank]\nrank = 2", "[subspace.full]");
    place.write("tiny.toml", all_weights.as_bytes());
    let mut arguments = place.arguments("train", &["train.epochs=1"]);
    arguments.extend(["--config".into(), place.path("tiny.toml").display().to_string()]);
    let mut limited = assert_cmd::Command::new("sh");
    limited.args(["-c", &format!("ulimit -f 1400; exec {bella} \"$@\""), "sh"]).args(arguments);
    assert_has(&error_in(&limited.output().unwrap(), 1), &["cannot write", "resume.safetensors", "File too large"]);
}

/// An experiment, a class and a file whose names are a formula, markup, a command of the terminal and a change of direction.
#[test]
fn names_from_outside_are_only_names() {
    let place = Place::with_tiny();
    let picture = |path: &str| {
        std::fs::create_dir_all(place.path(path).parent().unwrap()).unwrap();
        let shade = |x: u32, y: u32| image::Rgb([(x * 30) as u8, (y * 30) as u8, path.len() as u8]);
        image::RgbImage::from_fn(8, 8, shade).save(place.path(path)).unwrap();
    };
    for class in ["=1+1", "<b>red\u{1b}[2J\u{202e}"] {
        for (split, count) in [("train", 6), ("test", 2)] {
            (0..count).for_each(|at| picture(&format!("photos/{split}/{class}/{at}.png")));
        }
    }
    let text = tiny().replace("name = \"tiny\"", "name = \"=<i>e\\u001b[2J\\u202e\"");
    let text = text.replace("[head.checkpoint]", "[head.linear]").replace(
        "[data.digits]\nsubset = { train = 40, test = 30 }\nvalidation = 0.2\n",
        &format!("[data.image-folder]\nroot = {:?}\n", place.path("photos")),
    );
    place.write("evil.toml", text.as_bytes());
    let config = place.path("evil.toml");
    let run = |command: &str, extra: &[&str]| {
        let out = place.path("results");
        let mut arguments = vec![command];
        arguments.extend(extra);
        if command != "report" {
            arguments.extend(["--out", out.to_str().unwrap()]);
        }
        let output = bella(&arguments).output().unwrap();
        assert!(output.status.success(), "{command}: {}", messages(&output));
        let both = printed(&output) + &messages(&output);
        assert!(!both.contains(['\u{1b}', '\u{202e}']), "{command}: {both:?}");
        both
    };
    run("train", &["--config", config.to_str().unwrap()]);
    assert_has(&run("runs", &[]), &["=<i>e\\u{1b}[2J\\u{202e}"]);
    let mut results = std::fs::read_dir(place.path("results")).unwrap().map(|entry| entry.unwrap().path());
    let csv = results.find(|path| path.extension().is_some_and(|end| end == "csv")).unwrap();
    let first_cell = |line: &str| line.split(',').next().unwrap().to_string();
    assert!(
        std::fs::read_to_string(&csv).unwrap().lines().skip(1).map(first_cell).all(|cell| cell.starts_with("'=<i>"))
    );
    let report = run("report", &["--format", "markdown", csv.to_str().unwrap()]);
    assert!(!report.contains("<i>"), "{report}");
    let card = run("export", &["--card"]);
    assert!(!card.contains("<b>") && card.contains("&lt;b>red"), "{card}");
    let photos = place.path("photos/test");
    let predicted = run("predict", &["svgd", photos.to_str().unwrap()]);
    assert!(!predicted.lines().any(|line| line.split(',').any(|cell| cell == "=1+1")), "{predicted}");
}

#[test]
fn an_error_line_is_bounded_and_has_no_control_characters() {
    let place = Place::new();
    let long = place.path(&"x".repeat(5000));
    let line = error_line(crate::common::bella(&["score", long.to_str().unwrap()]), 1);
    assert!(line.chars().count() < 1600, "{} letters", line.chars().count());
    assert_has(&line, &["predictions file", " […] ", "name too long"]);
    let strange = place.path("a\x1b[31m\nb.safetensors");
    let line = error_line(crate::common::bella(&["score", strange.to_str().unwrap()]), 1);
    assert_has(&line, &["a\\x1b[31m\\nb.safetensors", "No such file"]);
}
