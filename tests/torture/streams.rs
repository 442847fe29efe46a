//! Pipes, devices, sockets, folders, files of a terabyte and lines of a hundred megabytes where bella reads a file: it says so
//! in a line that names the file, soon and in little memory.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::RngExt;
use rand_chacha::ChaCha12Rng;

use crate::bounded::{bella, campaign, ended};
use crate::common::{self, Place, done, fixture, repository};
use crate::reference::files;
use crate::{random, variable};

/// A file that a command reads.
struct Role {
    file: PathBuf,
    words: Vec<String>,
    /// Whether the command can do without the file: it warns or takes another one.
    spare: bool,
}

/// The things that take the place of a file.
const KINDS: [&str; 12] = [
    "a pipe",
    "a link to /dev/zero",
    "a link to /dev/urandom",
    "a link to /dev/null",
    "a socket",
    "a folder",
    "a dangling link",
    "a circle of links",
    "a file of a terabyte",
    "a long line",
    "a long line",
    "many brackets",
];

#[test]
fn what_is_no_file_of_its_kind_is_refused_soon() {
    let count = variable("TORTURE_STREAMS", 16);
    if count == 0 {
        return;
    }
    let place = prepared();
    let roles = roles(&place);
    campaign("streams", count, |number| {
        let mut random = random(9, number);
        let role = &roles[random.random_range(0..roles.len())];
        let kind = KINDS[random.random_range(0..KINDS.len())];
        let whole = fs::read(&role.file).unwrap();
        fs::remove_file(&role.file).unwrap();
        let held = replace(&role.file, kind, &whole, &mut random);
        let outcome = ended(bella(&role.words), None).and_then(|ended| {
            let name = role.file.file_name().unwrap().to_str().unwrap();
            match ended.code {
                0 if role.spare || kind == "a long line" => Ok(()),
                0 => Err("it is content".into()),
                _ if ended.said.contains(name) || ended.printed.contains(name) => Ok(()),
                _ => Err(format!("it does not name {name}: {}", ended.said)),
            }
        });
        drop(held);
        let removed = if role.file.is_dir() && !role.file.is_symlink() {
            fs::remove_dir_all(&role.file)
        } else {
            fs::remove_file(&role.file)
        };
        removed.unwrap();
        fs::write(&role.file, whole).unwrap();
        (kind.to_string(), format!("{kind} as {}: {}", role.file.display(), role.words.join(" ")), outcome)
    });
}

/// Puts something else at the path of a file.
fn replace(path: &Path, kind: &str, whole: &[u8], random: &mut ChaCha12Rng) -> Option<UnixListener> {
    // Half of the lines are longer than what bella reads at once, the others just long.
    let long = [2 << 20, 5 << 20, 20 << 20, 100 << 20][random.random_range(0..4)];
    match kind {
        "a pipe" => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
        "a socket" => return Some(UnixListener::bind(path).unwrap()),
        "a folder" => fs::create_dir(path).unwrap(),
        "a dangling link" => symlink("nothing", path).unwrap(),
        "a circle of links" => symlink(path, path).unwrap(),
        "a file of a terabyte" => File::create(path).unwrap().set_len(1 << 40).unwrap(),
        "a long line" => {
            let at = random.random_range(0..=whole.len());
            fs::write(path, [&whole[..at], &vec![b'x'; long], &whole[at..]].concat()).unwrap();
        }
        "many brackets" => fs::write(path, [b'[', b'{', b'('][random.random_range(0..3)..][..1].repeat(long)).unwrap(),
        device => symlink(device.rsplit(' ').next().unwrap(), path).unwrap(),
    }
    None
}

const WORDS: &str = "prompt = \"is {text} big ?\"\nlabels = [\"no\", \"yes\"]";

