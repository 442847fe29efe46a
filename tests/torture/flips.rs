//! Flipped bits of the files that bella wrote.

use bella::report::Sources;
use bella::results::store;
use bella::results::verify::verify;
use bella::run::{Record, RunFolder};
use rand::RngExt;

use crate::common::Place;
use crate::reference::{SCENARIOS, files, finished};
use crate::{random, variable};

/// The way in which bella takes a results folder with a flipped bit.
enum Outcome {
    Noticed,
    /// It is read as before: the bit is in a place that means nothing, such as a space of the config.
    Silent,
    Wrong(String),
}

#[test]
fn a_flipped_bit_of_a_file_with_a_hash_is_noticed() {
    let scenario = &SCENARIOS[0];
    let place = scenario.prepare();
    finished(&scenario.command(&place).output().unwrap(), scenario.name);
    let results = place.path("results");
    assert!(verify(&results).unwrap().faults.is_empty());
    let resolved = config(&place);
    let files = files(&results);
    let files: Vec<_> = files.iter().filter(|path| path.metadata().unwrap().len() > 0).collect();
    let count = variable("TORTURE_FLIPS", 200);
    let (mut hashed, mut texts, mut silent) = (0, 0, 0);
    for case in 0..count {
        let mut random = random(3, case);
        let path = files[case as usize % files.len()];
        let whole = std::fs::read(path).unwrap();
        let mut flipped = whole.clone();
        let (at, bit) = (random.random_range(0..whole.len()), random.random_range(0..8));
        flipped[at] ^= 1 << bit;
        std::fs::write(path, flipped).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        // The name of a column whose cells are all empty belongs to no row.
        let in_header = name.ends_with(".csv") && !whole[..at].contains(&b'\n');
        let has_hash = [".safetensors", ".csv", ".json"].iter().any(|end| name.ends_with(end)) && !in_header;
        let outcome = std::panic::catch_unwind(|| look(&place, name, &resolved))
            .unwrap_or_else(|_| Outcome::Wrong("it panicked".into()));
        std::fs::write(path, whole).unwrap();
        match (outcome, has_hash) {
            (Outcome::Noticed, true) => hashed += 1,
            (Outcome::Noticed, false) => texts += 1,
            (Outcome::Silent, false) => silent += 1,
            (Outcome::Silent, true) => panic!("bit {bit} of byte {at} of {name} was flipped unnoticed"),
            (Outcome::Wrong(why), _) => panic!("bit {bit} of byte {at} of {name}: {why}"),
        }
    }
    println!(
        "flips: {count}; noticed: {hashed} in files with a hash, all of them, and {texts} in others; {silent} in others \
              change nothing that is compared"
    );
}

/// The config of the only run, as it is understood.
fn config(place: &Place) -> Option<toml::Table> {
    std::fs::read_to_string(place.run().join("config.toml")).ok()?.parse().ok()
}

/// Checks the folder, reads the file as its users do, and makes a report.
fn look(place: &Place, name: &str, resolved: &Option<toml::Table>) -> Outcome {
    let results = place.path("results");
    let faults = verify(&results).map(|verified| verified.faults);
    let is_noticed = !faults.as_ref().is_ok_and(Vec::is_empty);
    if let Ok(faults) = &faults
        && let Some(fault) = faults.iter().find(|fault| !fault.contains(name) || fault.contains('\n'))
    {
        return Outcome::Wrong(format!("does not name the file in one line: {fault}"));
    }
    let report = Sources::open(&results).map(|sources| sources.problems.len());
    let text = match name {
        "tiny.csv" => store::read(&results.join(name)).map(drop).is_err(),
        "train.csv" => store::read(&place.run().join(name)).map(drop).is_err(),
        "run.json" => RunFolder::find(&results, None).and_then(|run| Record::read(&run)).is_err(),
        _ => false,
    };
    let is_other = name == "config.toml" && !is_noticed && config(place) != *resolved && is_identity(place, resolved);
    match () {
        _ if is_other => Outcome::Wrong("the experiment is another one, unnoticed".into()),
        _ if is_noticed || text || report.is_err() || report.is_ok_and(|problems| problems > 0) => Outcome::Noticed,
        _ => Outcome::Silent,
    }
}

/// Whether the configs differ in a value that makes them another experiment: not in where things lie, nor in how much is
/// computed at once.
fn is_identity(place: &Place, resolved: &Option<toml::Table>) -> bool {
    const PARTS: [&str; 4] = ["subspace", "method", "optimizer", "seed"];
    let (now, before) = (config(place), resolved.clone());
    PARTS.iter().any(|part| now.as_ref().map(|table| table.get(*part)) != before.as_ref().map(|table| table.get(*part)))
}
