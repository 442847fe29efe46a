//! The training curves of runs as text, from their `train.csv`, for `bella watch`.

use std::fmt::Write;

use crate::base::outside::printable;
use crate::plot::terminal::{Ink, TextChart, letter};
use crate::results::runs::{State, Summary, history};
use crate::results::store::Table;

/// A column of `train.csv` with the words for it and the factor that converts it to their unit.
struct Quantity<'a> {
    column: &'a str,
    words: &'a str,
    factor: f64,
}

/// The quantities that are shown unless others are asked for.
const SHOWN: [Quantity<'static>; 5] = [
    Quantity { column: "train_loss", words: "training loss", factor: 1.0 },
    Quantity { column: "validation_nll_lm", words: "validation NLL", factor: 1.0 },
    Quantity { column: "validation_accuracy_lm", words: "validation accuracy (%)", factor: 100.0 },
    Quantity { column: "images_per_second", words: "images/s", factor: 1.0 },
    Quantity { column: "rate_factor", words: "share of the learning rate", factor: 1.0 },
];

/// The number of characters that a chart needs beside another one.
const NARROWEST: usize = 38;
const GAP: usize = 2;

/// The room for a drawing.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub width: usize,
    /// The number of lines; `None` for as many as needed.
    pub height: Option<usize>,
    pub color: bool,
    /// Whether only ASCII is drawn.
    pub plain: bool,
}

/// A run with its rows of `train.csv`.
pub struct Watched {
    pub run: Summary,
    pub history: Table,
    /// The losses by step that the current epoch has noted, and the number of steps of an epoch.
    pub steps: Vec<(f64, f64)>,
    pub of: usize,
}

impl Watched {
    /// Reads what there is at this moment; a run that has finished no epoch has no rows.
    pub fn read(run: Summary) -> Watched {
        let history = history(&run.folder).unwrap_or_default();
        let text = std::fs::read_to_string(run.folder.notes()).unwrap_or_default();
        let note = |line: &str| {
            let mut words = line.split(' ');
            let (step, of) = (words.next()?.parse::<f64>().ok()?, words.next()?.parse::<usize>().ok()?);
            Some((of, (step, words.next()?.parse::<f64>().ok()?)))
        };
        // The last line may be written at this moment.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let (of, steps): (Vec<usize>, Vec<(f64, f64)>) = whole.lines().filter_map(note).unzip();
        Watched { run, history, steps, of: of.last().copied().unwrap_or(0) }
    }

    pub fn is_training(&self) -> bool {
        matches!(self.run.state, State::Training { .. })
    }

    /// Returns the finite values of a column by epoch.
    fn curve(&self, quantity: &Quantity) -> Vec<(f64, f64)> {
        let number = |row: usize, column: &str| self.history.get(row, column)?.parse::<f64>().ok();
        let point = |row: usize| Some((number(row, "epoch")?, quantity.factor * number(row, quantity.column)?));
        (0..self.history.rows.len()).filter_map(point).filter(|(_, value)| value.is_finite()).collect()
    }

    fn line(&self) -> String {
        let done = self.history.rows.len();
        let of = self.run.settings.get("train.epochs").map_or(String::new(), |epochs| format!(" of {epochs}"));
        let state = match &self.run.state {
            State::Training { .. } => "training",
            State::Trained => "trained",
            State::Interrupted { .. } => "interrupted",
            State::NotSaved => "not saved",
            State::Checkpoint => "checkpoint, which is not trained",
        };
        let id = self.run.folder.id();
        match self.steps.last().filter(|_| self.is_training()) {
            Some((step, _)) => format!("{id}: {state}, epoch {}{of}, step {step} of {}", done + 1, self.of),
            None => format!("{id}: {state}, {done}{of} epochs"),
        }
    }
}

/// Draws the curves of runs: a line for each run, and a chart for each quantity that one of them has. `columns` of
/// `train.csv` replace the usual quantities.
pub fn draw(runs: &[Watched], columns: &[String], room: Room) -> String {
    let ink = match (room.plain, room.color, runs.len()) {
        (true, _, _) | (false, false, 2..) => Ink::Letters,
        (false, true, _) => Ink::Color,
        (false, false, _) => Ink::Dots,
    };
    let mut text = String::new();
    for (at, run) in runs.iter().enumerate() {
        let mark = if runs.len() > 1 { format!("{} ", letter(at)) } else { String::new() };
        let line: String = format!("{mark}{}", printable(&run.line())).chars().take(room.width).collect();
        let _ = writeln!(text, "{}", ink.paint(at, &line));
    }
    let asked: Vec<Quantity> = columns.iter().map(|column| named(column)).collect();
    let quantities = if columns.is_empty() { &SHOWN[..] } else { &asked };
    let charts: Vec<TextChart> = quantities.iter().filter_map(|quantity| chart(runs, quantity)).collect();
    if !charts.is_empty() {
        return text + &side_by_side(&charts, runs.len(), room, ink);
    }
    text += "no epoch is finished yet\n";
    let curves: Vec<_> = runs.iter().map(|run| run.steps.clone()).collect();
    match charted("training loss", "step", curves) {
        Some(chart) => text + &side_by_side(&[chart], runs.len() + 1, room, ink),
        None => text,
    }
}

