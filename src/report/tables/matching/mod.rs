//! Finds our result rows that are comparable with a published cell. A row must meet every demand of the cell. There is
//! one value per run, and the values are separated by checkpoint and by series.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use crate::base::small::grouped;
use crate::report::paper::{Cell, Demand, Origin, Severities};
use crate::report::sources::{RowView, Sources};
use crate::results::images::stored_name;
use crate::results::series::Series;
use crate::results::store::Table;

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
    results: Rows<'a>,
    ood: Rows<'a>,
}

/// The rows of one table. Published cells share most of their demands, so each demand is compared with the rows once.
struct Rows<'a> {
    table: &'a Table,
    series: Vec<Series<'a>>,
    /// Whether each row meets a demand.
    fitting: RefCell<HashMap<Demand, Rc<[bool]>>>,
}

impl<'a> Rows<'a> {
    fn new(table: &'a Table, series: Vec<Series<'a>>) -> Self {
        Self { table, series, fitting: RefCell::default() }
    }
}

impl<'a> Matcher<'a> {
    pub fn new(sources: &'a Sources) -> Self {
        let results = Rows::new(&sources.results, sources.series());
        Self { sources, results, ood: Rows::new(&sources.ood, sources.ood_series()) }
    }

    /// Returns our values for a cell, in the order of the legend. Empty if no run fits.
    pub fn find(&self, cell: &Cell) -> Vec<Found> {
        if !cell.is_comparable() || cell.origin == Origin::MeanOfCells {
            return vec![];
        }
        let of_ood = cell.demands.iter().any(|demand| demand.column == "ood_set");
        let rows = if of_ood { &self.ood } else { &self.results };
        let mut fit = vec![true; rows.table.rows.len()];
        for demand in &cell.demands {
            let meets = self.fitting(rows, demand);
            fit.iter_mut().zip(meets.iter()).for_each(|(fits, meets)| *fits &= *meets);
        }
        let mut found: Vec<Found> = vec![];
        for one in &rows.series {
            let fitting = one.rows.iter().filter(|row| fit[**row]);
            for (images, rows) in by_images(fitting.map(|row| RowView::new(rows.table, *row))) {
                let series = [one.name.as_str(), &images].into_iter().filter(|part| !part.is_empty());
                let series = series.collect::<Vec<_>>().join(", ");
                let values = values(&rows, cell).into_iter();
                found.extend(values.map(|(checkpoint, values)| Found { checkpoint, series: series.clone(), values }));
            }
        }
        found
    }

    /// Returns for each row whether it meets a demand.
    fn fitting(&self, rows: &Rows, demand: &Demand) -> Rc<[bool]> {
        if let Some(known) = rows.fitting.borrow().get(demand) {
            return known.clone();
        }
        let column = match demand.column.as_str() {
            "set" => stored_name(rows.table, "set"),
            "ood_set" => stored_name(rows.table, "ood_set"),
            column => column,
        };
        let place = rows.table.index(column);
        let mut known: HashMap<&str, bool> = HashMap::new();
        let meets = |row: usize| match rows.table.cell(row, place) {
            "" => demand.fits(&self.configured(&RowView::new(rows.table, row), &demand.column)),
            cell => *known.entry(cell).or_insert_with(|| demand.fits(cell)),
        };
        let meets: Rc<[bool]> = (0..rows.table.rows.len()).map(meets).collect();
        rows.fitting.borrow_mut().insert(demand.clone(), meets.clone());
        meets
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
fn by_images<'a>(rows: impl Iterator<Item = RowView<'a>>) -> Vec<(String, Vec<RowView<'a>>)> {
    let name = |row: RowView<'a>| {
        let renamed = ["set", "ood_set"].into_iter().filter(|column| row.get(column) != row.stored_name(column));
        (renamed.map(|column| row.get(column)).collect::<Vec<_>>().join(", "), row)
    };
    grouped(rows.map(name))
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
