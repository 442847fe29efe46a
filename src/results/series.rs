//! Sorts the rows of a results file into series: runs that differ in nothing but the seed, by the hash of their resolved
//! config without it (the column `config`). Each series has the name it has in the literature.

use std::collections::HashMap;

use super::images::{FOREIGN, TESTED};
use super::names::{names, setting};
use super::store::Table;
use crate::base::small::{Number, grouped};
use crate::methods::registered;

/// The columns that distinguish series, besides the settings of method and optimizer, whose column names have a dot.
const IDENTITY: &[&str] =
    &["experiment", "checkpoint", "head", "data", "subspace", "method", "particles", "rank", "predictive"];

/// The column with the hash of a run's resolved config without the seed.
pub const CONFIG: &str = "config";

/// The columns that define what a result row measures, besides its run and predictive.
pub const RESULT_KEYS: &[&str] = &["set", "condition"];

/// The columns that define what an out-of-distribution row measures, besides its run and predictive.
pub const OOD_KEYS: &[&str] = &["set", "ood_set", "score", "average"];

/// The columns that define what a row of conformal sets measures, besides its run and predictive.
pub const CONFORMAL_KEYS: &[&str] =
    &["set", "condition", "alpha", "score", "settings", "thresholds", "draw", "average"];

/// The settings of a series as pairs of column and value, without empty cells.
pub type Settings<'a> = Vec<(&'a str, &'a str)>;

/// The runs that are equal in everything but the seed.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// The name for a legend, such as `Bella-SVGD (n=5)`. It includes the settings that distinguish it from other
    /// series of the same name.
    pub name: String,
    pub settings: Settings<'a>,
    /// The row numbers of all seeds, in the order of the table.
    pub rows: Vec<usize>,
}

impl Series<'_> {
    /// Returns the value of a setting. Empty if the series does not have it.
    pub fn setting(&self, column: &str) -> &str {
        setting(&self.settings, column)
    }
}

/// Returns the series of a table in the order of a legend: the checkpoint first, and full models before low-rank ones.
/// `keys` are the columns that define what a row measures: [`RESULT_KEYS`] or [`OOD_KEYS`]. If rows of one run have
/// equal keys, the last one counts. Rows without any setting belong to no series.
pub fn of_table<'a>(table: &'a Table, keys: &[&str]) -> Vec<Series<'a>> {
    let mut groups = separate(table, &latest(table, keys), keys);
    groups.retain(|(settings, _)| !settings.is_empty());
    groups.sort_by_cached_key(|(settings, _)| (rank_in_legend(settings), numbers(settings, table)));
    let names = distinct(names(groups.iter().map(|(settings, _)| settings.as_slice())), table, &groups);
    let series = groups.into_iter().zip(names);
    series.map(|((settings, rows), name)| Series { name, settings, rows }).collect()
}

/// Returns the rows that no later row of the same run, images and keys replaces. Such rows occur if a file is given
/// twice.
fn latest(table: &Table, keys: &[&str]) -> Vec<usize> {
    let run = table.index("run");
    let named = ["experiment", "run", "predictive", TESTED.fingerprint, FOREIGN.fingerprint];
    let places = table.places(named.iter().chain(keys).copied());
    let key = |row: usize| places.iter().map(|place| table.cell(row, *place)).collect::<Vec<_>>();
    let last: HashMap<_, usize> = (0..table.rows.len()).map(|row| (key(row), row)).collect();
    let mut rows: Vec<usize> = last.into_values().filter(|row| !table.cell(*row, run).is_empty()).collect();
    rows.extend((0..table.rows.len()).filter(|row| table.cell(*row, run).is_empty()));
    rows.sort_unstable();
    rows
}

