//! `bella watch`: draws the curves of runs in the terminal while they train.

use std::io::{IsTerminal, Write, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use console::Term;

use crate::base::small::Usage;
use crate::report::curves::{Room, Watched, draw};
use crate::results::runs::{self, Summary};
use crate::results::table::Surface;
use crate::run::RunFolder;

/// Draw the curves of runs in the terminal while they train, until they end.
///
/// The curves are those of `train.csv`, which gets a row after every epoch. Several runs share each chart. Without a
/// terminal, as in a pipe, the curves are drawn once, in ASCII.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella watch\n  bella watch low-rank-svgd-s1 low-rank-svgd-s2\n  \
    bella watch --once --columns train_loss,bandwidth")]
pub struct WatchArgs {
    /// Runs: folders, the start of ids, settings, or `latest` [default: all that are training, else the latest one].
    #[arg(value_name = "RUN", add = super::completions::of_runs())]
    runs: Vec<String>,

    /// Draw once instead of until the runs end.
    #[arg(long)]
    once: bool,

    /// Columns of train.csv to draw: `train_loss,validation_ece_lm`.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    columns: Vec<String>,

    /// Seconds between two looks at the files.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=3600))]
    every: u32,

    /// Results folder.
    #[arg(long, value_name = "FOLDER", default_value = "results")]
    out: PathBuf,
}

pub fn run(args: &WatchArgs) -> Result<()> {
    let folders = folders(&args.out, &args.runs)?;
    let look = || folders.iter().map(|folder| Watched::read(Summary::of(folder.clone()))).collect::<Vec<_>>();
    let mut runs = look();
    check_columns(&runs, &args.columns)?;
    if args.once || !stdout().is_terminal() {
        print!("{}", draw(&runs, &args.columns, room(None)));
        return Ok(());
    }
    super::ending::end_at_once("stopped watching; runs that train go on", || {})?;
    let terminal = Term::stdout();
    let mut shown = String::new();
    loop {
        let height = usize::from(terminal.size().0);
        let text = draw(&runs, &args.columns, room(Some(height)));
        if text != shown {
            redraw(&shown, &text)?;
            shown = text;
        }
        if !runs.iter().any(Watched::is_training) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_secs(u64::from(args.every)));
        runs = look();
    }
}

/// Writes a drawing over the last one.
fn redraw(last: &str, text: &str) -> Result<()> {
    let up = match last.lines().count() {
        0 => String::new(),
        lines => format!("\u{1b}[{lines}A\u{1b}[J"),
    };
    let mut out = stdout().lock();
    write!(out, "{up}{text}")?;
    Ok(out.flush()?)
}

fn room(height: Option<usize>) -> Room {
    let surface = Surface::of_stdout();
    let width = surface.width.map_or(usize::MAX, usize::from);
    Room { width, height, color: surface.has_color(), plain: !surface.is_terminal }
}

/// Returns the folders of the runs that are named, or of those that are training, or of the one that changed last.
fn folders(out: &Path, named: &[String]) -> Result<Vec<RunFolder>> {
    if !named.is_empty() {
        return named.iter().map(|run| RunFolder::find(out, Some(run.as_str()))).collect();
    }
    let all = RunFolder::all(out)?;
    let training: Vec<RunFolder> = all.iter().filter(|run| run.is_locked()).cloned().collect();
    if !training.is_empty() {
        return Ok(training);
    }
    let latest = runs::all(out)?.into_iter().filter(|run| run.folder.history().is_file()).max_by_key(|run| run.changed);
    match latest {
        Some(run) => Ok(vec![run.folder]),
        None => bail!("no run below {} is training or has trained", out.join("runs").display()),
    }
}

/// Refuses columns that no run has, once one has finished an epoch.
fn check_columns(runs: &[Watched], columns: &[String]) -> Result<()> {
    let known: Vec<&str> = runs.iter().flat_map(|run| &run.history.columns).map(String::as_str).collect();
    match columns.iter().find(|column| !known.is_empty() && !known.contains(&column.as_str())) {
        Some(column) => {
            let hint = crate::schema::hint(column, known.iter().copied());
            Err(Usage(format!("--columns: train.csv has no column `{column}`{hint}")).into())
        }
        None => Ok(()),
    }
}
