//! The terminal as progress bars see it: a little narrower than it is, and without spaces behind the last line.
//!
//! indicatif fills every line up to the edge of the terminal, so that the next line begins by itself. The `^C` that a
//! terminal prints at the cursor would then stand in a line of its own, and one line of the bar would never be cleared.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use console::Term;
use indicatif::{ProgressDrawTarget, TermLike};

/// The columns that are left free behind a bar.
const FREE_COLUMNS: u16 = 3;

/// Redraws per second, as indicatif has them by default.
const REDRAWS_PER_SECOND: u8 = 20;

/// Erases the rest of a line behind the cursor.
const ERASE_REST: &str = "\x1b[K";

#[derive(Debug)]
struct Narrower {
    term: Term,
    /// Whether a line of the bar has been filled, so that the next text begins a new one.
    is_line_full: AtomicBool,
}

/// Returns the target of all bars: standard error, or nothing if that is no terminal.
pub fn target() -> ProgressDrawTarget {
    let term = Term::buffered_stderr();
    match term.features().is_attended() {
        true => {
            let narrower = Narrower { term, is_line_full: AtomicBool::new(false) };
            ProgressDrawTarget::term_like_with_hz(Box::new(narrower), REDRAWS_PER_SECOND)
        }
        false => ProgressDrawTarget::hidden(),
    }
}

/// Returns the number of characters in a line of a bar.
pub fn width() -> usize {
    usize::from(narrower(Term::stderr().size().1))
}

fn narrower(columns: u16) -> u16 {
    columns.saturating_sub(FREE_COLUMNS).max(1)
}

impl TermLike for Narrower {
    fn width(&self) -> u16 {
        narrower(self.term.size().1)
    }

    fn height(&self) -> u16 {
        self.term.size().0
    }

    fn move_cursor_up(&self, n: usize) -> io::Result<()> {
        self.is_line_full.store(false, Ordering::Relaxed);
        self.term.move_cursor_up(n)
    }

    fn move_cursor_down(&self, n: usize) -> io::Result<()> {
        self.term.move_cursor_down(n)
    }

    fn move_cursor_right(&self, n: usize) -> io::Result<()> {
        self.term.move_cursor_right(n)
    }

    fn move_cursor_left(&self, n: usize) -> io::Result<()> {
        self.term.move_cursor_left(n)
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        self.term.write_line(text)
    }

    /// Writes a line of the bar. The spaces with which indicatif fills it become the end of the line, which is written
    /// before the next one.
    fn write_str(&self, text: &str) -> io::Result<()> {
        if text.chars().all(|letter| letter == ' ') {
            self.is_line_full.store(true, Ordering::Relaxed);
            return self.term.write_str(ERASE_REST);
        }
        match self.is_line_full.swap(false, Ordering::Relaxed) {
            true => self.term.write_str(&format!("\n{text}")),
            false => self.term.write_str(text),
        }
    }

    fn clear_line(&self) -> io::Result<()> {
        self.term.clear_line()
    }

    fn flush(&self) -> io::Result<()> {
        self.term.flush()
    }
}
