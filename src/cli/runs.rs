//! `bella runs`: lists runs, shows one, compares the settings of two, and removes some.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use super::options::TableArgs;
use crate::base::outside::print_drawn;
use crate::base::small::particles;
use crate::results::runs::{self, Summary};
use crate::results::store::{Row, Table};
use crate::results::table::{Spec, Surface, render};
use crate::run::{Record, RunFolder};

/// List the runs of a results folder with their state, what distinguishes them, accuracy, size and age.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella runs\n  bella runs show low-rank-svgd-s1\n  bella runs diff low-rank-svgd-s1 low-rank-svgd-s2\n  \
                  bella runs rm low-rank-svgd-s1-2634"
)]
pub struct RunsArgs {
    #[command(subcommand)]
    what: Option<What>,

    /// Results folder.
    #[arg(long, value_name = "FOLDER", default_value = "results", global = true)]
    out: PathBuf,
}

#[derive(Subcommand)]
enum What {
    /// Show the state, the cost and the results of a run.
    Show {
        /// Run: its folder, the start of its id, or settings.
        #[arg(add = super::completions::of_runs())]
        run: String,

        #[command(flatten)]
        table: TableArgs,
    },
    /// Print the settings in which two runs differ.
    Diff {
        /// Run: its folder, the start of its id, or settings.
        #[arg(add = super::completions::of_runs())]
        a: String,
        /// The other run.
        #[arg(add = super::completions::of_runs())]
        b: String,
    },
    /// Remove runs with all their files. Their rows in the results files stay.
    Rm {
        /// Runs: folders, the start of ids, or settings.
        #[arg(required = true, add = super::completions::of_runs())]
        runs: Vec<String>,
    },
}

pub fn run(args: &RunsArgs) -> Result<()> {
    match &args.what {
        None => list(&args.out),
        Some(What::Show { run, table }) => show(&Summary::of(RunFolder::find(&args.out, Some(run.as_str()))?), table),
        Some(What::Diff { a, b }) => {
            let [a, b] = [a, b].map(|run| RunFolder::find(&args.out, Some(run.as_str())));
            print_difference(&Summary::of(a?), &Summary::of(b?));
            Ok(())
        }
        Some(What::Rm { runs }) => remove(&args.out, runs),
    }
}

fn list(out: &Path) -> Result<()> {
    let all = runs::all(out)?;
    if all.is_empty() {
        println!("no runs below {}", out.join("runs").display());
        return Ok(());
    }
    let mut rows = Vec::new();
    for run in &all {
        let mut row = Row::new();
        row.push("experiment", &run.experiment);
        row.push("run", run.folder.id());
        row.push("state", run.state.to_string());
        row.push("settings", run.distinction(&all));
        row.push_number("accuracy_lm", run.accuracy);
        row.push("size", bytes(run.bytes));
        row.push("age", age(run.changed));
        rows.push(row);
    }
    let columns = ["experiment", "run", "state", "settings", "accuracy_lm", "size", "age"];
    print_rows(&rows, &columns);
    Ok(())
}

fn show(run: &Summary, table: &TableArgs) -> Result<()> {
    println!("{}: {}, {}, changed {} ago", run.folder.id(), run.state, bytes(run.bytes), age(run.changed));
    println!("folder: {}", run.folder.path().display());
    if run.folder.record().is_file() {
        let record = Record::read(&run.folder)?;
        println!(
            "trained: {} epochs in {:.0} s on {} ({}), epoch {} selected, {} of {} parameters",
            record.epochs,
            record.wall_seconds,
            record.device,
            record.precision,
            record.selected_epoch,
            particles(record.particles),
            record.parameters_per_particle
        );
    }
    println!();
    run.settings.iter().for_each(|(key, value)| println!("{key} = {value}"));
    let rows = runs::rows(&run.folder)?;
    if !rows.is_empty() {
        println!();
        super::report::print_rows(&rows, table)?;
    }
    Ok(())
}

fn print_difference(a: &Summary, b: &Summary) {
    let row = |(key, of_a, of_b): (String, String, String)| {
        let mut row = Row::new();
        row.push("key", key);
        row.push(a.folder.id(), of_a);
        row.push(b.folder.id(), of_b);
        row
    };
    let (first, second) = (a.folder.id(), b.folder.id());
    let rows: Vec<Row> = if first == second { vec![] } else { runs::difference(a, b).into_iter().map(row).collect() };
    match rows.is_empty() {
        true => println!("{first} and {second} have the same settings"),
        false => print_rows(&rows, &["key", &first, &second]),
    }
}

/// Removes the folders of runs. All of them are found before the first is removed.
fn remove(out: &Path, named: &[String]) -> Result<()> {
    let found: Vec<RunFolder> =
        named.iter().map(|run| RunFolder::find(out, Some(run.as_str()))).collect::<Result<_>>()?;
    if let Some(busy) = found.iter().find(|run| run.is_locked()) {
        bail!("{}: another bella process is training this run: stop it first", busy.path().display());
    }
    for run in found.iter().filter(|run| run.path().exists()) {
        std::fs::remove_dir_all(run.path()).with_context(|| format!("{}: cannot remove", run.path().display()))?;
        tracing::info!("removed {}", run.path().display());
    }
    Ok(())
}

fn print_rows(rows: &[Row], columns: &[&str]) {
    let mut table = Table::default();
    rows.iter().for_each(|row| table.append(row));
    let columns = columns.iter().map(|name| name.to_string()).collect();
    // No cell is the best one: rows differ in more than their numbers.
    let group_by = vec!["run".to_string(), "key".to_string()];
    print_drawn(&render(&table, &Spec { columns, group_by, surface: Surface::of_stdout() }));
}

fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{:.0} kB", (count as f64 / 1e3).ceil()),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.1} GB", count as f64 / 1e9),
    }
}

fn age(changed: SystemTime) -> String {
    let seconds = changed.elapsed().map_or(0, |elapsed| elapsed.as_secs());
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
