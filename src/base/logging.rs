//! Messages: plain lines on the terminal (above any progress bar), and all lines with times in the run's log file.
//!
//! Progress bars see a terminal that is a little narrower than it is, and without spaces behind the last line: indicatif fills every
//! line up to the edge, so that the next line begins by itself. The `^C` that a terminal prints at the cursor would then stand in a
//! line of its own, and one line of the bar would never be cleared.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use console::Term;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use super::outside::printable;
use super::small::wrapped;

static BARS: LazyLock<MultiProgress> = LazyLock::new(|| MultiProgress::with_draw_target(target()));
/// The rank of this process if it prints only errors; 0 if it prints everything.
static HUSHED: AtomicUsize = AtomicUsize::new(0);
static LOG_FILES: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Starts the messages; `verbosity` is the number of `-v`. A second call changes nothing.
pub fn start(verbosity: u8) {
    let level = match verbosity {
        0 => LevelFilter::INFO,
        1 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let terminal = fmt::layer().event_format(Plain).with_writer(Terminal).with_filter(level);
    let file = fmt::layer().with_ansi(false).with_writer(LogFile).with_filter(LevelFilter::DEBUG);
    tracing_subscriber::registry().with(terminal).with(file).try_init().ok();
    std::panic::set_hook(Box::new(|panic| tracing::debug!("{panic}")));
}

/// Makes the process of this rank print only errors from now on, since the first process prints everything.
pub fn hush(rank: usize) {
    HUSHED.store(rank, Ordering::Relaxed);
}

/// Writes all further messages to `path` as well, and no longer to earlier paths.
///
/// # Errors
/// Fails if the file cannot be opened.
pub fn open_log(path: &Path) -> Result<()> {
    open_logs([path])
}

/// Writes all further messages to each of these paths as well, and no longer to earlier ones.
///
/// # Errors
/// Fails if a file cannot be opened.
pub fn open_logs<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<()> {
    let open = |path: P| {
        let file = OpenOptions::new().create(true).append(true).open(path.as_ref());
        file.with_context(|| format!("cannot open the log file {}", path.as_ref().display()))
    };
    let files = paths.into_iter().map(open).collect::<Result<_>>()?;
    *LOG_FILES.lock().unwrap_or_else(PoisonError::into_inner) = files;
    Ok(())
}

/// The looks of a bar, of work whose length is not known, and of a bar with a line of numbers below it.
const BAR: &str = "{prefix:>10} {wide_bar:.cyan/blue} {pos}/{len}  {msg}  {elapsed_precise} eta {eta_precise}";
const OF_UNKNOWN_LENGTH: &str = "  {prefix} {spinner} {elapsed_precise}";
const WITH_NUMBERS: &str = "{prefix:>10} {wide_bar:.cyan/blue} {pos}/{len}  {elapsed_precise}\n{msg}";

/// The time between two looks of work whose length is not known.
const TURN: Duration = Duration::from_millis(200);

/// Returns a progress bar on a terminal, and a hidden one elsewhere.
pub fn bar(length: u64, what: &'static str) -> ProgressBar {
    drawn(Some(length), what, BAR)
}

/// Returns a line that says what is being done and for how long, until [`advance`] makes it a bar; hidden unless standard
/// error is a terminal.
pub fn doing(what: &'static str) -> ProgressBar {
    let bar = drawn(None, what, OF_UNKNOWN_LENGTH);
    if !bar.is_hidden() {
        bar.enable_steady_tick(TURN);
    }
    bar
}

/// Shows on a bar how much of the work is done.
pub fn advance(bar: &ProgressBar, done: usize, of: usize) {
    if bar.length() != Some(of as u64) {
        bar.disable_steady_tick();
        bar.set_length(of as u64);
        bar.set_style(look(BAR));
    }
    bar.set_position(done as u64);
}

/// Returns a progress bar with a line of numbers below it, for work that has more to tell than its length; hidden unless
/// standard error is a terminal.
pub fn bar_with_numbers(length: usize, what: &'static str) -> ProgressBar {
    drawn(Some(length as u64), what, WITH_NUMBERS)
}

fn drawn(length: Option<u64>, what: &'static str, template: &str) -> ProgressBar {
    if !io::stderr().is_terminal() || is_dumb() || HUSHED.load(Ordering::Relaxed) > 0 {
        return ProgressBar::hidden();
    }
    let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new).with_style(look(template)).with_prefix(what);
    BARS.add(bar)
}

