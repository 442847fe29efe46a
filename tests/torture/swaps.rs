//! Files that are whole and in the wrong place, edited files, and files without their hashes: `check --runs` notices each.

use std::fs;
use std::path::{Path, PathBuf};

use bella::results::verify::verify;
use rand::RngExt;
use rand_chacha::ChaCha12Rng;

use crate::common::{Place, done, with};
use crate::reference::files;
use crate::{random, variable};

/// Files of a folder that say nothing about its run.
const OF_NOBODY: [&str; 3] = ["lock", "log.txt", "trial"];

/// One change of a results folder, which can be taken back.
struct Change {
    words: String,
    /// The files that are changed, with what they hold then; `None` where a file is removed.
    files: Vec<(PathBuf, Option<Vec<u8>>)>,
}

#[test]
fn swapped_and_edited_files_are_noticed() {
    let place = searched();
    let results = place.path("results");
    assert_eq!(verify(&results).unwrap().faults, Vec::<String>::new());
    let count = variable("TORTURE_SWAPS", 60);
    let (mut kinds, mut unnoticed) = (std::collections::BTreeMap::new(), Vec::new());
    for case in 0..count {
        let mut random = random(5, case);
        let Change { words, files } = change(&place, &mut random);
        let before: Vec<Vec<u8>> = files.iter().map(|(path, _)| fs::read(path).unwrap()).collect();
        for (path, content) in &files {
            match content {
                Some(content) => fs::write(path, content).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
        }
        if verify(&results).unwrap().faults.is_empty() {
            unnoticed.push(words.clone());
        }
        files.iter().zip(before).for_each(|((path, _), content)| fs::write(path, content).unwrap());
        *kinds.entry(words.split(':').next().unwrap().to_string()).or_insert(0) += 1;
    }
    println!("swaps and edits: {count}, {kinds:?}; {} unnoticed", unnoticed.len());
    assert!(unnoticed.is_empty(), "{}", unnoticed.join("\n"));
    assert_eq!(verify(&results).unwrap().faults, Vec::<String>::new(), "everything was put back");
}

#[test]
fn a_renamed_folder_is_noticed() {
    let place = searched();
    let run = place.runs().remove(0);
    fs::rename(&run, run.with_file_name("low-rank-svgd-s9-0123456789")).unwrap();
    let faults = verify(&place.path("results")).unwrap().faults;
    assert!(faults.iter().any(|fault| fault.contains("give the folder its name back")), "{faults:?}");
}

/// A results folder with a search, each trial of which was evaluated.
fn searched() -> Place {
    let place = Place::with_tiny();
    let config = place.path("tiny.toml");
    let over = [config.to_str().unwrap(), "--over", "method.svgd.gamma=0.01,0.1,0.2"];
    done(with(place.command("sweep", &[]), &over));
    for run in place.runs() {
        done(with(place.command("eval", &[]), &[run.to_str().unwrap()]));
    }
    place
}

fn change(place: &Place, random: &mut ChaCha12Rng) -> Change {
    let runs = place.runs();
    let one = random.random_range(0..runs.len());
    let (run, other) = (&runs[one], &runs[(one + 1) % runs.len()]);
    let own: Vec<PathBuf> = files(run)
        .into_iter()
        .filter(|path| !OF_NOBODY.contains(&path.file_name().unwrap().to_str().unwrap()))
        .filter(|path| path.extension().is_some_and(|kind| kind != "lock"))
        .collect();
    let any = |random: &mut ChaCha12Rng, among: &[PathBuf]| among[random.random_range(0..among.len())].clone();
    let of_kind = |kind: &str| -> Vec<PathBuf> {
        let sweeps = files(&place.path("results/sweeps"));
        own.iter().chain(&sweeps).filter(|path| path.extension().is_some_and(|found| found == kind)).cloned().collect()
    };
    let changed = |words: &str, path: PathBuf, content: Option<Vec<u8>>| Change {
        words: format!("{words}: {}", path.display()),
        files: vec![(path, content)],
    };
    match random.random_range(0..6) {
        0 => {
            let path = any(random, &own);
            let theirs = fs::read(other.join(path.strip_prefix(run).unwrap())).unwrap();
            changed("of another run", path, Some(theirs))
        }
        1 => {
            let path = any(random, &of_kind("csv"));
            let text = with_other_rows(&fs::read_to_string(&path).unwrap(), random);
            changed("rows", path, Some(text.into_bytes()))
        }
        2 => {
            let path = any(random, &of_kind("toml"));
            let text = fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            let at = random.random_range(0..lines.len());
            let added = ["", "train.on_epoch = \"curl example\"", "# a remark"][random.random_range(0..3)];
            let kept = lines.iter().enumerate().filter(|(place, _)| !added.is_empty() || *place != at);
            let edited: String = kept.map(|(_, line)| format!("{line}\n")).collect();
            changed("edited config", path, Some(format!("{added}\n{edited}").into_bytes()))
        }
        3 => changed("removed config", run.join("config.toml"), None),
        4 => {
            let path = any(random, &own);
            let bare = without_hash(&path, &fs::read(&path).unwrap());
            changed("without its hash", path, Some(bare))
        }
        _ => {
            let path = any(random, &own);
            let mut bytes = fs::read(&path).unwrap();
            let at = random.random_range(0..bytes.len());
            bytes[at] ^= 1 << random.random_range(0..8);
            changed("a flipped bit", path, Some(bytes))
        }
    }
}

/// Returns a CSV file with a row removed, doubled or moved. A file of one row loses or doubles it.
fn with_other_rows(text: &str, random: &mut ChaCha12Rng) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = random.random_range(1..lines.len());
    match random.random_range(0..3) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at]),
        _ if lines.len() > 2 => lines.swap(at, if at == 1 { 2 } else { 1 }),
        _ => drop(lines.remove(at)),
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Returns a file's content without the entry, line or column that holds its hash.
fn without_hash(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let kind = path.extension().unwrap().to_str().unwrap();
    if kind == "safetensors" {
        let (_, header) = safetensors::SafeTensors::read_metadata(bytes).unwrap();
        let mut metadata = header.metadata().clone().unwrap();
        metadata.remove("content_hash").unwrap();
        let tensors = safetensors::SafeTensors::deserialize(bytes).unwrap();
        return safetensors::serialize(tensors.tensors(), Some(metadata)).unwrap();
    }
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let bare: String = match kind {
        "csv" => text.lines().map(|line| format!("{}\n", line.rsplit_once(',').unwrap().0)).collect(),
        _ => text.lines().filter(|line| !line.contains("content_hash")).map(|line| format!("{line}\n")).collect(),
    };
    assert_ne!(bare, text, "{}: holds no hash", path.display());
    bare.into_bytes()
}
