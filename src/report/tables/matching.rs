//! Finds our result rows that are comparable with a published cell. A row must meet every demand of the cell. There is
//! one value per run, and the values are separated by checkpoint and by series.

use std::collections::BTreeMap;

use crate::report::paper::{Cell, Demand, Origin, Severities};
use crate::report::sources::{RowView, Sources};
use crate::results::series::Series;

/// Our values for a published cell with one checkpoint and one series.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The name of the checkpoint. If the row does not have one, the name of the experiment.
    pub checkpoint: String,
    /// The name of the series, followed by that of the images if the set has different ones.
    pub series: String,
    /// One value per run (seed).
    pub values: Vec<f64>,
}

/// Our results, prepared for many look-ups.
pub struct Matcher<'a> {
    sources: &'a Sources,
    results: Vec<Series<'a>>,
    ood: Vec<Series<'a>>,
}

impl<'a> Matcher<'a> {
    pub fn new(sources: &'a Sources) -> Self {
        Self { sources, results: sources.series(), ood: sources.ood_series() }
    }

    /// Returns our values for a cell, in the order of the legend. Empty if no run fits.
    pub fn find(&self, cell: &Cell) -> Vec<Found> {
        if !cell.is_comparable() || cell.origin == Origin::MeanOfCells {
            return vec![];
        }
        let of_ood = cell.demands.iter().any(|demand| demand.column == "ood_set");
        let (series, table) =
            if of_ood { (&self.ood, &self.sources.ood) } else { (&self.results, &self.sources.results) };
        let mut found: Vec<Found> = vec![];
        for one in series {
            let rows = one.rows.iter().map(|row| RowView::new(table, *row));
            let rows: Vec<_> = rows.filter(|row| cell.demands.iter().all(|demand| self.has(row, demand))).collect();
            for (images, rows) in by_images(&rows) {
                let series = [one.name.as_str(), &images].into_iter().filter(|part| !part.is_empty());
                let series = series.collect::<Vec<_>>().join(", ");
                let values = values(&rows, cell).into_iter();
                found.extend(values.map(|(checkpoint, values)| Found { checkpoint, series: series.clone(), values }));
            }
        }
        found
    }

    fn has(&self, row: &RowView, demand: &Demand) -> bool {
        let cell = match demand.column.as_str() {
            "set" => row.stored_name("set"),
            "ood_set" => row.stored_name("ood_set"),
            column => row.get(column),
        };
        match cell {
            "" => demand.fits(&self.configured(row, &demand.column)),
            cell => demand.fits(cell),
        }
    }

    /// Returns the value of a setting that rows do not carry (such as `low-rank.targets`), taken from the config of the
    /// run. Empty if it is unknown.
    fn configured(&self, row: &RowView, column: &str) -> String {
        let value = || {
            let (choice, key) = column.split_once('.')?;
            let config = self.sources.run_of(row)?.config.as_ref()?;
            let value = config.get("subspace")?.get(choice)?.get(key)?;
            Some(value.as_str().map_or_else(|| value.to_string(), String::from))
        };
        value().unwrap_or_default()
    }
}

/// Returns the name of a row's checkpoint. If the row does not have one, the name of its experiment.
pub fn checkpoint(row: &RowView) -> String {
    match row.get("checkpoint") {
        "" => format!("experiment {}", row.get("experiment")),
        name => name.to_string(),
    }
}

/// Groups rows by the images that they measure. The name of a group is empty if each set has a single set of images.
/// Otherwise it consists of the names that distinguish the images.
fn by_images<'a>(rows: &[RowView<'a>]) -> Vec<(String, Vec<RowView<'a>>)> {
    let mut groups: Vec<(String, Vec<RowView>)> = vec![];
    for row in rows {
        let renamed = ["set", "ood_set"].into_iter().filter(|column| row.get(column) != row.stored_name(column));
        let name = renamed.map(|column| row.get(column)).collect::<Vec<_>>().join(", ");
        match groups.iter_mut().find(|(other, _)| *other == name) {
            Some((_, rows)) => rows.push(*row),
            None => groups.push((name, vec![*row])),
        }
    }
    groups
}

/// Returns the values by checkpoint, one per run: the value of the run's last row, or the mean over the severities that
/// the cell asks for.
fn values(rows: &[RowView], cell: &Cell) -> Vec<(String, Vec<f64>)> {
    let mut runs: BTreeMap<(String, &str), Vec<RowView>> = BTreeMap::new();
    for row in rows {
        runs.entry((checkpoint(row), row.get("run"))).or_default().push(*row);
    }
    let mut values: Vec<(String, Vec<f64>)> = vec![];
    for ((checkpoint, _), rows) in runs {
        let value = match &cell.severities {
            None => rows.iter().rev().find_map(|row| row.number(&cell.metric)),
            Some(severities) => mean_over(severities, &rows, &cell.metric),
        };
        let Some(value) = value else { continue };
        match values.last_mut().filter(|(name, _)| *name == checkpoint) {
            Some((_, values)) => values.push(value),
            None => values.push((checkpoint, vec![value])),
        }
    }
    values
}

/// Returns the mean of a metric over severities. `None` unless all of them are there.
fn mean_over(severities: &Severities, rows: &[RowView], metric: &str) -> Option<f64> {
    let value = |severity: u8| {
        let condition = format!("{}:{severity}", severities.corruption);
        rows.iter().rev().find(|row| row.get("condition") == condition)?.number(metric)
    };
    let values: Vec<f64> = severities.range.clone().map(value).collect::<Option<_>>()?;
    Some(values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests;
