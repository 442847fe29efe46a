//! Tells TensorBoard and a command of the user about a training while it runs. A failure of either is a warning and never
//! ends the training.

mod events;
mod hook;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;

use self::events::EventFile;
use self::hook::Hook;
use super::context::{Context, Rates};
use super::progress::{EpochRow, Progress};
use crate::experiment::LogFormat;
use crate::run::RunFolder;

/// The most steps whose loss is logged; of more, only every so many is.
const MOST_STEPS: usize = 20_000;

/// The event file and the command of one run.
pub(super) struct Observers {
    events: Option<EventFile>,
    hook: Option<Hook>,
    /// Every so many steps, the loss of one is logged.
    every: usize,
}

impl Observers {
    /// Returns the observers of a training that goes on from here, until `stop` is set. Only the first process has any.
    pub fn of(context: &Context, folder: &RunFolder, progress: &Progress, stop: &Arc<AtomicBool>) -> Observers {
        let (spec, leads) = (context.spec(), context.group().is_main());
        let hook = spec.on_epoch.clone().filter(|_| leads);
        let wants_events = leads && spec.log.contains(&LogFormat::TensorBoard);
        Observers {
            events: if wants_events { open(folder, progress).inspect_err(give_up).ok() } else { None },
            hook: hook.map(|command| Hook::new(command, spec, context.experiment, folder, stop.clone())),
            every: context.steps().div_ceil(MOST_STEPS).max(1),
        }
    }

    /// Tells of steps, of which the first is number `first`, counted from 1, by their mean losses over particles.
    pub fn steps(&mut self, first: usize, losses: &[f64], rates: Rates) {
        let every = self.every;
        let logged =
            losses.iter().enumerate().map(|(at, loss)| (first + at, *loss)).filter(|(step, _)| step % every == 0);
        let logged: Vec<_> = logged.collect();
        self.log(|file| {
            logged.iter().try_for_each(|(step, loss)| {
                let scalars =
                    [("step/loss".to_string(), *loss), ("step/rate_factor".to_string(), rates.factor(step - 1))];
                file.write(*step, &scalars)
            })
        });
    }

    /// Logs the end of an epoch, which may not be saved yet: where it is repeated, TensorBoard drops what was logged first.
    pub fn log_epoch(&mut self, row: &EpochRow) {
        let (step, scalars) = epoch_scalars(row);
        self.log(|file| file.write(step, &scalars));
    }

    /// Tells the command of the user of an epoch that is saved, as soon as it is done with the one before.
    pub fn tell_epoch(&mut self, row: &EpochRow) {
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

/// Opens the event file of a training that goes on from here.
fn open(folder: &RunFolder, progress: &Progress) -> Result<EventFile> {
    let is_first = folder.event_files().is_empty();
    let mut file = EventFile::create(&folder.next_event_file(), progress.steps)?;
    // The log was switched on in the middle of the run, or its files have been removed.
    let missed = progress.rows.iter().filter(|_| is_first);
    missed.map(epoch_scalars).try_for_each(|(step, scalars)| file.write(step, &scalars))?;
    Ok(file)
}

fn give_up(error: &anyhow::Error) {
    tracing::warn!("{error:#}; training goes on without TensorBoard's log");
}

/// Returns the step of an epoch's end with the values of its row, as `epoch/<column>`.
fn epoch_scalars(row: &EpochRow) -> (usize, Vec<(String, f64)>) {
    let is_value = |column: &str| column != "epoch" && column != "step";
    let known = row.values().into_iter().filter(|(column, _)| is_value(column));
    (row.step, known.filter_map(|(column, value)| Some((format!("epoch/{column}"), value?))).collect())
}
