//! Rows of a results file sorted into series: runs that differ in nothing but the seed, each with the name it has in
//! the literature.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::images::{FOREIGN, TESTED};
use super::store::Table;
use crate::methods::registered;

/// Columns that tell series apart besides the settings of method and optimizer, whose columns have a dot.
const IDENTITY: &[&str] = &["experiment", "checkpoint", "subspace", "method", "particles", "rank", "predictive"];

/// What one row of a results file is a measurement of, besides its run and predictive.
pub const RESULT_KEYS: &[&str] = &["set", "condition"];

/// What one row of an out-of-distribution file is a measurement of, besides its run and predictive.
pub const OOD_KEYS: &[&str] = &["set", "ood_set", "score", "average"];

/// Settings: (column, value), empty cells left out.
pub type Settings<'a> = Vec<(&'a str, &'a str)>;

/// Runs that are equal in everything but the seed.
#[derive(Clone, Debug)]
pub struct Series<'a> {
    /// As in a legend: `Bella-SVGD (n=5)`, with the settings that tell it from others of the same name.
    pub name: String,
    pub settings: Settings<'a>,
    /// Row numbers in the table, of all seeds, in its order.
    pub rows: Vec<usize>,
}

impl Series<'_> {
    /// A setting; empty where it has none.
    pub fn setting(&self, column: &str) -> &str {
        setting(&self.settings, column)
    }
}

/// The series of a table in the order of a legend: the checkpoint first, whole models before low-rank ones. `keys` are
/// the columns that say what a row measures: [`RESULT_KEYS`] or [`OOD_KEYS`]. Of rows of one run with equal keys the
/// last one counts; rows without any setting belong to no series.
pub fn of_table<'a>(table: &'a Table, keys: &[&str]) -> Vec<Series<'a>> {
    let rows = latest(table, keys);
    let settings = separate(table, &rows, keys);
    let mut distinct: Vec<Settings> = vec![];
    for one in settings.iter().filter(|one| !one.is_empty()) {
        if !distinct.contains(one) {
            distinct.push(one.clone());
        }
    }
    distinct.sort_by(|a, b| rank_in_legend(a).cmp(&rank_in_legend(b)).then_with(|| by_numbers(a, b)));
    let names = names(&distinct);
    let rows_of = |wanted: &Settings| {
        let own = rows.iter().zip(&settings).filter(|(_, one)| *one == wanted);
        own.map(|(row, _)| *row).collect()
    };
    let series = distinct.into_iter().zip(names);
    series.map(|(settings, name)| Series { name, rows: rows_of(&settings), settings }).collect()
}

fn text<'a>(table: &'a Table, row: usize, column: &str) -> &'a str {
    table.get(row, column).unwrap_or_default()
}

/// Rows without those that a later row of the same run, images and keys stands for (a file given twice).
fn latest(table: &Table, keys: &[&str]) -> Vec<usize> {
    let columns = ["experiment", "run", "predictive", TESTED.fingerprint, FOREIGN.fingerprint].iter().chain(keys);
    let key = |row| columns.clone().map(|column| text(table, row, column)).collect::<Vec<_>>();
    let mut last = BTreeMap::new();
    (0..table.rows.len()).for_each(|row| {
        last.insert(key(row), row);
    });
    (0..table.rows.len())
        .filter(|row| text(table, *row, "run").is_empty() || last.get(&key(*row)) == Some(row))
        .collect()
}

