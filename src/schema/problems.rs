//! The mistakes found in a config, one line each, sorted by file and line.

use std::fmt;

use super::node::Origin;
use crate::base::outside::printable;

/// One mistake: its place and one line of text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    origin: Origin,
    text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, self.text)
    }
}

/// All mistakes. They are displayed one per line, sorted by file, line and text.
#[derive(Clone, Debug, Default)]
pub struct Problems(Vec<Problem>);

impl Problems {
    /// Records a mistake. `text` is put on one line.
    pub fn push(&mut self, origin: Origin, text: impl Into<String>) {
        let text = one_line(&text.into());
        self.0.push(Problem { origin, text });
    }

    /// Names `option` as the place of all mistakes in overrides from the `from`-th on, which another option has given.
    pub fn given_by(mut self, option: &'static str, from: usize) -> Problems {
        for Problem { origin, .. } in &mut self.0 {
            if let Origin::Set { order, option: place } = origin
                && *order >= from
            {
                *place = option;
            }
        }
        self
    }

    /// Returns `value` if there were no mistakes.
    ///
    /// # Errors
    /// Fails with the recorded mistakes, if there are any.
    pub fn into_result<T>(self, value: T) -> Result<T, Problems> {
        if self.0.is_empty() { Ok(value) } else { Err(self) }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted: Vec<&Problem> = self.0.iter().collect();
        sorted.sort();
        sorted.dedup();
        for (i, problem) in sorted.into_iter().enumerate() {
            let separator = if i == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

/// Replaces line breaks and runs of blanks by one space and escapes other control characters.
pub fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    printable(&words.join(" ")).into_owned()
}

/// Puts `text` on one line and cuts it to 60 characters.
pub fn excerpt(text: &str) -> String {
    const LONGEST: usize = 60;
    let line = one_line(text);
    if line.chars().count() <= LONGEST {
        return line;
    }
    let head: String = line.chars().take(LONGEST - 1).collect();
    head + "…"
}
