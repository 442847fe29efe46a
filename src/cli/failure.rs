//! The ways in which a command fails: mistakes of the user, training that was stopped, and all other errors.

use crate::schema::Problems;

/// A mistake of the user on the command line, with exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The error of training that a signal has stopped, in all of its processes.
#[derive(Debug)]
pub struct Stopped(pub String);

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stopped {}

/// Logs every mistake as a separate error.
pub fn print_problems(problems: &Problems) {
    problems.to_string().lines().for_each(|line| tracing::error!("{line}"));
}

/// Logs an error and returns the exit code.
pub fn fail(error: &anyhow::Error) -> u8 {
    if let Some(problems) = error.downcast_ref::<Problems>() {
        print_problems(problems);
        return 2;
    }
    // A message is one line; further lines from libtorch go to the debug log only.
    let text = format!("{error:#}");
    tracing::debug!("{text}");
    tracing::error!("{}", text.lines().next().unwrap_or("unknown error"));
    if error.is::<Usage>() { 2 } else { 1 }
}
