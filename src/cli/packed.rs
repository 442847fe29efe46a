//! The training of several runs together, as rows of one matrix: `bella train --seeds 1,2,3 --packed`, and the trials of
//! `bella sweep --packed`.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};

use super::ending::{self, Stopped};
use crate::base::logging::open_logs;
use crate::base::small::Usage;
use crate::data::batches::TestImages;
use crate::data::labels::Labels;
use crate::evaluate::after_training;
use crate::experiment::Experiment;
use crate::machine::parallel::ProcessGroup;
use crate::run::{RunFolder, RunLock};
use crate::session::{Session, Settings};
use crate::train::{Finished, Material, Outcome, PackedRun, Watch, read_resume_file, run_packed};

/// The settings of the training of runs together.
pub struct Packed<'a> {
    pub settings: Settings,
    /// The epoch after which the runs pause.
    pub until_epoch: Option<usize>,
    /// Whether each run is evaluated on its test sets when it is trained.
    pub evaluates: bool,
    /// Prepares the folder of a run and locks it.
    pub open: &'a dyn Fn(&Experiment, &RunFolder) -> Result<RunLock>,
}

/// A run that is to be trained.
struct Opened<'a> {
    experiment: &'a Experiment,
    folder: RunFolder,
    is_new: bool,
    _lock: RunLock,
}

impl Packed<'_> {
    /// Trains the runs of these experiments that are not finished, in which one that fails leaves the others alone.
    ///
    /// # Errors
    /// Fails if they cannot be trained together, if a run has failed, or if a signal has stopped training. A line names each run that
    /// failed, as `<id>: <why>`.
    pub fn train(&self, experiments: &[Experiment], group: &Rc<ProcessGroup>) -> Result<()> {
        if group.size() > 1 {
            return Err(Usage("--packed: one process trains runs together: start it without mpirun".into()).into());
        }
        Experiment::check_packed(&experiments.iter().collect::<Vec<_>>())
            .map_err(|why| Usage(format!("--packed: {why}")))?;
        let (mut opened, mut failed) = (Vec::new(), 0);
        for experiment in experiments {
            let folder = RunFolder::of(&self.settings.out, experiment)?;
            let is_new = !folder.path().exists();
            match (self.open)(experiment, &folder) {
                Ok(_) if folder.is_finished() => tracing::info!("{}: is finished", folder.id()),
                Ok(lock) => opened.push(Opened { experiment, folder, is_new, _lock: lock }),
                Err(error) => failed += told(&folder, &error),
            }
        }
        if !opened.is_empty() {
            open_logs(opened.iter().map(|run| run.folder.log()))?;
            let began = Cell::new(false);
            let ended = self.train_opened(&opened, group, &began);
            if !began.get() {
                opened.iter().filter(|run| run.is_new).for_each(|run| run.folder.discard());
            }
            failed += ended?;
        }
        if failed > 0 {
            bail!("{failed} of {} packed runs failed", experiments.len());
        }
        Ok(())
    }

    /// Trains runs and evaluates them. Returns how many have failed.
    fn train_opened(&self, opened: &[Opened], group: &Rc<ProcessGroup>, began: &Cell<bool>) -> Result<usize> {
        let first = opened[0].experiment;
        let unused: Vec<RunFolder> = opened.iter().filter(|run| run.is_new).map(|run| run.folder.clone()).collect();
        ending::end_at_once("stopped before the first step", move || unused.iter().for_each(RunFolder::discard))?;
        opened.iter().for_each(|run| tracing::info!("run: {}", run.folder.path().display()));
        first.command().iter().for_each(|command| tracing::info!("{command}"));
        let device = self.settings.open_device(group)?;
        let labels = Labels::of(&*first.data.dataset)?;
        let session = Session::open_among(first, self.settings.clone(), device, labels, group.clone())?;
        let images = Images::read(opened, &session, self.evaluates)?;
        let (mut started, mut runs, mut failed) = (Vec::new(), Vec::new(), 0);
        for one in opened {
            let (experiment, folder, material) = (one.experiment, &one.folder, images.of(one.experiment.seed)?);
            match read_resume_file(folder, group) {
                Ok(state) => {
                    started.push(one);
                    runs.push(PackedRun { experiment, material, folder, state });
                }
                Err(error) => failed += told(folder, &error),
            }
        }
        let stop = ending::stop(&session.group)?;
        let watch = Watch { stop: stop.clone(), trained: &|| Ok(()), until_epoch: self.until_epoch, began };
        let ended = run_packed(&session, runs, &watch)?;
        let stopped = stop.load(Ordering::Relaxed);
        if !stopped {
            ending::end_at_once("stopped after training, which is saved: the same command goes on", || {})?;
        }
        for (one, outcome) in started.into_iter().zip(ended) {
            let ended = outcome.and_then(|outcome| one.end(outcome, stopped, &session, &images));
            failed += ended.map_or_else(|error| told(&one.folder, &error), |()| 0);
        }
        if stopped {
            return Err(Stopped("stopped; all runs are saved: the same command continues".into()).into());
        }
        Ok(failed)
    }
}

impl Opened<'_> {
    /// Evaluates the run if it is finished and nothing has stopped the others.
    fn end(&self, outcome: Outcome, stopped: bool, session: &Session, images: &Images) -> Result<()> {
        match outcome {
            Outcome::Finished(_) if stopped => {}
            Outcome::Finished(trained) => self.evaluate(*trained, session, images)?,
            Outcome::Interrupted { steps } => {
                tracing::info!("{}: paused after {steps} steps, which are saved", self.folder.id());
            }
        }
        Ok(())
    }

    /// Evaluates the run on the test sets, if there are any.
    fn evaluate(&self, trained: Finished, session: &Session, images: &Images) -> Result<()> {
        let Finished { record, posterior } = trained;
        after_training(self.experiment, session, &self.folder, &record, &posterior, &images.tests).map(drop)
    }
}

/// The images of several runs.
struct Images {
    /// The images for training and validation, by seed.
    materials: Vec<(u64, Material)>,
    /// The test sets, if the runs are evaluated.
    tests: Vec<(String, TestImages)>,
}

impl Images {
    fn read(opened: &[Opened], session: &Session, evaluates: bool) -> Result<Images> {
        let mut images = Images { materials: Vec::new(), tests: Vec::new() };
        let mut overlap = Vec::new();
        for Opened { experiment, .. } in opened {
            if images.of(experiment.seed).is_ok() {
                continue;
            }
            let (mut material, seen) = Material::read(experiment, session)?;
            // The images are the same for all seeds.
            if evaluates && images.materials.is_empty() {
                let found = session.test_images(experiment, &seen)?;
                (images.tests, overlap) = (found.tests, found.overlap);
            }
            material.overlap.clone_from(&overlap);
            images.materials.push((experiment.seed, material));
        }
        Ok(images)
    }

    fn of(&self, seed: u64) -> Result<&Material> {
        let found = self.materials.iter().find(|(other, _)| *other == seed);
        found.map(|(_, material)| material).with_context(|| format!("no images were read for seed {seed}"))
    }
}

/// Says why a run failed. Returns 1, the number of runs that this adds to those that failed.
fn told(folder: &RunFolder, error: &anyhow::Error) -> usize {
    tracing::error!("{}: {error:#}", folder.id());
    1
}
