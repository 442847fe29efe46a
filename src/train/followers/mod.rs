//! Tells TensorBoard and a command of the user about a training while it runs. A failure of either is a warning and never
//! ends the training.

mod events;
mod hook;

use anyhow::Result;

use self::events::EventFile;
use self::hook::Hook;
use super::history::values;
use super::progress::{EpochRow, Progress};
use crate::experiment::{Experiment, LogFormat, TrainSpec};
use crate::run::RunFolder;

/// The most steps whose loss is logged; of more, only every so many is.
const MOST_STEPS: usize = 20_000;

/// The event file and the command that follow one run.
pub(super) struct Followers {
    events: Option<EventFile>,
    hook: Option<Hook>,
    /// Every so many steps, the loss of one is logged.
    every: usize,
    started: bool,
    wants_events: bool,
}

impl Followers {
    /// Returns followers that do nothing, for processes that do not write.
    pub fn none() -> Followers {
        Followers { events: None, hook: None, every: 1, started: true, wants_events: false }
    }

    pub fn of(experiment: &Experiment, spec: &TrainSpec, folder: &RunFolder, total_steps: usize) -> Followers {
        let wants_events = spec.log.contains(&LogFormat::TensorBoard);
        let hook = spec.on_epoch.clone().map(|command| Hook::new(command, spec, experiment, folder));
        let every = total_steps.div_ceil(MOST_STEPS).max(1);
        Followers { events: None, hook, every, started: false, wants_events }
    }

    /// Opens what is written, once it is known from which step training goes on.
    pub fn start(&mut self, folder: &RunFolder, progress: &Progress) {
        if std::mem::replace(&mut self.started, true) || !self.wants_events {
            return;
        }
        let is_first = folder.event_files().is_empty();
        let open = || -> Result<EventFile> {
            let mut file = EventFile::create(&folder.next_event_file(), progress.steps)?;
            // The log was switched on in the middle of the run, or its files have been removed.
            let missed = progress.rows.iter().filter(|_| is_first);
            missed.map(epoch_scalars).try_for_each(|(step, scalars)| file.write(step, &scalars))?;
            Ok(file)
        };
        self.events = open().inspect_err(give_up).ok();
    }

    /// Tells of steps, of which the first is number `first`, counted from 1, by their mean losses over particles.
    pub fn steps(&mut self, first: usize, losses: &[f64], rate_factor: impl Fn(usize) -> f64) {
        let every = self.every;
        let logged =
            losses.iter().enumerate().map(|(at, loss)| (first + at, *loss)).filter(|(step, _)| step % every == 0);
        let logged: Vec<_> = logged.collect();
        self.log(|file| {
            logged.iter().try_for_each(|(step, loss)| {
                let scalars =
                    [("step/loss".to_string(), *loss), ("step/rate_factor".to_string(), rate_factor(step - 1))];
                file.write(*step, &scalars)
            })
        });
    }

    /// Tells of the end of an epoch.
    pub fn epoch(&mut self, row: &EpochRow) {
        let (step, scalars) = epoch_scalars(row);
        self.log(|file| file.write(step, &scalars));
        if let Some(hook) = &mut self.hook {
            hook.start(row);
        }
    }

    /// Waits for the command of the user.
    pub fn finish(&mut self) {
        if let Some(hook) = &mut self.hook {
            hook.wait();
        }
    }

    fn log(&mut self, write: impl FnOnce(&mut EventFile) -> Result<()>) {
        if let Some(file) = &mut self.events
            && let Err(error) = write(file).and_then(|()| file.flush())
        {
            give_up(&error);
            self.events = None;
        }
    }
}

fn give_up(error: &anyhow::Error) {
    tracing::warn!("{error:#}; training goes on without TensorBoard's log");
}

/// Returns the step of an epoch's end with the values of its row, as `epoch/<column>`.
fn epoch_scalars(row: &EpochRow) -> (usize, Vec<(String, f64)>) {
    let is_value = |column: &str| column != "epoch" && column != "step";
    let known = values(row).into_iter().filter(|(column, _)| is_value(column));
    (row.step, known.filter_map(|(column, value)| Some((format!("epoch/{column}"), value?))).collect())
}
