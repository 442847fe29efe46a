//! The results as a reader compares them: one row per method and condition, with the name that the method has in the
//! literature.

use std::collections::HashMap;

use crate::base::small::{counted, push_new};
use crate::metrics::{Unit, of_column, rounded};
use crate::report::aggregate::{Aggregate, Summary, aggregates};
use crate::report::sources::Sources;
use crate::results::series::{Series, of_table};
use crate::results::store::Table;
use crate::results::table::{SPREAD, averages_of, metric_title};

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

/// Returns for each set, condition and series a heading and a row for each of `numbers`, with its mean, standard deviation and
/// 95 % interval over the seeds.
pub fn intervals(sources: &Sources, numbers: &[String]) -> Vec<(String, Table)> {
    let (aggregates, of_both) = (aggregates(sources), averages_of(numbers).len() > 1);
    let of_one = |one: &Aggregate| {
        let mut table = Table::new(["metric", "mean", "sd", "95 % interval"]);
        for (column, summary) in numbers.iter().filter_map(|column| Some((column, one.summary(column)?))) {
            let is_fraction = of_column(column).is_some_and(|metric| metric.unit == Unit::Fraction);
            let number = |value: f64| match is_fraction {
                true => rounded(100.0 * value, 2, 100.0 * summary.mean),
                false => rounded(value, 4, summary.mean),
            };
            let mut name = metric_title(column, of_both).unwrap_or_else(|| column.clone());
            if summary.count < one.seeds() {
                name += &format!(" ({} of {} seeds)", summary.count, one.seeds());
            }
            let spread = summary.spread.map_or(String::new(), |spread| number(spread.sd));
            let ends = summary.interval().map(|(low, high)| format!("{} to {}", number(low), number(high)));
            table.rows.push(vec![name, number(summary.mean), spread, ends.unwrap_or_default()]);
        }
        let seeds = counted(one.seeds(), "seed", "seeds");
        (format!("{}, {}: {}, {seeds}", one.group.set, one.group.condition, one.series), table)
    };
    aggregates.iter().map(of_one).collect()
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
