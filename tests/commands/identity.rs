//! No result replaces that of other images: rows, predictions files, means, tables.

use std::path::{Path, PathBuf};

use bella::predictions::Predictions;
use bella::results::store::read;

use crate::common::*;

/// Two images of ten classes, as large as each other whatever they show.
fn shades(place: &Place, name: &str, first: u8) -> String {
    for class in 0..10u8 {
        for image in 0..2u8 {
            let path = place.write(&format!("{name}/{class}/{image}.bmp"), &[]);
            let shade = image::Rgb([first + 10 * class + image, 128, 200 - 20 * class]);
            image::RgbImage::from_pixel(12, 10, shade).save(path).unwrap();
        }
    }
    place.path(name).display().to_string()
}

/// A run of one epoch.
fn short_run(sets: &[&str]) -> Place {
    let place = Place::with_tiny();
    done(place.train(&[&["train.epochs=1"], sets].concat()));
    place
}

fn eval(place: &Place, arguments: &[&str]) {
    done(with(place.command("eval", &[]), arguments));
}

/// The predictions files whose names begin so, sorted, with the fingerprint in each.
fn predictions(place: &Place, start: &str) -> Vec<(String, String)> {
    let name = |path: &Path| path.file_stem().unwrap().to_string_lossy().into_owned();
    let entries = std::fs::read_dir(place.run().join("predictions")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.retain(|path| name(path).starts_with(start));
    paths.iter().map(|path| (name(path), Predictions::open(path).unwrap().metadata()["images"].clone())).collect()
}

fn distinct(items: &[&str]) -> usize {
    items.iter().collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn folders_of_one_name_are_rows_of_their_own() {
    let place = short_run(&[]);
    let [one, other] =
        [("a/val", 0), ("b/val", 5)].map(|(name, first)| format!("image-folder={}", shades(&place, name, first)));
    eval(&place, &["--data", &one]);
    let first = place.results();
    eval(&place, &["--data", &other]);
    let table = place.results();
    assert_eq!(cells(&table, "set"), ["digits", "val", "val"]);
    assert_eq!(table.rows[..2], first.rows[..2], "the second folder must not touch the row of the first");
    assert_eq!(distinct(&cells(&table, "images")), 3);
    let files = predictions(&place, "val@clean");
    assert_eq!(files.iter().map(|file| file.1.clone()).collect::<Vec<_>>(), cells(&table, "images")[1..]);
    assert_eq!(files[0].0, "val@clean");

    // The same images again, from another place: the same row and file.
    std::fs::create_dir(place.path("c")).unwrap();
    std::fs::rename(place.path("a/val"), place.path("c/val")).unwrap();
    eval(&place, &["--data", &one.replace("/a/val", "/c/val")]);
    assert_eq!((place.results().rows.len(), predictions(&place, "val").len()), (3, 2));
    assert_eq!(read(&place.run().join("metrics.csv")).unwrap().rows.len(), 3);

    let report = done(bella(&["report", place.path("results/tiny.csv").to_str().unwrap()]));
    for (_, images) in files {
        assert_has(&report, &[&format!("val [20 images, {images}]")]);
    }
}

#[test]
fn corrupted_and_attacked_images_and_foreign_sets_keep_their_identity() {
    let place = short_run(&[]);
    let [one, other] =
        [("a/val", 0), ("b/val", 5)].map(|(name, first)| format!("image-folder={}", shades(&place, name, first)));
    let pixels = place.path("pixels").display().to_string();
    for data in [&one, &other] {
        eval(&place, &["--data", data, "--corrupt", "contrast:2"]);
        eval(&place, &["--data", data, "--attack", "fgsm", "--epsilon", "0.01", "--save-images", &pixels]);
        eval(&place, &["--ood", data]);
    }
    let table = place.results();
    let of_each = ["contrast:2 (bella)", "clean", "fgsm 0.01"];
    assert_eq!(cells(&table, "condition"), [&["clean"], &of_each[..], &of_each[..]].concat());
    let images = cells(&table, "images");
    for of_each in [&images[1..4], &images[4..7]] {
        assert!(of_each.iter().all(|images| *images == of_each[0]), "the images before they were changed: {images:?}");
    }
    assert_eq!((predictions(&place, "val@contrast").len(), predictions(&place, "val@fgsm").len()), (2, 2));
    let saved = std::fs::read_dir(place.path("pixels").join(place.run().file_name().unwrap())).unwrap();
    assert_eq!(saved.count(), 2);

    let ood = read(&place.path("results/tiny-ood.csv")).unwrap();
    let foreign = cells(&ood, "ood_images");
    assert_eq!((distinct(&foreign), distinct(&cells(&ood, "images"))), (2, 1));
    assert_eq!(foreign.iter().filter(|one| **one == images[1]).count() * 2, ood.rows.len());
    assert_eq!(predictions(&place, "digits@ood-val").len(), 2);
    // A part of the test set is another inside.
    eval(&place, &["--set", "data.digits.subset=10", "--ood", &one]);
    let ood = read(&place.path("results/tiny-ood.csv")).unwrap();
    assert_eq!((ood.rows.len(), distinct(&cells(&ood, "images"))), (3 * foreign.len() / 2, 2));
}

#[test]
fn a_part_of_the_test_set_replaces_nothing() {
    let place = short_run(&[]);
    let before = place.results();
    eval(&place, &["--set", "data.digits.subset=10"]);
    let table = place.results();
    assert_eq!(cells(&table, "samples"), ["30", "10"]);
    assert_eq!(table.rows[0], before.rows[0]);
    let files = predictions(&place, "digits@clean");
    assert_eq!((files[0].0.as_str(), files.len()), ("digits@clean", 2));
    assert_eq!(files[0].1, cells(&table, "images")[0], "the run's own test split has the plain name");

    // A finished run shows its own test split, and means over seeds do not mix the two.
    assert!(!done(place.train(&["train.epochs=1"])).contains("10 images"));
    let csv = place.path("results/tiny.csv").display().to_string();
    assert_has(&done(bella(&["report", "--seeds", &csv])), &["digits [30 images]", "digits [10 images]"]);
}

#[test]
fn the_plain_name_waits_for_the_runs_own_test_split() {
    let place = Place::with_tiny();
    let mut command = place.train(&["train.epochs=1"]);
    command.arg("--no-eval");
    done(command);
    eval(&place, &["--set", "data.digits.subset=10"]);
    assert!(predictions(&place, "digits@clean")[0].0.starts_with("digits@clean@images-"));
    done(place.train(&["train.epochs=1"]));
    assert_eq!(cells(&place.results(), "samples"), ["10", "30"]);
    assert_eq!(predictions(&place, "digits@clean")[0].0, "digits@clean");
}

#[test]
fn published_versions_and_their_means_keep_their_identity() {
    let place = short_run(&[]);
    let corruptions = [
        "contrast",
        "gaussian_blur",
        "gaussian_noise",
        "impulse_noise",
        "pixelate",
        "shot_noise",
        "spatter",
        "speckle_noise",
    ];
    let set = |name: &str, first: u8| {
        for (at, corruption) in corruptions.iter().enumerate() {
            shades(&place, &format!("{name}/{corruption}/1"), first + at as u8);
        }
        format!("image-folder-c={}", place.path(name).display())
    };
    for data in [set("a/shifted", 0), set("b/shifted", 50)] {
        eval(&place, &["--data", &data, "--set", "data.image-folder-c.severities=[1]"]);
    }
    let table = place.results();
    let conditions = cells(&table, "condition");
    let images = cells(&table, "images");
    assert_eq!((table.rows.len(), distinct(&images)), (1 + 2 * 9, 1 + 2 * 9), "{conditions:?}");
    assert_eq!(conditions.iter().filter(|condition| **condition == "mean-8:1").count(), 2);
}

#[test]
fn val_is_what_training_held_out() {
    let place = short_run(&[]);
    // A run that is named by its folder has its rows in the results folder that holds it.
    let run = place.run().display().to_string();
    let mut elsewhere = bella(&["eval", &run, "--split", "val", "--device", &device(), "--threads", "1"]);
    elsewhere.current_dir(place.path("results"));
    done(elsewhere);
    let (table, history) = (place.results(), read(&place.run().join("train.csv")).unwrap());
    assert_eq!((cells(&table, "set")[1], cells(&table, "samples")[1]), ("digits-val", "10"));
    let (ours, training) = (number(&table, 1, "nll_lm"), number(&history, 0, "validation_nll_lm"));
    assert!((ours - training).abs() < 1e-4, "{ours} and in training {training}");

    let foreign = shades(&place, "foreign", 0);
    let mut command = place.command("eval", &[]);
    command.args(["--split", "val", "--data", &format!("image-folder={foreign}")]);
    assert_has(&error_line(command, 1), &["--split val", "the run's own data", "leave --data"]);
    let place = short_run(&["data.digits.validation=0.0"]);
    let mut command = place.command("eval", &[]);
    command.args(["--split", "val"]);
    assert_has(&error_line(command, 1), &["held no training images out", "data.digits.validation = 0"]);
}

#[test]
fn val_has_the_published_labels_where_training_saw_others() {
    let place = short_run(&["data.digits.label_noise=0.5"]);
    let output = with(place.command("eval", &[]), &["--split", "val"]).output().unwrap();
    assert_has(&messages(&output), &["published labels, not those that label_noise replaced"]);
    let labels =
        |name: &str| Predictions::open(&place.run().join("predictions").join(name)).unwrap().labels().unwrap().to_vec();
    let held = labels("digits-val@clean.safetensors");
    assert!(!held.is_empty());
    assert!(held.iter().all(|label| *label < 10));
}

#[test]
fn val_of_a_folder_is_what_training_held_out() {
    let place = Place::with_tiny();
    let root = shades(&place, "shades", 0);
    let data = format!("data.image-folder={{root={root:?},train=\".\",test=\".\",validation=0.5}}");
    done(place.train(&[&data, "train.epochs=1", "train.batch_size=2"]));
    eval(&place, &["--split", "val"]);
    let (table, history) = (place.results(), read(&place.run().join("train.csv")).unwrap());
    assert_eq!((cells(&table, "set")[1], cells(&table, "samples")[1]), ("shades-val", "10"));
    assert!((number(&table, 1, "nll_lm") - number(&history, 0, "validation_nll_lm")).abs() < 1e-4);
}

/// Every file of a run says whose it is: those of seed 2 are of no use in the run of seed 1.
#[test]
fn files_of_another_run_are_refused() {
    let place = Place::with_tiny();
    done(place.train(&["seed=1"]));
    done(place.train(&["seed=2"]));
    let runs = place.runs();
    let [one, two] = &runs[..] else { panic!("two runs: {runs:?}") };
    let id = |run: &Path| run.file_name().unwrap().to_string_lossy().into_owned();
    let belongs = format!("belongs to the run {}, not to {}", id(two), id(one));
    let swapped = |name: &str, command: &dyn Fn() -> String| {
        let (path, file) = (one.join(name), name.rsplit('/').next().unwrap());
        let own = std::fs::read(&path).unwrap();
        std::fs::copy(two.join(name), &path).unwrap();
        assert_has(&command(), &[file, &belongs]);
        std::fs::write(path, own).unwrap();
    };
    let checked = || {
        let output = bella(&["check", "--runs", place.path("results").to_str().unwrap()]).output().unwrap();
        printed(&output) + &messages(&output)
    };
    let predictions = "predictions/digits@clean.safetensors";
    for name in ["resume.safetensors", "posterior.safetensors", "run.json", predictions, "train.csv", "metrics.csv"] {
        swapped(name, &checked);
    }
    let run = one.to_str().unwrap();
    swapped("posterior.safetensors", &|| error_line(with(place.command("eval", &[]), &[run]), 1));
    swapped(predictions, &|| error_line(bella(&["score", one.join(predictions).to_str().unwrap()]), 1));
    std::fs::remove_file(one.join("posterior.safetensors")).unwrap();
    swapped("resume.safetensors", &|| error_line(place.train(&["seed=1"]), 1));
    done(place.train(&["seed=1"]));
    assert!(!checked().contains("belongs to"));
}

#[test]
fn a_config_that_was_edited_or_removed_is_noticed() {
    let place = Place::with_tiny();
    done(place.train(&[]));
    let config = place.run().join("config.toml");
    let whole = std::fs::read_to_string(&config).unwrap();
    let checked = || {
        let output = bella(&["check", "--runs", place.path("results").to_str().unwrap()]).output().unwrap();
        (output.status.code(), printed(&output) + &messages(&output))
    };
    assert_eq!(checked().0, Some(0));

    // The command of an epoch is not part of what the run's id says.
    std::fs::write(&config, whole.replace("[train]\n", "[train]\non_epoch = \"echo\"\n")).unwrap();
    let (code, said) = checked();
    assert_eq!(code, Some(1));
    assert_has(&said, &["config.toml", "changed since bella wrote it"]);
    assert_has(&error_line(place.command("eval", &[]), 2), &["config.toml", "changed since bella wrote it"]);
    let edited = error_line(with(place.command("train", &[]), &["--config", config.to_str().unwrap()]), 2);
    assert_has(&edited, &["changed since bella wrote it", "give a change by --set, or make it in a copy"]);

    let bare: String = whole.lines().filter(|line| !line.contains("content_hash")).map(|l| format!("{l}\n")).collect();
    std::fs::write(&config, bare).unwrap();
    assert_has(&checked().1, &["config.toml", "does not end with the hash"]);

    std::fs::remove_file(&config).unwrap();
    let (code, said) = checked();
    assert_eq!(code, Some(1), "{said}");
    assert_has(&said, &["config.toml", "cannot read"]);
    assert_has(&error_line(place.command("eval", &[]), 2), &["config.toml"]);

    // Training the same experiment writes it again.
    done(place.train(&[]));
    assert_eq!((checked().0, std::fs::read_to_string(&config).unwrap()), (Some(0), whole));
}

/// Theta of a network with other names, or the same in another order, is no theta of this one.
#[test]
fn theta_of_another_layout_is_refused() {
    let place = Place::with_tiny();
    done(place.train(&[]));
    let run = place.run();
    for name in ["posterior.safetensors", "resume.safetensors"] {
        let file = run.join(name);
        let mut bytes = std::fs::read(&file).unwrap();
        let key = br#""theta_layout":""#;
        let at = bytes.windows(key.len()).position(|part| part == key).unwrap() + key.len();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        // Without its own digits the hash is that of zeros in their place.
        let digits = bytes.windows(5).position(|part| part == b"xxh3:").unwrap() + 5;
        bytes[digits..digits + 16].fill(b'0');
        let hash = format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&bytes));
        bytes[digits..digits + 16].copy_from_slice(hash.as_bytes());
        std::fs::write(&file, bytes).unwrap();
    }
    let line = error_line(place.command("eval", &[]), 1);
    assert_has(&line, &["posterior.safetensors: its columns of theta have the layout"]);
    std::fs::remove_file(run.join("posterior.safetensors")).unwrap();
    let line = error_line(place.train(&[]), 1);
    assert_has(&line, &["resume.safetensors", "its columns of theta have the layout", "--force"]);
}

