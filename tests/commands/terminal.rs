//! What commands show on a terminal and nowhere else.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use crate::common::{Place, assert_has};

/// The two ends of a terminal of 80 columns: that of the person, and that of the program.
fn terminal() -> (File, OwnedFd) {
    let (mut person, mut program) = (0, 0);
    let size = libc::winsize { ws_row: 40, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointers are those of two integers and a size, or null where openpty takes null.
    let failed = unsafe { libc::openpty(&mut person, &mut program, null_mut(), null_mut(), &size) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // A terminal is open as long as any process holds it, and other tests start some, too.
    // SAFETY: openpty has just opened both.
    unsafe {
        [person, program].into_iter().for_each(|end| assert_eq!(libc::fcntl(end, libc::F_SETFD, libc::FD_CLOEXEC), 0));
        (File::from_raw_fd(person), OwnedFd::from_raw_fd(program))
    }
}

/// Runs bella with its messages on a terminal, and returns all that was drawn there.
fn drawn(arguments: &[String]) -> String {
    let (mut person, program) = terminal();
    assert!(person.as_raw_fd() > 2);
    let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).env("TERM", "xterm-256color");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(program);
    let mut child = command.spawn().unwrap();
    // The command holds the program's end, which must close with it.
    drop(command);
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    // Where the other end is closed, reading is an error.
    while let Ok(count @ 1..) = person.read(&mut part) {
        bytes.extend_from_slice(&part[..count]);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    assert!(child.wait().unwrap().success(), "{text}");
    text
}

#[test]
fn a_bar_says_what_is_being_done_before_the_first_step() {
    let place = Place::with_tiny();
    let mut arguments = place.arguments("train", &["train.epochs=1"]);
    let more = ["--no-eval".to_string(), "--config".to_string(), place.path("tiny.toml").display().to_string()];
    arguments.extend(more);
    let text = drawn(&arguments);
    assert_has(&text, &["reading the checkpoint", "the first step", "training", "/4"]);
    assert!(!text.contains(" 0/0"), "{text}");
}

/// A training without an end, as the first program of a terminal, and the person's end of that terminal. SIGHUP is handled as `hangup` says.
fn training(place: &Place, more: &[&str], hangup: libc::sighandler_t) -> (Child, File) {
    let (person, program) = terminal();
    let mut command = Command::new(env!("CARGO_BIN_EXE_bella"));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).env("TERM", "xterm-256color").envs(crate::common::preload());
    command.args(place.arguments("train", &[&["train.epochs=1000000"], more].concat()));
    command.arg("--no-eval").arg("--config").arg(place.path("tiny.toml"));
    command.stdin(program.try_clone().unwrap()).stdout(program.try_clone().unwrap()).stderr(program);
    // SAFETY: the calls are safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            libc::signal(libc::SIGHUP, hangup);
            match libc::setsid() >= 0 && libc::ioctl(0, libc::TIOCSCTTY, 0) >= 0 {
                true => Ok(()),
                false => Err(std::io::Error::last_os_error()),
            }
        });
    }
    (command.spawn().unwrap(), person)
}

/// Reads what is drawn until it has a text.
fn read_until(person: &mut File, wanted: &str) {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    while !String::from_utf8_lossy(&bytes).contains(wanted) {
        let count = person.read(&mut part).unwrap_or(0);
        assert!(count > 0, "no `{wanted}` in {}", String::from_utf8_lossy(&bytes));
        bytes.extend_from_slice(&part[..count]);
    }
}

fn epochs(run: &Path) -> usize {
    std::fs::read_to_string(run.join("train.csv")).map_or(0, |text| text.lines().count())
}

/// A window that is closed, or a connection that is lost, ends a training as Ctrl-C does, though nobody sees its messages any more.
#[test]
fn a_closed_terminal_saves_the_training() {
    let place = Place::with_tiny();
    let (mut child, mut person) = training(&place, &[], libc::SIG_DFL);
    read_until(&mut person, "epoch 2/");
    drop(person);
    let status = child.wait().unwrap();
    let log = std::fs::read_to_string(place.run().join("log.txt")).unwrap();
    assert_eq!(status.code(), Some(1), "{status}: {log}");
    assert_has(&log, &["stopping after this step", "steps, which are saved: the same command continues"]);
    assert!(place.run().join("resume.safetensors").is_file());
}

/// `nohup` ignores the signal, and so does bella.
#[test]
fn a_training_under_nohup_goes_on_without_its_terminal() {
    let place = Place::with_tiny();
    let (mut child, mut person) = training(&place, &[], libc::SIG_IGN);
    read_until(&mut person, "epoch 2/");
    drop(person);
    let (before, begun) = (epochs(&place.run()), Instant::now());
    while epochs(&place.run()) < before + 5 {
        assert!(child.try_wait().unwrap().is_none() && begun.elapsed().as_secs() < 60, "it does not go on");
        std::thread::sleep(Duration::from_millis(10));
    }
    // SAFETY: the child has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// What a command of `train.on_epoch` has started ends with a training that is ended at once.
#[test]
fn a_second_signal_ends_what_the_command_of_an_epoch_started() {
    let place = Place::with_tiny();
    let id = place.path("id");
    let hook = format!("train.on_epoch={:?}", format!("sleep 300 & echo $! > '{}'; wait", id.display()));
    let (mut child, mut person) = training(&place, &[&hook, "train.on_epoch_seconds=300"], libc::SIG_DFL);
    read_until(&mut person, "epoch 2/");
    let slept = std::fs::read_to_string(&id).unwrap();
    let sleeps = || std::fs::read_to_string(format!("/proc/{}/comm", slept.trim())).is_ok_and(|name| name == "sleep\n");
    assert!(sleeps());
    // SAFETY: the child has not been waited for.
    let end = || unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    end();
    read_until(&mut person, "again to stop now");
    end();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let begun = Instant::now();
    while sleeps() {
        assert!(begun.elapsed().as_secs() < 30, "it lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}
