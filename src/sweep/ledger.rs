//! The record of a search: a CSV file, the chosen config, and a picture of the trials.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::space::Axis;
use super::trial::{Score, Trial};
use crate::base::files::{with_lock, write_atomic};
use crate::base::hash::seal_toml;
use crate::experiment::Criterion;
use crate::metrics::{Average, Unit};
use crate::plot::{Axis as PlotAxis, Chart, Entry, Layer, Panel, Swatch, Ticks};
use crate::results::store::{Row, Table, read, write};
use crate::schema::{Choice, words};

words! {
    /// The state of a trial.
    pub enum State {
        /// It has not trained to the end, and was not dropped.
        Waiting = "waiting",
        /// Its training failed, or its validation is no finite number.
        Failed = "failed",
        /// Others were better on its rung.
        Dropped = "dropped",
        /// It trained to the end.
        Finished = "finished",
        /// It trained to the end with the best validation.
        Chosen = "chosen",
    }
}

/// The progress of a trial and its score.
#[derive(Clone, Debug)]
pub struct Standing {
    pub state: State,
    /// The epochs after which it was judged last.
    pub epochs: usize,
    pub score: Option<Score>,
    /// Why it failed.
    pub why: String,
}

impl Standing {
    /// Returns the standing of a trial that was trained up to an epoch, or failed for a reason.
    pub fn after(trial: &Trial, epochs: usize, failed: Option<String>) -> Standing {
        let score = trial.score(epochs).filter(|_| failed.is_none());
        let state = if score.is_some() { State::Waiting } else { State::Failed };
        let why = match (&score, failed) {
            (Some(_), _) => String::new(),
            (None, Some(why)) => why,
            (None, None) => {
                trial.fault().unwrap_or_else(|| format!("its validation {} is no finite number", trial.by.0.short))
            }
        };
        Standing { state, epochs, score, why }
    }

    /// Returns the standing of a trial as a process has written it down.
    fn read(table: &Table, trial: &Trial) -> Option<Standing> {
        let row = table.find(&[("run", trial.run.id())])?;
        let number = |column: &str| row.get(column)?.parse::<f64>().ok();
        let score = |value| {
            let (nll, accuracy) = (number("validation_nll_lm"), number("validation_accuracy_lm"));
            Some(Score { value, nll, accuracy, epoch: number("selected_epoch")? as usize })
        };
        Some(Standing {
            state: State::of_word(row.get("state")?)?,
            epochs: number("epochs")? as usize,
            score: number(&trial.by.column()).and_then(score),
            why: row.get("why").unwrap_or_default().to_string(),
        })
    }

    fn is_further_than(&self, other: &Standing) -> bool {
        let rank = |one: &Standing| (one.epochs, one.state != State::Waiting);
        rank(self) > rank(other)
    }
}

/// The folder of a search.
#[derive(Clone, Debug)]
pub struct Ledger {
    pub folder: PathBuf,
}

impl Ledger {
    pub fn trials(&self) -> PathBuf {
        self.folder.join("trials.csv")
    }

    pub fn chosen(&self) -> PathBuf {
        self.folder.join("chosen.toml")
    }

    pub fn picture(&self) -> PathBuf {
        self.folder.join("trials.svg")
    }