/// Returns whether the terminal says that it moves no cursor.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// Returns the look of a template, which is a constant and known to be valid.
fn look(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Returns a progress bar of bytes with their rate and the time left; hidden unless standard error is a terminal.
pub fn bar_of_bytes(length: u64, what: &'static str) -> ProgressBar {
    let bar = bar(length, what);
    let template = "{prefix:>10} {wide_bar:.cyan/blue} {bytes}/{total_bytes}  {msg}  {bytes_per_sec} eta {eta_precise}";
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// The format of lines on the terminal: the level before the text, except for information; no time and no module.
struct Plain;

impl<S, N> fmt::FormatEvent<S, N> for Plain
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
    N: for<'a> fmt::FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &fmt::FmtContext<'_, S, N>,
        mut writer: fmt::format::Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> std::fmt::Result {
        let (level, rank) = (*event.metadata().level(), HUSHED.load(Ordering::Relaxed));
        if rank > 0 && level != Level::ERROR {
            return Ok(());
        }
        match level {
            Level::ERROR if rank > 0 => write!(writer, "error: process {rank}: ")?,
            Level::ERROR => write!(writer, "error: ")?,
            Level::WARN => write!(writer, "warning: ")?,
            Level::INFO => {}
            Level::DEBUG => write!(writer, "debug: ")?,
            Level::TRACE => write!(writer, "trace: ")?,
        }
        let mut text = String::new();
        context.field_format().format_fields(fmt::format::Writer::new(&mut text), event)?;
        let text = shown(&text);
        // A command within a warning or an error stays on one line, so that it can be copied.
        let width = io::stderr().is_terminal().then(|| usize::from(console::Term::stderr().size().1));
        match width.filter(|_| level == Level::INFO) {
            Some(width) => writeln!(writer, "{}", wrapped(&text, width)),
            None => writeln!(writer, "{text}"),
        }
    }
}

/// The number of characters above which the middle of a message is left out.
const LONGEST: usize = 1500;

/// Returns a message as it may be shown on a terminal: control characters, which may be in names, are written out, and
/// a very long message is shortened in the middle.
fn shown(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let write = |letters: &[char]| printable(&String::from_iter(letters)).into_owned();
    if letters.len() <= LONGEST {
        return write(&letters);
    }
    let (start, end) = (&letters[..LONGEST * 2 / 3], &letters[letters.len() - LONGEST / 3..]);
    format!("{} […] {}", write(start), write(end))
}

#[derive(Clone, Copy)]
struct Terminal;

// A terminal that is gone must not end the run because of its messages.
impl Write for Terminal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = BARS.suspend(|| io::stderr().write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

impl MakeWriter<'_> for Terminal {
    type Writer = Terminal;

    fn make_writer(&self) -> Terminal {
        Terminal
    }
}

#[derive(Clone, Copy)]
struct LogFile;

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for file in LOG_FILES.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            // A full disk must not end the run because of its log.
            let _ = file.write_all(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for LogFile {
    type Writer = LogFile;

    fn make_writer(&self) -> LogFile {
        LogFile
    }
}

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
fn target() -> ProgressDrawTarget {
    let term = Term::buffered_stderr();
    match term.features().is_attended() && !is_dumb() {
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

    /// Draws what was written. Where the terminal is gone nothing is drawn, since indicatif would panic at an error.
    fn flush(&self) -> io::Result<()> {
        let _ = self.term.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded_and_have_no_control_characters() {
        assert_eq!(shown("a\u{7}b\tc"), "a\\u{7}b\tc");
        let long = shown(&format!("start {} end", "ü".repeat(5000)));
        assert!(long.starts_with("start ü") && long.contains(" […] ") && long.ends_with("ü end"));
        assert_eq!(long.chars().count(), LONGEST + 5);
    }
}
