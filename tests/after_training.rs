//! What follows training, end to end on the embedded digits: new images, soups, similarity, landscapes, foreign sets,
//! calibration, comparisons, published corrupted versions.

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use bella::predictions::{Predictions, Shape};
use bella::results::store::{Table, read};
use common::{Place, assert_has, bella, error_line, messages, printed};

/// A run of three particles that learn fast enough to differ.
fn trained() -> Place {
    let place = Place::with_tiny();
    done(place.train(&["method.svgd.particles=3", "optimizer.adamw.lr=2e-2"]));
    place
}

/// Standard output of a command that must succeed.
#[track_caller]
fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    printed(&output)
}

fn with(mut command: Command, arguments: &[&str]) -> Command {
    command.args(arguments);
    command
}

#[track_caller]
fn number(table: &Table, row: usize, column: &str) -> f64 {
    let cell = table.get(row, column).unwrap_or_else(|| panic!("no column {column}"));
    cell.parse().unwrap_or_else(|_| panic!("{column} = `{cell}`"))
}

fn cells<'a>(table: &'a Table, column: &str) -> Vec<&'a str> {
    (0..table.rows.len()).map(|row| table.get(row, column).unwrap()).collect()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// CSV on standard output as a table.
fn table(place: &Place, csv: &str) -> Table {
    read(&place.write("printed.csv", csv.as_bytes())).unwrap()
}

/// An image of the network's size, so that nothing resizes it.
fn image(place: &Place, name: &str, seed: u32) -> PathBuf {
    let path = place.write(name, &[]);
    let pixel = |x: u32, y: u32| image::Rgb([((x * 37 + y * 91 + seed * 53) % 256) as u8; 3]);
    image::RgbImage::from_fn(8, 8, pixel).save(&path).unwrap();
    path
}

/// Two images in each of the first two classes.
fn folder(place: &Place, name: &str) -> PathBuf {
    (0..4).for_each(|i| drop(image(place, &format!("{name}/{}/{i}.png", i / 2), i)));
    place.path(name)
}

#[test]
fn new_images_get_the_probabilities_of_eval_and_bad_ones_an_error() {
    let place = trained();
    let images = folder(&place, "images");
    place.write("images/1/cut.png", &std::fs::read(images.join("0/0.png")).unwrap()[..60]);
    let command = with(place.command("predict", &[]), &["latest", &text(&images), "none.png"]);
    let records = table(&place, &done(command));
    let names: Vec<_> = cells(&records, "path").iter().map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["0.png", "1.png", "2.png", "3.png", "cut.png", "none.png"]);
    assert!(records.get(4, "error").unwrap().contains("cut.png") && records.get(4, "class") == Some(""));
    assert_eq!(records.get(5, "error"), Some("none.png: no such file"));

    std::fs::remove_file(images.join("1/cut.png")).unwrap();
    done(with(place.command("eval", &[]), &["--data", &format!("image-folder={}", text(&images))]));
    let saved = Predictions::open(&place.run().join("predictions/images@clean.safetensors")).unwrap();
    for sample in 0..4 {
        let mut mean = vec![0.0; 10];
        for member in 0..3 {
            let exps: Vec<f64> = saved.logits(member, sample).iter().map(|logit| f64::from(*logit).exp()).collect();
            let total: f64 = exps.iter().sum();
            mean.iter_mut().zip(exps).for_each(|(mean, exp)| *mean += exp / total / 3.0);
        }
        let class = (0..10).max_by(|a, b| mean[*a].total_cmp(&mean[*b])).unwrap();
        let entropy: f64 = mean.iter().map(|p| -p * p.ln()).sum();
        assert_eq!(records.get(sample, "class"), Some(class.to_string().as_str()));
        assert!((number(&records, sample, "probability") - mean[class]).abs() < 1e-5);
        assert!((number(&records, sample, "predictive_entropy") - entropy).abs() < 1e-5);
        assert!(number(&records, sample, "mutual_information") > 0.0);
    }
}

