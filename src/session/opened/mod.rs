//! A run, or a checkpoint without training, opened for what follows training.

mod held_out;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{Prepared, Session, Settings, prepare};
use crate::base::small::Usage;
use crate::experiment::{Experiment, Overrides, load_config};
use crate::machine::Chunk;
use crate::posterior::{Output, Predictive, Stored};
use crate::run::{Record, RunFolder};
use crate::subspace::updates::mean;
use crate::subspace::{Combined, Space};

/// The settings of a computation on a run.
#[derive(Clone, Debug)]
pub struct Computing {
    /// The settings. Runs are looked up in their results folder.
    pub settings: Settings,
    /// Whether results go to that folder even if another one holds the run.
    pub names_out: bool,
}

impl Computing {
    /// Returns the settings for a run, whose results go to the folder that holds it unless another one is named.
    fn on(self, run: &RunFolder) -> Settings {
        let holder = if self.names_out { None } else { run.results().map(below_here) };
        Settings { out: holder.unwrap_or(self.settings.out), ..self.settings }
    }
}

/// Shortens a path to the part below the current folder, where it lies there.
fn below_here(path: PathBuf) -> PathBuf {
    let here = std::env::current_dir().and_then(|here| here.canonicalize()).unwrap_or_default();
    match path.strip_prefix(here) {
        Ok(part) if part.as_os_str().is_empty() => PathBuf::from("."),
        Ok(part) => part.to_path_buf(),
        Err(_) => path,
    }
}

/// A run or checkpoint that is ready to predict.
pub struct Opened {
    pub experiment: Experiment,
    pub session: Session,
    pub run: RunFolder,
    /// The posterior and the record; absent for a checkpoint without training.
    pub trained: Option<(Stored, Record)>,
    /// The overrides of the command line that locate the data.
    roots: Vec<String>,
    /// Whether the images are those of the run's own config, wherever they are stored.
    own_data: bool,
    /// The names of the run's own test sets.
    own_sets: Vec<String>,
    /// Whether the run was named by its folder.
    by_folder: bool,
}

impl Opened {
    /// Opens a finished run: the named one, or the latest.
    ///
    /// # Errors
    /// Fails if there is no such run, if it is not finished, if the overrides change what it was trained with, or if it
    /// cannot be read.
    pub fn run(named: Option<&str>, overrides: &Overrides, computing: Computing) -> Result<Opened> {
        let run = RunFolder::find(&computing.settings.out, named)?;
        run.expect_finished()?;
        overrides.check_for_run()?;
        run.remove_temporaries();
        crate::base::logging::open_log(&run.log())?;
        tracing::info!("run: {}", run.path().display());
        let settings = Settings { precision: overrides.precision, ..computing.on(&run) };
        crate::base::files::create_folder(&settings.out)?;
        let experiment = overrides.read_run(run.config())?;
        let device = settings.device.open()?;
        let stored = run.stored(&experiment, device)?;
        let record = Record::read(&run)?;
        let session = Session::open(&experiment, settings, device, stored.classes.clone())?;
        session.check_layout(&run, &stored)?;
        let own_sets = Experiment::read_to_evaluate(&load_config(&[run.config()], &[])?)?.data.test_names();
        let (trained, roots, own_data) = (Some((stored, record)), overrides.roots(), overrides.keep_data());
        let by_folder = named.is_some_and(|named| Path::new(named).join("config.toml").is_file());
        Ok(Opened { experiment, session, run, trained, roots, own_data, own_sets, by_folder })
    }