/// A place with a file of every kind that bella reads.
fn prepared() -> Place {
    let place = common::trained();
    common::image(&place, "image.png", 1);
    common::folder(&place, "photos");
    common::image(&place, "set/a.png", 2);
    place.write("set/list.csv", b"path,label\na.png,0\na.png,1\n");
    let lines: String =
        (0..4).map(|i| format!("{{\"text\": \"it is {i}\", \"label\": \"{}\"}}\n", ["no", "yes"][i % 2])).collect();
    for name in ["train.jsonl", "test.jsonl"] {
        place.write(&format!("texts/{name}"), lines.as_bytes());
    }
    place.write("texts.toml", format!("[data.jsonl]\nroot = {:?}\n{WORDS}\n", place.path("texts")).as_bytes());
    place.write("list.toml", format!("[data.list]\nroot = {:?}\n", place.path("set")).as_bytes());
    for (from, to) in [("folders/hf-vit", "vit"), ("language/llama", "llama"), ("llava/transformers-5", "llava")] {
        for file in files(&fixture(from)) {
            let name = file.file_name().unwrap().to_str().unwrap();
            if !["reference.safetensors", "prompts.json"].contains(&name) {
                place.write(&format!("{to}/{name}"), &fs::read(&file).unwrap());
            }
        }
    }
    place.write("vit.pt", &fs::read(repository("assets/vit-digits.pt")).unwrap());
    let mut head = common::bella(&["head", "--device", "cpu", "--to"]);
    head.arg(place.path("head.safetensors")).arg("--config").arg(place.path("tiny.toml"));
    done(head);
    place.write(
        "head.toml",
        common::tiny()
            .replace("[head.checkpoint]", &format!("[head.zero-shot]\nweights = {:?}", place.path("head.safetensors")))
            .as_bytes(),
    );
    place.write(
        "pt.toml",
        common::tiny()
            .replace(repository("assets/vit-digits.pt").to_str().unwrap(), place.path("vit.pt").to_str().unwrap())
            .as_bytes(),
    );
    let mut export = place.command("export", &[]);
    export.args(["--to", "peft", "--output"]).arg(place.path("adapter"));
    done(export);
    place
}

fn roles(place: &Place) -> Vec<Role> {
    let run = place.run();
    let predictions = files(&run.join("predictions")).remove(0);
    let at = |name: &str| place.path(name).display().to_string();
    let (run_path, shown) = (run.display(), predictions.display());
    let cpu = "--device cpu --threads 1 --workers 1";
    let mut roles = Vec::new();
    let mut add = |file: &Path, words: String, spare: bool| {
        assert!(file.is_file(), "{}", file.display());
        roles.push(Role { file: file.into(), words: words.split(' ').map(String::from).collect(), spare });
    };
    let tiny = place.path("tiny.toml");
    add(&tiny, format!("check {}", at("tiny.toml")), false);
    add(&tiny, format!("train --config {} --out {} {cpu}", at("tiny.toml"), at("other")), false);
    add(
        &tiny,
        format!("sweep {} --out {} {cpu} --over method.svgd.gamma=0.1,0.2", at("tiny.toml"), at("other")),
        false,
    );
    add(&tiny, format!("rehearse {}", at("tiny.toml")), false);
    for name in ["train.jsonl", "test.jsonl"] {
        add(&place.path(&format!("texts/{name}")), format!("data check --config {}", at("texts.toml")), false);
    }
    add(&place.path("set/list.csv"), format!("data check --config {} --decode", at("list.toml")), false);
    add(&place.path("set/a.png"), format!("data check --config {} --decode", at("list.toml")), false);
    add(&place.path("head.safetensors"), format!("check {} --deep {cpu}", at("head.toml")), false);
    add(&place.path("vit.pt"), format!("check {} --deep {cpu}", at("pt.toml")), false);
    add(&place.path("vit.pt"), format!("inspect {}", at("vit.pt")), false);
    add(
        &place.path("vit.pt"),
        format!("init --checkpoint {} --data {} --method lora --output {}", at("vit.pt"), at("photos"), at("new.toml")),
        false,
    );
    for folder in ["vit", "llama", "llava"] {
        for file in files(&place.path(folder)) {
            // What bella does not read.
            let spare = file.ends_with("generation_config.json");
            add(&file, format!("inspect {}", at(folder)), spare);
        }
    }
    for file in files(&place.path("adapter")) {
        let spare =
            file.extension().is_some_and(|kind| kind == "md" || kind == "py") || file.ends_with("expected.safetensors");
        add(
            &file,
            format!("import {} --config {} --out {} {cpu} --force", at("adapter"), at("tiny.toml"), at("imported")),
            spare,
        );
    }
    add(&predictions, format!("score {shown}"), false);
    add(&predictions, format!("compare {shown} {shown} --resamples 10"), false);
    add(&place.path("results/tiny.csv"), format!("report {}", at("results/tiny.csv")), false);
    add(&place.path("results/tiny.csv"), format!("report {}", at("results")), true);
    add(&place.path("results/tiny.csv"), format!("check --runs {}", at("results")), false);
    add(&place.path("image.png"), format!("images {} --size 8 --epochs 1 --workers 1", at("image.png")), false);
    add(&place.path("image.png"), format!("predict {run_path} {} {cpu}", at("image.png")), false);
    for file in files(&run) {
        let name = file.file_name().unwrap().to_str().unwrap();
        // Locks hold nothing, and a log is read by nobody.
        if !name.ends_with("lock") && name != "log.txt" {
            add(&file, format!("check --runs {}", at("results")), false);
            add(&file, format!("eval {run_path} {cpu} --out {}", at("results")), true);
            add(&file, format!("report {} --html {}", at("results"), at("page.html")), true);
        }
    }
    roles
}
