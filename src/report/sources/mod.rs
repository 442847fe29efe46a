//! Reads a results folder: the result rows, the out-of-distribution rows and the files of each run. A file that is
//! incomplete or unreadable is named in `problems` and its results count as not run. It never yields a wrong number and
//! never aborts the report.

mod run_files;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::base::files::listed;
use crate::base::small::push_new;

use crate::metrics;
use crate::results::images::{self, TESTED};
use crate::results::series::{OOD_KEYS, RESULT_KEYS, Series, of_table};
use crate::results::store::{self, Parsed, Table};
use crate::results::{BENCH, CLEAN, conformal_csv, ood_csv};
use crate::run::RunFolder;
use run_files::folders;

pub use run_files::{PredictionsFile, RunFiles, Runs};

/// The contents of a results folder, read once.
#[derive(Debug, Default)]
pub struct Sources {
    /// The rows of all `<experiment>.csv` files, one for each run, set, images, condition and predictive. If rows of
    /// one set measure different images, the set has a different name for each of them.
    pub results: Table,
    /// The rows of all files of out-of-distribution results, one for each run, set, foreign set, images, score and
    /// average.
    pub ood: Table,
    /// The rows of all files of conformal sets, one for each run, set, images, condition, level and part of the images.
    pub conformal: Table,
    pub runs: Runs,
    /// The trials of each search for settings.
    pub searches: Vec<Search>,
    /// The files that could not be read, one line each with the reason.
    pub problems: Vec<String>,
}

/// The trials of a search for settings.
#[derive(Clone, Debug)]
pub struct Search {
    /// The name of its folder: that of the experiment with a hash of the settings that were tried.
    pub name: String,
    pub trials: Table,
}

/// The results of one experiment.
#[derive(Debug)]
pub struct OfExperiment {
    /// The name; empty if all results are of one experiment.
    pub experiment: String,
    pub sources: Sources,
}

/// One row of a table, with access to its cells by column name.
#[derive(Clone, Copy, Debug)]
pub struct RowView<'a> {
    table: &'a Table,
    row: usize,
}

impl<'a> RowView<'a> {
    pub fn new(table: &'a Table, row: usize) -> Self {
        Self { table, row }
    }

    /// Returns the cell of a column. Empty if the table has no such column.
    pub fn get(&self, column: &str) -> &'a str {
        self.table.get(self.row, column).unwrap_or_default()
    }

    /// Returns the name of the set as stored in the row. `set` and `ood_set` may have been renamed after the images of
    /// the row.
    pub fn stored_name(&self, column: &'static str) -> &'a str {
        self.get(images::stored_name(self.table, column))
    }

    /// Returns whether the row is of images that nothing has changed.
    pub fn is_clean(&self) -> bool {
        self.get("condition") == CLEAN
    }

    /// Returns the cell of a column as a number. `None` if it is not a finite number.
    pub fn number(&self, column: &str) -> Option<f64> {
        self.get(column).parse().ok().filter(|value: &f64| value.is_finite())
    }
}

/// Returns the rows of a table in order.
pub fn rows(table: &Table) -> impl Iterator<Item = RowView<'_>> {
    (0..table.rows.len()).map(move |row| RowView::new(table, row))
}

impl Sources {
    /// Reads every `*.csv` directly in `folder`, without that of [`BENCH`], and the run folders below `runs/`.
    ///
    /// # Errors
    /// Fails if the folder does not exist or holds nothing that could be read.
    pub fn open(folder: &Path) -> Result<Self> {
        ensure!(folder.is_dir(), "no results folder {}: run `bella train` first, or name another", folder.display());
        let mut sources = Self::default();
        let listed = listed(folder).with_context(|| format!("results folder {}: cannot list", folder.display()))?;
        let of_results = |path: &&PathBuf| {
            path.extension().is_some_and(|ending| ending == "csv") && path.file_name().is_none_or(|name| name != BENCH)
        };
        for path in listed.iter().filter(of_results) {
            sources.add_csv(path);
        }
        sources.add_runs(folder, |_| true);
        sources.add_searches(folder);
        sources.distinguish_images();
        let empty = sources.results.rows.is_empty() && sources.ood.rows.is_empty() && sources.runs.is_empty();
        let found = sources.first_problem();
        ensure!(!empty, "results folder {}: no results in it{found}; run `bella train` first", folder.display());
        Ok(sources)
    }