#[test]
fn a_list_gives_json_lines_and_a_contact_sheet() {
    let place = trained();
    let good = (0..3).map(|i| text(&image(&place, &format!("{i}.png"), i)));
    let list = good.chain(["none.png".to_string()]).collect::<Vec<_>>().join("\n");
    let (sheet, records) = (text(&place.path("sheet.png")), place.path("records.jsonl"));
    let arguments = ["latest", "-", "--format", "jsonl", "--contact-sheet", &sheet, "-o", &text(&records)];
    let mut command = with(place.command("predict", &[]), &arguments);
    command.write_stdin(list);
    assert_eq!(done(command), "");
    let lines = std::fs::read_to_string(&records).unwrap();
    let records: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 4);
    assert!(records[..3].iter().all(|one| one["error"].is_null() && one["probability"].as_f64().unwrap() > 0.1));
    assert_eq!((&records[3]["class"], &records[3]["error"]), (&serde_json::Value::Null, &"none.png: no such file".into()));
    let drawn = image::open(&sheet).unwrap();
    assert_eq!(drawn.width(), 904, "three tiles a row at two pixels a unit");
    assert!((700..1200).contains(&drawn.height()), "{}", drawn.height());

    // A reader that leaves early is no failure.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bella"));
    command.args(place.arguments("predict", &[])).args(["latest", &text(&place.path("0.png"))]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && !messages(&output).contains("error"), "{}", messages(&output));
}

#[test]
fn predict_refuses_what_cannot_work() {
    let place = trained();
    let path = text(&image(&place, "0.png", 0));
    place.write("text.png", b"no image");
    let predict = |arguments: &[&str]| with(place.command("predict", &[]), arguments);
    let unread = ["latest", &text(&place.path("text.png")), "none.png"];
    let mut command = predict(&unread);
    assert_eq!(printed(&command.output().unwrap()).lines().count(), 3, "a header and two errors");
    assert_has(&error_line(command, 1), &["none of the 2 images could be read"]);
    let sheet = text(&place.path("none/sheet.png"));
    for option in ["--contact-sheet", "--output"] {
        let mut command = predict(&["latest", &path, option, &sheet]);
        assert_eq!(printed(&command.output().unwrap()), "", "refused before the work");
        assert_has(&error_line(command, 1), &[&sheet, "folder that exists"]);
    }
    for (arguments, part) in [
        (&["latest", &path, "--contact-sheet", "sheet.jpg"][..], "must end in .png"),
        (&["latest", "-", "-"], "standard input can be read once"),
        (&["latest", &path, "--resize", "none"], "use shorter-side-crop or stretch"),
    ] {
        assert_has(&error_line(predict(arguments), 2), &[part]);
    }
    assert_has(&error_line(predict(&["nothing", &path]), 1), &["no run `nothing`"]);
}

#[test]
fn soups_are_rows_of_their_own() {
    let place = trained();
    done(place.command("soup", &[]));
    done(with(place.command("soup", &[]), &["--space", "factors"]));
    let results = place.results();
    assert_eq!(cells(&results, "predictive"), ["", "soup", "soup-factors"]);
    assert_eq!(cells(&results, "members"), ["3", "1", "1"]);
    assert_eq!(cells(&results, "mi")[1..], ["", ""]);
    assert_ne!(results.get(1, "nll_lm"), results.get(2, "nll_lm"), "the mean of products is another than that of factors");
    assert!(place.run().join("predictions/digits@clean@soup.safetensors").is_file());

    let single = Place::with_tiny();
    done(single.train(&["method.map={}"]));
    assert_has(&error_line(single.command("soup", &[]), 1), &["low-rank-map", "one particle"]);
    assert_has(&error_line(single.command("similarity", &[]), 1), &["low-rank-map", "one particle"]);
    assert_has(&error_line(single.command("landscape", &[]), 1), &["1 of the three particles"]);
}

