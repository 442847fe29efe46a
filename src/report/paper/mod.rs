//! The published numbers of `results/paper/`, compiled into the binary. Each line holds one cell of a table and the
//! conditions under which a result row of ours is comparable with it.

use std::ops::RangeInclusive;

use anyhow::{Context, Result, bail, ensure};

/// One table of a paper.
#[derive(Debug)]
pub struct PaperTable {
    /// The name of the table, such as `bella-1`.
    pub key: String,
    pub title: String,
    /// The paper and the number of the table in it.
    pub source: String,
    pub note: String,
    /// The cells in the order of the paper, row by row.
    pub cells: Vec<Cell>,
}

/// One published number.
#[derive(Debug, Clone)]
pub struct Cell {
    pub row: String,
    pub column: String,
    /// The number as the paper prints it. Empty if the paper prints nothing.
    pub printed: String,
    /// The number in the units of our results.
    pub value: Option<f64>,
    pub sd: Option<f64>,
    pub unit: Unit,
    /// The column of our results that is compared. Empty if bella does not measure it.
    pub metric: String,
    /// The demands that a result row of ours must meet, all of them.
    pub demands: Vec<Demand>,
    /// If set, our number is the mean over these severities of a corruption, and `demands` say nothing about the
    /// condition.
    pub severities: Option<Severities>,
    pub origin: Origin,
}

/// A published corruption and the severities over which it is averaged.
#[derive(Debug, Clone, PartialEq)]
pub struct Severities {
    pub corruption: String,
    pub range: RangeInclusive<u8>,
}

/// The origin of our number for a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The result rows that meet the demands.
    Rows,
    /// The mean over the other cells of the same model in the table.
    MeanOfCells,
}

/// The unit in which a number is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Percent,
    Fraction,
    Nats,
    Number,
    Count,
    Gigabytes,
    Megabytes,
}

/// The requirement that a result row must meet in one column.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Demand {
    pub column: String,
    pub wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Wanted {
    /// Any text that is not empty.
    Something,
    /// One of these texts. The empty text stands for an empty or missing cell.
    OneOf(Vec<String>),
    /// A number within a factor of 1.5 of this one: `~1840000` trained parameters are those of a network of the same size.
    About(u64),
}

/// How far a number may be from the one that it should be about, as a factor.
const ABOUT: f64 = 1.5;

impl Demand {
    fn new(column: &str, wanted: &str) -> Self {
        let about = wanted.strip_prefix('~').and_then(|number| number.parse().ok());
        let wanted = match wanted {
            _ if let Some(number) = about => Wanted::About(number),
            "*" => Wanted::Something,
            texts => Wanted::OneOf(texts.split('|').map(String::from).collect()),
        };
        Self { column: column.to_string(), wanted }
    }

    /// Returns whether a cell meets the demand. Numbers are compared by value: `0.10` equals `0.1`.
    pub fn fits(&self, cell: &str) -> bool {
        let same = |wanted: &String| match (wanted.parse::<f64>(), cell.parse::<f64>()) {
            (Ok(wanted), Ok(cell)) => (wanted - cell).abs() <= 1e-9 * wanted.abs(),
            _ => wanted == cell,
        };
        match &self.wanted {
            Wanted::Something => !cell.is_empty(),
            Wanted::OneOf(texts) => texts.iter().any(same),
            Wanted::About(wanted) => cell.parse::<f64>().is_ok_and(|cell| {
                let factor = cell / *wanted as f64;
                (1.0 / ABOUT..=ABOUT).contains(&factor)
            }),
        }
    }
}

impl Cell {
    /// Returns whether a result row of ours can ever be compared with this cell: bella measures the quantity and has
    /// the method.
    pub fn is_comparable(&self) -> bool {
        !self.metric.is_empty() && self.demands.iter().any(|demand| demand.column == "method")
    }

    /// Returns whether both cells belong to one model: their demands agree in everything but the set and the condition.
    pub fn is_same_model(&self, other: &Cell) -> bool {
        let model = |cell: &Cell| {
            let of_model = |demand: &&Demand| !["set", "condition"].contains(&demand.column.as_str());
            cell.demands.iter().filter(of_model).cloned().collect::<Vec<_>>()
        };
        self.metric == other.metric && model(self) == model(other)
    }
}

const INDEX: &str = include_str!("../../../results/paper/tables.csv");

/// The files of the folder in the order of the report.
const FILES: &[(&str, &str)] = &[
    ("bella-1", include_str!("../../../results/paper/bella-1.csv")),
    ("bella-2", include_str!("../../../results/paper/bella-2.csv")),
    ("bella-3", include_str!("../../../results/paper/bella-3.csv")),
    ("bella-4", include_str!("../../../results/paper/bella-4.csv")),
    ("bella-5", include_str!("../../../results/paper/bella-5.csv")),
    ("bella-6", include_str!("../../../results/paper/bella-6.csv")),
    ("bella-7", include_str!("../../../results/paper/bella-7.csv")),
    ("bella-8", include_str!("../../../results/paper/bella-8.csv")),
    ("bella-9", include_str!("../../../results/paper/bella-9.csv")),
    ("bella-10", include_str!("../../../results/paper/bella-10.csv")),
    ("bella-fig-5", include_str!("../../../results/paper/bella-fig-5.csv")),
    ("ivon-1", include_str!("../../../results/paper/ivon-1.csv")),
    ("ivon-2", include_str!("../../../results/paper/ivon-2.csv")),
    ("ivon-3", include_str!("../../../results/paper/ivon-3.csv")),
    ("ivon-4", include_str!("../../../results/paper/ivon-4.csv")),
    ("ibdr-1", include_str!("../../../results/paper/ibdr-1.csv")),
    ("ibdr-2", include_str!("../../../results/paper/ibdr-2.csv")),
    ("ibdr-3", include_str!("../../../results/paper/ibdr-3.csv")),
];

