//! How a command fails: mistakes of the user, training that was stopped, everything else.

use crate::schema::Problems;

/// A mistake of the user in the command line: exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// Training that a signal has stopped, in all of its processes.
#[derive(Debug)]
pub struct Stopped(pub String);

impl std::fmt::Display for Stopped {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Stopped {}

/// Every mistake as an error of its own.
pub fn print_problems(problems: &Problems) {
    problems.to_string().lines().for_each(|line| tracing::error!("{line}"));
}

/// Prints what went wrong; the exit code.
pub fn fail(error: &anyhow::Error) -> u8 {
    if let Some(problems) = error.downcast_ref::<Problems>() {
        print_problems(problems);
        return 2;
    }
    // A message is one line; what libtorch adds below it is for the debug log.
    let text = format!("{error:#}");
    tracing::debug!("{text}");
    tracing::error!("{}", text.lines().next().unwrap_or("unknown error"));
    if error.is::<Usage>() { 2 } else { 1 }
}