/// `tiny.toml` on a list of images: 20 to train on, which list.csv names, and 4 to test on.
fn on_a_list() -> Place {
    let place = Place::new();
    let mut list = String::from("path,label,split\n");
    for i in 0..24u32 {
        let path = image(&place, &format!("images/{i}.png"), i);
        let split = if i < 20 { "train" } else { "test" };
        list += &format!("{},{},{split}\n", path.display(), i % 2);
    }
    place.write("list.csv", list.as_bytes());
    let classes: Vec<String> = (0..10).map(|class| class.to_string()).collect();
    let data = format!("[data.list]\nroot = {:?}\nclasses = {classes:?}\nvalidation = 0.2\n", place.path(""));
    let (head, rest) =
        tiny().split_once("[data.digits]").map(|(head, rest)| (head.to_string(), rest.to_string())).unwrap();
    let rest = &rest[rest.find("[subspace").unwrap()..];
    place.write("tiny.toml", format!("{head}{data}\n{rest}").as_bytes());
    place
}

/// Replaces a text in the list of [`on_a_list`].
fn edit(place: &Place, from: &str, to: &str) {
    let list = std::fs::read_to_string(place.path("list.csv")).unwrap();
    assert!(list.contains(from), "{list}");
    place.write("list.csv", list.replacen(from, to, 1).as_bytes());
}