    /// Reads the results files that the user named, and beside them the run folders of the experiments that they have rows of.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is not a results file, or if there are no rows at all.
    pub fn of_files(files: &[PathBuf]) -> Result<Self> {
        let mut sources = Self::default();
        let mut folders = vec![];
        for path in files {
            sources.take(path, store::parsed(path)?)?;
            push_new(&mut folders, path.parent().map_or(PathBuf::new(), Path::to_path_buf));
        }
        let tables = [&sources.results, &sources.ood, &sources.conformal];
        let named: BTreeSet<String> =
            tables.into_iter().flat_map(rows).map(|row| row.get("experiment").to_string()).collect();
        let empty = tables.iter().all(|table| table.rows.is_empty());
        let found = sources.first_problem();
        ensure!(!empty, "no results yet{found}: run `bella train` first");
        folders.iter().for_each(|folder| sources.add_runs(folder, |experiment| named.contains(experiment)));
        sources.distinguish_images();
        Ok(sources)
    }

    /// Reads the results of one run, and its files.
    ///
    /// # Errors
    /// Fails if it has no results that can be read.
    pub fn of_run(run: &RunFolder) -> Result<Self> {
        let id = run.id();
        let mut sources = Self::default();
        ensure!(run.metrics().is_file(), "{id}: has no results yet: evaluate it first: bella eval {id}");
        sources.take(&run.metrics(), store::parsed(&run.metrics())?)?;
        let experiment = run.path().parent().unwrap_or(Path::new(""));
        let (files, problems) = RunFiles::read(experiment, run.path().to_path_buf());
        if let Some(results) = run.results() {
            let name = &files.experiment;
            for csv in [ood_csv(run, &results, name), conformal_csv(run, &results, name)] {
                if csv.is_file() {
                    sources.add_csv(&csv);
                }
            }
        }
        for table in [&mut sources.ood, &mut sources.conformal] {
            let place = table.index("run");
            table.rows.retain(|row| place.is_some_and(|place| row[place] == id));
        }
        sources.problems.extend(problems);
        sources.runs.add(files);
        sources.distinguish_images();
        Ok(sources)
    }

    /// Returns the results of each experiment, in the order of their first rows.
    pub fn by_experiment(&self) -> Vec<OfExperiment> {
        let names = self.runs.iter().map(|run| run.experiment.as_str());
        let mut experiments: Vec<&str> = vec![];
        self.result_rows()
            .map(|row| row.get("experiment"))
            .chain(names)
            .for_each(|name| push_new(&mut experiments, name));
        let several = experiments.len() > 1;
        let one = |experiment: &str| {
            let of_one = |table: &Table| {
                let place = table.index("experiment");
                let rows = table.rows.iter().filter(|row| place.is_none_or(|place| row[place] == experiment));
                Table { columns: table.columns.clone(), rows: rows.cloned().collect() }
            };
            let mut runs = Runs::default();
            self.runs.iter().filter(|run| run.experiment == experiment).for_each(|run| runs.add(run.clone()));
            let is_own = |search: &&Search| search.name.rsplit_once('-').is_some_and(|(name, _)| name == experiment);
            let sources = Sources {
                results: of_one(&self.results),
                ood: of_one(&self.ood),
                conformal: of_one(&self.conformal),
                runs,
                searches: self.searches.iter().filter(is_own).cloned().collect(),
                problems: vec![],
            };
            OfExperiment { experiment: if several { experiment.to_string() } else { String::new() }, sources }
        };
        experiments.into_iter().map(one).collect()
    }