/// Returns the quantity of a column that the user asked for.
fn named(column: &str) -> Quantity<'_> {
    let known = SHOWN.iter().find(|quantity| quantity.column == column);
    known.map_or(Quantity { column, words: column, factor: 1.0 }, |one| Quantity { column, ..*one })
}

fn chart(runs: &[Watched], quantity: &Quantity) -> Option<TextChart<'static>> {
    charted(quantity.words, "epoch", runs.iter().map(|run| run.curve(quantity)).collect())
}

/// Returns the chart of the curves of one quantity; `None` if they have no point.
fn charted(words: &str, along: &'static str, curves: Vec<Vec<(f64, f64)>>) -> Option<TextChart<'static>> {
    curves.iter().flatten().next()?;
    let mut title = printable(words).into_owned();
    if let [curve] = &curves[..] {
        title += &curve.last().map_or(String::new(), |(_, value)| format!(": {}", rounded(*value)));
    }
    Some(TextChart { title, along, curves })
}

/// Returns a number with about four digits.
fn rounded(value: f64) -> String {
    let decimals = (3.0 - value.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

/// Sets charts side by side, as many as fit in the width.
fn side_by_side(charts: &[TextChart], heads: usize, room: Room, ink: Ink) -> String {
    let across = ((room.width + GAP) / (NARROWEST + GAP)).clamp(1, charts.len().min(3));
    let width = (room.width + GAP) / across - GAP;
    let down = charts.len().div_ceil(across);
    // A chart has a title and two lines of its axis; a line is left for the cursor.
    let each = room.height.map_or(11, |height| height.saturating_sub(heads + 1) / down);
    let size = (width, each.saturating_sub(3).clamp(3, 10));
    let drawn: Vec<_> = charts.iter().filter_map(|chart| chart.lines(size, ink)).collect();
    let mut text = String::new();
    for beside in drawn.chunks(across) {
        for line in 0..size.1 + 3 {
            let cells: Vec<&str> = beside.iter().map(|chart| chart[line].as_str()).collect();
            let _ = writeln!(text, "{}", cells.join(&" ".repeat(GAP)).trim_end());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::SystemTime;

    use super::*;
    use crate::results::store::Row;
    use crate::run::RunFolder;

    fn watched(losses: &[f64], accuracies: bool) -> Watched {
        let mut history = Table::default();
        for (at, loss) in losses.iter().enumerate() {
            let mut row = Row::new();
            row.push("epoch", (at + 1).to_string());
            row.push_number("train_loss", Some(*loss));
            row.push_number("validation_accuracy_lm", accuracies.then_some(0.5));
            row.push_number("bandwidth", Some(2.0 * loss));
            history.append(&row);
        }
        let run = Summary {
            folder: RunFolder::at("low-rank-svgd-s1-0123456789".into()),
            short: "01234".into(),
            experiment: "tiny".into(),
            sweep: None,
            state: State::Training { epochs: losses.len() },
            settings: BTreeMap::from([("train.epochs".to_string(), "9".to_string())]),
            problem: None,
            accuracy: None,
            bytes: 0,
            changed: SystemTime::UNIX_EPOCH,
        };
        Watched { run, history, steps: Vec::new(), of: 0 }
    }

    #[test]
    fn drawings_fit_any_width() {
        let runs = [watched(&[2.0, 1.0, f64::INFINITY, 0.5], true), watched(&[2.5, 1.5], false)];
        for (width, plain, color) in [(60, true, false), (80, false, true), (120, false, false), (20, true, false)] {
            let text = draw(&runs, &[], Room { width, height: Some(24), color, plain });
            let visible = text.replace("\u{1b}[0m", "");
            for line in visible.lines() {
                let escapes = line.matches("\u{1b}[3").count();
                assert!(line.chars().count() - 5 * escapes <= width, "{width}: {line}");
            }
            assert!(text.lines().count() < 24, "{text}");
            assert_eq!(text.contains('\u{1b}'), color);
            assert_eq!(text.is_ascii(), !color, "letters tell the two runs apart");
        }
    }

    #[test]
    fn a_chart_is_drawn_for_what_there_is() {
        let room = Room { width: 80, height: None, color: false, plain: true };
        let text = draw(&[watched(&[2.0, 1.25], true)], &[], room);
        assert!(text.starts_with("low-rank-svgd-s1-0123456789: training, 2 of 9 epochs\n"), "{text}");
        assert!(text.contains("training loss: 1.250") && text.contains("validation accuracy (%): 50.00"), "{text}");
        assert!(!text.contains("validation NLL"), "{text}");
        let asked = draw(&[watched(&[2.0, 1.25], true)], &["bandwidth".into()], room);
        assert!(asked.contains("bandwidth: 2.500") && !asked.contains("training loss"), "{asked}");
        assert!(draw(&[watched(&[], false)], &[], room).ends_with("no epoch is finished yet\n"));
        let first = Watched { steps: vec![(1.0, 2.5), (14.0, 1.5)], of: 80, ..watched(&[], false) };
        let text = draw(&[first], &[], room);
        assert!(text.starts_with("low-rank-svgd-s1-0123456789: training, epoch 1 of 9, step 14 of 80\n"), "{text}");
        assert!(text.contains("training loss: 1.500") && text.contains(" step "), "{text}");
    }
}