/// Returns the keys of all tables in the order of the report.
pub fn keys() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(key, _)| *key)
}

/// Returns all published tables.
///
/// # Errors
/// Fails if a line of the compiled-in files breaks their rules. Tests check that none does.
pub fn tables() -> Result<Vec<PaperTable>> {
    FILES.iter().map(|(key, text)| read(key, text).with_context(|| format!("results/paper/{key}.csv"))).collect()
}

fn read(key: &str, text: &str) -> Result<PaperTable> {
    let titles = lines(INDEX)?;
    let title = titles.iter().find(|line| line.get("table") == key).context("is not in tables.csv")?;
    let cell = |(place, line): (usize, &Line)| cell(line).with_context(|| format!("line {}", place + 2));
    let cells = lines(text)?.iter().enumerate().map(cell).collect::<Result<_>>()?;
    let text = |column| title.get(column).to_string();
    Ok(PaperTable { key: key.into(), title: text("title"), source: text("source"), note: text("note"), cells })
}

/// The cells of one line of a CSV file, each with the name of its column.
struct Line(Vec<(String, String)>);

impl Line {
    fn get(&self, column: &str) -> &str {
        self.0.iter().find(|(name, _)| name == column).map_or("", |(_, value)| value)
    }

    fn number(&self, column: &str) -> Result<Option<f64>> {
        match self.get(column) {
            "" => Ok(None),
            text => text.parse().map(Some).with_context(|| format!("{column} = `{text}`: must be a number or empty")),
        }
    }
}

fn lines(text: &str) -> Result<Vec<Line>> {
    let mut csv = csv::Reader::from_reader(text.as_bytes());
    let columns: Vec<String> = csv.headers()?.iter().map(String::from).collect();
    let line = |record: csv::StringRecord| columns.iter().cloned().zip(record.iter().map(String::from)).collect();
    csv.records().map(|record| Ok(Line(line(record?)))).collect()
}

fn cell(line: &Line) -> Result<Cell> {
    let text = |column| line.get(column).to_string();
    let mut cell = Cell {
        row: text("row"),
        column: text("column"),
        printed: text("printed"),
        value: line.number("value")?,
        sd: line.number("sd")?,
        unit: unit(line.get("unit"))?,
        metric: text("metric"),
        demands: vec![],
        severities: None,
        origin: match line.get("derive") {
            "" => Origin::Rows,
            "mean" => Origin::MeanOfCells,
            other => bail!("derive = `{other}`: must be mean or empty"),
        },
    };
    ensure!(cell.printed.is_empty() == cell.value.is_none(), "printed and value must both be there, or neither");
    for column in ["method", "set", "condition", "subspace", "particles", "rank"] {
        match line.get(column) {
            "" => {}
            wanted if column == "condition" => demand_condition(&mut cell, wanted)?,
            wanted => cell.demands.push(Demand::new(column, wanted)),
        }
    }
    cell.demands.push(Demand::new("predictive", line.get("predictive")));
    for setting in line.get("settings").split(';').filter(|setting| !setting.is_empty()) {
        let (column, wanted) = setting.split_once('=').with_context(|| format!("setting `{setting}`: has no `=`"))?;
        cell.demands.push(Demand::new(column, wanted));
    }
    Ok(cell)
}

/// Adds the demand for a condition. A range such as `contrast:1-5` leaves the condition open and asks for the mean over
/// these severities instead.
fn demand_condition(cell: &mut Cell, wanted: &str) -> Result<()> {
    let Some((corruption, (first, last))) = wanted.split_once(':').and_then(|(c, r)| Some((c, r.split_once('-')?)))
    else {
        cell.demands.push(Demand::new("condition", wanted));
        return Ok(());
    };
    let rule = || format!("condition `{wanted}`: severities must be numbers");
    let range = first.parse().with_context(rule)?..=last.parse().with_context(rule)?;
    cell.severities = Some(Severities { corruption: corruption.to_string(), range });
    Ok(())
}

fn unit(text: &str) -> Result<Unit> {
    Ok(match text {
        "percent" => Unit::Percent,
        "fraction" => Unit::Fraction,
        "nats" => Unit::Nats,
        "number" => Unit::Number,
        "count" => Unit::Count,
        "gigabytes" => Unit::Gigabytes,
        "megabytes" => Unit::Megabytes,
        other => bail!("unit = `{other}`: unknown"),
    })
}

impl Unit {
    /// Formats a value, given in the units of our results, for a table of this unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Percent => format!("{:.2}", 100.0 * value),
            Unit::Fraction => format!("{value:.3}"),
            Unit::Nats | Unit::Number => format!("{value:.4}"),
            Unit::Count if value >= 1e9 => format!("{:.2}B", value / 1e9),
            Unit::Count if value >= 1e6 => format!("{:.2}M", value / 1e6),
            Unit::Count if value >= 1e3 => format!("{:.1}K", value / 1e3),
            Unit::Count => format!("{value}"),
            Unit::Gigabytes => format!("{:.2}", value / 1e9),
            Unit::Megabytes => format!("{:.0}", value / 1e6),
        }
    }

    /// Returns the text beside a column's title. Empty if the unit needs none.
    pub fn label(self) -> &'static str {
        match self {
            Unit::Percent => "%",
            Unit::Nats => "nats",
            Unit::Gigabytes => "GB",
            Unit::Megabytes => "MB",
            Unit::Fraction | Unit::Number | Unit::Count => "",
        }
    }
}

#[cfg(test)]
mod tests;
