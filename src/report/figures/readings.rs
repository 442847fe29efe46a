//! Collects numbers from result rows and sorts them into panels, series and places on an axis. The values of several
//! seeds are gathered at one place.

use crate::base::small::push_new;
use crate::metrics::{self, Average};
use crate::plot::{Axis, Chart, Entry, Joined, Layer, Mean, Panel, Swatch, Ticks};
use crate::report::sources::RowView;
use crate::results::names::names;
use crate::results::series::{Series, Settings};
use crate::schema::Choice;

/// One number of one run.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The title of the panel that shows the number.
    pub panel: String,
    /// The title of the panel's vertical axis, with the unit.
    pub unit: String,
    /// The index into the names of the series.
    pub series: usize,
    pub place: Place,
    pub value: f64,
    /// The interval of the value by the samples that it was measured on, which whiskers show where there is one seed.
    pub interval: Option<(f64, f64)>,
}

/// A place on the horizontal axis. Places are sorted by `order` and labelled by `name`.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub order: f64,
    pub name: String,
}

impl Place {
    /// Returns the place of a number. A fraction is called by three digits where it has very many, as 8/255 has.
    pub fn number(value: f64) -> Self {
        let exact = value.to_string();
        let short = format!("{value:.2e}").parse().map_or(exact.clone(), |short: f64| short.to_string());
        Self { order: value, name: if exact.len() > 8 && value.fract() != 0.0 { short } else { exact } }
    }
}

/// A metric's value in the unit of figures, with its short name.
pub struct Shown {
    pub short: &'static str,
    pub unit: String,
    pub value: f64,
}

impl Shown {
    /// Returns the reading of a series at a place in a panel, without an interval.
    pub fn reading(self, panel: String, series: usize, place: Place) -> Reading {
        Reading { panel, unit: self.unit, series, place, value: self.value, interval: None }
    }
}

/// Returns the metric of a row in the unit of figures. `None` if the cell is empty or the column is not a metric.
pub fn measured(row: &RowView, column: &str) -> Option<Shown> {
    let metric = metrics::of_column(column)?;
    Some(Shown { short: metric.short, unit: unit_of(column), value: metric.factor() * row.number(column)? })
}

/// Returns the title of an axis that shows a metric's column: the name, the unit and the kind of averaging.
pub fn unit_of(column: &str) -> String {
    let label = metrics::of_column(column).map_or(column.to_string(), |metric| metric.label());
    let average = column.rsplit_once('_').and_then(|(_, suffix)| Average::of_word(suffix));
    average.map_or(label.clone(), |average| format!("{label}, {}", average.behind()))
}

/// The layout of readings in panels.
pub struct Plan {
    pub x_title: &'static str,
    pub columns: usize,
    pub joined: bool,
    pub notes: Vec<String>,
}

/// Draws panels with named places at equal distances, in the order in which their titles first appear. If the points
/// are joined by lines, panels with one place are left out. Returns `None` if no panel remains.
pub fn ladder(names: &[String], readings: &[Reading], plan: Plan) -> Option<Chart> {
    let titles = distinct(readings.iter().map(|reading| &reading.panel));
    let panels: Vec<_> = titles.iter().filter_map(|title| panel(title, readings, &plan)).collect();
    let mut present = distinct(readings.iter().map(|reading| reading.series));
    present.sort_unstable();
    let legend = present.into_iter().map(|series| Entry {
        name: names.get(series).cloned().unwrap_or_default(),
        paint: series,
        swatch: Swatch::Mark,
    });
    let columns = plan.columns.min(panels.len());
    let mut notes = plan.notes;
    notes.extend(seeds_note(readings).into_iter().chain(intervals_note(readings)));
    let chart = || Chart { legend: legend.collect(), panels, columns, plot_height: 200, notes, ..Chart::default() };
    (columns > 0).then(chart)
}

fn panel(title: &str, readings: &[Reading], plan: &Plan) -> Option<Panel> {
    let own: Vec<_> = readings.iter().filter(|reading| reading.panel == title).collect();
    let mut places = distinct(own.iter().map(|reading| &reading.place));
    places.sort_by(|a, b| a.order.total_cmp(&b.order));
    if plan.joined && places.len() < 2 {
        return None; // One place alone makes no line.
    }
    let mut series = distinct(own.iter().map(|reading| reading.series));
    series.sort_unstable();
    let count = series.len();
    let layers = series.iter().enumerate().map(|(rank, one)| {
        let mean = |(at, place): (usize, &&Place)| {
            let seeds: Vec<_> =
                own.iter().filter(|reading| reading.series == *one && reading.place == **place).collect();
            let mean = Mean::of(at as f64, &seeds.iter().map(|reading| reading.value).collect::<Vec<_>>())?;
            let interval = seeds[0].interval.filter(|_| seeds.len() == 1);
            Some(match interval {
                Some(interval) => mean.between(interval),
                None => mean,
            })
        };
        let joined = match plan.joined {
            true => Joined::Beside { rank, count },
            false => Joined::Apart { rank, count },
        };
        Layer::Means { paint: *one, joined, points: places.iter().enumerate().filter_map(mean).collect() }
    });
    let layers = layers.collect();
    let ends = own.iter().flat_map(|reading| reading.interval.map_or([None; 2], |(low, high)| [Some(low), Some(high)]));
    let values = own.iter().map(|reading| reading.value).chain(ends.flatten());
    Some(Panel {
        title: title.to_string(),
        x: Axis::new(plan.x_title, Ticks::Names(places.iter().map(|place| place.name.clone()).collect())),
        y: Axis::new(&own.first()?.unit, Ticks::around(values)?),
        layers,
        values: !plan.joined,
    })
}