/// Settings of every row. Two runs of one seed that agree in all columns differ in something the file does not say:
/// such series are split by run, lest different experiments pass as seeds of one.
fn separate<'a>(table: &'a Table, rows: &[usize], keys: &[&str]) -> Vec<Settings<'a>> {
    let columns: Vec<_> =
        table.columns.iter().map(String::as_str).filter(|name| IDENTITY.contains(name) || name.contains('.')).collect();
    let cells = |row: usize| columns.iter().map(move |column| (*column, text(table, row, column)));
    let settings: Vec<Settings> =
        rows.iter().map(|row| cells(*row).filter(|(_, value)| !value.is_empty()).collect()).collect();
    let mut runs: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for (row, one) in rows.iter().zip(&settings) {
        let measured: Vec<_> = ["seed"].iter().chain(keys).map(|column| text(table, *row, column)).collect();
        runs.entry((one.clone(), measured)).or_default().insert(text(table, *row, "run"));
    }
    let mixed: BTreeSet<_> = runs.into_iter().filter(|(_, runs)| runs.len() > 1).map(|((one, _), _)| one).collect();
    let split = |(row, mut one): (&usize, Settings<'a>)| {
        if mixed.contains(&one) {
            one.push(("run", text(table, *row, "run")));
        }
        one
    };
    rows.iter().zip(settings).map(split).collect()
}

fn setting<'a>(series: &[(&'a str, &'a str)], column: &str) -> &'a str {
    series.iter().find(|(name, _)| *name == column).map_or("", |(_, value)| value)
}

/// The untrained checkpoint first, then whole models before low-rank ones, methods in the order of their registry.
fn rank_in_legend(series: &Settings) -> (bool, bool, usize) {
    let method = setting(series, "method");
    let methods = registered();
    let place = methods.iter().position(|entry| entry.key == method).unwrap_or(methods.len());
    (method != "checkpoint", setting(series, "subspace") == "low-rank", place)
}

/// By the first setting that is a number in both and differs.
fn by_numbers(one: &Settings, other: &Settings) -> Ordering {
    let number = |text: &str| text.parse::<f64>().ok();
    let pairs = one.iter().filter_map(|(column, value)| Some((number(value)?, number(setting(other, column))?)));
    pairs.map(|(a, b)| a.total_cmp(&b)).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
}

/// Names of all series; those that would be equal carry the settings in which they differ.
pub fn names(series: &[Settings]) -> Vec<String> {
    let bases: Vec<_> = series.iter().map(|one| base_name(one)).collect();
    let name = |(this, base): (&Settings, &String)| {
        let peers: Vec<_> =
            series.iter().zip(&bases).filter(|(_, other)| *other == base).map(|(peer, _)| peer).collect();
        let columns: BTreeSet<&str> = peers.iter().flat_map(|peer| peer.iter().map(|(column, _)| *column)).collect();
        let differing =
            columns.iter().filter(|column| peers.iter().any(|peer| setting(peer, column) != setting(this, column)));
        let parts = differing.map(|column| match (*column, setting(this, column)) {
            (_, "") => format!("no {}", short(column)),
            ("run" | "experiment" | "checkpoint", value) => value.to_string(),
            (_, value) => format!("{} = {value}", short(column)),
        });
        std::iter::once(base.clone()).chain(parts).collect::<Vec<_>>().join(", ")
    };
    series.iter().zip(&bases).map(name).collect()
}

/// `svgd.drive` is `drive` in a legend that names the method already.
fn short(column: &str) -> &str {
    column.split_once('.').map_or(column, |(_, key)| key)
}

/// The name that a combination of subspace, method, particles and predictive has in the literature.
pub fn base_name(settings: &[(&str, &str)]) -> String {
    let particles = match setting(settings, "particles") {
        "" | "1" => String::new(),
        count => format!(" (n={count})"),
    };
    let predictive = match setting(settings, "predictive") {
        "" => String::new(),
        name => format!(" {name}"),
    };
    let (subspace, method) = (setting(settings, "subspace"), setting(settings, "method"));
    let entry = registered().into_iter().find(|entry| entry.key == method);
    let names = entry.map_or(&[][..], |entry| entry.names);
    let method = match names.iter().find(|(of, _)| *of == subspace) {
        _ if method == "checkpoint" => return "checkpoint, zero-shot".to_string(),
        Some((_, name)) => name.to_string(),
        None if subspace.is_empty() => method.to_string(),
        None => format!("{subspace} × {method}"),
    };
    format!("{method}{predictive}{particles}")
}
