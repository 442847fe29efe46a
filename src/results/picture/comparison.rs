//! What is compared: result rows sorted into series (runs that differ in nothing but the seed) and groups (a test set
//! under a condition), each with the name it has in the literature.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::results::store::Table;

/// Columns that tell series apart besides the settings of method and optimizer, whose columns have a dot.
const IDENTITY: &[&str] = &["experiment", "subspace", "method", "particles", "rank"];

/// A test set under a condition, as in the results file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub set: String,
    pub condition: String,
}

/// Rows of a results file as series × groups.
#[derive(Debug)]
pub struct Comparison<'a> {
    table: &'a Table,
    /// One name per series, in the order of the legend.
    pub names: Vec<String>,
    pub groups: Vec<Group>,
    /// (row, series, group).
    places: Vec<(usize, usize, usize)>,
}

/// Settings of a series: (column, value), empty cells left out.
type Settings<'a> = Vec<(&'a str, &'a str)>;

impl<'a> Comparison<'a> {
    /// Errors: no rows, or a column that names them is missing.
    pub fn of(table: &'a Table) -> Result<Self> {
        ensure!(!table.rows.is_empty(), "no result rows to draw; evaluate a run first");
        for column in ["method", "condition"] {
            ensure!(table.index(column).is_some(), "the results have no column `{column}`");
        }
        let rows = latest(table);
        let settings = separate(table, &rows);
        let mut series: Vec<Settings> = vec![];
        settings.iter().filter(|one| !one.is_empty()).for_each(|one| push_new(&mut series, one.clone()));
        series.sort_by_key(|one| rank_in_legend(one));
        let group =
            |row: usize| Group { set: text(table, row, "set").into(), condition: text(table, row, "condition").into() };
        let mut groups = vec![];
        rows.iter().for_each(|row| push_new(&mut groups, group(*row)));
        let sets: Vec<_> = groups.iter().map(|one| one.set.clone()).collect();
        groups.sort_by_key(|one| (sets.iter().position(|set| *set == one.set), one.condition != "clean"));
        let place = |(row, one): (&usize, &Settings)| {
            let series = series.iter().position(|other| other == one)?;
            Some((*row, series, groups.iter().position(|other| *other == group(*row))?))
        };
        let places = rows.iter().zip(&settings).filter_map(place).collect();
        Ok(Self { table, names: names(&series), groups, places })
    }

    /// Values of a column times `factor`, `[series][group][seed]`; empty cells are no values. `None` if there are none.
    pub fn values(&self, column: &str, factor: f64) -> Result<Option<Vec<Vec<Vec<f64>>>>> {
        let mut values = vec![vec![vec![]; self.groups.len()]; self.names.len()];
        for &(row, series, group) in &self.places {
            let cell = text(self.table, row, column);
            if cell.is_empty() {
                continue;
            }
            let value = cell.parse().ok().filter(|value: &f64| value.is_finite());
            ensure!(value.is_some(), "row {}, column `{column}` = `{cell}`: must be a finite number or empty", row + 1);
            values[series][group].extend(value.map(|value| factor * value));
        }
        Ok(values.iter().flatten().any(|seeds| !seeds.is_empty()).then_some(values))
    }
}

fn text<'a>(table: &'a Table, row: usize, column: &str) -> &'a str {
    table.get(row, column).unwrap_or_default()
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

/// Rows without those that a later row of the same run, set and condition stands for (a file given twice).
fn latest(table: &Table) -> Vec<usize> {
    let key = |row| ["experiment", "run", "set", "condition"].map(|column| text(table, row, column));
    let replaced = |row: usize| {
        !text(table, row, "run").is_empty() && (row + 1..table.rows.len()).any(|later| key(later) == key(row))
    };
    (0..table.rows.len()).filter(|row| !replaced(*row)).collect()
}

/// Settings of every row. Two runs of one seed that agree in all columns differ in something the file does not say:
/// such series are split by run, lest different experiments pass as seeds of one.
fn separate<'a>(table: &'a Table, rows: &[usize]) -> Vec<Settings<'a>> {
    let columns: Vec<_> =
        table.columns.iter().map(String::as_str).filter(|name| IDENTITY.contains(name) || name.contains('.')).collect();
    let cells = |row: usize| columns.iter().map(move |column| (*column, text(table, row, column)));
    let settings: Vec<Settings> =
        rows.iter().map(|row| cells(*row).filter(|(_, value)| !value.is_empty()).collect()).collect();
    let mut runs: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for (row, one) in rows.iter().zip(&settings) {
        let seed = (one.clone(), ["seed", "set", "condition"].map(|column| text(table, *row, column)));
        runs.entry(seed).or_default().insert(text(table, *row, "run"));
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

fn setting<'a>(series: &Settings<'a>, column: &str) -> &'a str {
    series.iter().find(|(name, _)| *name == column).map_or("", |(_, value)| value)
}

/// The untrained checkpoint first, then whole models before low-rank ones, simple methods before others.
fn rank_in_legend(series: &Settings) -> (bool, bool, usize) {
    let method = setting(series, "method");
    let known = ["map", "ensemble", "svgd"];
    let place = known.iter().position(|name| *name == method).unwrap_or(known.len());
    (method != "checkpoint", setting(series, "subspace") == "low-rank", place)
}

/// Names of all series; those that would be equal carry the settings in which they differ.
fn names(series: &[Settings]) -> Vec<String> {
    let bases: Vec<_> = series.iter().map(base_name).collect();
    let name = |(this, base): (&Settings, &String)| {
        let peers: Vec<_> =
            series.iter().zip(&bases).filter(|(_, other)| *other == base).map(|(peer, _)| peer).collect();
        let columns: BTreeSet<&str> = peers.iter().flat_map(|peer| peer.iter().map(|(column, _)| *column)).collect();
        let differing =
            columns.iter().filter(|column| peers.iter().any(|peer| setting(peer, column) != setting(this, column)));
        let parts = differing.map(|column| match (*column, setting(this, column)) {
            (_, "") => format!("no {}", short(column)),
            ("run" | "experiment", value) => value.to_string(),
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

fn base_name(series: &Settings) -> String {
    let particles = match setting(series, "particles") {
        "" | "1" => String::new(),
        count => format!(" (n={count})"),
    };
    match (setting(series, "subspace"), setting(series, "method")) {
        (_, "checkpoint") => "checkpoint, zero-shot".to_string(),
        ("full", "map") => format!("Single{particles}"),
        ("low-rank", "map") => format!("Single, low-rank{particles}"),
        ("full", "ensemble") => format!("Ensemble{particles}"),
        ("low-rank", "ensemble") => format!("Bella-ensemble{particles}"),
        ("full", "svgd") => format!("SVGD{particles}"),
        ("low-rank", "svgd") => format!("Bella-SVGD{particles}"),
        ("", method) => format!("{method}{particles}"),
        (subspace, method) => format!("{subspace} × {method}{particles}"),
    }
}
