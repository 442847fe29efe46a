//! Makes the results file of an experiment anew from the files of its runs, each of which holds its own rows.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};

use super::store::{Table, read, remove_rows, write};
use super::{conformal_csv, experiment_csv, ood_csv, runs};
use crate::base::files::{is_there, with_lock};
use crate::base::small::counted;
use crate::base::tensor_file::RUN;
use crate::run::RunFolder;

/// The columns without which a file holds no results that bella could add to.
const NEEDED: [&str; 3] = ["experiment", RUN, "set"];

/// A results file that was compared with its runs.
#[derive(Debug)]
pub struct Rebuilt {
    pub file: PathBuf,
    /// The rows of its runs.
    pub rows: usize,
    /// The rows of runs that are not there, which are left out.
    pub left_out: usize,
    /// The path to which the file was moved; `None` if it held what the runs hold.
    pub moved: Option<PathBuf>,
}

impl std::fmt::Display for Rebuilt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.file.display(), counted(self.rows, "row", "rows"))?;
        if self.left_out > 0 {
            write!(f, ", {} of runs that are gone left out", self.left_out)?;
        }
        match &self.moved {
            Some(moved) => write!(f, "; as it was: {}", moved.display()),
            None => f.write_str(", as its runs say"),
        }
    }
}

/// Makes the results files of all experiments below a results folder anew.
///
/// # Errors
/// Fails if there are no runs, if the rows of a run are damaged, or if a file cannot be written.
pub fn all(out: &Path) -> Result<Vec<Rebuilt>> {
    let experiments: BTreeSet<String> = RunFolder::all(out)?.iter().map(experiment_of).collect();
    anyhow::ensure!(
        !experiments.is_empty(),
        "no run below {}: there is nothing to rebuild from",
        out.join("runs").display()
    );
    experiments.iter().filter_map(|experiment| rebuild(out, experiment).transpose()).collect()
}

/// Makes the results file of an experiment anew if another program has changed it, such as a spreadsheet, and says so.
///
/// # Errors
/// Fails if the file cannot be opened, if the rows of a run are damaged, or if the file cannot be written.
pub fn mend(out: &Path, experiment: &str) -> Result<()> {
    let Some(why) = change(&experiment_csv(out, experiment))? else { return Ok(()) };
    if let Some(found) = rebuild(out, experiment)? {
        tracing::warn!("{found}: another program had changed it ({why}), so it was made anew from its runs");
    }
    Ok(())
}

/// Moves a results file away if another program has changed it, and says so. Its rows are in no run, so they cannot be made
/// anew.
///
/// # Errors
/// Fails if the file cannot be opened or moved.
pub fn set_aside(file: &Path) -> Result<()> {
    let Some(why) = change(file)? else { return Ok(()) };
    let moved = move_away(file)?;
    tracing::warn!(
        "{}: another program has changed it ({why}): moved to {}; a new file begins",
        file.display(),
        moved.display()
    );
    Ok(())
}

/// Returns what another program has changed in a results file; `None` if bella can add to the file, or if there is none.
fn change(file: &Path) -> Result<Option<String>> {
    if !is_there(file) {
        return Ok(None);
    }
    match read(file) {
        Ok(table) => {
            let missing = NEEDED.into_iter().find(|column| table.index(column).is_none());
            Ok(missing.map(|column| format!("it has no column `{column}`")))
        }
        Err(error) if error.chain().any(|cause| cause.is::<io::Error>()) => Err(error),
        Err(error) => {
            let why = error.chain().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(": ");
            // The rest is the way out, which is taken here.
            Ok(Some(why.split([';', ',']).next().unwrap_or_default().to_string()))
        }
    }
}

fn move_away(file: &Path) -> Result<PathBuf> {
    let moved = free_name(file);
    std::fs::rename(file, &moved).with_context(|| format!("{}: cannot move it away", file.display()))?;
    Ok(moved)
}

/// Makes a results file anew; `None` if there is no file, and no row for one.
fn rebuild(out: &Path, experiment: &str) -> Result<Option<Rebuilt>> {
    let file = experiment_csv(out, experiment);
    with_lock(&file, || {
        // A process stores a row in its run first: what a run holds before the lock may lack rows of the file.
        let table = table_of(out, experiment)?;
        if table.rows.is_empty() && !is_there(&file) {
            return Ok(None);
        }
        let old = if is_there(&file) { Some(read(&file)) } else { None };
        let mut found = Rebuilt { file: file.clone(), rows: table.rows.len(), left_out: 0, moved: None };
        if let Some(Ok(old)) = &old {
            if cells(old) == cells(&table) {
                return Ok(Some(found));
            }
            let known: BTreeSet<Option<&str>> = (0..table.rows.len()).map(|row| table.get(row, RUN)).collect();
            found.left_out = (0..old.rows.len()).filter(|row| !known.contains(&old.get(*row, RUN))).count();
        }
        if old.is_some() {
            found.moved = Some(move_away(&file)?);
        }
        if !table.rows.is_empty() {
            write(&file, &table)?;
        }
        Ok(Some(found))
    })
}