#[test]
fn similarity_is_symmetric_with_a_unit_diagonal() {
    let place = trained();
    assert_has(&done(place.command("similarity", &[])), &["  1.0000", "mean pairwise distance"]);
    let table = read(&place.run().join("similarity.csv")).unwrap();
    // Four blocks of the network with two layers each, and all together.
    assert_eq!(table.rows.len(), 9 * (1 + 8));
    let key = |row, a, b| (table.get(row, "block").unwrap(), number(&table, row, a) as i32, number(&table, row, b) as i32);
    let both = |row| (number(&table, row, "cosine"), number(&table, row, "distance"));
    let at: BTreeMap<_, _> = (0..table.rows.len()).map(|row| (key(row, "i", "j"), both(row))).collect();
    for row in 0..table.rows.len() {
        let (cosine, distance) = both(row);
        assert_eq!(at[&key(row, "j", "i")], (cosine, distance));
        match table.get(row, "i") == table.get(row, "j") {
            true => assert!((cosine - 1.0).abs() < 1e-9 && distance == 0.0),
            false => assert!(cosine.abs() < 0.999 && distance > 0.0),
        }
    }
}

#[test]
fn the_landscape_has_the_error_of_each_particle_at_its_place() {
    let place = trained();
    let run = place.run();
    let saved = Predictions::open(&run.join("predictions/digits@clean.safetensors")).unwrap();
    let wrong = |member: usize| {
        let guess = |sample| {
            let logits = saved.logits(member, sample);
            (0..10).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as u32
        };
        (0..30).filter(|sample| guess(*sample) != saved.labels().unwrap()[*sample]).count() as f64 / 30.0
    };
    assert!((0..3).any(|member| wrong(member) > 0.0));
    for order in [[0, 1, 2], [2, 0, 1]] {
        let particles = order.map(|i| i.to_string()).join(",");
        let arguments = ["--particles", &particles, "--grid", "3", "--margin", "0", "--samples", "30", "--chunk", "4"];
        assert_has(&done(with(place.command("landscape", &[]), &arguments)), &["lowest error on the plane: train"]);
        let table = read(&run.join("landscape.csv")).unwrap();
        let marks = read(&run.join("landscape-particles.csv")).unwrap();
        assert_eq!((table.rows.len(), marks.rows.len()), (9, 3));
        for (mark, particle) in order.into_iter().enumerate() {
            let place = |table, row| (number(table, row, "x"), number(table, row, "y"));
            let near = |a: (f64, f64), b: (f64, f64)| (a.0 - b.0).abs() + (a.1 - b.1).abs() < 1e-6;
            let there = (0..9).find(|row| near(place(&table, *row), place(&marks, mark)));
            // Without a margin the first two are corners; the third is above the edge between them.
            assert_eq!(there.is_some(), mark < 2, "{marks:?}");
            if let Some(row) = there {
                assert_eq!(number(&table, row, "test_error"), wrong(particle), "particle {particle}");
            }
        }
        assert!(std::fs::read_to_string(run.join("landscape.svg")).unwrap().starts_with("<svg"));
    }
    let landscape = |arguments: &[&str]| error_line(with(place.command("landscape", &[]), arguments), 1);
    assert_has(&landscape(&["--particles", "0,0,1"]), &["--particles [0, 0, 1]", "span no plane"]);
    assert_has(&landscape(&["--particles", "0,1,3"]), &["three of this run's 3 particles"]);
    assert_has(&landscape(&["--margin", "-1"]), &["--margin -1: must be from 0 to 10"]);
}

