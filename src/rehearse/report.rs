//! The report of a rehearsal: a table of stages, the estimated cost of the real experiment, and a row for files.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::checkpoint::Checkpoint;
use super::estimate::Estimate;
use super::plan::Plan;
use super::stages::{Outcome, Rehearsed, Stage};
use super::{Options, Scale};
use crate::base::outside::printable;
use crate::results::store::{Row, Table, upsert_row};
use crate::results::table::{Spec, Surface, render};

/// The column that identifies the row of a rehearsal in the table of a results folder.
const KEY: &[&str] = &["rehearsal"];

/// The content of the report on a rehearsal.
pub struct Report<'a> {
    pub plan: &'a Plan,
    pub options: &'a Options,
    pub rehearsed: &'a Rehearsed,
    pub estimate: Estimate,
}

impl Report<'_> {
    /// Returns the stages that broke.
    pub fn broken(&self) -> Vec<&Stage> {
        self.rehearsed.stages.iter().filter(|stage| matches!(stage.outcome, Outcome::Broken(_))).collect()
    }

    /// Returns the whole report as text.
    pub fn text(&self, surface: Surface) -> String {
        let mut text = format!("{}\n", printable(&self.title()));
        let spec = |table: &Table| Spec { columns: table.columns.clone(), group_by: Vec::new(), surface };
        let stages = self.stages();
        text += &render(&stages, &spec(&stages));
        for stage in &self.rehearsed.stages {
            match &stage.outcome {
                Outcome::Broken(why) => text += &format!("broken: {}: {}\n", stage.name, printable(why)),
                Outcome::Refused(why) => text += &format!("refused: {}: {}\n", stage.name, printable(why)),
                Outcome::Fine | Outcome::NotReached => {}
            }
        }
        text += &format!("the real thing{}\n", self.real());
        text += "overridden:\n";
        self.plan.overridden.iter().for_each(|change| text += &format!("  {}\n", printable(&change.to_string())));
        text
    }

    fn title(&self) -> String {
        let checkpoint = match &self.plan.checkpoint {
            Checkpoint::Real(path) => format!("the real {}", path.display()),
            Checkpoint::Made { stand_in, .. } => {
                let tiny = if self.options.scale == Scale::Tiny { ", made tiny" } else { "" };
                format!("a stand-in for {} with random weights{tiny}", stand_in.about())
            }
        };
        format!("rehearsal {}: {checkpoint}", self.options.name)
    }

    fn stages(&self) -> Table {
        let mut table = Table::default();
        for stage in &self.rehearsed.stages {
            let mut row = Row::new();
            row.push("stage", stage.name.as_str());
            row.push("outcome", word(&stage.outcome));
            let reached = stage.outcome != Outcome::NotReached;
            row.push("seconds", if reached { format!("{:.1}", stage.seconds) } else { String::new() });
            row.push("peak memory", stage.peak_bytes.map_or(String::new(), bytes));
            row.push("note", stage.note.as_str());
            table.append(&row);
        }
        table
    }

    /// Returns the estimated cost of the real experiment as text.
    fn real(&self) -> String {
        let estimate = &self.estimate;
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_string());
        let steps = or_unknown(estimate.steps.map(|steps| steps.to_string()));
        if self.options.scale == Scale::Tiny {
            return format!(": {steps} steps; a tiny model does not tell what they take");
        }
        let known = |seconds: Option<f64>| or_unknown(seconds.map(duration));
        let each = |seconds: Option<f64>| or_unknown(seconds.map(|seconds| format!("{seconds:.3} s")));
        let sample = self.plan.medium.one();
        format!(
            " on this machine: {steps} steps of {}, training {}; {} {sample}, evaluations {}; together {}; disk {}, memory {}",
            each(estimate.step_seconds),
            known(estimate.training_seconds),
            each(estimate.image_seconds),
            known(estimate.evaluation_seconds),
            known(estimate.total_seconds()),
            or_unknown(estimate.disk_bytes.map(bytes)),
            or_unknown(estimate.memory_bytes.map(bytes))
        )
    }

    /// Returns the rehearsal as a row: its outcome, and the estimated cost of the real experiment in seconds and bytes.
    fn row(&self) -> Row {
        let mut row = Row::new();
        row.push("rehearsal", self.options.name.as_str());
        let is = |wanted: &str| self.rehearsed.stages.iter().any(|stage| word(&stage.outcome) == wanted);
        let outcome = ["broken", "refused"].into_iter().find(|word| is(word)).unwrap_or("fine");
        row.push("outcome", outcome);
        let fault = self.rehearsed.stages.iter().find_map(|stage| match &stage.outcome {
            Outcome::Broken(why) | Outcome::Refused(why) => Some(format!("{}: {why}", stage.name)),
            Outcome::Fine | Outcome::NotReached => None,
        });
        row.push("why", fault.unwrap_or_default());
        let tiny = if self.options.scale == Scale::Tiny { "tiny" } else { "true" };
        row.push("size", tiny);
        let peak = self.rehearsed.stages.iter().filter_map(|stage| stage.peak_bytes).max();
        row.push_number("peak_memory_bytes", peak.map(|bytes| bytes as f64));
        let estimate = &self.estimate;
        row.push_number("step_seconds", estimate.step_seconds);
        row.push_number("image_seconds", estimate.image_seconds);
        row.push_number("real_steps", estimate.steps.map(|steps| steps as f64));
        row.push_number("real_training_seconds", estimate.training_seconds);
        row.push_number("real_evaluation_seconds", estimate.evaluation_seconds);
        row.push_number("real_disk_bytes", estimate.disk_bytes.map(|bytes| bytes as f64));
        row.push_number("real_memory_bytes", estimate.memory_bytes.map(|bytes| bytes as f64));
        row
    }

    /// Writes the text into the rehearsal's folder, and its row into the `rehearsal.csv` of all rehearsals.
    ///
    /// # Errors
    /// Fails if a file cannot be written.
    pub fn write(&self) -> Result<PathBuf> {
        let csv = self.plan.folder.all.join("rehearsal.csv");
        write_text(&self.plan.folder.own.join("rehearsal.md"), &self.text(Surface::PLAIN))?;
        upsert_row(&csv, &self.row(), KEY)?;
        Ok(csv)
    }
}

fn write_text(path: &Path, text: &str) -> Result<()> {
    crate::base::files::write_atomic(path, |file| Ok(file.write_all(text.as_bytes())?))
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Fine => "fine",
        Outcome::Refused(_) => "refused",
        Outcome::Broken(_) => "broken",
        Outcome::NotReached => "not reached",
    }
}

/// Formats a number of bytes, such as `1.5 GB`.
pub fn bytes(count: u64) -> String {
    match count as f64 {
        small if small < 1e6 => format!("{:.0} kB", small / 1e3),
        medium if medium < 1e9 => format!("{:.0} MB", medium / 1e6),
        large => format!("{:.1} GB", large / 1e9),
    }
}

/// Formats a duration, such as `12 s`, `3.5 min`, `7.2 h` or `4.1 days`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.1} h", s / 3600.0),
        s => format!("{:.1} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_readable() {
        assert_eq!([bytes(2_000), bytes(605_000_000), bytes(1_540_000_000)], ["2 kB", "605 MB", "1.5 GB"]);
        assert_eq!([duration(12.2), duration(600.0), duration(9000.0)], ["12 s", "10.0 min", "2.5 h"]);
        assert_eq!(duration(4.5 * 86_400.0), "4.5 days");
    }
}
