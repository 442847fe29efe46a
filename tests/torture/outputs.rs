//! What users name as targets: full devices, links to files, folders, devices and nothing, pipes, descriptors and sockets. Every
//! command that writes where it is told says in one line that it cannot, or has written; devices and links stay.

use std::fs::{self, File};
use std::os::unix::fs::{FileTypeExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rand::RngExt;

use crate::bounded::{Ended, bella, campaign, ended};
use crate::common::{self, Place};
use crate::{random, variable};

/// A command that writes to a target, which is its last word.
struct Writer {
    words: Vec<String>,
    /// How names of its files end; empty for a folder.
    ending: &'static str,
}

/// The targets of writers of files.
const OF_FILES: [&str; 13] = [
    "a full device",
    "the null device",
    "a link to a file",
    "a dangling link",
    "a link to a dangling link",
    "a circle of links",
    "a link into a missing folder",
    "a link to a folder",
    "a file",
    "a pipe",
    "standard output",
    "a descriptor",
    "a socket",
];

/// The targets of writers of folders.
const OF_FOLDERS: [&str; 7] = [
    "a full device",
    "the null device",
    "a link to a file",
    "a dangling link",
    "a circle of links",
    "a link to a folder",
    "a file",
];

#[test]
fn devices_and_links_as_targets_stay_what_they_are() {
    let count = variable("TORTURE_TARGETS", 16);
    if count == 0 {
        return;
    }
    if !Path::new("/dev/full").exists() {
        return println!("skipped: this machine has no /dev/full");
    }
    let place = common::trained();
    common::image(&place, "image.png", 1);
    (0..20).for_each(|at| drop(common::image(&place, &format!("photos/{}/{at}.png", at % 2), at)));
    let (writers, printers) = (writers(&place), printers(&place));
    let folder = place.path("targets");
    campaign("targets", count, |number| {
        let mut random = random(6, number);
        // Every writer has its turn.
        let at = number as usize % (writers.len() + printers.len());
        match writers.get(at) {
            Some(writer) => {
                let kinds = if writer.ending.is_empty() { &OF_FOLDERS[..] } else { &OF_FILES[..] };
                let kind = kinds[random.random_range(0..kinds.len())];
                let words = format!("{} to {kind}", writer.words.join(" "));
                (kind.to_string(), words, written(writer, kind, &folder))
            }
            None => {
                let words = &printers[at - writers.len()];
                let full = File::options().write(true).open("/dev/full").unwrap();
                let outcome =
                    ended(bella(words), Some(full)).and_then(|ended| ended.with_code(&[1])).and_then(says_full);
                ("a full standard output".to_string(), words.join(" "), outcome)
            }
        }
    });
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(String::from).collect()
}

/// All commands that write where they are told.
fn writers(place: &Place) -> Vec<Writer> {
    let (results, run) = (place.path("results"), place.run());
    let (results, run) = (results.display(), run.display());
    let (image, photos, config) = (place.path("image.png"), place.path("photos"), place.path("tiny.toml"));
    let (image, photos, config) = (image.display(), photos.display(), config.display());
    let vit = common::repository("assets/vit-digits.pt");
    let vit = vit.display();
    let cpu = "--device cpu --threads 1";
    let all = [
        (format!("report {results} --html"), "html"),
        (format!("report {results} --picture"), "svg"),
        (format!("report {results} --notebook"), "ipynb"),
        (format!("images {image} --size 8 --epochs 0 --output"), "npy"),
        (format!("predict {run} {image} {cpu} --output"), "csv"),
        (format!("predict {run} {image} {cpu} --contact-sheet"), "png"),
        (format!("head --config {config} {cpu} --to"), "safetensors"),
        (format!("init --checkpoint {vit} --data {photos} --method lora --force --output"), "toml"),
        (format!("report {results} --out"), ""),
        (format!("images {image} --size 8 --epochs 0 --cache"), ""),
        (format!("export {run} {cpu} --to peft --output"), ""),
        (format!("export {run} {cpu} --to torchscript --force --output"), ""),
        (format!("soup {run} {cpu} --to weights --output"), ""),
        (format!("eval {run} {cpu} --attack fgsm --epsilon 0.01 --save-images"), ""),
        (format!("train --config {config} {cpu} --set train.epochs=1 --out"), ""),
    ];
    all.map(|(text, ending)| Writer { words: words(&text), ending }).into()
}

/// Commands that print.
fn printers(place: &Place) -> Vec<Vec<String>> {
    let (results, run, config) = (place.path("results"), place.run(), place.path("tiny.toml"));
    let predictions = fs::read_dir(run.join("predictions")).unwrap().next().unwrap().unwrap().path();
    let (results, run, predictions) = (results.display(), run.display(), predictions.display());
    let image = place.path("image.png");
    let all = [
        format!("report {results} --table results --csv"),
        format!("runs --out {results}"),
        format!("score {predictions} --csv"),
        format!("compare {predictions} {predictions} --resamples 10"),
        format!("check {} --print", config.display()),
        format!("check --runs {results}"),
        format!("predict {run} {} --device cpu --threads 1", image.display()),
        "list keys".to_string(),
    ];
    all.iter().map(|text| words(text)).collect()
}

fn says_full(ended: Ended) -> Result<(), String> {
    match ended.error().contains("No space left on device") {
        true => Ok(()),
        false => Err(format!("it does not say that the device is full: {}", ended.said)),
    }
}

/// The names in the folder of a target: its own, that of what it leads to, and a third one.
struct Names {
    target: PathBuf,
    behind: PathBuf,
    other: PathBuf,
}

/// What keeps a target alive.
#[derive(Default)]
struct Held {
    reader: Option<Child>,
    socket: Option<UnixListener>,
}

/// Makes a target in an empty folder, and runs the command on it.
fn written(writer: &Writer, kind: &str, folder: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir(folder).unwrap();
    let [target, behind, other] = ["target", "behind", "other"].map(|name| {
        folder.join(if writer.ending.is_empty() { name.into() } else { format!("{name}.{}", writer.ending) })
    });
    let names = Names { target, behind, other };
    let held = make(kind, &names);
    let before = fs::symlink_metadata(&names.target).unwrap().file_type();
    let mut command = bella(&writer.words);
    command.arg(&names.target);
    let outcome = ended(command, None);
    if let Some(mut reader) = held.reader {
        // A command that failed before it opened the pipe leaves the reader waiting.
        if outcome.as_ref().map_or(true, |ended| ended.code != 0) {
            let _ = reader.kill();
        }
        reader.wait().unwrap();
    }
    let ended = outcome?;
    let after = fs::symlink_metadata(&names.target).map(|found| found.file_type()).map_err(|_| "the target is gone")?;
    if before != after {
        return Err(format!("the target became another thing; exit code {}: {}", ended.code, ended.said));
    }
    match writer.ending.is_empty() {
        true => folder_ended(kind, ended, &names.target),
        false => file_ended(kind, ended, &names),
    }?;
    let left = entries(folder).into_iter().find(|name| name.ends_with(".tmp"));
    left.map_or(Ok(()), |name| Err(format!("it left {name}")))
}

/// Makes a target.
fn make(kind: &str, Names { target, behind, other }: &Names) -> Held {
    let mut held = Held::default();
    match kind {
        "a full device" => symlink("/dev/full", target).unwrap(),
        "the null device" => symlink("/dev/null", target).unwrap(),
        "a link to a file" => {
            fs::write(behind, "old").unwrap();
            symlink(behind.file_name().unwrap(), target).unwrap();
        }
        "a dangling link" => symlink(behind.file_name().unwrap(), target).unwrap(),
        "a link to a dangling link" => {
            symlink(other, target).unwrap();
            symlink(behind, other).unwrap();
        }
        "a circle of links" => {
            symlink(other, target).unwrap();
            symlink(target, other).unwrap();
        }
        "a link into a missing folder" => symlink("missing/file", target).unwrap(),
        "a link to a folder" => {
            fs::create_dir(behind).unwrap();
            symlink(behind, target).unwrap();
        }
        "a file" => fs::write(target, "old").unwrap(),
        "a pipe" => {
            assert!(Command::new("mkfifo").arg(target).status().unwrap().success());
            held.reader = Some(read_pipe(target, other));
        }
        "standard output" => symlink("/dev/stdout", target).unwrap(),
        "a descriptor" => symlink("/proc/self/fd/1", target).unwrap(),
        _ => held.socket = Some(UnixListener::bind(target).unwrap()),
    }
    held
}

/// Starts a process that reads a pipe into a file.
fn read_pipe(pipe: &Path, into: &Path) -> Child {
    let file = File::create(into).unwrap();
    Command::new("cat").arg(pipe).stdin(Stdio::null()).stdout(file).spawn().unwrap()
}

fn entries(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

fn file_ended(kind: &str, ended: Ended, Names { target, behind, other }: &Names) -> Result<(), String> {
    let written = |path: &Path| match fs::metadata(path) {
        Ok(found) if found.len() > 10 => Ok(()),
        _ => Err(format!("{}: nothing was written", path.display())),
    };
    match kind {
        "a full device" => says_full(ended.with_code(&[1])?),
        "the null device" => ended.with_code(&[0]).map(drop),
        "a link to a file" | "a dangling link" | "a link to a dangling link" => {
            ended.with_code(&[0])?;
            written(behind)
        }
        "a file" => ended.with_code(&[0]).and_then(|_| written(target)),
        "a pipe" => ended.with_code(&[0]).and_then(|_| written(other)),
        "standard output" | "a descriptor" => match ended.with_code(&[0])?.printed.len() {
            0..=10 => Err("nothing was written to standard output".into()),
            _ => Ok(()),
        },
        _ => ended.with_code(&[1, 2]).map(drop),
    }
}

fn folder_ended(kind: &str, ended: Ended, target: &Path) -> Result<(), String> {
    match kind {
        "a link to a folder" | "a dangling link" if ended.code == 0 => match entries(target).is_empty() {
            true => Err("nothing was written behind the link".into()),
            false => Ok(()),
        },
        "a link to a folder" | "a dangling link" => ended.with_code(&[1, 2]).map(drop),
        "a file" | "a link to a file" => {
            ended.with_code(&[1, 2])?;
            let kept = fs::read(target).is_ok_and(|bytes| bytes == b"old");
            if kept { Ok(()) } else { Err("the file was changed".into()) }
        }
        _ => {
            ended.with_code(&[1, 2])?;
            let is_device = fs::metadata(target).is_ok_and(|found| found.file_type().is_char_device());
            if is_device || kind == "a circle of links" { Ok(()) } else { Err("the device is gone".into()) }
        }
    }
}