#[test]
fn foreign_images_get_a_row_a_score_and_average() {
    let place = trained();
    let foreign = text(&folder(&place, "foreign"));
    assert_has(&done(with(place.command("eval", &[]), &["--ood", &format!("image-folder={foreign}")])), &["auroc", "foreign"]);
    let ood = read(&place.path("results/tiny-ood.csv")).unwrap();
    let key = |row| [ood.get(row, "score").unwrap(), ood.get(row, "average").unwrap()];
    let keys: Vec<_> = (0..ood.rows.len()).map(key).collect();
    assert_eq!(keys[..2], [["max_probability", "lm"], ["max_probability", "pm"]]);
    for score in ["predictive_entropy", "expected_entropy", "mi", "energy"] {
        assert!(keys.iter().any(|key| key[0] == score), "{score} in {keys:?}");
    }
    let predictions = place.run().join("predictions");
    let [inside, outside] = ["digits@clean", "digits@ood-foreign"].map(|name| text(&predictions.join(name)) + ".safetensors");
    let scored = table(&place, &done(bella(&["score", &inside, "--ood", &outside, "--csv"])));
    for column in ["auroc", "aupr_in", "aupr_out", "fpr95", "detection_error"] {
        assert!((0..ood.rows.len()).all(|row| (0.0..=1.0).contains(&number(&ood, row, column))), "{column}");
        assert_eq!(cells(&ood, column), cells(&scored, column), "{column}");
    }
    assert!(cells(&ood, "definition").iter().all(|text| !text.is_empty()));
    assert_eq!((ood.get(0, "samples"), ood.get(0, "ood_samples")), (Some("30"), Some("4")));

    let eval = |sets: &[&str]| {
        let arguments: Vec<&str> = sets.iter().flat_map(|set| ["--ood", set]).collect();
        with(place.command("eval", &[]), &arguments)
    };
    let again = format!("image-folder={foreign}");
    assert_has(&error_line(eval(&[&again, &again]), 1), &["`foreign` is the test set or comes twice", "`label`"]);
    assert_has(&error_line(eval(&["folder=x"]), 2), &["unknown data set `folder`; known: cifar10"]);
    assert_has(&error_line(eval(&["none.toml"]), 2), &["none.toml"]);
    assert_eq!(read(&place.path("results/tiny-ood.csv")).unwrap().rows, ood.rows);
}

#[test]
fn temperatures_are_fitted_on_held_out_images() {
    let place = trained();
    assert_has(&done(with(place.command("eval", &[]), &["--calibrate"])), &["temperature scaling", "nll_ts_lm"]);
    let results = place.results();
    for average in ["lm", "pm"] {
        assert!(number(&results, 0, &format!("temperature_{average}")) > 0.0);
        ["nll_ts", "ece_ts", "brier_ts"].map(|stem| number(&results, 0, &format!("{stem}_{average}")));
    }
    let file = text(&place.run().join("predictions/digits@clean.safetensors"));
    let scored = table(&place, &done(bella(&["score", &file, "--validation", &file, "--csv"])));
    for average in ["lm", "pm"] {
        let [raw, scaled] = ["nll", "nll_ts"].map(|stem| number(&scored, 0, &format!("{stem}_{average}")));
        assert!(scaled <= raw, "{average}: {scaled} after, {raw} before");
    }
    let without = Place::with_tiny();
    done(without.train(&["data.digits.validation=0"]));
    let line = error_line(with(without.command("eval", &[]), &["--calibrate"]), 1);
    assert_has(&line, &["data.*.validation = 0", "no val split"]);
}

