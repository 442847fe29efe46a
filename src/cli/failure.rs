//! The ways in which a command fails: mistakes of the user, training that was stopped, and all other errors.

use crate::base::small::Usage;
use crate::run::Ambiguous;
use crate::schema::Problems;

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
    let text = format!("{error:#}");
    tracing::debug!("{text}");
    if let Some(Ambiguous { runs, .. }) = error.downcast_ref() {
        runs.iter().for_each(|run| tracing::info!("{run}"));
    }
    tracing::error!("{}", one_line(&text));
    if error.is::<Usage>() { 2 } else { 1 }
}

/// Returns a message as one line, without the trace that libtorch appends; that goes to the debug log. Line ends inside
/// names are escaped.
fn one_line(text: &str) -> String {
    let ends = ["\nException raised from", "\nframe #", "\nThe following operation failed", "\n\n"];
    let end = ends.iter().filter_map(|end| text.find(end)).min().unwrap_or(text.len());
    text[..end].replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_without_a_trace() {
        assert_eq!(one_line("a\nb.png: cannot read"), "a\\nb.png: cannot read");
        assert_eq!(one_line("Expected a tensor\nException raised from x at y\nframe #0"), "Expected a tensor");
    }
}
