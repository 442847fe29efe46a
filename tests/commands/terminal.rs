//! What commands show on a terminal and nowhere else.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::ptr::null_mut;

use crate::common::{Place, assert_has};

/// The two ends of a terminal of 80 columns: that of the person, and that of the program.
fn terminal() -> (File, OwnedFd) {
    let (mut person, mut program) = (0, 0);
    let size = libc::winsize { ws_row: 40, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointers are those of two integers and a size, or null where openpty takes null.
    let failed = unsafe { libc::openpty(&mut person, &mut program, null_mut(), null_mut(), &size) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // SAFETY: openpty has just opened both.
    unsafe { (File::from_raw_fd(person), OwnedFd::from_raw_fd(program)) }
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
