//! A list of runs, one line each: which are listed, in which order, and the text.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::SystemTime;

use super::runs::Summary;
use crate::base::outside::printable;
use crate::base::small::{Number, grouped, shortened};
use crate::run::settings::{Settings, distinction, fits, value};
use crate::schema::hint;

/// The words for orders that are not settings.
const AGE: &str = "age";
const ACCURACY: &str = "accuracy";

/// The most characters of an experiment's name beside those of others.
const EXPERIMENT: usize = 14;

/// The fewest characters for the settings, however narrow the terminal is.
const SETTINGS: usize = 12;

/// The runs to list, and their order.
#[derive(Debug, Default)]
pub struct Selection {
    /// Settings that a run must have, such as `method=svgd,seed=1`.
    pub filters: Vec<String>,
    pub experiment: Option<String>,
    /// `age` (the youngest first), `accuracy` (the highest first) or a setting.
    pub sort: Option<String>,
}

impl Selection {
    /// Returns the runs that fit, in order.
    ///
    /// # Errors
    /// Fails with a reason if a filter, an experiment or an order fits no run.
    pub fn of<'a>(&self, runs: Vec<&'a Summary>) -> Result<Vec<&'a Summary>, String> {
        let mut left = runs;
        if let Some(wanted) = &self.experiment {
            let known: BTreeSet<&str> = left.iter().map(|run| run.experiment.as_str()).collect();
            if !known.contains(wanted.as_str()) {
                let known = known.into_iter().collect::<Vec<_>>().join(", ");
                return Err(format!("--experiment {wanted}: has no runs; those that have: {known}"));
            }
            left.retain(|run| run.experiment == *wanted);
        }
        for words in &self.filters {
            let before = left.clone();
            left.retain(|run| fits(&run.settings, words));
            if left.is_empty() {
                return Err(unfit(words, &before));
            }
        }
        let key = self.sort.as_deref().unwrap_or(AGE);
        if ![AGE, ACCURACY].contains(&key) && !left.iter().any(|run| value(&run.settings, key).is_some()) {
            let known = [AGE, ACCURACY].into_iter().chain(left.iter().flat_map(|run| ends(&run.settings)));
            return Err(format!("--sort {key}: no run has such a setting{}", hint(key, known)));
        }
        left.sort_by(|a, b| match key {
            AGE => b.changed.cmp(&a.changed),
            ACCURACY => Reverse(a.accuracy.map(Number)).cmp(&Reverse(b.accuracy.map(Number))),
            key => order(value(&a.settings, key)).cmp(&order(value(&b.settings, key))),
        });
        Ok(left)
    }
}

/// Returns why no run fits `words`: a word that none of them fits, with those that would.
fn unfit(words: &str, runs: &[&Summary]) -> String {
    let wrong = words.split(',').map(str::trim).find(|word| !runs.iter().any(|run| fits(&run.settings, word)));
    let text = format!("--filter {words}: no run fits");
    let Some((key, _)) = wrong.and_then(|word| word.split_once('=')) else { return text };
    let values: BTreeSet<&str> = runs.iter().filter_map(|run| value(&run.settings, key)).collect();
    match values.is_empty() {
        true => format!("{text}: none has a setting `{key}`{}", hint(key, runs.iter().flat_map(|r| ends(&r.settings)))),
        false => format!("{text}: {key} is {} in them", values.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the last parts of all keys, and the tables of choices.
fn ends(settings: &Settings) -> impl Iterator<Item = &str> {
    settings.keys().flat_map(|path| [path.rsplit('.').next(), path.split('.').next()]).flatten()
}

/// Returns the sort key of a setting: numbers in their order, then texts, and last a run without the setting.
fn order(value: Option<&str>) -> impl Ord + '_ {
    let number = value.and_then(|value| value.parse().ok()).map(Number);
    (value.is_none(), number.is_none(), number, value)
}

/// A run as a line of a list.
pub struct Line<'a> {
    pub run: &'a Summary,
    pub state: String,
    /// The number by which runs of the list are compared.
    pub result: String,
}

impl Line<'_> {
    /// Returns a run with its own state and its accuracy on clean test images.
    pub fn of(run: &Summary) -> Line<'_> {
        let result = run.accuracy.map_or(String::new(), |accuracy| format!("{:.2} %", 100.0 * accuracy));
        Line { run, state: run.short_state(), result }
    }
}