    /// Opens the checkpoint of config files without training, with the configured head.
    ///
    /// # Errors
    /// Fails if the config or the checkpoint cannot be read, or if its head is still to be trained.
    pub fn checkpoint(files: &[PathBuf], overrides: &Overrides, settings: Settings) -> Result<Opened> {
        let mut experiment = overrides.read(files)?;
        experiment.training = None;
        let settings = Settings { precision: overrides.precision, ..settings };
        let run = RunFolder::of(&settings.out, &experiment)?;
        run.create(&experiment)?;
        crate::base::logging::open_log(&run.log())?;
        let classes = experiment.data.dataset.classes()?;
        let device = settings.device.open()?;
        let session = Session::open(&experiment, settings, device, classes)?;
        ensure!(
            session.model.head.training != crate::model::head::Training::Always,
            "head.linear is new and untrained: evaluate a trained run, or use [head.zero-shot] or [head.checkpoint]"
        );
        // The folder of such a run is that of the experiment with its overrides.
        let (roots, own_sets) = (overrides.roots(), experiment.data.test_names());
        Ok(Opened { experiment, session, run, trained: None, roots, own_data: true, own_sets, by_folder: false })
    }

    /// Refuses to test a trial of a sweep unless its folder was named. Test images that choose among trials no longer
    /// measure the chosen one.
    ///
    /// # Errors
    /// Fails if the run is a trial that was not named by its folder.
    pub fn check_trial(&self) -> Result<()> {
        let Some(sweep) = self.run.trial().filter(|_| !self.by_folder) else { return Ok(()) };
        let why = format!(
            "{}: a trial of the sweep {sweep}, which chooses by held-out images: testing trials would choose by test images. \
             `bella train --config` with the sweep's chosen.toml tests the chosen one; to test this one all the same, name its \
             folder: {}",
            self.run.id(),
            self.run.path().display()
        );
        Err(Usage(why).into())
    }

    /// Returns the members of a predictive; the checkpoint itself if nothing was trained.
    pub fn prepare(&self, predictive: Predictive) -> Result<Prepared<'_>> {
        match &self.trained {
            Some((stored, _)) => {
                let Experiment { seed, .. } = self.experiment;
                prepare(predictive, self.experiment.post_hoc(), self.session.subspace()?, &stored.posterior, seed)
            }
            None => Ok(Prepared::Checkpoint),
        }
    }

    /// Returns the predictive with an output and a number of draws, where these are given, or else that of the method.
    pub fn predictive(&self, output: Option<Output>, draws: Option<u32>) -> Predictive {
        let own = self.experiment.post_hoc().and_then(|method| method.output());
        let samples = draws.map_or(own.map_or(64, |(_, samples)| samples), |draws| draws as usize);
        match (output, draws) {
            (Some(output), _) => Predictive::laplace(output, samples),
            (None, None) => self.experiment.predictive(),
            (None, Some(0)) => Predictive::Mean,
            (None, Some(_)) => {
                own.map_or(Predictive::Draws(samples), |(output, _)| Predictive::laplace(output, samples))
            }
        }
    }

    /// Returns the number of members that go through the network at once, from the run's config or the command line.
    pub fn chunk(&self) -> Chunk {
        self.experiment.particle_chunk()
    }

    /// Returns the trained posterior, with its class names and file hashes.
    pub fn stored(&self) -> Result<&Stored> {
        let trained = self.trained.as_ref().map(|(stored, _)| stored);
        trained.context("this is a checkpoint as it is: it has no posterior; name a trained run")
    }

    /// Returns the average of all particles as one model.
    ///
    /// # Errors
    /// Fails if there is one particle, or if the particles cannot be averaged in this space.
    pub fn soup(&self, space: Space) -> Result<Combined> {
        let posterior = &self.stored()?.posterior;
        let theta = posterior.theta();
        ensure!(theta.size()[0] > 1, "{}: this run has one particle: there is nothing to average", self.run.id());
        mean(self.session.subspace()?, theta, posterior.weights(), space)
    }

    pub fn record(&self) -> Option<&Record> {
        self.trained.as_ref().map(|(_, record)| record)
    }

    /// Returns the number of images per forward pass: that of the command line, or else of the config.
    pub fn batch_size(&self, asked: Option<u32>) -> usize {
        asked.map_or(self.experiment.eval_batch_size(), |size| size as usize)
    }

    /// Returns whether predictions on a set of this name may be the first to use the plain names of their files.
    pub fn names_files(&self, set: &str) -> bool {
        self.own_data || !self.own_sets.iter().any(|own| own == set)
    }
}
