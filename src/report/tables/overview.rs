//! The results as a reader compares them: one row per method and condition, with the name that the method has in the
//! literature.

use std::collections::HashMap;

use crate::base::small::push_new;
use crate::report::aggregate::{Aggregate, Summary, aggregates};
use crate::report::sources::Sources;
use crate::results::series::{Series, of_table};
use crate::results::store::Table;
use crate::results::table::SPREAD;

/// The columns that name a row besides those that say what it measures. `method` holds the name of the series, which tells
/// its settings where others differ.
const NAMES: &[&str] = &["method", "file", "ood_file", "checkpoint", "seed"];

/// A column that is not shown: the number of samples that a share is of.
const SAMPLES: &str = "samples";

/// Returns the columns that name a row of an overview whose rows measure what `keys` say.
pub fn overview_labels(keys: &[&str]) -> Vec<String> {
    // Sets and conditions stand before the methods, and the way of measuring after them.
    let (places, ways): (Vec<&str>, Vec<&str>) = keys.iter().partition(|key| PLACES.contains(*key));
    places.iter().chain(NAMES).chain(&ways).map(|name| name.to_string()).collect()
}

/// The keys that say on which images a row was measured.
const PLACES: &[&str] = &["set", "ood_set", "condition"];

/// Returns the rows sorted by what they measure, which `keys` say, and within one by series, with their labels and
/// `numbers`, which are columns of the table. `None` if a row belongs to no series.
pub fn overview(table: &Table, keys: &[&str], numbers: &[String]) -> Option<Table> {
    let series = of_table(table, keys);
    let of_row = series_of_rows(&series, table.rows.len())?;
    let measured = measured(table, keys);
    let mut order: Vec<usize> = (0..table.rows.len()).collect();
    order.sort_by_key(|row| {
        (measured[*row], of_row[*row], table.get(*row, "seed").and_then(|seed| seed.parse::<u64>().ok()))
    });
    let labels = overview_labels(keys).into_iter().filter(|label| !numbers.contains(label));
    let mut columns: Vec<String> = labels.chain(numbers.iter().cloned()).collect();
    push_new(&mut columns, SAMPLES.to_string());
    let places = table.places(columns.iter().map(String::as_str));
    let cells = |row: usize| -> Vec<String> {
        let cell = |(column, place): (&String, &Option<usize>)| match column.as_str() {
            "method" => series[of_row[row]].name.clone(),
            _ => table.cell(row, *place).to_string(),
        };
        columns.iter().zip(&places).map(cell).collect()
    };
    let rows = order.into_iter().map(cells).collect();
    Some(Table { columns, rows })
}

/// Returns one row for each condition and series, sorted so, with the mean and the standard deviation over the seeds of
/// each of `numbers`.
pub fn seeds_overview(sources: &Sources, numbers: &[String]) -> Table {
    let labels = ["set", "condition", "method", "seeds"].map(String::from);
    let mut known = Vec::new();
    let mut aggregates = aggregates(sources);
    aggregates.iter().for_each(|one| push_new(&mut known, one.group.clone()));
    aggregates.sort_by_key(|one| known.iter().position(|group| *group == one.group));
    let cells = |one: &Aggregate| -> Vec<String> {
        let names = [one.group.set.clone(), one.group.condition.clone(), one.series.clone(), one.seeds().to_string()];
        let cell = |column: &String| one.summary(column).map_or(String::new(), |summary| mean_and_deviation(&summary));
        names.into_iter().chain(numbers.iter().map(cell)).collect()
    };
    let rows = aggregates.iter().map(cells).collect();
    Table { columns: labels.into_iter().chain(numbers.iter().cloned()).collect(), rows }
}

fn mean_and_deviation(summary: &Summary) -> String {
    match summary.spread {
        Some(spread) => format!("{}{SPREAD}{}", summary.mean, spread.sd),
        None => summary.mean.to_string(),
    }
}

/// Returns the place of each row's series.
fn series_of_rows(series: &[Series], rows: usize) -> Option<Vec<usize>> {
    let mut found = vec![None; rows];
    for (place, series) in series.iter().enumerate() {
        series.rows.iter().for_each(|row| found[*row] = Some(place));
    }
    found.into_iter().collect()
}

/// Returns for each row the place of what it measures among all, in the order in which they first occur.
fn measured(table: &Table, keys: &[&str]) -> Vec<usize> {
    let mut known = HashMap::new();
    let places = table.places(keys.iter().copied());
    let key = |row: usize| places.iter().map(|place| table.cell(row, *place)).collect::<Vec<_>>();
    (0..table.rows.len())
        .map(|row| {
            let next = known.len();
            *known.entry(key(row)).or_insert(next)
        })
        .collect()
}
