//! `bella report`: shows the content of a results folder as tables and figures, beside the numbers of the papers.

mod printed;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use super::options::{PlaceArgs, TableArgs};
use crate::base::files::expect_writable;
use crate::base::outside::{print_drawn, printable};
use crate::base::small::Usage;
use crate::experiment::Overrides;
use crate::metrics::of_column;
use crate::report::aggregate::aggregates;
use crate::report::export::{self, Format};
use crate::report::figures::Material;
use crate::report::notebook::notebook;
use crate::report::tables::{self, RenderedTable, result_columns, seeds_overview};
use crate::report::{Sources, figures, html, sheet};
use crate::results::rebuild;
use crate::results::series::RESULT_KEYS;
use crate::run::{Ambiguous, RunFolder};

pub(super) use self::printed::{
    Kind, check_columns, draw, print_conformal, print_csv, print_intervals, print_ood, print_rows, table_of,
};

/// Print results beside the papers' numbers; write tables, figures and a page.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella report\n  bella report --table bella-1 --format latex\n  \
    bella report --out report --html results/report.html\n  bella report --notebook report.ipynb\n  bella report results/cifar10.csv --seeds\n  \
    bella report low-rank-svgd-s1 --out report    # classes, confusion matrix, uncertain and wrong images\n  \
    bella report results/quickstart.csv --picture results/quickstart.svg")]
pub struct ReportArgs {
    /// Results folder, results files, or a run, of which classes are shown too [default: results].
    #[arg(value_name = "FOLDER | CSV | RUN")]
    paths: Vec<PathBuf>,

    /// Tables to print: `results`, `methods`, `ood`, `conformal`, `bella-1`, …, or `all` [default: those with a result of ours].
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
    #[arg(long, conflicts_with_all = ["tables", "seeds", "out", "html", "notebook", "picture", "format", "places", "columns", "wide", "csv"])]
    rebuild: bool,

    /// Draw accuracy, NLL and ECE of every run and condition to this file.
    #[arg(long, value_name = "FILE.svg")]
    picture: Option<PathBuf>,

    #[command(flatten)]
    places: PlaceArgs,

    #[command(flatten)]
    table: TableArgs,
}

pub fn run(args: &ReportArgs) -> Result<()> {
    args.check()?;
    args.check_files()?;
    if args.rebuild {
        return args.rebuild_files();
    }
    let (sources, run) = args.open()?;
    if args.places.is_given() && (run.is_none() || (args.out.is_none() && args.html.is_none())) {
        let why = "--set: says where a run's own images are, which --out and --html show: name a run and one of these, or leave it out";
        return Err(Usage(why.into()).into());
    }
    sources.problems.iter().for_each(|problem| tracing::warn!("{problem}"));
    if args.seeds {
        print_seeds(&sources, args.format, &args.table)?;
    } else if args.prints() {
        args.print_tables(&sources, run.is_some())?;
    }
    let shows = !args.writes() && !args.seeds && args.tables.is_empty();
    if run.is_some() && shows && args.format == Format::Terminal && !args.table.csv {
        printed::print_classes(&sources, &args.table);
    }
    if let Some(picture) = &args.picture {
        crate::report::picture::draw(&sources.results, picture)?;
        tracing::info!("picture: {}", picture.display());
    }
    args.write_notebook()?;
    args.write_files(&sources, run.as_ref())
}

impl ReportArgs {
    /// Returns whether the report goes into a file.
    fn writes(&self) -> bool {
        self.out.is_some() || [&self.html, &self.notebook, &self.picture].into_iter().any(Option::is_some)
    }

    /// Returns the results folder that `option` reads by itself.
    fn results_folder(&self, option: &str) -> Result<&Path> {
        match &self.paths[..] {
            [] => Ok(Path::new("results")),
            [folder] if folder.is_dir() && run_named(folder)?.is_none() => Ok(folder),
            [run] if !run.is_file() && run_named(run)?.is_some() => {
                let why = format!("{option} takes a results folder, and {} is a run", run.display());
                Err(Usage(format!("{why}: name the folder with the results of its experiment")).into())
            }
            _ => Err(Usage(format!("{option} takes a results folder: name the folder instead of files")).into()),
        }
    }

    /// Returns whether tables are printed.
    fn prints(&self) -> bool {
        self.seeds || !self.writes() || !self.tables.is_empty()
    }

    /// Makes the results files of a folder anew from its runs.
    fn rebuild_files(&self) -> Result<()> {
        let folder = self.results_folder("--rebuild")?;
        rebuild::all(folder)?.iter().for_each(|found| println!("{found}"));
        Ok(())
    }