/// Returns runs as text, one line each below a line of titles. Settings are those that differ from other runs of the same
/// experiment in the list; their end is cut off where a line would be longer than `width`.
pub fn text(lines: &[Line], result: &str, width: usize) -> String {
    let experiments = grouped(lines.iter().map(|line| (line.run.experiment.as_str(), &line.run.settings)));
    let settings = |line: &Line| {
        let of = experiments.iter().find(|(name, _)| *name == line.run.experiment);
        of.map_or(String::new(), |(_, all)| distinction(&line.run.settings, all))
    };
    let column = |title: &str, cell: &dyn Fn(&Line) -> String| -> Vec<String> {
        let cells = lines.iter().map(|line| printable(&cell(line)).replace(['\n', '\t'], " "));
        std::iter::once(title.to_string()).chain(cells).collect()
    };
    let several = experiments.len() > 1;
    let mut columns = vec![
        column("run", &|line| line.run.short.clone()),
        column("experiment", &|line| if several { shortened(&line.run.experiment, EXPERIMENT) } else { String::new() }),
        column("method", &|line| line.run.method().to_string()),
        column("settings", &settings),
        column("state", &|line| line.state.clone()),
        column(result, &|line| line.result.clone()),
        column("age", &|line| age(line.run.changed)),
    ];
    let used: usize = columns
        .iter()
        .filter(|cells| cells[0] != "settings")
        .map(|cells| widest(cells))
        .filter(|w| *w > 0)
        .map(|w| w + 2)
        .sum();
    let room = width.saturating_sub(used).max(SETTINGS);
    columns[3].iter_mut().skip(1).for_each(|cell| *cell = shortened(cell, room));
    columns.retain(|cells| widest(cells) > 0);
    let mut text = match experiments.first() {
        Some((name, _)) if !several => format!("experiment: {}\n", printable(name)),
        _ => String::new(),
    };
    for row in 0..=lines.len() {
        text += &line(&columns, row, &[result, "age"]);
    }
    text
}

/// Returns a row of columns as a line. Those with one of the `right` titles stand at their right ends.
fn line(columns: &[Vec<String>], row: usize, right: &[&str]) -> String {
    let cell = |cells: &Vec<String>| match right.contains(&cells[0].as_str()) {
        true => format!("{:>width$}", cells[row], width = widest(cells)),
        false => format!("{:width$}", cells[row], width = widest(cells)),
    };
    format!("{}\n", columns.iter().map(cell).collect::<Vec<_>>().join("  ").trim_end())
}

/// Returns the characters of the widest cell below the title, or of the title where it is wider; 0 if all cells are empty.
fn widest(cells: &[String]) -> usize {
    let length = |cell: &String| cell.chars().count();
    let inner = cells[1..].iter().map(length).max().unwrap_or(0);
    if inner == 0 { 0 } else { inner.max(length(&cells[0])) }
}

/// Returns the time since a change, in its largest unit.
pub fn age(changed: SystemTime) -> String {
    let seconds = changed.elapsed().map_or(0, |elapsed| elapsed.as_secs());
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::order;

    #[test]
    fn numbers_stand_in_their_order_before_texts() {
        let mut values = [Some("1a"), None, Some("10"), Some("2"), Some("adamw"), Some("1e-3")];
        values.sort_by(|a, b| order(*a).cmp(&order(*b)));
        assert_eq!(values, [Some("1e-3"), Some("2"), Some("10"), Some("1a"), Some("adamw"), None]);
    }
}
