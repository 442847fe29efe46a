//! `bella report`: shows the content of a results folder as tables and figures, beside the numbers of the papers.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::options::TableArgs;
use crate::base::files::expect_writable;
use crate::base::outside::{csv_cell, print_drawn, printable};
use crate::base::usage::Usage;
use crate::metrics::{Average, of_column};
use crate::report::export::{self, Format};
use crate::report::notebook::notebook;
use crate::report::tables::{self, RenderedTable, overview, result_columns, seeds_overview};
use crate::report::{Sources, figures, html};
use crate::results::images::distinguish;
use crate::results::rebuild;
use crate::results::store::{Row, Table};
use crate::results::table::{Spec, Surface, render};
use crate::schema::hint;

/// The number of rows up to which results are sorted by method and named as in the literature.
const MOST_NAMED: usize = 1000;

/// Print results beside the papers' numbers; write tables, figures and a page.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella report\n  bella report --table bella-1 --format latex\n  \
    bella report --out report --html results/report.html\n  bella report --notebook report.ipynb\n  bella report results/cifar10.csv --seeds\n  \
    bella report results/quickstart.csv --picture results/quickstart.svg")]
pub struct ReportArgs {
    /// Results folder, or results files [default: results].
    #[arg(value_name = "FOLDER | CSV")]
    paths: Vec<PathBuf>,

    /// Tables to print: `results`, `ood`, `conformal`, `bella-1`, …, or `all` [default: those with a result of ours].
    #[arg(long = "table", value_name = "KEY", value_delimiter = ',')]
    tables: Vec<String>,

    /// Format of printed tables.
    #[arg(long, value_enum, default_value_t = Format::Terminal)]
    format: Format,

    /// Print statistics over seeds instead: mean, standard deviation, 95 % interval, count.
    #[arg(long, conflicts_with = "tables")]
    seeds: bool,

    /// Write every table (Markdown, CSV, LaTeX) and every figure (SVG, PNG) to this folder.
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,

    /// Write a self-contained page with all tables and figures.
    #[arg(long, value_name = "FILE.html")]
    html: Option<PathBuf>,

    /// Write a Jupyter notebook that reads the results folder and draws the main tables and figures again.
    #[arg(long, value_name = "FILE.ipynb")]
    notebook: Option<PathBuf>,

    /// Make `<experiment>.csv` anew from the files of the runs, and report nothing. What it held before stays beside it.
    #[arg(long, conflicts_with_all = ["tables", "seeds", "out", "html", "notebook", "picture"])]
    rebuild: bool,

    /// Draw accuracy, NLL and ECE of every run and condition to this file.
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,

    #[command(flatten)]
    table: TableArgs,
}

pub fn run(args: &ReportArgs) -> Result<()> {
    args.check()?;
    args.check_files()?;
    if args.rebuild {
        return args.rebuild_files();
    }
    let sources = args.open()?;
    sources.problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    if args.seeds {
        print_seeds(&sources, args.format, &args.table)?;
    } else if !args.writes() || !args.tables.is_empty() {
        args.print_tables(&sources)?;
    }
    if let Some(picture) = &args.picture {
        crate::report::picture::draw(&sources.results, picture)?;
        tracing::info!("picture: {}", picture.display());
    }
    args.write_notebook()?;
    args.write_files(&sources)
}

impl ReportArgs {
    /// Returns whether the report goes into a file.
    fn writes(&self) -> bool {
        self.out.is_some() || [&self.html, &self.notebook, &self.picture].into_iter().any(Option::is_some)
    }

    /// Makes the results files of a folder anew from its runs.
    fn rebuild_files(&self) -> Result<()> {
        let folder = match &self.paths[..] {
            [] => Path::new("results"),
            [folder] if folder.is_dir() => folder,
            _ => return Err(Usage("--rebuild takes a results folder: name the folder instead of files".into()).into()),
        };
        rebuild::all(folder)?.iter().for_each(|found| println!("{found}"));
        Ok(())
    }

    /// Refuses a folder for tables that holds the results, since the next report would read the tables as results.
    fn check(&self) -> Result<()> {
        let Some(out) = self.out.as_ref().and_then(|out| out.canonicalize().ok()) else { return Ok(()) };
        let usual = [PathBuf::from("results")];
        let read = if self.paths.is_empty() { &usual[..] } else { &self.paths };
        let folder =
            |path: &PathBuf| if path.is_dir() { Some(path.clone()) } else { path.parent().map(Path::to_path_buf) };
        if read.iter().filter_map(folder).filter_map(|path| path.canonicalize().ok()).any(|path| path == out) {
            let why = format!("--out {}: holds the results that are reported; name another folder", out.display());
            return Err(Usage(why).into());
        }
        Ok(())
    }

