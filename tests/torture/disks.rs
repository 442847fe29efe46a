//! Kills before every operation on files, and disks that fill up or fail at every one of them. A C library that is
//! compiled here and preloaded into bella counts and interrupts the operations.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use crate::common::{Place, messages};
use crate::reference::{Contents, SCENARIOS, Scenario, finished};
use crate::variable;

/// The preloaded library, if this machine has a C compiler and preloads libraries.
pub fn shim() -> Option<&'static Path> {
    static SHIM: OnceLock<Option<(tempfile::TempDir, PathBuf)>> = OnceLock::new();
    let compiled = SHIM.get_or_init(|| {
        if !cfg!(all(target_os = "linux", target_env = "gnu")) {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("shim.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torture/shim.c");
        let mut compile = Command::new("cc");
        compile.args(["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]).arg(&library).arg(source);
        match compile.args(["-ldl", "-lpthread"]).status() {
            Ok(status) => assert!(status.success(), "the library cannot be compiled"),
            Err(_) => return None,
        }
        Some((folder, library))
    });
    if compiled.is_none() {
        println!("skipped: this machine has no C compiler `cc`, or is no Linux with glibc");
    }
    compiled.as_ref().map(|(_, library)| library.as_path())
}

/// Runs the command of a scenario and interrupts operation `at`; with 0, it is not interrupted.
fn interrupted(scenario: &Scenario, place: &Place, at: usize, how: &str) -> Output {
    let mut command = scenario.command(place);
    command.env("LD_PRELOAD", shim().unwrap()).env("TORTURE_DIR", place.path("results"));
    command.env("TORTURE_AT", at.to_string()).env("TORTURE_DO", how).env("TORTURE_LOG", place.path("operations.txt"));
    command.output().unwrap()
}

/// A scenario with what it does and leaves.
struct Known {
    scenario: &'static Scenario,
    operations: Vec<String>,
    contents: Contents,
}

impl Known {
    fn of(scenario: &'static Scenario) -> Known {
        let place = scenario.prepare();
        finished(&interrupted(scenario, &place, 0, "kill"), scenario.name);
        let text = std::fs::read_to_string(place.path("operations.txt")).unwrap();
        let operations: Vec<String> = text.lines().map(String::from).collect();
        assert!(operations.len() > 10, "{}: {operations:?}", scenario.name);
        Known { scenario, operations, contents: Contents::of(&place) }
    }
}

/// The cases of `count`: a scenario and an operation of it each, spread evenly over all operations.
fn spread(known: &[Known], count: usize) -> Vec<(&Known, usize)> {
    let all: Vec<(&Known, usize)> =
        known.iter().flat_map(|one| (1..=one.operations.len()).map(move |at| (one, at))).collect();
    let offset = variable("TORTURE_SEED", 1) as usize;
    (0..count).map(|case| all[(case * all.len() / count + offset) % all.len()]).collect()
}

/// The scenarios that a number of cases is worth.
fn scenarios(count: usize) -> Vec<Known> {
    SCENARIOS.iter().take(count.div_ceil(5)).map(Known::of).collect()
}

/// Makes temporary files seconds old, as they are when a user repeats a command: younger ones may still be in use, so that
/// bella does not remove them.
fn age_temporaries(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let is_folder = entry.file_type().unwrap().is_dir();
        if is_folder {
            age_temporaries(&path);
        }
        if path.extension().is_some_and(|extension| extension == "tmp") {
            let file = File::options().read(true).write(!is_folder).open(&path).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(5)).unwrap();
        }
    }
}

/// Repeats the command without interruption, and returns what differs from a run that was never interrupted.
fn repeated(known: &Known, place: &Place) -> Option<String> {
    age_temporaries(&place.path(""));
    let output = known.scenario.command(place).output().unwrap();
    if output.status.code() != Some(0) {
        return Some(format!("the same command fails afterwards: {}", messages(&output)));
    }
    Contents::of(place).difference(&known.contents)
}

/// Runs all cases, prints how many there were, and fails with all lines of `case`.
fn torture(what: &str, count: usize, case: impl Fn(usize, &Known, usize) -> Option<String>) {
    if shim().is_none() || count == 0 {
        return;
    }
    let known = scenarios(count);
    let mut faults = Vec::new();
    for (number, (one, at)) in spread(&known, count).into_iter().enumerate() {
        if let Some(why) = case(number, one, at) {
            let operation = &one.operations[at - 1];
            faults.push(format!("{}, operation {at} ({operation}): {why}", one.scenario.name));
            println!("{}", faults[faults.len() - 1]);
        }
    }
    let operations: usize = known.iter().map(|one| one.operations.len()).sum();
    println!("{what}: {count} of {operations} operations, {} faults", faults.len());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn killed_before_any_operation_nothing_is_lost() {
    torture("kills", variable("TORTURE_KILLS", 5) as usize, |_, known, at| {
        let place = known.scenario.prepare();
        let output = interrupted(known.scenario, &place, at, "kill");
        match output.status.code() {
            None => repeated(known, &place),
            // The order of operations may differ a little from run to run, so that the last one is not reached.
            Some(0) if at + 3 > known.operations.len() => None,
            Some(code) => Some(format!("not killed but ended with exit code {code}: {}", messages(&output))),
        }
    });
}

#[test]
fn a_full_or_failing_disk_is_said_and_nothing_is_lost() {
    const HOW: [&str; 4] = ["enospc", "eio", "enospc-once", "eio-once"];
    torture("disk faults", variable("TORTURE_FAULTS", 5) as usize, |number, known, at| {
        let place = known.scenario.prepare();
        let how = HOW[number % HOW.len()];
        let output = interrupted(known.scenario, &place, at, how);
        let said = messages(&output);
        let errors = said.lines().filter(|line| line.starts_with("error:")).count();
        let failed = match output.status.code() {
            _ if said.contains("panicked") => Some("it panicked".to_string()),
            // What is not needed for a result may fail, such as the log; then the result must be there.
            Some(0) => {
                Contents::of(&place).difference(&known.contents).filter(|_| !harmless(&known.operations[at - 1]))
            }
            Some(1) if errors == 1 => None,
            code => Some(format!("exit code {code:?} with {errors} error lines")),
        };
        failed.or_else(|| repeated(known, &place)).map(|why| format!("{how}: {why}; it said: {said}"))
    });
}

/// Whether a failed operation may leave another set of files: a temporary file that could not be removed is removed by
/// the next command.
fn harmless(operation: &str) -> bool {
    operation.starts_with("unlink")
}