#[test]
fn two_runs_are_compared_image_by_image() {
    let place = trained();
    let file = |run: PathBuf| text(&run.join("predictions/digits@clean.safetensors"));
    let first = file(place.run());
    done(place.train(&["seed=4"]));
    let second = place.runs().into_iter().map(file).find(|path| *path != first).unwrap();
    let rows = table(&place, &done(bella(&["compare", &first, &second, "--csv", "--resamples", "200"])));
    assert_eq!(rows.get(0, "metric"), Some("accuracy"));
    for row in 0..rows.rows.len() {
        let [a, b, difference, low, high] = ["a", "b", "difference", "low", "high"].map(|c| number(&rows, row, c));
        assert!((b - a - difference).abs() < 1e-12 && low <= high, "row {row}");
    }
    assert_has(&done(bella(&["compare", &first, &second])), &["differences are B - A", "95 % interval"]);

    // Another number of classes, and a logit that is none.
    let other = place.path("five.safetensors");
    let shape = Shape { members: 3, samples: 30, classes: 5 };
    Predictions::new(shape, vec![0.5; 450], vec![0; 30]).unwrap().save(&other).unwrap();
    assert_has(&error_line(bella(&["compare", &first, &text(&other)]), 1), &["30 of 5", "one test set"]);
    assert_has(&error_line(bella(&["score", &first, "--ood", &text(&other)]), 1), &["3 members and 5 classes"]);
    assert_has(&error_line(bella(&["score", &first, "--validation", &text(&other)]), 1), &["3 members and 5 classes"]);
    let mut bytes = std::fs::read(&first).unwrap();
    let start = {
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        tensors.tensor("logits").unwrap().data().as_ptr() as usize - bytes.as_ptr() as usize
    };
    bytes[start..start + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let broken = text(&place.write("nan.safetensors", &bytes));
    let commands = [["score", &broken, "--csv", ""], ["compare", &first, &broken, ""], ["score", &first, "--validation", &broken]];
    for arguments in commands {
        let arguments: Vec<&str> = arguments.into_iter().filter(|word| !word.is_empty()).collect();
        let line = error_line(bella(&arguments), 1);
        assert_has(&line, &["nan.safetensors: predictions: logit NaN of member 0, sample 0, class 0"]);
    }
}

#[test]
fn published_versions_are_rows_without_means_of_a_part() {
    let place = trained();
    for version in ["fog/1", "fog/2", "snow/1", "snow/2"] {
        folder(&place, &format!("corrupted/{version}"));
    }
    let data = format!("image-folder-c={}", text(&place.path("corrupted")));
    let eval = |sets: &[&str], data: &str| with(place.command("eval", sets), &["--data", data]);
    let severities = "data.image-folder-c.severities=[1,2]";
    done(eval(&[severities], &data));
    let results = place.results();
    let conditions = cells(&results, "condition");
    assert_eq!(conditions, ["clean", "fog:1", "fog:2", "snow:1", "snow:2"]);
    assert_eq!(cells(&results, "corruption"), ["", "fog", "fog", "snow", "snow"]);
    assert_eq!(cells(&results, "severity"), ["", "1", "2", "1", "2"]);
    assert_eq!(cells(&results, "shift_source")[1..], ["published"; 4]);
    assert_eq!(cells(&results, "nll_lm")[1], cells(&results, "nll_lm")[4], "the same images");
    assert_has(&error_line(eval(&[], &data), 1), &["6 of 10 folders", "fog/3", "severities"]);
    let attacked = with(eval(&[severities], &data), &["--attack", "fgsm"]);
    assert_has(&error_line(attacked, 1), &["corrupted already"]);
    assert_eq!(place.results().rows, results.rows);

    let root = place.path("cifar");
    std::fs::create_dir(&root).unwrap();
    let data = format!("cifar10-c={}", text(&root));
    assert_has(&error_line(eval(&[], &data), 1), &["20 of 20 files are missing", "gaussian_noise.npy", "labels.npy"]);
    for name in ["fog", "labels"] {
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4, 32, 32, 3), }";
        let file = [b"\x93NUMPY\x01\x00\x76\x00", format!("{header:117}\n").as_bytes(), &[0; 4 * 3072]].concat();
        place.write(&format!("cifar/{name}.npy"), &file);
    }
    let line = error_line(eval(&["data.cifar10-c.corruptions=[\"fog\"]", "data.cifar10-c.verify=false"], &data), 1);
    assert_has(&line, &[".npy", "[4, 32, 32, 3]", "50000"]);
}
