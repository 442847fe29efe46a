//! Processes that bella starts end with it, also where it is killed; what a killed command leaves is removed by the next.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::common::{Place, done, repository};

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something is so.
#[track_caller]
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The processes that a process has started.
fn children(parent: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists.flat_map(|list| list.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<_>>()).collect()
}

/// Whether a process runs; one that has ended and is not waited for does not.
fn runs(id: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// A benchmark that would go on for hours.
fn bench(place: &Place) -> Vec<String> {
    let mut words = place.arguments("bench", &[]);
    words.extend(["--checkpoint".to_string(), repository("assets/vit-digits.pt").display().to_string()]);
    words
        .extend(["--batch-size", "2", "--steps", "1000000", "--methods", "svgd", "--particles", "2"].map(String::from));
    words
}

#[test]
fn the_process_that_measures_ends_with_a_killed_benchmark() {
    let place = Place::new();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
    command.args(bench(&place)).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench: Child = command.spawn().unwrap();
    eventually("it starts a process", || !children(bench.id()).is_empty());
    let measuring = children(bench.id())[0];
    assert!(runs(measuring));
    bench.kill().unwrap();
    bench.wait().unwrap();
    eventually("the process that measures has ended", || !runs(measuring));
}

/// The way of systems that do not end a child with its parent: bella looks whether its parent is there.
#[test]
fn a_process_that_watches_its_parent_ends_with_it() {
    let place = Place::new();
    let mut command = Command::new("sh");
    command.args(["-c", "BELLA_PARENT=\"$$ 15\" \"$@\" & wait", "sh", env!("CARGO_BIN_EXE_bella")]).args(bench(&place));
    let mut shell = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the shell starts bella", || children(shell.id()).iter().any(|id| !children(*id).is_empty()));
    let bella = children(shell.id())[0];
    shell.kill().unwrap();
    shell.wait().unwrap();
    eventually("bella has ended", || !runs(bella));
}

#[test]
fn what_killed_commands_left_is_removed_by_the_next() {
    let place = crate::common::trained();
    let aged = |path: &Path| {
        let file = std::fs::File::open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(5)).unwrap();
    };
    let (file, folder) = (place.write(".page.html.1-2-3.tmp", b"half"), place.path(".out.1-2-3.tmp"));
    place.write(".out.1-2-3.tmp/inner/model.safetensors", b"half");
    [&file, &folder].iter().for_each(|path| aged(path));
    let results = place.path("results").display().to_string();
    done(crate::common::with(
        crate::common::bella(&["report", &results]),
        &["--html", place.path("page.html").to_str().unwrap()],
    ));
    assert!(!file.exists() && !folder.exists());
    place.write(".out.4-5-6.tmp/inner/model.safetensors", b"half");
    let folder = place.path(".out.4-5-6.tmp");
    aged(&folder);
    let export = || {
        let mut command =
            crate::common::bella(&["export", "--to", "peft", "--device", "cpu", "--threads", "1", "--out", &results]);
        command.arg("--output").arg(place.path("out"));
        command
    };
    done(export());
    assert!(!folder.exists());
    let again = export().output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", crate::common::messages(&again));
    crate::common::assert_has(&crate::common::messages(&again), &["out: holds this export already"]);
}
