//! Another program cuts a mapped file off, right after bella has mapped it or a little later.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::RngExt;

use crate::bounded::{Ended, bella, campaign, ended};
use crate::common::{self, Place, done, fixture};
use crate::disks::shim;
use crate::reference::files;
use crate::{random, variable};

/// All files of a folder, which can be put back.
struct Snapshot(BTreeMap<PathBuf, Vec<u8>>);

impl Snapshot {
    fn of(folder: &Path) -> Snapshot {
        Snapshot(files(folder).into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect())
    }

    /// Puts the files back, and removes all others.
    fn restore(&self, folder: &Path) {
        for path in files(folder).into_iter().filter(|path| !self.0.contains_key(path)) {
            fs::remove_file(path).unwrap();
        }
        for (path, bytes) in &self.0 {
            if !fs::read(path).is_ok_and(|found| found == *bytes) {
                fs::write(path, bytes).unwrap();
            }
        }
    }
}

/// A command that maps files.
struct Reader {
    words: Vec<String>,
    /// The files that it maps, in their order.
    maps: Vec<String>,
    /// What it prints and writes when nothing is cut off.
    result: Vec<Vec<u8>>,
}

#[test]
fn mapped_files_that_are_cut_off_are_an_error_and_no_signal() {
    let count = variable("TORTURE_CUTS", 12);
    if shim().is_none() || count == 0 {
        return;
    }
    let place = prepared();
    let folder = place.path("");
    let snapshot = Snapshot::of(&folder);
    // The first cases are worth a few commands only.
    let mut readers = Vec::new();
    for words in commands(&place).into_iter().take(count.div_ceil(3) as usize) {
        readers.extend(uncut(&place, words));
        snapshot.restore(&folder);
    }
    let mut noticed = 0;
    campaign("cuts", count, |number| {
        let mut random = random(7, number);
        let reader = &readers[number as usize % readers.len()];
        let at = random.random_range(0..reader.maps.len());
        let size = fs::metadata(&reader.maps[at]).map_or(0, |found| found.len());
        let keep = if random.random() { 0 } else { random.random_range(0..size.max(1)) };
        // Half of the cuts come at once, the others when the file is in use.
        let delay = if random.random() { 0 } else { random.random_range(1..200_000) };
        let name = Path::new(&reader.maps[at]).file_name().unwrap().display().to_string();
        let words = format!("{}: {name} cut to {keep} bytes after {delay} us", reader.words.join(" "));
        let outcome = cut(&place, &reader.words, (at + 1, keep, delay)).and_then(|ended| {
            noticed += u64::from(ended.said.contains("cannot be read any more"));
            let same = ended.code != 0 || result(&place, &reader.words, &ended) == reader.result;
            if same { Ok(()) } else { Err("it is content, with another result".into()) }
        });
        snapshot.restore(&folder);
        (name, words, outcome)
    });
    println!("cuts noticed by an access: {noticed}");
    assert!(noticed > 0, "no access met a file that was cut off");
}

/// A place with a checkpoint in a folder, images, and runs: one that is finished and one that was paused.
fn prepared() -> Place {
    let place = common::trained();
    common::folder(&place, "photos");
    common::image(&place, "image.png", 1);
    for file in files(&fixture("folders/hf-vit")) {
        let name = file.file_name().unwrap().to_str().unwrap();
        place.write(&format!("vit/{name}"), &fs::read(&file).unwrap());
    }
    let config = common::tiny().replace("[head.checkpoint]", "[head.linear]");
    let assets = common::repository("assets/vit-digits.pt");
    let config = config.replace(assets.to_str().unwrap(), place.path("vit").to_str().unwrap());
    let config = config.replace("rank = 2", "rank = 2\nblocks = \"1\"").replace("name = \"tiny\"", "name = \"paused\"");
    let config = place.write("paused.toml", format!("{config}prefix_cache = \"disk\"\n").as_bytes());
    let mut command = place.command("train", &[]);
    command.arg("--config").arg(config).args(["--until-epoch", "1"]);
    done(command);
    place
}

/// Commands that map files, each with all that it needs below the place.
fn commands(place: &Place) -> Vec<Vec<String>> {
    let run = place.run();
    let predictions = files(&run.join("predictions")).remove(0);
    let (run, predictions) = (run.display(), predictions.display());
    let at = |name: &str| place.path(name).display().to_string();
    let (paused, out, image) = (at("paused.toml"), at("results"), at("image.png"));
    let cpu = "--device cpu --threads 1 --workers 1";
    [
        format!("score {predictions} --csv"),
        format!("train --config {paused} --out {out} {cpu} --resume"),
        format!("predict {run} {image} {cpu}"),
        format!("score {predictions} --csv"),
        format!("score {predictions} --ood {predictions} --csv"),
        format!("train --config {paused} --out {out} {cpu} --force"),
        format!("compare {predictions} {predictions} --csv --resamples 20"),
        format!("eval {run} {cpu}"),
        format!("soup {run} {cpu}"),
        format!("export {run} {cpu} --to peft --output {}", at("export")),
        format!("images {} --size 8 --epochs 2 --cache {} --workers 1", at("photos"), at("cache")),
        format!("check --runs {out}"),
    ]
    .map(|text| text.split(' ').map(String::from).collect())
    .into()
}

/// Runs a command while the mapping with a number is cut to a size after some microseconds; with the number 0, nothing is cut.
fn cut(place: &Place, words: &[String], (at, keep, delay): (usize, u64, u64)) -> Result<Ended, String> {
    let mut command: Command = bella(words);
    command.env("LD_PRELOAD", shim().unwrap()).env("TORTURE_DIR", place.path("")).env("TORTURE_DO", "cut");
    command.env("TORTURE_AT", at.to_string()).env("TORTURE_LOG", place.path("operations.log"));
    command.env("TORTURE_KEEP", keep.to_string()).env("TORTURE_DELAY", delay.to_string());
    command.env("BELLA_CACHE", place.path("user-cache"));
    ended(command, None)
}

/// A command with what it does when nothing is cut off; `None` if it maps no file.
fn uncut(place: &Place, words: Vec<String>) -> Option<Reader> {
    let ended = cut(place, &words, (0, 0, 0)).and_then(|ended| ended.with_code(&[0])).unwrap();
    let log = fs::read_to_string(place.path("operations.log")).unwrap_or_default();
    let maps: Vec<String> = log.lines().filter_map(|line| line.strip_prefix("map ")).map(String::from).collect();
    if maps.is_empty() {
        println!("{}: maps no file", words.join(" "));
        return None;
    }
    Some(Reader { result: result(place, &words, &ended), words, maps })
}

/// What must not depend on a cut: the numbers that were printed, the theta that was trained, or the models that were exported.
fn result(place: &Place, words: &[String], ended: &Ended) -> Vec<Vec<u8>> {
    match words[0].as_str() {
        "score" | "compare" | "predict" => vec![ended.printed.clone().into_bytes()],
        "train" => {
            let posteriors = named(&place.path("results/runs/paused"), "posterior.safetensors");
            posteriors.iter().map(|path| common::tensor_bytes(path, "theta")).collect()
        }
        "export" => {
            let adapters = named(&place.path("export"), "adapter_model.safetensors");
            adapters.iter().map(|path| fs::read(path).unwrap()).collect()
        }
        // The others print how long they took.
        _ => Vec::new(),
    }
}

/// The files of a name below a folder.
fn named(folder: &Path, name: &str) -> Vec<PathBuf> {
    files(folder).into_iter().filter(|path| path.ends_with(name)).collect()
}
