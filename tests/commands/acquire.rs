//! `bella acquire` end to end on the embedded digits.

use std::collections::BTreeSet;

use crate::attacks::floats;
use crate::common::{
    Place, assert_has, cells, done, error_line, folder, messages, number, printed, table, text, trained, with,
};

fn acquire(place: &Place, arguments: &[&str]) -> crate::common::Bella {
    with(place.command("acquire", &[]), arguments)
}

#[test]
fn the_images_of_highest_mutual_information_are_those_of_predict() {
    let place = trained();
    let pool = text(&folder(&place, "pool"));
    let chosen = table(&place, &done(acquire(&place, &["latest", &pool, "--count", "3"])));
    let predicted = table(&place, &done(with(place.command("predict", &[]), &["latest", &pool])));
    let mut all: Vec<(f64, String)> = (0..4)
        .map(|row| (number(&predicted, row, "mutual_information"), cells(&predicted, "path")[row].to_string()))
        .collect();
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (row, (score, path)) in all.iter().take(3).enumerate() {
        assert!((number(&chosen, row, "score") - score).abs() < 1e-6);
        let name = |path: &str| path.rsplit('/').next().unwrap().to_string();
        assert_eq!(name(cells(&chosen, "path")[row]), name(path));
    }
    assert_eq!((cells(&chosen, "split"), cells(&chosen, "label")), (vec!["train"; 3], vec![""; 3]));
}

/// Every rule writes a list that `[data.list]` reads and trains on.
#[test]
fn a_list_can_be_trained_on() {
    let place = trained();
    let pool = text(&folder(&place, "pool"));
    for rule in bella::inference::acquire::RULES {
        let list = text(&place.path("next.csv"));
        let arguments = ["latest", &pool, "--by", rule.key, "--count", "3", "--folder-labels", "-o", &list];
        done(acquire(&place, &arguments));
        let written = bella::results::store::read(&place.path("next.csv")).unwrap();
        let paths: BTreeSet<&str> = cells(&written, "path").into_iter().collect();
        assert_eq!(paths.len(), 3, "{}", rule.key);
        assert!(cells(&written, "label").iter().all(|label| ["0", "1"].contains(label)));
    }
    let (head, tail) =
        crate::common::tiny().split_once("[data.digits]").map(|(a, b)| (a.to_string(), b.to_string())).unwrap();
    let (_, tail) = tail.split_once("[subspace").unwrap();
    let classes: Vec<String> = (0..10).map(|class| class.to_string()).collect();
    let data = format!(
        "[data.list]\nroot = {:?}\nlist = \"next.csv\"\nclasses = {classes:?}\nvalidation = 0.0\n",
        place.path("")
    );
    place.write("tiny.toml", format!("{head}{data}\n[subspace{tail}").as_bytes());
    let sets = ["train.select=last-epoch", "train.batch_size=2", "name=next"];
    done(with(place.train(&sets), &["--no-eval"]));
}