/// Returns the settings of the rows, each with its rows, in the order of their first rows. Rows belong together if their
/// runs have one resolved config apart from the seed. Of two runs with one seed, the last one counts. A run whose config is
/// not known stands alone, because nothing says which runs are seeds of it.
fn separate<'a>(table: &'a Table, rows: &[usize], keys: &[&str]) -> Vec<(Settings<'a>, Vec<usize>)> {
    let [config, run, seed] = [CONFIG, "run", "seed"].map(|column| table.index(column));
    let columns: Vec<(usize, &str)> =
        table.columns.iter().map(String::as_str).enumerate().filter(|(_, name)| is_setting(name)).collect();
    let whose = table.places(["experiment", "checkpoint", "predictive"]);
    let group = |row: usize| -> Vec<&str> {
        let of_run = whose.iter().map(|place| table.cell(row, *place));
        match table.cell(row, config) {
            "" => {
                let settings = columns.iter().map(|(place, _)| table.rows[row][*place].as_str());
                ["", table.cell(row, run), table.cell(row, seed)].into_iter().chain(settings).collect()
            }
            known => std::iter::once(known).chain(of_run).collect(),
        }
    };
    let measured = table.places(["seed", TESTED.fingerprint, FOREIGN.fingerprint].iter().chain(keys).copied());
    let mut groups = vec![];
    for (key, mut rows) in grouped(rows.iter().map(|row| (group(*row), *row))) {
        let settings = columns.iter().filter_map(|(place, name)| {
            let cells = rows.iter().rev().map(|row| table.rows[*row][*place].as_str());
            Some((*name, cells.into_iter().find(|cell| !cell.is_empty())?))
        });
        let settings: Settings = settings.collect();
        if !key[0].is_empty() {
            let cells = |row: usize| measured.iter().map(|place| table.cell(row, *place)).collect::<Vec<_>>();
            let last: HashMap<_, usize> = rows.iter().map(|row| (cells(*row), *row)).collect();
            rows.retain(|row| last[&cells(*row)] == *row);
        }
        groups.push((settings, rows));
    }
    groups.sort_by_key(|(_, rows)| rows[0]);
    groups
}

fn is_setting(column: &str) -> bool {
    IDENTITY.contains(&column) || column.contains('.')
}

/// Adds the run, or else the hash of the config, to names that several series have.
fn distinct(names: Vec<String>, table: &Table, groups: &[(Settings, Vec<usize>)]) -> Vec<String> {
    let several = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
    let [config, run] = [CONFIG, "run"].map(|column| table.index(column));
    let tell = |(name, (_, rows)): (&String, &(Settings, Vec<usize>))| {
        let [config, run] = [config, run].map(|place| table.cell(rows[0], place));
        match (several(name), config, run) {
            (true, "", run) if name.is_empty() => run.to_string(),
            (true, "", run) if !run.is_empty() => format!("{name}, {run}"),
            (true, config, _) if !config.is_empty() => format!("{name}, config {config}"),
            _ => name.clone(),
        }
    };
    names.iter().zip(groups).map(tell).collect()
}

/// Returns the sort key of a series: the untrained checkpoint first, then full models before low-rank ones, then
/// methods in the order of their registry.
fn rank_in_legend(series: &Settings) -> (bool, bool, usize) {
    let method = setting(series, "method");
    let methods = registered();
    let place = methods.iter().position(|entry| entry.key == method).unwrap_or(methods.len());
    (method != "checkpoint", setting(series, "subspace") == "low-rank", place)
}

/// Returns the settings of a series that are numbers, in the order of the table's columns. Those that it lacks are smallest.
fn numbers(series: &Settings, table: &Table) -> Vec<Option<Number>> {
    let columns = table.columns.iter().filter(|column| is_setting(column));
    columns.map(|column| setting(series, column).parse().ok().map(Number)).collect()
}

#[cfg(test)]
mod tests {
    use super::{RESULT_KEYS, of_table};
    use crate::results::store::Table;

    #[test]
    fn runs_of_no_known_method_have_the_names_of_their_runs() {
        let columns = ["experiment", "run", "predictive"].map(String::from).to_vec();
        let rows = ["r1", "r2"].map(|run| ["toy", run, ""].map(String::from).to_vec()).to_vec();
        let table = Table { columns, rows };
        let names: Vec<String> = of_table(&table, RESULT_KEYS).into_iter().map(|one| one.name).collect();
        assert_eq!(names, ["r1", "r2"]);
    }

    #[test]
    fn series_with_unlike_settings_have_one_order() {
        // Of three series each pair shares another setting, so that pair by pair they would form a circle.
        let columns = ["experiment", "run", "method", "a.x", "a.y", "a.z"].map(String::from).to_vec();
        let cells = [["1", "", "2"], ["2", "1", ""], ["", "2", "1"]];
        let row = |at: usize| -> Vec<String> {
            let fixed = ["toy".to_string(), format!("run-{at}"), "single".to_string()];
            fixed.into_iter().chain(cells[at % 3].map(String::from)).collect()
        };
        let order = |rows: &[usize]| -> Vec<usize> {
            let table = Table { columns: columns.clone(), rows: rows.iter().map(|at| row(*at)).collect() };
            let series = of_table(&table, RESULT_KEYS);
            series.iter().map(|one| rows[one.rows[0]] % 3).collect()
        };
        assert_eq!(order(&[0, 1, 2]), [2, 0, 1]);
        assert_eq!(order(&[1, 2, 0]), [2, 0, 1]);
        let many: Vec<usize> = (0..60).collect();
        assert!(order(&many).is_sorted_by_key(|kind| [1, 2, 0][*kind]));
    }
}
