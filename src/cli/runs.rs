//! `bella runs`: lists runs, shows one, compares the settings of two, and removes some.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};

use super::options::TableArgs;
use super::report::print_csv;
use crate::base::outside::print_drawn;
use crate::base::small::Usage;
use crate::base::small::{counted, particles};
use crate::experiment::Criterion;
use crate::results::experiment_csv;
use crate::results::listing::{Line, Selection, age, text};
use crate::results::rebuild::rows_elsewhere;
use crate::results::runs::{self, Difference, Summary};
use crate::results::store::{Row, Table};
use crate::results::table::{Spec, Surface, render};
use crate::run::settings::{choice, distinction};
use crate::run::{Record, RunFolder};
use crate::schema::Setting;
use crate::sweep::ledger::{self, Noted};

/// List runs, the newest first: a short id that every command takes, method, settings that differ, state, accuracy, age.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  bella runs\n  bella runs --filter method=svgd,seed=1 --sort accuracy\n  bella runs --sweeps\n  \
                  bella runs show low-rank-svgd-s1\n  bella runs diff low-rank-svgd-s1 low-rank-svgd-s2\n  \
                  bella runs rm 075555"
)]
pub struct RunsArgs {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    list: ListArgs,

    /// Results folder.
    #[arg(long, value_name = "FOLDER", default_value = "results", global = true)]
    out: PathBuf,
}

#[derive(Args)]
struct ListArgs {
    /// List only runs with these settings: `method=svgd,seed=1`; may be repeated.
    #[arg(long = "filter", value_name = "KEY=VALUE")]
    filters: Vec<String>,

    /// List only the runs of this experiment.
    #[arg(long, value_name = "NAME")]
    experiment: Option<String>,

    /// Order: `age` (the youngest first), `accuracy` (the highest first), or a setting, such as `lr` [default: age].
    #[arg(long, value_name = "KEY")]
    sort: Option<String>,

    /// List the trials of sweeps instead, the best first, with what became of them.
    #[arg(long, conflicts_with = "sort")]
    sweeps: bool,

    /// Print a row for each run, also for trials, as CSV.
    #[arg(long, conflicts_with = "sweeps")]
    csv: bool,
}

#[derive(Subcommand)]
enum What {
    /// Show the state, the cost and the results of a run.
    Show {
        /// Run: its folder, the start of its id, settings, or `latest`.
        #[arg(add = super::completions::of_runs())]
        run: String,

        #[command(flatten)]
        table: TableArgs,
    },
    /// Print the settings in which two runs differ.
    Diff {
        /// Run: its folder, the start of its id, settings, or `latest`.
        #[arg(add = super::completions::of_runs())]
        a: String,
        /// The other run.
        #[arg(add = super::completions::of_runs())]
        b: String,
    },
    /// Remove runs with all their files, after a question. Their rows in the results files stay.
    Rm {
        /// Runs: folders, the start of ids, settings, or `latest`.
        #[arg(required = true, add = super::completions::of_runs())]
        runs: Vec<String>,

        /// Remove them without a question.
        #[arg(long)]
        yes: bool,
    },
}

impl ListArgs {
    /// Returns whether the list is asked for in some way.
    fn are_given(&self) -> bool {
        let ListArgs { filters, experiment, sort, sweeps, csv } = self;
        !filters.is_empty() || experiment.is_some() || sort.is_some() || *sweeps || *csv
    }
}

pub fn run(args: &RunsArgs) -> Result<()> {
    if args.what.is_some() && args.list.are_given() {
        return Err(Usage("options of the list stand alone: `bella runs --sort accuracy`".into()).into());
    }
    match &args.what {
        None => list(&args.out, &args.list),
        Some(What::Show { run, table }) => show(&Summary::of(RunFolder::find(&args.out, Some(run.as_str()))?), table),
        Some(What::Diff { a, b }) => {
            let [a, b] = [a, b].map(|run| RunFolder::find(&args.out, Some(run.as_str())));
            print_difference(&Summary::of(a?), &Summary::of(b?));
            Ok(())
        }
        Some(What::Rm { runs, yes }) => remove(&args.out, runs, *yes),
    }
}

fn list(out: &Path, args: &ListArgs) -> Result<()> {
    let all = runs::all(out)?;
    all.iter()
        .filter_map(|run| run.problem.as_ref())
        .for_each(|why| tracing::warn!("{why}; its settings are not known"));
    let selection =
        Selection { filters: args.filters.clone(), experiment: args.experiment.clone(), sort: args.sort.clone() };
    let chosen = |fit: &dyn Fn(&Summary) -> bool| {
        let runs: Vec<&Summary> = all.iter().filter(|run| fit(run)).collect();
        if runs.is_empty() { Ok(runs) } else { selection.of(runs).map_err(Usage) }
    };
    if args.csv {
        return print_csv(&csv(&chosen(&|_| true)?));
    }
    if args.sweeps {
        return print_sweeps(out, &all, &chosen(&|_| true)?);
    }
    let lines: Vec<Line> = chosen(&|run| run.sweep.is_none())?.into_iter().map(Line::of).collect();
    // A selection that no trial fits is no mistake here.
    let trials = chosen(&|run| run.sweep.is_some()).map_or(0, |runs| runs.len());
    match lines.is_empty() {
        true => println!("no runs below {}", out.join("runs").display()),
        false => print_drawn(&text(&lines, "accuracy (lm)", width())),
    }
    if trials > 0 {
        println!("{} of sweeps: bella runs --sweeps", counted(trials, "trial", "trials"));
    }
    Ok(())
}