    /// Refuses options of tables on a terminal in another format, and a folder for tables that holds the results, since the next
    /// report would read the tables as results.
    fn check(&self) -> Result<()> {
        let TableArgs { columns, wide, csv } = &self.table;
        let given = [("--columns", !columns.is_empty()), ("--wide", *wide), ("--csv", *csv)];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given && self.format != Format::Terminal) {
            return Err(Usage(format!("{option}: is of tables on a terminal: leave --format or {option} out")).into());
        }
        let how = [("--format", self.format != Format::Terminal)].into_iter().chain(given);
        if let Some((option, _)) = how.into_iter().find(|(_, given)| *given && !self.prints()) {
            let why = format!(
                "{option}: is of printed tables, and beside files none is printed: choose some by --table, or leave {option} out"
            );
            return Err(Usage(why).into());
        }
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
        export::write(file, &notebook(self.results_folder("--notebook")?, file)?)?;
        tracing::info!("notebook: {}", file.display());
        Ok(())
    }

    /// Opens the results, and the run whose they are if one is named.
    fn open(&self) -> Result<(Sources, Option<RunFolder>)> {
        if let [named] = &self.paths[..]
            && let Some(run) = run_named(named)?
        {
            return Ok((Sources::of_run(&run)?, Some(run)));
        }
        let sources = match &self.paths[..] {
            [] => Sources::open(Path::new("results")),
            [folder] if folder.is_dir() || !(folder.is_file() || is_csv(folder)) => Sources::open(folder),
            files => {
                if let Some(folder) = files.iter().find(|path| path.is_dir()) {
                    let text = format!("{}: is a folder; name one folder, or files only", folder.display());
                    return Err(Usage(text).into());
                }
                Sources::of_files(files)
            }
        };
        Ok((sources?, None))
    }

    fn print_tables(&self, sources: &Sources, is_run: bool) -> Result<()> {
        let of_files = is_run || !self.paths.is_empty() && !self.paths[0].is_dir();
        let (shown, others): (Vec<_>, Vec<_>) = match (self.tables.is_empty(), of_files) {
            (true, true) => (tables::own(sources), vec![]),
            (true, false) => {
                let (own, papers) = (tables::own(sources), tables::papers(sources)?);
                let (matched, others) = papers.into_iter().partition(|table| table.matched > 0);
                (own.into_iter().chain::<Vec<_>>(matched).collect(), others)
            }
            (false, _) => (tables::named(sources, &self.tables).map_err(|error| Usage(error.to_string()))?, vec![]),
        };
        let own = shown.iter().filter_map(|table| Kind::of_table(&table.key)).map(|kind| kind.rows_of(sources));
        if self.format == Format::Terminal && !self.table.columns.is_empty() {
            let own: Vec<_> = own.collect();
            printed::check_columns(&own.iter().map(|table| &**table).collect::<Vec<_>>(), &self.table)?;
        }
        let asked = !self.tables.is_empty();
        let shown: Vec<_> = shown.into_iter().filter(|table| asked || !table.rows.is_empty()).collect();
        if let Some(option) = self.csv().filter(|_| shown.len() > 1) {
            let keys: Vec<_> = shown.iter().map(|table| table.key.as_str()).collect();
            let text = format!("{option} prints one table: choose it with --table ({}), or use --out", keys.join(", "));
            return Err(Usage(text).into());
        }
        let nothing = shown.is_empty();
        for (place, table) in shown.into_iter().enumerate() {
            if place > 0 {
                println!();
            }
            self.print_table(table, sources)?;
        }
        if !others.is_empty() && !nothing && self.format == Format::Terminal && !self.table.csv {
            println!("\nTables of papers without a result of ours: --table all, or --table KEY");
        }
        Ok(())
    }

    fn print_table(&self, table: RenderedTable, sources: &Sources) -> Result<()> {
        if let (Some(kind), Format::Terminal) = (Kind::of_table(&table.key), self.format) {
            // The texts of many rows take as much memory as those that are printed instead.
            drop(table);
            return kind.print(&kind.rows_of(sources), &self.table);
        }
        // Other tables have no more columns than they show.
        let format = if self.table.csv { Format::Csv } else { self.format };
        print_drawn(&export::text(&table, format)?);
        Ok(())
    }

    /// Returns the option that asks for CSV, of which an output holds one table.
    fn csv(&self) -> Option<&'static str> {
        match self.format {
            Format::Csv => Some("--format csv"),
            _ => self.table.csv.then_some("--csv"),
        }
    }

    /// Checks that every file can be written, before the results are read.
    fn check_files(&self) -> Result<()> {
        self.notebook.iter().try_for_each(|_| self.results_folder("--notebook").map(drop))?;
        [&self.html, &self.notebook, &self.picture].into_iter().flatten().try_for_each(|path| expect_writable(path))
    }

    fn write_files(&self, sources: &Sources, run: Option<&RunFolder>) -> Result<()> {
        if self.out.is_none() && self.html.is_none() {
            return Ok(());
        }
        let papers = tables::papers(sources)?;
        let experiments = sources.by_experiment();
        let materials = Material::of(&experiments);
        let [of_classes, matrices] = tables::classes::of_materials(&materials);
        let results: Vec<_> =
            tables::own(sources).into_iter().chain([tables::seeds(sources)]).chain(of_classes).collect();
        let figures = figures::all(&materials);
        let sheet = run.map_or(Ok(vec![]), |run| sheet_of(run, &self.places.overrides()))?;
        for figure in &figures {
            figure.problems.iter().for_each(|problem| tracing::warn!("figure {}: {problem}", figure.key));
        }
        if let Some(folder) = &self.out {
            export::tables(folder, &papers)?;
            export::tables(folder, &results)?;
            export::csv(folder, &matrices)?;
            // Numbers over seeds are for further processing: all digits, every metric.
            if !sources.results.rows.is_empty() {
                export::write(&folder.join("seeds.csv"), &tables::seeds_csv(sources)?)?;
            }
            export::figures(folder, &figures)?;
            if !sheet.is_empty() {
                export::bytes(&folder.join("images.png"), &sheet)?;
            }
            tracing::info!("tables and figures: {}", folder.display());
        }
        if let Some(path) = &self.html {
            let contents =
                html::Contents { paper_tables: &papers, result_tables: &results, figures: &figures, sheet: &sheet };
            export::write(path, &html::page(sources, contents)?)?;
            tracing::info!("page: {}", path.display());
        }
        Ok(())
    }
}

