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
fn shim() -> Option<&'static Path> {
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
        match compile.arg("-ldl").status() {
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

/// Another program cuts a file off right after bella has mapped it.
#[test]
fn mapped_files_that_are_cut_off_are_an_error_and_no_signal() {
    if shim().is_none() {
        return;
    }
    let (mut cases, mut said) = (0, 0);
    for scenario in SCENARIOS.iter().filter(|one| ["prefix cache on disk", "attack"].contains(&one.name)) {
        let place = scenario.prepare();
        finished(&interrupted(scenario, &place, 0, "cut"), scenario.name);
        let log = std::fs::read_to_string(place.path("operations.txt")).unwrap();
        let maps: Vec<&str> = log.lines().filter_map(|line| line.strip_prefix("map ")).collect();
        assert!(!maps.is_empty(), "{}: nothing is mapped", scenario.name);
        for (at, path) in maps.iter().enumerate() {
            let place = scenario.prepare();
            let output = interrupted(scenario, &place, at + 1, "cut");
            let text = messages(&output);
            let errors = text.lines().filter(|line| line.starts_with("error:")).count();
            let known = matches!((output.status.code(), errors), (Some(0), 0) | (Some(1), 1));
            assert!(known && !text.contains("panicked"), "{}, {path}: {:?}: {text}", scenario.name, output.status);
            println!("{}, {path}: {text}", scenario.name);
            cases += 1;
            said += usize::from(text.contains("cannot be read any more"));
        }
    }
    println!("mapped files cut off: {cases}, {said} noticed by an access");
    assert!(said >= 2, "{said} of {cases}");
}

/// Every command that writes where the user says: a full device is an error and stays a device, a link stays a link.
#[test]
fn devices_and_links_as_targets_stay_what_they_are() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    if !Path::new("/dev/full").exists() {
        return println!("skipped: this machine has no /dev/full");
    }
    let place = crate::common::trained();
    let image = crate::common::image(&place, "image.png", 1);
    let results = place.path("results").display().to_string();
    let (image, run) = (image.display().to_string(), place.run().display().to_string());
    let commands: [(&[&str], &str); 6] = [
        (&["report", &results, "--html"], "html"),
        (&["report", &results, "--picture"], "svg"),
        (&["report", &results, "--notebook"], "ipynb"),
        (&["images", &image, "--size", "8", "--epochs", "0", "--output"], "npy"),
        (&["predict", &run, &image, "--device", "cpu", "--threads", "1", "--output"], "csv"),
        (&["predict", &run, &image, "--device", "cpu", "--threads", "1", "--contact-sheet"], "png"),
    ];
    for (words, ending) in commands {
        let write = |target: &Path| crate::common::bella(words).arg(target).output().unwrap();
        let (full, null, link) = (
            place.path(&format!("full.{ending}")),
            place.path(&format!("null.{ending}")),
            place.path(&format!("link.{ending}")),
        );
        symlink("/dev/full", &full).unwrap();
        symlink("/dev/null", &null).unwrap();
        symlink(format!("target.{ending}"), &link).unwrap();
        let output = write(&full);
        let text = messages(&output);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
        let error = text.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        assert!(error.contains("No space left on device"), "{words:?}: {text}");
        for (target, name) in [(&null, "null"), (&link, "link")] {
            finished(&write(target), &format!("{words:?} to {name}"));
        }
        assert!([&full, &null].iter().all(|path| std::fs::metadata(path).unwrap().file_type().is_char_device()));
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink(), "{words:?}");
        assert!(std::fs::metadata(place.path(&format!("target.{ending}"))).unwrap().len() > 10, "{words:?}");
    }
}

/// Whether a failed operation may leave another set of files: a temporary file that could not be removed is removed by
/// the next command.
fn harmless(operation: &str) -> bool {
    operation.starts_with("unlink")
}