    /// Writes the notebook, which reads a folder by itself.
    fn write_notebook(&self) -> Result<()> {
        let Some(file) = &self.notebook else { return Ok(()) };
        let folder = match &self.paths[..] {
            [] => Path::new("results"),
            [folder] if folder.is_dir() => folder,
            _ => return Err(Usage("--notebook reads a results folder: name the folder instead of files".into()).into()),
        };
        export::write(file, &notebook(folder, file)?)?;
        tracing::info!("notebook: {}", file.display());
        Ok(())
    }

    fn open(&self) -> Result<Sources> {
        match &self.paths[..] {
            [] => Sources::open(Path::new("results")),
            [folder] if folder.is_dir() || !(folder.is_file() || is_csv(folder)) => Sources::open(folder),
            files => {
                if let Some(folder) = files.iter().find(|path| path.is_dir()) {
                    let text = format!("{}: is a folder; name one folder, or files only", folder.display());
                    return Err(Usage(text).into());
                }
                Sources::of_files(files)
            }
        }
    }

    fn print_tables(&self, sources: &Sources) -> Result<()> {
        let of_files = !self.paths.is_empty() && !self.paths[0].is_dir();
        let (shown, others): (Vec<_>, Vec<_>) = match (self.tables.is_empty(), of_files) {
            (true, true) => (tables::own(sources), vec![]),
            (true, false) => {
                let (own, papers) = (tables::own(sources), tables::papers(sources)?);
                let (matched, others) = papers.into_iter().partition(|table| table.matched > 0);
                (own.into_iter().chain::<Vec<_>>(matched).collect(), others)
            }
            (false, _) => (tables::named(sources, &self.tables).map_err(|error| Usage(error.to_string()))?, vec![]),
        };
        let asked = !self.tables.is_empty();
        let shown: Vec<_> = shown.into_iter().filter(|table| asked || !table.rows.is_empty()).collect();
        if self.format == Format::Csv && shown.len() > 1 {
            let keys: Vec<_> = shown.iter().map(|table| table.key.as_str()).collect();
            let text =
                format!("--format csv prints one table: choose it with --table ({}), or use --out", keys.join(", "));
            return Err(Usage(text).into());
        }
        let nothing = shown.is_empty();
        for (place, table) in shown.into_iter().enumerate() {
            if place > 0 {
                println!();
            }
            self.print_table(table, sources)?;
        }
        if !others.is_empty() && !nothing && self.format == Format::Terminal {
            println!("\nTables of papers without a result of ours: --table all, or --table KEY");
        }
        Ok(())
    }

    fn print_table(&self, table: RenderedTable, sources: &Sources) -> Result<()> {
        if table.key == "results" && self.format == Format::Terminal {
            // The texts of many rows take as much memory as those that are printed instead.
            drop(table);
            return print(&sources.results, &self.table);
        }
        print_drawn(&export::text(&table, self.format)?);
        Ok(())
    }

    /// Checks that every file can be written, before the results are read.
    fn check_files(&self) -> Result<()> {
        [&self.html, &self.notebook, &self.picture].into_iter().flatten().try_for_each(|path| expect_writable(path))
    }

    fn write_files(&self, sources: &Sources) -> Result<()> {
        if self.out.is_none() && self.html.is_none() {
            return Ok(());
        }
        let papers = tables::papers(sources)?;
        let results =
            [tables::results(sources), tables::seeds(sources), tables::ood(sources), tables::conformal(sources)];
        let figures = figures::all(sources);
        for figure in &figures {
            figure.problems.iter().for_each(|problem| tracing::warn!("figure {}: {problem}", figure.key));
        }
        if let Some(folder) = &self.out {
            export::tables(folder, &papers)?;
            export::tables(folder, &results)?;
            // Numbers over seeds are for further processing: all digits, every metric.
            if !sources.results.rows.is_empty() {
                export::write(&folder.join("seeds.csv"), &tables::seeds_csv(sources)?)?;
            }
            export::figures(folder, &figures)?;
            tracing::info!("tables and figures: {}", folder.display());
        }
        if let Some(path) = &self.html {
            let contents = html::Contents { paper_tables: &papers, result_tables: &results, figures: &figures };
            export::write(path, &html::page(sources, contents)?)?;
            tracing::info!("page: {}", path.display());
        }
        Ok(())
    }
}

fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "csv")
}

fn print_seeds(sources: &Sources, format: Format, how: &TableArgs) -> Result<()> {
    match format {
        Format::Csv => print!("{}", tables::seeds_csv(sources)?),
        Format::Terminal if how.csv => print!("{}", tables::seeds_csv(sources)?),
        Format::Terminal => return print_seeds_overview(sources, how),
        format => print_drawn(&export::text(&tables::seeds(sources), format)?),
    }
    Ok(())
}

fn print_seeds_overview(sources: &Sources, how: &TableArgs) -> Result<()> {
    let metrics = result_columns(&sources.results).into_iter().filter(|column| is_metric(column)).collect();
    let numbers = shown_numbers(&sources.results, metrics, how)?;
    let table = seeds_overview(sources, &numbers);
    let spec = Spec {
        columns: table.columns.clone(),
        group_by: vec!["set".into(), "condition".into()],
        surface: surface(how),
    };
    print_drawn(&render(&table, &spec));
    println!("Mean ± standard deviation over the seeds; --format csv has all metrics with their 95 % intervals.");
    tables::seeds(sources).notes.iter().for_each(|note| println!("{note}"));
    Ok(())
}