/// Returns the sheet of images of a run as a PNG; nothing, with a warning, where it cannot be made.
fn sheet_of(run: &RunFolder, overrides: &Overrides) -> Result<Vec<u8>> {
    match sheet::of_run(run, overrides) {
        Ok(sheet) => sheet.map_or(Ok(vec![]), |images| images.png(&run.id())),
        Err(error) if error.is::<Usage>() => Err(error),
        Err(error) => {
            tracing::warn!("no sheet of images: {error:#}");
            Ok(vec![])
        }
    }
}

/// Returns the run that is named by its folder, or, where no file or folder has the name, as other commands name runs.
///
/// # Errors
/// Fails if the name fits several runs.
fn run_named(named: &Path) -> Result<Option<RunFolder>> {
    let is_folder_of_results = named.is_dir() && named.join("runs").is_dir();
    let Some(text) = named.to_str().filter(|_| !(named.is_file() || is_folder_of_results || is_csv(named))) else {
        return Ok(None);
    };
    match RunFolder::find(Path::new("results"), Some(text)) {
        Err(error) if error.is::<Ambiguous>() && !named.is_dir() => Err(error),
        found => Ok(found.ok()),
    }
}

fn is_csv(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "csv")
}

fn print_seeds(sources: &Sources, format: Format, how: &TableArgs) -> Result<()> {
    if sources.results.rows.is_empty() {
        let why =
            "--seeds: is of results of test sets, of which there are none here: leave it out, or name other files";
        return Err(Usage(why.into()).into());
    }
    match format {
        Format::Csv => print!("{}", tables::seeds_csv(sources)?),
        Format::Terminal if how.csv => print!("{}", tables::seeds_csv(sources)?),
        Format::Terminal => return print_seeds_overview(sources, how),
        format => print_drawn(&export::text(&tables::seeds(sources), format)?),
    }
    Ok(())
}

fn print_seeds_overview(sources: &Sources, how: &TableArgs) -> Result<()> {
    printed::check_columns(&[&sources.results], how)?;
    let metrics = result_columns(&sources.results).into_iter().filter(|column| of_column(column).is_some()).collect();
    let numbers = printed::shown_numbers(&sources.results, metrics, how);
    let table = seeds_overview(sources, &numbers);
    printed::draw(&table, table.columns.clone(), RESULT_KEYS, how);
    println!("Mean ± standard deviation over the seeds; --format csv has all metrics with their 95 % intervals.");
    tables::seed_notes(&aggregates(sources), &numbers).iter().for_each(|note| println!("{}", printable(note)));
    Ok(())
}