    /// Writes the CSV file anew with a row for every trial, as the first process that works on the search.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn begin(&self, axes: &[Axis], trials: &[Trial], standings: &[Standing]) -> Result<()> {
        with_lock(&self.trials(), || write(&self.trials(), &table(axes, trials, standings)))
    }

    /// Writes the CSV file with a row for every trial. A row in which another process has got further stays.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write(&self, axes: &[Axis], trials: &[Trial], standings: &[Standing]) -> Result<()> {
        with_lock(&self.trials(), || {
            let written = read(&self.trials()).unwrap_or_default();
            let further = |(trial, own): (&Trial, &Standing)| match Standing::read(&written, trial) {
                Some(other) if other.is_further_than(own) => other,
                _ => own.clone(),
            };
            let joined: Vec<Standing> = trials.iter().zip(standings).map(further).collect();
            write(&self.trials(), &table(axes, trials, &joined))
        })
    }

    /// Writes the chosen config.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write_chosen(&self, trial: &Trial, score: Score, axes: &[Axis], tried: usize) -> Result<()> {
        let text = format!(
            "# Chosen by `bella sweep` among {tried} trials by the {} of held-out images, {:.4}:\n\
             # {} (trial {}, run {}).\n{}",
            trial.by.0.short,
            score.value,
            trial.words(axes),
            trial.number,
            trial.run.id(),
            toml::to_string(&trial.experiment.resolved()).context("cannot write the chosen config")?
        );
        write_atomic(&self.chosen(), |file| Ok(file.write_all(seal_toml(&text).as_bytes())?))
    }

    /// Draws the validation of all trials by epoch.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn draw(&self, trials: &[Trial], chosen: Option<usize>) -> Result<()> {
        let Some(by) = trials.first().map(|trial| trial.by) else { return Ok(()) };
        let paint = |at: usize| usize::from(Some(at) != chosen);
        // The chosen trial is drawn last, above the others.
        let mut order: Vec<usize> = (0..trials.len()).collect();
        order.sort_by_key(|at| std::cmp::Reverse(paint(*at)));
        let curves: Vec<(usize, Vec<(f64, f64)>)> =
            order.into_iter().map(|at| (paint(at), trials[at].curve())).collect();
        let points = || curves.iter().flat_map(|(_, curve)| curve.iter().copied());
        let Some(y) = Ticks::around(points().map(|point| point.1)) else { return Ok(()) };
        let last = points().map(|point| point.0).fold(2.0, f64::max);
        let unit = if by.0.unit == Unit::Nats { "nats, " } else { "" };
        let panel = Panel {
            title: format!("Validation {}", by.0.short),
            x: PlotAxis::new("epoch", Ticks::between(1.0, last)),
            y: PlotAxis::new(format!("{unit}{}", Average::Logit.behind()), y),
            layers: curves
                .iter()
                .map(|(paint, points)| Layer::Curve { paint: *paint, points: points.clone() })
                .collect(),
            values: false,
        };
        let entry = |name: &str, paint| Entry { name: name.into(), paint, swatch: Swatch::Line };
        let legend = vec![entry("chosen trial", 0), entry("other trials", 1)];
        let chart = Chart { legend, panels: vec![panel], columns: 1, plot_height: 260, ..Chart::default() };
        write_atomic(&self.picture(), |file| Ok(file.write_all(chart.render().svg().as_bytes())?))
    }
}

/// Returns the table with a row for every trial: the best first, then those that were not judged.
pub fn table(axes: &[Axis], trials: &[Trial], standings: &[Standing]) -> Table {
    let mut order: Vec<usize> = (0..trials.len()).collect();
    let rank = |at: &usize| {
        let Standing { state, epochs, score, .. } = &standings[*at];
        let cost = score.map_or(f64::INFINITY, |score| trials[*at].by.cost(score.value));
        (std::cmp::Reverse(*state == State::Chosen), std::cmp::Reverse(*epochs), cost)
    };
    order.sort_by(|a, b| {
        let (a, b) = (rank(a), rank(b));
        (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2))
    });
    let mut table = Table::default();
    for at in order {
        table.append(&row(axes, &trials[at], &standings[at]));
    }
    table
}

fn row(axes: &[Axis], trial: &Trial, standing: &Standing) -> Row {
    let mut row = Row::new();
    row.push("trial", trial.number.to_string());
    axes.iter().zip(&trial.values).for_each(|(axis, value)| row.push(&axis.key, value));
    row.push("state", standing.state.word());
    row.push("epochs", standing.epochs.to_string());
    row.push_number("validation_nll_lm", standing.score.and_then(|score| score.nll));
    row.push_number("validation_accuracy_lm", standing.score.and_then(|score| score.accuracy));
    if row.get(&trial.by.column()).is_none() {
        row.push_number(trial.by.column(), standing.score.map(|score| score.value));
    }
    row.push("selected_epoch", standing.score.map_or(String::new(), |score| score.epoch.to_string()));
    row.push("run", trial.run.id());
    row.push("why", &standing.why);
    row
}

/// A trial as its search has written it down.
pub struct Noted {
    /// The id of the run.
    pub run: String,
    pub state: String,
    row: Row,
}

impl Noted {
    /// Returns the value of the metric that the trials of its search are compared by; `None` before it was judged.
    pub fn value(&self, by: Criterion) -> Option<f64> {
        self.row.get(&by.column())?.parse().ok()
    }
}

/// Returns the names of all searches below a results folder, each with its trials, the best first.
///
/// # Errors
/// Fails if a file of trials is damaged.
pub fn all(out: &Path) -> Result<Vec<(String, Vec<Noted>)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(out.join("sweeps")).into_iter().flatten().flatten() {
        let ledger = Ledger { folder: entry.path() };
        if !ledger.trials().is_file() {
            continue;
        }
        let table = read(&ledger.trials())?;
        let cell = |row: usize, column: &str| table.get(row, column).unwrap_or_default().to_string();
        let noted = |row: usize| Noted { run: cell(row, "run"), state: cell(row, "state"), row: table.row(row) };
        found.push((entry.file_name().to_string_lossy().into_owned(), (0..table.rows.len()).map(noted).collect()));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

/// Returns the folder of a search below the results folder.
pub fn folder(out: &Path, name: &str, digest: &str) -> PathBuf {
    out.join("sweeps").join(format!("{name}-{digest}"))
}