/// Prints the mean, the standard deviation and the 95 % interval of runs that differ in their seeds, or with `--csv` their rows.
///
/// # Errors
/// Fails if a column was asked for that the rows do not have.
pub fn print_intervals(rows: &[Row], how: &TableArgs) -> Result<()> {
    let table = table_of(rows);
    if how.csv {
        return print_csv(&table);
    }
    let metrics = result_columns(&table).into_iter().filter(|column| is_metric(column)).collect();
    let numbers = shown_numbers(&table, metrics, how)?;
    let sources = Sources { results: table, ..Sources::default() };
    for (heading, table) in tables::intervals(&sources, &numbers) {
        println!("{}", printable(&heading));
        let spec = Spec { columns: table.columns.clone(), group_by: vec!["metric".into()], surface: surface(how) };
        print_drawn(&render(&table, &spec));
    }
    println!("The interval is that of the mean (Student's t); predictions by averaged logits.");
    Ok(())
}

/// Prints result rows that were just computed, in the way that was asked for.
///
/// # Errors
/// Fails if a column was asked for that the rows do not have.
pub fn print_rows(rows: &[Row], how: &TableArgs) -> Result<()> {
    print(&table_of(rows), how)
}

/// Prints out-of-distribution rows that were just computed.
pub fn print_ood(rows: &[Row]) {
    let sources = Sources { ood: table_of(rows), ..Sources::default() };
    print_drawn(&tables::ood(&sources).to_terminal(Surface::of_stdout()));
}

/// Prints rows of conformal sets that were just computed, without those of parts of the images.
pub fn print_conformal(rows: &[Row]) {
    let sources = Sources { conformal: table_of(rows), ..Sources::default() };
    print_drawn(&tables::conformal(&sources).to_terminal(Surface::of_stdout()));
}

pub(super) fn table_of(rows: &[Row]) -> Table {
    let mut table = Table::default();
    rows.iter().for_each(|row| table.append(row));
    distinguish(&mut table);
    table
}

fn print(table: &Table, how: &TableArgs) -> Result<()> {
    if how.csv {
        return print_csv(table);
    }
    let mut columns = result_columns(table);
    let numbers = columns.split_off(columns.iter().position(|column| is_metric(column)).unwrap_or(columns.len()));
    let numbers = shown_numbers(table, numbers, how)?;
    let can_be_named = (2..=MOST_NAMED).contains(&table.rows.len()) && !how.wide;
    let named = if can_be_named { overview(table, &numbers) } else { None };
    match &named {
        Some(named) => columns = named.columns.clone(),
        None => {
            columns.retain(|column| !numbers.contains(column));
            columns.extend(numbers);
        }
    }
    let spec = Spec { columns, group_by: vec!["set".into(), "condition".into()], surface: surface(how) };
    print_drawn(&render(named.as_ref().unwrap_or(table), &spec));
    Ok(())
}

/// Returns the surface to print on, which has no limit to its width if all columns are asked for.
fn surface(how: &TableArgs) -> Surface {
    let surface = Surface::of_stdout();
    if how.wide { surface.without_limit() } else { surface }
}

fn is_metric(column: &str) -> bool {
    of_column(column).is_some()
}

/// Returns the numbers to print. Of several rows, one average is enough for a look.
fn shown_numbers(table: &Table, mut usual: Vec<String>, how: &TableArgs) -> Result<Vec<String>> {
    if !how.columns.is_empty() {
        return how.columns.iter().map(|column| find_column(table, column)).collect();
    }
    if !how.wide && table.rows.len() > 1 {
        let suffix = format!("_{}", Average::Probability.suffix());
        usual.retain(|column| !is_metric(column) || !column.ends_with(&suffix));
    }
    Ok(usual)
}

/// Returns the column with this name, or the metric of averaged logits.
fn find_column(table: &Table, name: &str) -> Result<String> {
    let of_logits = format!("{name}_{}", Average::Logit.suffix());
    if let Some(found) = [name, of_logits.as_str()].into_iter().find(|column| table.index(column).is_some()) {
        return Ok(found.to_string());
    }
    let stems = table.columns.iter().map(|column| column.trim_end_matches("_lm").trim_end_matches("_pm"));
    let near = hint(name, stems);
    Err(Usage(format!("--columns {name}: the results have no such column{near}; --csv prints all")).into())
}

/// Writes a table as CSV to standard output.
pub(super) fn print_csv(table: &Table) -> Result<()> {
    let mut writer = csv::Writer::from_writer(std::io::stdout());
    writer.write_record(&table.columns)?;
    table
        .rows
        .iter()
        .try_for_each(|row| writer.write_record(row.iter().map(|cell| csv_cell(&printable(cell)).into_owned())))?;
    Ok(writer.flush()?)
}