/// Returns the number of readings at the place of one of them.
fn seeds(readings: &[Reading], one: &Reading) -> usize {
    let same = |other: &&Reading| (&other.panel, other.series, &other.place) == (&one.panel, one.series, &one.place);
    readings.iter().filter(same).count()
}

/// Returns the note that explains the whiskers of several seeds. `None` if no mark has several seeds.
fn seeds_note(readings: &[Reading]) -> Option<String> {
    let most = readings.iter().map(|one| seeds(readings, one)).max().filter(|most| *most > 1)?;
    Some(format!("Marks are means over up to {most} seeds, whiskers reach from the smallest to the largest."))
}

/// Returns the note that explains the whiskers of a single seed. `None` if there are none.
fn intervals_note(readings: &[Reading]) -> Option<String> {
    let is_shown = readings.iter().any(|one| one.interval.is_some() && seeds(readings, one) == 1);
    is_shown.then(|| "Whiskers of a single seed are the 95 % interval over the test images (Wilson).".to_string())
}

/// Returns the items without repetitions, in the order of their first appearance.
pub fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut list = vec![];
    for item in items {
        push_new(&mut list, item);
    }
    list
}

/// Returns the number of a setting, which may be a list of one.
pub fn single(text: &str) -> Option<f64> {
    text.trim_matches(['[', ']']).parse().ok().filter(|value: &f64| value.is_finite())
}

/// The series that differ in one setting only.
pub struct Sweep {
    pub name: String,
    /// The value of the setting and the index of the series, for at least two values.
    pub steps: Vec<(f64, usize)>,
}

/// Returns all sweeps over `column` among the series. Columns in `implied` follow from it and may differ too. In a
/// sweep over the particles, two lists of learning rates count as equal if one begins with the other: they are one list
/// cycled over more particles, or one rate for all.
pub fn sweeps(series: &[Series], column: &str, implied: &[&str]) -> Vec<Sweep> {
    let rest = |one: &Series| -> Vec<(String, String)> {
        let kept = one.settings.iter().filter(|(name, _)| *name != column && !implied.contains(name));
        let value = |name: &str, value: &str| match name.ends_with(".lr") && column == "particles" {
            true => longest_rates(series, one, name),
            false => value.to_string(),
        };
        kept.map(|(name, text)| (name.to_string(), value(name, text))).collect()
    };
    let rests = distinct(series.iter().filter(|one| !one.setting(column).is_empty()).map(rest));
    let steps = |wanted: &Vec<(String, String)>| {
        let own = series.iter().enumerate().filter(|(_, one)| rest(one) == *wanted);
        own.filter_map(|(at, one)| Some((single(one.setting(column))?, at))).collect::<Vec<(f64, usize)>>()
    };
    let swept: Vec<_> = rests.iter().map(|rest| (rest, steps(rest))).filter(|(_, steps)| steps.len() > 1).collect();
    let settings: Vec<Settings> = swept
        .iter()
        .map(|(rest, _)| rest.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect())
        .collect();
    let named = names(settings.iter().map(Vec::as_slice)).into_iter().zip(swept);
    named.map(|(name, (_, steps))| Sweep { name, steps }).collect()
}

/// Returns the longest list of learning rates, one for each particle, that begins with the rates of `one`.
fn longest_rates(series: &[Series], one: &Series, column: &str) -> String {
    let own = rates(one, column);
    let longer = series.iter().map(|other| rates(other, column)).filter(|rates| rates.starts_with(&own));
    format!("{:?}", longer.max_by_key(Vec::len).unwrap_or(own))
}

fn rates(one: &Series, column: &str) -> Vec<f64> {
    let listed = one.setting(column).trim_matches(['[', ']']).split(',').filter_map(|rate| rate.trim().parse().ok());
    match listed.collect::<Vec<f64>>() {
        list if list.len() == 1 => list.repeat(one.setting("particles").parse().unwrap_or(1)),
        list => list,
    }
}