#[test]
fn a_finished_run_is_not_taken_for_one_of_other_training_data() {
    let place = on_a_list();
    let train = || place.train(&["train.epochs=1"]);
    done(train());
    assert_has(&messages(&train().output().unwrap()), &["this run is finished"]);
    edit(&place, "images/3.png,1,train", "images/3.png,0,train");
    let refused = error_line(train(), 1);
    assert_has(
        &refused,
        &["data.list: the training data have changed since the run low-rank-svgd-s3-", "--force", "`name`"],
    );
    // Which images were held out is no longer known.
    let refused = error_line(with(place.command("eval", &[]), &["--calibrate"]), 1);
    assert_has(&refused, &["data.list: the training data have changed"]);
    eval(&place, &[]);
    done(place.train(&["train.epochs=1", "name=other"]));
    done(with(train(), &["--force"]));
    assert_has(&messages(&train().output().unwrap()), &["this run is finished"]);
    // Data that are gone cannot be compared, and the results are still there.
    std::fs::rename(place.path("list.csv"), place.path("gone.csv")).unwrap();
    let output = train().output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["not compared with those that the run was trained on"]);
}

#[test]
fn a_finished_run_is_evaluated_again_on_other_test_data() {
    let place = on_a_list();
    done(place.train(&["train.epochs=1"]));
    let before = place.results();
    // With the class that the run predicts for it in place of its own, one image more is right.
    let (file, found) = (place.run().join("predictions"), |path: PathBuf| Predictions::open(&path).unwrap());
    let found = found(std::fs::read_dir(file).unwrap().next().unwrap().unwrap().path());
    let [members, samples, classes] = [found.members(), found.samples(), found.classes()];
    let of =
        |class: usize| -> f32 { (0..members).map(|m| found.all_logits()[(m * samples + 3) * classes + class]).sum() };
    let best = (0..classes).max_by(|a, b| of(*a).total_cmp(&of(*b))).unwrap();
    assert_ne!(best, 1);
    let changed = format!("images/23.png,{best},test");
    edit(&place, "images/23.png,1,test", &changed);
    let output = place.train(&["train.epochs=1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["the test data have changed since the run was evaluated: evaluated again"]);
    let images = |table: &bella::results::store::Table| cells(table, "images").last().unwrap().to_string();
    assert_ne!(images(&before), images(&place.results()));
    let again = messages(&place.train(&["train.epochs=1"]).output().unwrap());
    assert!(!again.contains("evaluated again"), "{again}");

    // The newest evaluation of the run's own test set has the plain name, which other commands read.
    let (former, present) = (images(&before), images(&place.results()));
    let names = |place: &Place| predictions(place, "").into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let plain = names(&place)[0].clone();
    assert_eq!(names(&place), [plain.clone(), format!("{plain}@images-{former}")]);
    assert_eq!(predictions(&place, &plain)[0].1, present);
    let of = |images: &str| {
        let table = place.results();
        (0..table.rows.len())
            .find(|row| cells(&table, "images")[*row] == images)
            .map(|row| cells(&table, "accuracy_lm")[row].to_string())
    };
    assert_ne!(of(&former), of(&present), "a label changed, so that the accuracies differ");
    let shown = done(bella(&["runs", "--out", &place.path("results").display().to_string(), "--csv"]));
    assert!(shown.contains(&of(&present).unwrap()), "{shown}");
    // So it is when the former data are back.
    edit(&place, &changed, "images/23.png,1,test");
    assert_has(&messages(&place.train(&["train.epochs=1"]).output().unwrap()), &["evaluated again"]);
    assert_eq!(predictions(&place, &plain)[0].1, former);
    assert_eq!(place.results().rows.len(), 2);
}