/// The first training image as a file: it is in the pool under another name, and left out.
#[test]
fn a_training_image_in_the_pool_is_left_out() {
    let place = trained();
    let saved = text(&place.path("saved"));
    let native = ["--split", "train", "--attack", "fgsm", "--epsilon", "0", "--attack-resolution", "native"];
    done(with(place.command("eval", &[]), &[&native[..], &["--save-images", &saved]].concat()));
    let run = std::fs::read_dir(&saved).unwrap().next().unwrap().unwrap().path();
    let file = std::fs::read_dir(run).unwrap().next().unwrap().unwrap().path();
    let pixels = floats(&file);
    let (labels, side) = (crate::common::tensor_bytes(&file, "labels").len() / 8, 8);
    assert_eq!(pixels.len(), labels * 3 * side * side);
    let of = |x: u32, y: u32, channel: usize| {
        (pixels[channel * side * side + y as usize * side + x as usize] * 255.0).round() as u8
    };
    let first = image::RgbImage::from_fn(8, 8, |x, y| image::Rgb([of(x, y, 0), of(x, y, 1), of(x, y, 2)]));
    let pool = folder(&place, "pool");
    first.save(pool.join("0/known.png")).unwrap();
    let output = acquire(&place, &["latest", &text(&pool), "--count", "4"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["1 image of the pool is among the run's training or held-out images: left out"]);
    assert!(!printed(&output).contains("known.png"));
    let line = error_line(acquire(&place, &["latest", &text(&pool), "--count", "5"]), 1);
    assert_has(&line, &["--count 5", "4 images that can be chosen"]);
}

/// The same file by two names, and a copy of it, are one image to label.
#[test]
fn copies_in_the_pool_are_left_out() {
    let place = trained();
    let pool = folder(&place, "pool");
    let one = pool.join("0/0.png");
    std::fs::copy(&one, pool.join("1/copy.png")).unwrap();
    let output =
        acquire(&place, &["latest", &text(&pool), &text(&one), "--by", "entropy", "--count", "4"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["2 images of the pool are there already: left out"]);
    let chosen = table(&place, &printed(&output));
    let paths: BTreeSet<&str> = cells(&chosen, "path").into_iter().collect();
    assert!(paths.len() == 4 && !paths.iter().any(|path| path.ends_with("copy.png")), "{paths:?}");
}

#[test]
fn bad_requests_are_refused() {
    let place = trained();
    let missing = error_line(acquire(&place, &["latest", &text(&place.path("nosuch/")), "--count", "1"]), 2);
    assert_has(&missing, &["nosuch/: no such file: name image files or folders with images"]);
    (0..8).for_each(|seed| drop(crate::common::image(&place, &format!("pool/{seed}.png"), seed)));
    let pool = text(&place.path("pool"));
    // Neither is the run opened for a list that cannot be written.
    let place_of_list = error_line(acquire(&place, &["absent", &pool, "--count", "1", "-o", &pool]), 1);
    assert_has(&place_of_list, &["cannot write", "pool"]);
    let line = error_line(acquire(&place, &["latest", &pool, "--by", "batchbald", "--count", "7"]), 2);
    assert_has(&line, &["all joint labels, which with 10 classes is done up to 6 images", "--by mi"]);
    // Neither the run is opened before, nor the pool.
    let absent = text(&place.path("nosuch"));
    let output = acquire(&place, &["latest", &absent, "--by", "batchbald", "--count", "7"]).output().unwrap();
    assert_eq!(messages(&output).lines().count(), 1, "{}", messages(&output));
    let line = error_line(acquire(&place, &["latest", &pool, "--by", "mi", "--count", "2", "--seed", "3"]), 2);
    assert_has(&line, &["--seed: --by mi draws no random numbers: leave it out"]);
    let random =
        |seed: &[&str]| done(acquire(&place, &[&["latest", &pool, "--by", "random", "--count", "5"], seed].concat()));
    assert_eq!(random(&[]), random(&["--seed", "0"]));
    assert_ne!(random(&[]), random(&["--seed", "1"]));
    let output = acquire(&place, &["latest", &pool, "--by", "best", "--count", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_has(&messages(&output), &["unknown rule `best`; known: mi, entropy"]);
}

/// What the list cannot name is refused before an image is predicted; `predict` gives each file a name of its own.
#[cfg(target_os = "linux")]
#[test]
fn names_that_are_no_text_are_told_apart() {
    use std::os::unix::ffi::OsStrExt;
    let place = trained();
    for (number, name) in [&b"caf\xe9.png"[..], b"caf\xe8.png"].into_iter().enumerate() {
        let path = crate::common::image(&place, "pool/plain.png", number as u32);
        std::fs::rename(&path, path.with_file_name(std::ffi::OsStr::from_bytes(name))).unwrap();
    }
    let pool = text(&place.path("pool"));
    for format in ["csv", "jsonl"] {
        let predict = with(place.command("predict", &[]), &["latest", &pool, "--format", format]).output().unwrap();
        assert_has(&messages(&predict), &["2 images have names that are no UTF-8", "rename the files"]);
        let slashes = if format == "csv" { "\\" } else { "\\\\" };
        assert_has(&printed(&predict), &[&format!("caf{slashes}xe8.png"), &format!("caf{slashes}xe9.png")]);
    }
    let run = text(&place.run());
    std::fs::remove_file(place.run().join("posterior.safetensors")).unwrap();
    let line = error_line(acquire(&place, &[&run, &pool, "--count", "1"]), 1);
    assert_has(&line, &["caf\\xe8.png: its name is no UTF-8", "rename it"]);
}