fn width() -> usize {
    Surface::of_stdout().width.map_or(usize::MAX, usize::from)
}

/// Prints the trials of every sweep that are among `chosen`.
fn print_sweeps(out: &Path, all: &[Summary], chosen: &[&Summary]) -> Result<()> {
    let sweeps = ledger::all(out)?;
    let mut printed = 0;
    for (name, noted) in &sweeps {
        let find = |trial: &Noted| chosen.iter().find(|run| run.folder.id() == trial.run);
        let Some(first) = noted.iter().find_map(find) else { continue };
        // All trials of a search are compared by one metric.
        let by = first.settings.get("train.select_by").and_then(|key| Criterion::of_key(key));
        let by = by.unwrap_or_else(Criterion::stand_in);
        let line = |trial: &Noted| {
            let result = trial.value(by).map_or(String::new(), |value| format!("{value:.4}"));
            Some(Line { run: find(trial)?, state: trial.state.clone(), result })
        };
        let lines: Vec<Line> = noted.iter().filter_map(line).collect();
        if printed > 0 {
            println!();
        }
        println!("sweep: {name}");
        print_drawn(&text(&lines, &format!("validation {}", by.0.short), width()));
        printed += 1;
    }
    let is_lost = |run: &&Summary| run.sweep.as_ref().is_some_and(|own| sweeps.iter().all(|(name, _)| name != own));
    let lost = all.iter().filter(is_lost).count();
    if lost > 0 {
        println!("{} of sweeps whose folders are gone", counted(lost, "trial", "trials"));
    } else if printed == 0 {
        println!("no sweeps below {}", out.join("sweeps").display());
    }
    Ok(())
}

/// Returns a row for each run, with full ids and exact numbers.
fn csv(runs: &[&Summary]) -> Table {
    let mut table = Table::default();
    for run in runs {
        let others: Vec<_> =
            runs.iter().filter(|other| other.experiment == run.experiment).map(|o| &o.settings).collect();
        let mut row = Row::new();
        row.push("experiment", &run.experiment);
        row.push("run", run.folder.id());
        row.push("subspace", choice(&run.settings, "subspace").unwrap_or_default());
        row.push("method", run.method());
        row.push("settings", distinction(&run.settings, &others));
        row.push("state", run.state.to_string());
        row.push("sweep", run.sweep.clone().unwrap_or_default());
        row.push_number("accuracy_lm", run.accuracy);
        row.push("bytes", run.bytes.to_string());
        row.push("age_seconds", run.changed.elapsed().map_or(0, |age| age.as_secs()).to_string());
        table.append(&row);
    }
    table
}

fn show(run: &Summary, table: &TableArgs) -> Result<()> {
    let rows = runs::rows(&run.folder)?;
    if table.csv {
        let id = run.folder.id();
        ensure!(!rows.is_empty(), "{id}: has no results yet: evaluate it first: bella eval {id}");
        return super::report::print_rows(&rows, table);
    }
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
    if !rows.is_empty() {
        println!();
        super::report::print_rows(&rows, table)?;
    }
    Ok(())
}

fn print_difference(a: &Summary, b: &Summary) {
    let row = |Difference { key, of_first, of_second }: Difference| {
        let mut row = Row::new();
        row.push("key", key);
        row.push(a.folder.id(), of_first);
        row.push(b.folder.id(), of_second);
        row
    };
    let (first, second) = (a.folder.id(), b.folder.id());
    let rows: Vec<Row> = if first == second { vec![] } else { runs::difference(a, b).into_iter().map(row).collect() };
    match rows.is_empty() {
        true => println!("{first} and {second} have the same settings"),
        false => print_rows(&rows, &["key", &first, &second]),
    }
}

/// Removes the folders of runs, after a question unless `yes`. All of them are found before the first is removed.
fn remove(out: &Path, named: &[String], yes: bool) -> Result<()> {
    let found: Vec<RunFolder> =
        named.iter().map(|run| RunFolder::find(out, Some(run.as_str()))).collect::<Result<_>>()?;
    if let Some(busy) = found.iter().find(|run| run.is_locked()) {
        bail!("{}: another bella process is training this run: stop it first", busy.path().display());
    }
    if !yes {
        for run in &found {
            let run = Summary::of(run.clone());
            tracing::info!("{}: {}, {}", run.folder.path().display(), run.state, bytes(run.bytes));
        }
        let question = format!("remove {} with all files? [y/N]", counted(found.len(), "run", "runs"));
        if !["y", "yes"].contains(&super::init::ask(&question, "--yes")?.to_lowercase().as_str()) {
            tracing::info!("nothing was removed");
            return Ok(());
        }
    }
    for run in found.iter().filter(|run| run.path().exists()) {
        let experiment = Summary::of(run.clone()).experiment;
        std::fs::remove_dir_all(run.path()).with_context(|| format!("{}: cannot remove", run.path().display()))?;
        tracing::info!("removed {}", run.path().display());
        for (file, rows) in rows_elsewhere(out, &experiment, run) {
            let (stay, way_out) =
                (if rows == 1 { "row stays" } else { "rows stay" }, " until `bella report --rebuild`");
            let way_out = if file == experiment_csv(out, &experiment) { way_out } else { "" };
            tracing::info!("{rows} {stay} in {}{way_out}", file.display());
        }
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
