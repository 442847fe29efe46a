//! The commands after training, end to end on the embedded digits: predictions of new images, soups, similarity, landscapes.

use std::collections::BTreeMap;

use crate::common::{
    Place, assert_has, cells, done, error_line, folder, image, messages, number, printed, table, text, trained, with,
};
use bella::predictions::Predictions;
use bella::results::store::read;

#[test]
fn new_images_get_the_probabilities_of_eval_and_bad_ones_an_error() {
    let place = trained();
    let images = folder(&place, "images");
    place.write("images/1/cut.png", &std::fs::read(images.join("0/0.png")).unwrap()[..60]);
    let command = with(place.command("predict", &[]), &["latest", &text(&images), "none.png", "--skip-corrupt"]);
    let records = table(&place, &done(command));
    let names: Vec<_> = cells(&records, "path").iter().map(|path| path.rsplit('/').next().unwrap()).collect();
    assert_eq!(names, ["0.png", "1.png", "2.png", "3.png", "cut.png", "none.png"]);
    assert!(records.get(4, "error").unwrap().contains("cut.png") && records.get(4, "class") == Some(""));
    assert_eq!(records.get(5, "error"), Some("none.png: no such file"));

    std::fs::remove_file(images.join("1/cut.png")).unwrap();
    done(with(place.command("eval", &[]), &["--data", &format!("image-folder={}", text(&images))]));
    let saved = Predictions::open(&place.run().join("predictions/images@clean.safetensors")).unwrap();
    for sample in 0..4 {
        let mut mean = [0.0; 10];
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
fn a_run_that_can_only_be_read_predicts_and_stores_nothing() {
    let place = trained();
    // A folder in the place of the log, which root cannot write to either.
    let log = place.run().join("log.txt");
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    let images = text(&folder(&place, "images"));
    let stored = || {
        let names = std::fs::read_dir(place.run()).unwrap().map(|entry| entry.unwrap().file_name());
        names.collect::<std::collections::BTreeSet<_>>()
    };
    let before = stored();
    done(with(place.command("predict", &[]), &["latest", &images]));
    assert_eq!(stored(), before);
    let line = error_line(place.command("eval", &[]), 1);
    assert_has(&line, &["log.txt", "copy its results folder to a place of your own"]);
}

#[test]
fn predictions_come_with_the_sets_that_are_evaluated() {
    let place = trained();
    let images = text(&folder(&place, "images"));
    let predict = |format: &str| {
        let arguments = ["latest", &images, "--conformal", "0.2", "--format", format, "--conformal-score", "aps"];
        done(with(place.command("predict", &[]), &arguments))
    };
    let records = table(&place, &predict("csv"));
    let sets: Vec<Vec<&str>> = cells(&records, "set").iter().map(|set| set.split('|').collect()).collect();
    assert_eq!(
        sets.iter().map(|set| set[0]).collect::<Vec<_>>(),
        cells(&records, "class"),
        "the most probable is first"
    );
    let json: Vec<serde_json::Value> =
        predict("jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of_json = |record: &serde_json::Value| {
        record["set"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(json.iter().map(of_json).collect::<Vec<_>>(), sets);
    let folder = format!("image-folder={images}");
    done(with(place.command("eval", &[]), &["--conformal", "0.2", "--conformal-score", "aps", "--data", &folder]));
    let rows = read(&place.path("results/tiny-conformal.csv")).unwrap();
    let row = (0..rows.rows.len())
        .find(|row| rows.get(*row, "part") == Some("all") && rows.get(*row, "average") == Some("pm"));
    let mean = sets.iter().map(|set| set.len() as f64).sum::<f64>() / sets.len() as f64;
    assert_eq!(number(&rows, row.unwrap(), "mean_set_size"), mean);
    let line = error_line(with(place.command("predict", &[]), &["latest", &images, "--conformal", "0.2,0.4"]), 2);
    assert_has(&line, &["one set is written beside each prediction"]);
}

/// Writes a JPEG that is stored on its side, with the EXIF orientation that turns it upright.
fn turned(place: &Place, upright: &std::path::Path, name: &str) -> std::path::PathBuf {
    let stored = ::image::open(upright).unwrap().rotate270();
    let mut bytes = std::io::Cursor::new(Vec::new());
    stored.write_with_encoder(::image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 100)).unwrap();
    let bytes = bytes.into_inner();
    let exif = b"\xff\xe1\x00\x22Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    place.write(name, &[&bytes[..2], exif, &bytes[2..]].concat())
}

#[test]
fn photos_are_predicted_upright_unless_that_is_switched_off() {
    let place = trained();
    let upright = image(&place, "photos/upright.png", 1);
    let photo = turned(&place, &upright, "photos/turned.jpg");
    place.write("photos/notes.txt", b"no image");
    place.write("photos/phone.heic", b"no format that is read");
    let predict = |arguments: &[&str]| with(place.command("predict", &[]), arguments).output().unwrap();
    let output = predict(&["latest", &text(&place.path("photos")), "--all"]);
    assert_has(&messages(&output), &["2 files are no images by name", "notes.txt", "phone.heic", "predicted 2 images"]);
    let records = table(&place, &printed(&output));
    let probabilities = |row: usize| (0..10).map(|c| number(&records, row, &format!("p_{c}"))).collect::<Vec<_>>();
    let apart = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let (of_photo, of_upright) = (probabilities(0), probabilities(1));
    assert!((of_upright.iter().sum::<f64>() - 1.0).abs() < 1e-6);
    let stored = table(&place, &printed(&predict(&["latest", &text(&photo), "--as-stored", "--all"])));
    let stored: Vec<f64> = (0..10).map(|class| number(&stored, 0, &format!("p_{class}"))).collect();
    // JPEG alone moves the probabilities a little.
    let (turned, lying) = (apart(&of_photo, &of_upright), apart(&stored, &of_upright));
    assert!(turned < 0.02 && lying > 5.0 * turned, "{turned} {lying}");
}

#[test]
fn the_test_set_of_a_run_is_predicted_with_labels_as_it_is_evaluated() {
    let place = trained();
    let sheet = text(&place.path("sheet.png"));
    let arguments = ["latest", "--split", "test", "--top", "3", "--contact-sheet", &sheet];
    let records = table(&place, &done(with(place.command("predict", &[]), &arguments)));
    let results = place.results();
    assert_eq!(records.rows.len(), 30);
    assert_eq!(records.columns[..4], ["path", "label", "class", "probability"].map(String::from));
    assert_eq!(records.get(7, "path"), Some("digits/test:7"));
    let right = (0..30).filter(|row| records.get(*row, "label") == records.get(*row, "class")).count();
    assert!((right as f64 / 30.0 - number(&results, 0, "accuracy_pm")).abs() < 1e-9);
    let mean = |column: &str| (0..30).map(|row| number(&records, row, column)).sum::<f64>() / 30.0;
    assert!((mean("mutual_information") - number(&results, 0, "mi")).abs() < 1e-6);
    assert!((mean("predictive_entropy") - number(&results, 0, "predictive_entropy")).abs() < 1e-6);
    assert!((mean("expected_entropy") - number(&results, 0, "expected_entropy")).abs() < 1e-6);
    for row in 0..30 {
        let [first, second, third] =
            ["probability", "probability_2", "probability_3"].map(|c| number(&records, row, c));
        assert!(first >= second && second >= third, "row {row}");
    }
    assert!(::image::open(&sheet).unwrap().height() > 900, "wrong, uncertain and certain images");
    let both = ["latest", "0.png", "--split", "test"];
    let output = with(place.command("predict", &[]), &both).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", messages(&output));
    let none = with(place.command("predict", &[]), &["latest"]).output().unwrap();
    assert_eq!(none.status.code(), Some(2), "{}", messages(&none));
}

#[test]
fn a_list_gives_json_lines_and_a_contact_sheet() {
    let place = trained();
    let good = (0..3).map(|i| text(&image(&place, &format!("{i}.png"), i)));
    let list = good.chain(["none.png".to_string()]).collect::<Vec<_>>().join("\n");
    let (sheet, records) = (text(&place.path("sheet.png")), place.path("records.jsonl"));
    let arguments = ["latest", "-", "--format", "jsonl", "--contact-sheet", &sheet, "-o", &text(&records)];
    let mut command = with(place.command("predict", &[]), &arguments);
    command.write_stdin(list.clone());
    let line = error_line(command, 1);
    assert_has(&line, &["1 of 4 images could not be read", "--skip-corrupt"]);
    assert!(place.path("sheet.png").is_file(), "what could be read is written all the same");
    let written = std::fs::read_to_string(&records).unwrap();
    let mut command = with(place.command("predict", &[]), &[&arguments[..], &["--skip-corrupt"]].concat());
    command.write_stdin(list);
    assert_eq!(done(command), "");
    assert_eq!(std::fs::read_to_string(&records).unwrap(), written);
    let lines = std::fs::read_to_string(&records).unwrap();
    let records: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(records.len(), 4);
    assert!(records[..3].iter().all(|one| one["error"].is_null() && one["probability"].as_f64().unwrap() > 0.1));
    assert_eq!(
        (&records[3]["class"], &records[3]["error"]),
        (&serde_json::Value::Null, &"none.png: no such file".into())
    );
    let drawn = ::image::open(&sheet).unwrap();
    assert_eq!(drawn.width(), 904, "three tiles a row at two pixels a unit");
    assert!((700..1300).contains(&drawn.height()), "{}", drawn.height());

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
    assert_has(&error_line(command, 1), &["none of the 2 images could be read: see the column error"]);
    assert_has(&error_line(predict(&["latest", "none.png"]), 1), &["the image could not be read"]);
    let sheet = text(&place.path("none/sheet.png"));
    for option in ["--contact-sheet", "--output"] {
        let mut command = predict(&["latest", &path, option, &sheet]);
        assert_eq!(printed(&command.output().unwrap()), "", "refused before the work");
        assert_has(&error_line(command, 1), &[&sheet, "folder that exists"]);
    }
    let kept = place.write("kept.csv", b"precious");
    let too_few = predict(&["latest", &path, "--conformal", "0.001", "-o", &text(&kept)]);
    assert_has(&error_line(too_few, 2), &["--conformal 0.001", "do not suffice"]);
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "precious", "the file is replaced by whole lists alone");
    for (arguments, part) in [
        (&["latest", &path, "--contact-sheet", "sheet.jpg"][..], "must end in .png"),
        (
            &["latest", &path, "--conformal", "0.1", "--conformal-score", "lac", "--raps-rank", "2"],
            "--raps-rank is of raps, and the sets are of lac",
        ),
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
    assert_ne!(
        results.get(1, "nll_lm"),
        results.get(2, "nll_lm"),
        "the mean of products is another than that of factors"
    );
    assert!(place.run().join("predictions/digits@clean@soup.safetensors").is_file());

    // A model that is written into files is not tested, and a mean needs no images.
    for option in [
        &["--attack", "fgsm"][..],
        &["--epsilon", "0.1"],
        &["--conformal", "0.1"],
        &["--conformal-score", "lac"],
        &["--split", "train"],
        &["--data", "digits"],
        &["--precision", "bf16"],
        &["--csv"],
    ] {
        let written = [&["--to", "weights", "--output", "soup"], option].concat();
        let output = with(place.command("soup", &[]), &written).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let message = format!("'--to <FORMAT>' cannot be used with '{}", option[0]);
        assert_has(&messages(&output), &[&message]);
    }
    let merged = ["latest", "latest", "--by", "mean", "--images", "5"];
    assert_has(&error_line(with(place.command("merge", &[]), &merged), 2), &["--images", "squared-gradients"]);

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
    let key =
        |row, a, b| (table.get(row, "block").unwrap(), number(&table, row, a) as i32, number(&table, row, b) as i32);
    let both = |row| (number(&table, row, "cosine"), number(&table, row, "distance"));
    let at: BTreeMap<_, _> = (0..table.rows.len()).map(|row| (key(row, "i", "j"), both(row))).collect();
    for row in 0..table.rows.len() {
        let (cosine, distance) = both(row);
        let (mirrored, back) = at[&key(row, "j", "i")];
        assert!((cosine - mirrored).abs() < 1e-9 && (distance - back).abs() < 1e-9);
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
    let landscape = |arguments: &[&str], code| error_line(with(place.command("landscape", &[]), arguments), code);
    assert_has(&landscape(&["--particles", "0,0,1"], 1), &["--particles [0, 0, 1]", "span no plane"]);
    assert_has(&landscape(&["--particles", "0,1,3"], 2), &["three of this run's 3 particles"]);
    assert_has(&landscape(&["--margin", "-1"], 2), &["--margin -1: must be from 0 to 10"]);
}