/// Returns the rows of all runs of an experiment that are no trials, those of the run that was evaluated first before others. A run whose rows are
/// damaged, or are those of another one, as in the copy of a folder, is left out with a warning.
fn table_of(out: &Path, experiment: &str) -> Result<Table> {
    let mut own = RunFolder::all(out)?;
    own.retain(|run| experiment_of(run) == experiment && run.trial().is_none() && run.metrics().is_file());
    let changed = |run: &RunFolder| run.metrics().metadata().and_then(|facts| facts.modified());
    own.sort_by_cached_key(|run| changed(run).unwrap_or(SystemTime::UNIX_EPOCH));
    let mut table = Table::default();
    for run in &own {
        match runs::read_of(run, &run.metrics()) {
            Ok(rows) => table.extend(rows),
            Err(error) => tracing::warn!("{error:#}; its rows are left out"),
        }
    }
    Ok(table)
}

fn experiment_of(run: &RunFolder) -> String {
    let folder = run.path().parent().and_then(Path::file_name);
    folder.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns the filled cells of each row with their columns, sorted.
fn cells(table: &Table) -> Vec<BTreeSet<(&str, &str)>> {
    let columns = || table.columns.iter().map(String::as_str);
    let mut rows: Vec<BTreeSet<(&str, &str)>> = table
        .rows
        .iter()
        .map(|row| columns().zip(row.iter().map(String::as_str)).filter(|(_, cell)| !cell.is_empty()).collect())
        .collect();
    rows.sort();
    rows
}

/// Returns a path beside a file that is not taken, and that no report reads.
fn free_name(file: &Path) -> PathBuf {
    let name = |number: usize| {
        let mut name = file.as_os_str().to_owned();
        name.push(if number == 1 { ".old".to_string() } else { format!(".old{number}") });
        PathBuf::from(name)
    };
    (1..).map(name).find(|path| !path.exists()).unwrap_or_else(|| name(1))
}

/// Returns the results files of an experiment that hold rows of a run, with the number of them. A file that cannot be read
/// is left out.
pub fn rows_elsewhere(out: &Path, experiment: &str, run: &RunFolder) -> Vec<(PathBuf, usize)> {
    let files = [experiment_csv(out, experiment), ood_csv(run, out, experiment), conformal_csv(run, out, experiment)];
    let count = |file: PathBuf| {
        let table = read(&file).ok()?;
        let rows = (0..table.rows.len()).filter(|row| table.get(*row, RUN) == Some(&run.id())).count();
        (rows > 0).then_some((file, rows))
    };
    files.into_iter().filter(|file| file.is_file()).filter_map(count).collect()
}

/// Removes the files of a run that is made again, and its rows in the results files of the experiment, since they are of what it was
/// before.
///
/// # Errors
/// Fails if a file cannot be removed or written.
pub fn clear(out: &Path, experiment: &str, run: &RunFolder) -> Result<()> {
    run.clear()?;
    for (file, rows) in rows_elsewhere(out, experiment, run) {
        remove_rows(&file, RUN, &run.id())?;
        let rows = counted(rows, "row", "rows");
        tracing::info!("{}: {rows} of the run that is made again removed", file.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::store::{Row, upsert_row};

    #[test]
    fn a_run_that_is_made_again_leaves_no_rows() {
        let out = tempfile::tempdir().unwrap();
        let [run, other] = ["low-rank-map-s1-0123456789", "low-rank-map-s2-0123456789"];
        for id in [run, other] {
            let folder = out.path().join("runs/e").join(id);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("config.toml"), "").unwrap();
        }
        let store = |file: &str, id: &str| {
            let mut row = Row::new();
            [(RUN, id), ("set", "digits")].into_iter().for_each(|(column, cell)| row.push(column, cell));
            upsert_row(&out.path().join(file), &row, &[RUN]).unwrap();
        };
        [("e.csv", run), ("e.csv", other), ("e-ood.csv", run)].into_iter().for_each(|(file, id)| store(file, id));
        let found = RunFolder::find(out.path(), Some(run)).unwrap();
        clear(out.path(), "e", &found).unwrap();
        let left = read(&out.path().join("e.csv")).unwrap();
        assert_eq!((left.rows.len(), left.get(0, RUN)), (1, Some(other)));
        assert!(!out.path().join("e-ood.csv").exists());
    }
}
