//! Sorts result rows into series (runs that differ in nothing but the seed) and groups (a test set and a condition).

use anyhow::{Result, ensure};

use crate::base::small::push_new;
use crate::results::series::{RESULT_KEYS, of_table, without_shared};
use crate::results::store::Table;

/// A test set and a condition as named in the results file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub set: String,
    pub condition: String,
}

/// The rows of a results file, sorted into series and groups.
#[derive(Debug)]
pub struct Comparison<'a> {
    table: &'a Table,
    /// The name of each series, in the order of the legend.
    pub names: Vec<String>,
    /// The words that all series share, which the names do not repeat.
    pub shared: String,
    pub groups: Vec<Group>,
    /// The row, the series and the group of each result, as indices.
    places: Vec<(usize, usize, usize)>,
}

impl<'a> Comparison<'a> {
    /// Fails if there are no rows, or if one of the columns `method` and `condition` is missing.
    pub fn of(table: &'a Table) -> Result<Self> {
        ensure!(!table.rows.is_empty(), "no result rows to draw; evaluate a run first");
        for column in ["method", "condition"] {
            ensure!(table.index(column).is_some(), "the results have no column `{column}`");
        }
        let series = of_table(table, RESULT_KEYS);
        let group =
            |row: usize| Group { set: text(table, row, "set").into(), condition: text(table, row, "condition").into() };
        let mut rows: Vec<_> = series
            .iter()
            .enumerate()
            .flat_map(|(one, series)| series.rows.iter().map(move |row| (*row, one)))
            .collect();
        rows.sort();
        let mut groups = vec![];
        rows.iter().for_each(|(row, _)| push_new(&mut groups, group(*row)));
        let sets: Vec<_> = groups.iter().map(|one| one.set.clone()).collect();
        groups.sort_by_key(|one| (sets.iter().position(|set| *set == one.set), one.condition != "clean"));
        let place =
            |(row, one): &(usize, usize)| Some((*row, *one, groups.iter().position(|other| *other == group(*row))?));
        let places = rows.iter().filter_map(place).collect();
        let all: Vec<String> = series.into_iter().map(|one| one.name).collect();
        let (shared, names) = without_shared(&all);
        Ok(Self { table, names, shared, groups, places })
    }

    /// Returns the values of a column, each multiplied by `factor`. Empty cells are skipped. `None` if no cell has a
    /// value. Shape `[series][group][seed]`.
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