    pub fn result_rows(&self) -> impl Iterator<Item = RowView<'_>> {
        rows(&self.results)
    }

    /// Returns the series of the result rows, in the order of the legend.
    pub fn series(&self) -> Vec<Series<'_>> {
        of_table(&self.results, RESULT_KEYS)
    }

    /// Returns the series of the out-of-distribution rows.
    pub fn ood_series(&self) -> Vec<Series<'_>> {
        of_table(&self.ood, OOD_KEYS)
    }

    /// Returns the run that a row belongs to.
    pub fn run_of(&self, row: &RowView) -> Option<&RunFiles> {
        self.runs.find(row.get("experiment"), row.get("run"))
    }

    /// Returns the predictions file that a result row was computed from.
    pub fn predictions_of(&self, row: &RowView) -> Option<PathBuf> {
        let wanted = [row.stored_name("set"), row.get("condition"), row.get("predictive")];
        let fits = |file: &&PredictionsFile| {
            let same = [&*file.set, &*file.condition, &*file.predictive] == wanted;
            same && file.is_of(row.get(TESTED.fingerprint), row.get(TESTED.count))
        };
        Some(self.run_of(row)?.predictions.iter().find(fits)?.path.clone())
    }

    /// Returns the first problem in brackets, for an error where nothing could be read.
    fn first_problem(&self) -> String {
        self.problems.first().map(|problem| format!(" ({problem})")).unwrap_or_default()
    }

    fn distinguish_images(&mut self) {
        images::distinguish(&mut [&mut self.results, &mut self.ood, &mut self.conformal]);
    }

    fn add_csv(&mut self, path: &Path) {
        let read = store::parsed(path).and_then(|parsed| self.take(path, parsed));
        if let Err(error) = read {
            let stem = path.file_stem().unwrap_or_default();
            let has_runs = path.parent().is_some_and(|folder| folder.join("runs").join(stem).is_dir());
            let way_out = if has_runs { " (`bella report --rebuild` makes it anew from its runs)" } else { "" };
            self.problems.push(format!("{error:#}; its rows count as not run{way_out}"));
        }
    }

    /// Adds the rows of `table` to the result rows, the out-of-distribution rows or those of conformal sets.
    fn take(&mut self, path: &Path, Parsed { mut table, is_torn, .. }: Parsed) -> Result<()> {
        let has = |columns: &[&str]| columns.iter().all(|column| table.index(column).is_some());
        let (ood, conformal) = (has(OOD_KEYS), has(&["condition", "alpha", "set_coverage"]));
        ensure!(
            ood || conformal || has(&["method", "condition"]),
            "results file {}: has neither the columns `method` and `condition` of results nor `ood_set` and `score`",
            path.display()
        );
        if is_torn && table.rows.pop().is_some() {
            self.problems.push(format!(
                "results file {}: ends within a row; its last row counts as not run (end the file with a line break)",
                path.display()
            ));
        }
        self.blank_broken_numbers(path, &mut table);
        let all = match (ood, conformal) {
            (true, _) => &mut self.ood,
            (false, true) => &mut self.conformal,
            (false, false) => &mut self.results,
        };
        all.extend(table);
        Ok(())
    }

    /// Empties the cells of metric columns that do not hold a finite number.
    fn blank_broken_numbers(&mut self, path: &Path, table: &mut Table) {
        for (index, column) in table.columns.iter().enumerate().filter(|(_, name)| is_number(name)) {
            for (place, row) in table.rows.iter_mut().enumerate() {
                let cell = &mut row[index];
                if !cell.is_empty() && !cell.parse().is_ok_and(f64::is_finite) {
                    self.problems.push(format!(
                        "results file {}: row {}, column `{column}` = `{cell}`: must be a finite number or empty; left out",
                        path.display(),
                        place + 1
                    ));
                    cell.clear();
                }
            }
        }
    }

    fn add_searches(&mut self, results: &Path) {
        for folder in folders(&results.join("sweeps")) {
            let trials = folder.join("trials.csv");
            if !trials.is_file() {
                continue;
            }
            let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            match store::read(&trials) {
                Ok(trials) => self.searches.push(Search { name, trials }),
                Err(error) => self.problems.push(format!("{error:#}; left out")),
            }
        }
    }

    /// Reads the runs of those experiments whose names are wanted.
    fn add_runs(&mut self, results: &Path, is_wanted: impl Fn(&str) -> bool) {
        let name = |experiment: &PathBuf| experiment.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for experiment in folders(&results.join("runs")).into_iter().filter(|folder| is_wanted(&name(folder))) {
            for folder in folders(&experiment) {
                let (files, problems) = RunFiles::read(&experiment, folder);
                self.problems.extend(problems);
                self.runs.add(files);
            }
        }
    }
}

fn is_number(column: &str) -> bool {
    const MEASURED: &[&str] = &["auroc", "aupr_in", "aupr_out", "fpr95", "detection_error"];
    metrics::of_column(column).is_some() || MEASURED.contains(&column)
}

#[cfg(test)]
mod tests;
