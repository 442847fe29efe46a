//! Damaged inputs of every format, read in processes of their own, so that one that ends or stops is seen.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rand::RngExt;

use crate::common::{Place, fixture};
use crate::mutate::{hidden, mutated, mutated_zip};
use crate::targets::Damage;
use crate::{random, targets, variable};

/// The time for one input, with room for a machine that is busy.
const LIMIT: Duration = Duration::from_secs(120);

/// The memory that reading a file of some kilobytes may take.
const MOST_BYTES: u64 = 2 << 30;

#[test]
fn damaged_inputs_are_refused_in_words() {
    let count = variable("TORTURE_INPUTS", 500);
    let first = variable("TORTURE_FIRST", 0);
    let place = Place::new();
    let (mut next, mut faults) = (first, Vec::new());
    while next < first + count {
        let ended = worker(&place, next, first + count);
        let progress = std::fs::read_to_string(place.path("progress")).unwrap_or_default();
        let at: u64 = progress.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(next);
        match ended {
            None => break,
            Some(why) => faults.push(format!("input {progress}: {why}")),
        }
        println!("{}", faults[faults.len() - 1]);
        next = at + 1;
    }
    let counts = std::fs::read_to_string(place.path("counts")).unwrap_or_default();
    let wrong = std::fs::read_to_string(place.path("wrong")).unwrap_or_default();
    print!("{counts}");
    println!("inputs: {count} from {first}; {} ended a process; {} other faults", faults.len(), wrong.lines().count());
    assert!(faults.is_empty() && wrong.is_empty(), "{}\n{wrong}", faults.join("\n"));
}

/// Reads the inputs from `next` on in a process of its own. Returns why it ended early.
fn worker(place: &Place, next: u64, end: u64) -> Option<String> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "inputs::reads_damaged_inputs", "--ignored"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.env("BELLA_CACHE", place.path("cache")).env("BELLA_TRIAL_SECONDS", "30");
    command.env("TORTURE_RANGE", format!("{next} {end}")).env("TORTURE_PLACE", place.path(""));
    let mut child = command.spawn().unwrap();
    let (mut seen, mut since) = (String::new(), Instant::now());
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return (!status.success()).then(|| format!("ended the process: {status}"));
        }
        let progress = std::fs::read_to_string(place.path("progress")).unwrap_or_default();
        if progress != seen {
            (seen, since) = (progress, Instant::now());
        }
        if since.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            return Some("it was not read within two minutes".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "started by damaged_inputs_are_refused_in_words"]
fn reads_damaged_inputs() {
    let range = std::env::var("TORTURE_RANGE").unwrap();
    let (next, end) = range.split_once(' ').unwrap();
    let home = std::env::var("TORTURE_PLACE").unwrap();
    let home = Path::new(&home);
    tch::set_num_threads(1);
    // As in the program, an archive that passes all checks is tried before it is loaded.
    bella::machine::child::start_by(env!("CARGO_BIN_EXE_bella").into());
    std::panic::set_hook(Box::new(|_| ()));
    let place = Place::new();
    let mut targets = targets::all(&place);
    if let Ok(only) = std::env::var("TORTURE_FORMAT") {
        targets.retain(|target| target.name == only);
        assert!(!targets.is_empty(), "TORTURE_FORMAT = {only}: no such format");
    }
    if next == "0" {
        append(&home.join("wrong"), &refused_whole(&targets));
    }
    let shown = std::fs::read(fixture("timm_scripted.pt")).unwrap();
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for number in next.parse::<u64>().unwrap()..end.parse().unwrap() {
        let mut random = random(4, number);
        let target = &targets[number as usize % targets.len()];
        let file = &target.files[random.random_range(0..target.files.len())];
        let whole = std::fs::read(file).unwrap();
        let damaged = match target.damage {
            Damage::Hidden => hidden(&whole, &shown, &mut random),
            Damage::Entries if random.random_range(0..4) > 0 => mutated_zip(&whole, &mut random),
            Damage::Entries | Damage::Bytes => mutated(&whole, &mut random),
        };
        let progress = format!("{number} ({}, {})", target.name, file.file_name().unwrap().display());
        std::fs::write(home.join("progress"), &progress).unwrap();
        std::fs::write(file, &damaged).unwrap();
        let outcome = catch_unwind(AssertUnwindSafe(|| (target.open)(file)));
        std::fs::write(file, whole).unwrap();
        let (read, refused) = counts.entry(target.name).or_default();
        match &outcome {
            Ok(Ok(())) => *read += 1,
            _ => *refused += 1,
        }
        if let Some(why) = fault(&outcome) {
            append(&home.join("wrong"), &format!("input {progress}: {why}\n"));
        }
    }
    for (name, (read, refused)) in counts {
        append(&home.join("counts"), &format!("{name}: {read} read, {refused} refused\n"));
    }
}

/// A line for each file that is refused although nothing is wrong with it.
fn refused_whole(targets: &[targets::Target]) -> String {
    let files = targets.iter().flat_map(|target| target.files.iter().map(move |file| (target, file)));
    let innocent = files.filter(|(_, file)| !file.ends_with("hostile.pt"));
    let line = |(target, file): (&targets::Target, &std::path::PathBuf)| {
        let why = (target.open)(file).err()?;
        Some(format!("{}, {}: refused as it is: {why}\n", target.name, file.display()))
    };
    innocent.filter_map(line).collect()
}

/// The fault in how an input was read or refused, if there is one.
fn fault(outcome: &std::thread::Result<Result<(), String>>) -> Option<String> {
    let peak = bella::machine::memory::peak_bytes(tch::Device::Cpu).unwrap_or(0);
    match outcome {
        Err(payload) => Some(format!("panicked: {}", bella::base::tensor::panic_line(payload.as_ref()))),
        Ok(_) if peak > MOST_BYTES => Some(format!("took {peak} bytes of memory")),
        Ok(Err(text)) if text.trim().is_empty() => Some("was refused without a word".into()),
        Ok(Err(text)) if text.contains("panicked") => Some(format!("panicked inside: {text}")),
        Ok(_) => None,
    }
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    file.unwrap().write_all(text.as_bytes()).unwrap();
}
