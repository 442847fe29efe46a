//! A run, or a checkpoint without training, opened for the commands that follow training.
//!
//! Among it are the training images that a run held out, for evaluation or for fitting temperatures.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use super::named::{NOTHING_HELD_OUT, Named, check_trial, is_of_training, located};
use super::{Prepared, Session, Settings, prepare};
use crate::data::batches::{SampleSet, TestImages};
use crate::data::labels::Labels;
use crate::data::overlap::Seen;
use crate::data::{Fingerprint, Request, Split, SplitName};
use crate::experiment::{Experiment, Overrides, Validation, load_config};
use crate::machine::Chunk;
use crate::posterior::{Predictive, Stored};
use crate::run::{Cost, Record, RunFolder};
use crate::subspace::updates::mean;
use crate::subspace::{Combined, Space};

/// The settings of a computation on a run.
#[derive(Clone, Debug)]
pub struct Computing {
    /// The settings. Runs are looked up in their results folder.
    pub settings: Settings,
    /// Whether results go to that folder even if another one holds the run.
    pub names_out: bool,
    /// Whether results are stored in the folder of the run and beside it. A command that stores none takes runs in folders that it may only
    /// read.
    pub stores: bool,
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

/// The result of a training.
struct Trained {
    stored: Stored,
    record: Record,
}

/// A run or checkpoint that is ready to predict.
pub struct Opened {
    pub experiment: Experiment,
    pub session: Session,
    pub run: RunFolder,
    /// The posterior and the record; absent for a checkpoint without training.
    trained: Option<Trained>,
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
    /// Fails if there is no such run, if it is not finished, if the overrides change what it was trained with, if it cannot be read, or
    /// if results are to be stored and it cannot be written to.
    pub fn run(named: Option<&str>, overrides: &Overrides, computing: Computing) -> Result<Opened> {
        Opened::named(Named::find(named, overrides, &computing.settings.out)?, computing)
    }

    /// Opens another finished run beside the one that the overrides are meant for.
    ///
    /// # Errors
    /// Fails as [`Opened::run`] does.
    pub fn another(named: &str, overrides: &Overrides, computing: Computing) -> Result<Opened> {
        let run = RunFolder::find(&computing.settings.out, Some(named))?;
        Opened::run(Some(named), &overrides.for_another_run(run.config())?, computing)
    }

    /// Opens a run whose config was read before.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if results are to be stored and it cannot be written to.
    pub fn named(named: Named, computing: Computing) -> Result<Opened> {
        named.expect_files()?;
        let Named { run, experiment, overrides, by_folder, own_data, roots } = named;
        run.remove_temporaries();
        let (logged, stores) = (crate::base::logging::open_log(&run.log()), computing.stores);
        let settings = Settings { precision: overrides.precision, ..computing.on(&run) };
        if stores {
            logged.context("results are stored in the folder of the run and beside it: copy its results folder to a place of your own")?;
            crate::base::files::create_folder(&settings.out)?;
        } else if let Err(error) = logged {
            tracing::debug!("{error:#}");
        }
        tracing::info!("run: {}", run.path().display());
        let device = settings.device.open()?;
        let stored = run.stored(&experiment, device)?;
        let record = Record::read(&run)?;
        let asked = overrides.has("train.precision");
        let settings = if asked { settings } else { settings.after_training(&experiment, device) };
        let session = Session::open(&experiment, settings, device, stored.labels())?;
        session.check_layout(&run, &stored)?;
        let own_sets = run.data()?.test_names();
        let trained = Some(Trained { stored, record });
        Ok(Opened { experiment, session, run, trained, roots, own_data, own_sets, by_folder })
    }

    /// Opens the checkpoint of config files without training, with the configured head.
    ///
    /// # Errors
    /// Fails if the config or the checkpoint cannot be read, or if its head is still to be trained.
    pub fn checkpoint(files: &[PathBuf], overrides: &Overrides, settings: Settings) -> Result<Opened> {
        let overrides = &overrides.in_full(files)?;
        let mut experiment = overrides.read(files)?;
        let asked = experiment.training.take().filter(|_| overrides.has("train.precision"));
        let asked = asked.map(|training| training.train.precision);
        let settings = Settings { precision: overrides.precision.or(asked), ..settings };
        let run = RunFolder::of(&settings.out, &experiment)?;
        run.create(&experiment)?;
        crate::base::logging::open_log(&run.log())?;
        let labels = Labels::of(&*experiment.data.dataset)?;
        let device = settings.device.open()?;
        let session = Session::open(&experiment, settings, device, labels)?;
        ensure!(
            session.model.head.training != crate::model::head::Training::Always,
            "head.{} is new and untrained: evaluate a trained run, or use [head.zero-shot] or [head.checkpoint]",
            experiment.head.key
        );
        // The folder of such a run is that of the experiment with its overrides.
        let own_sets = experiment.data.test_names();
        let (trained, roots) = (None, vec![]);
        Ok(Opened { experiment, session, run, trained, roots, own_data: true, own_sets, by_folder: false })
    }

    /// Refuses to test a trial of a sweep unless its folder was named.
    ///
    /// # Errors
    /// Fails if the run is a trial that was not named by its folder.
    pub fn check_trial(&self) -> Result<()> {
        check_trial(&self.run, self.by_folder)
    }

    /// Returns the samples of a split that a user names: of the test split, those of every test set by themselves.
    ///
    /// # Errors
    /// Fails if they cannot be read, or, as bad usage, if the run is a trial of a sweep that was not named by its folder.
    pub fn splits(&self, name: SplitName) -> Result<Vec<Split>> {
        if !self.is_of_training(name) {
            self.check_trial()?;
        }
        match name {
            SplitName::Test => {
                self.located(self.experiment.data.each_test_set(|_, set| self.session.load_test(&self.experiment, set)))
            }
            name => Ok(vec![self.split(name)?]),
        }
    }

    /// Returns the members of a predictive; the checkpoint itself if nothing was trained.
    pub fn prepare(&self, predictive: Predictive) -> Result<Prepared<'_>> {
        match &self.trained {
            Some(Trained { stored, .. }) => {
                let Experiment { seed, .. } = self.experiment;
                prepare(predictive, self.experiment.post_hoc(), self.session.subspace()?, &stored.posterior, seed)
            }
            None => Ok(Prepared::Checkpoint),
        }
    }

    /// Returns the number of members that go through the network at once, from the run's config or the command line.
    pub fn chunk(&self) -> Chunk {
        self.experiment.particle_chunk()
    }

    /// Returns the trained posterior, with its class names and file hashes.
    pub fn stored(&self) -> Result<&Stored> {
        let trained = self.trained.as_ref().map(|trained| &trained.stored);
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

    /// Returns the cost of training; `None` for a checkpoint without training.
    pub fn cost(&self) -> Option<Cost> {
        self.trained.as_ref().map(|trained| Cost::of(&trained.record))
    }

    /// Returns the number of images per forward pass: that of the command line, or else of the config.
    pub fn batch_size(&self, asked: Option<u32>) -> usize {
        asked.map_or(self.experiment.eval_batch_size(), |size| size as usize)
    }

    /// Returns whether the data are those that the run was trained with.
    pub fn has_own_data(&self) -> bool {
        self.own_data
    }

    /// Returns whether the run's own data have a test set of this name.
    pub fn is_own_set(&self, set: &str) -> bool {
        self.own_sets.iter().any(|own| own == set)
    }
}

/// Images on which calibrators are fitted: those that training held out, or a published validation split.
struct HeldOut {
    /// The images, with the labels of their publisher.
    split: Split,
    /// The labels to fit by, `[N]`: of held-out images those that training saw, some of them replaced by `label_noise`.
    trained: Vec<u32>,
}

impl HeldOut {
    /// Keeps the images whose labels are among `classes`, with labels that are places among these; `None` keeps all.
    fn among(self, classes: Option<&[u32]>) -> Result<HeldOut> {
        let Some(classes) = classes else { return Ok(self) };
        let place = |label: &u32| classes.iter().position(|class| class == label);
        let kept: Vec<(u32, u32)> =
            (0..).zip(&self.trained).filter_map(|(image, label)| Some((image, place(label)? as u32))).collect();
        ensure!(
            !kept.is_empty(),
            "none of the {} held-out images is of the {} classes of the test set: hold out more (data.*.validation)",
            self.trained.len(),
            classes.len()
        );
        let (images, trained): (Vec<u32>, Vec<u32>) = kept.into_iter().unzip();
        Ok(HeldOut { split: self.split.select(&images), trained })
    }
}

impl Opened {
    /// Returns the images of a split. `val` is the training images that the run held out, if it held some out and no
    /// other data are asked for. They have the labels of their publisher, since a result measures the model and not the
    /// label noise.
    ///
    /// # Errors
    /// Fails if the data set has no such split.
    pub fn split(&self, name: SplitName) -> Result<Split> {
        if name != SplitName::Val {
            return self.located(self.session.load(&self.experiment, name));
        }
        let data = &self.experiment.data;
        if self.own_data
            && let Some(held) = self.held_out(&self.experiment)?
        {
            let replaced = if held.split.labels == held.trained { "" } else { ", not those that label_noise replaced" };
            tracing::info!(
                "val: the {} training images held out by data.{}.validation, with their published labels{replaced}",
                held.split.len(),
                data.key
            );
            return Ok(held.split);
        }
        self.session.load(&self.experiment, name).with_context(|| match (self.own_data, data.validation.is_none()) {
            (true, true) => {
                format!("--split val: the run held no training images out (data.{}.validation = 0)", data.key)
            }
            (true, false) => "--split val".to_string(),
            (false, _) => {
                "--split val: held-out images are those of the run's own data: leave --data and --set data.* \
                           out, or name a data set with a val split"
                    .to_string()
            }
        })
    }

    /// Returns what was read of the data.
    ///
    /// # Errors
    /// Fails if it was not read; where nothing is at the place of the run's own data, with the key that says where they are.
    pub fn located<T>(&self, read: Result<T>) -> Result<T> {
        if self.own_data { located(&self.experiment, read) } else { read }
    }

    /// Returns the training images that an experiment holds out, if it holds out any.
    fn held_out(&self, experiment: &Experiment) -> Result<Option<HeldOut>> {
        if !matches!(experiment.data.validation, Validation::HeldOut(share) if share > 0.0) {
            return Ok(None);
        }
        self.check_training_data(experiment)?;
        let all = self.session.load_published(experiment, SplitName::Train)?;
        let mut labels = all.labels.clone();
        self.session.replace_labels(experiment, &all.name, &mut labels);
        // Training selected the images by the labels that it saw.
        let held = experiment.data.validation.holdout(experiment.seed, &labels).validation;
        let trained = held.iter().map(|&image| labels[image as usize]).collect();
        Ok(Some(HeldOut { split: all.select(&held), trained }))
    }

    /// Returns the training images that the run held out, with the labels that it saw, or else a published validation
    /// split. Of a checkpoint without training, it is the images that its config holds out.
    ///
    /// # Errors
    /// Fails if there is neither.
    pub fn validation(&self) -> Result<TestImages> {
        self.validation_among(None)
    }

    /// Returns the same images of some classes alone, with labels that are places among these.
    ///
    /// # Errors
    /// Fails if there are none.
    pub fn validation_among(&self, classes: Option<&[u32]>) -> Result<TestImages> {
        let (device, workers) = (self.session.device, self.session.settings.workers);
        self.with_own_data(|experiment| {
            if let Some(held) = self.held_out(experiment)? {
                let HeldOut { split, trained } = held.among(classes)?;
                // The images are the same ones whatever label noise made of their labels.
                let fingerprint = Fingerprint::of(&split)?;
                let set = SampleSet::new(Split { labels: trained, ..split }, device, workers)?;
                return Ok(TestImages { set, fingerprint });
            }
            let split = self.session.load(experiment, SplitName::Val).context(NOTHING_HELD_OUT)?;
            let HeldOut { split, trained } = HeldOut { trained: split.labels.clone(), split }.among(classes)?;
            TestImages::new(Split { labels: trained, ..split }, device, workers)
        })
    }

    /// Returns the images that the run was trained on, with the labels that it saw. Of a checkpoint without training, it is those that its
    /// config would train on.
    ///
    /// # Errors
    /// Fails if they cannot be read.
    pub fn trained_on(&self) -> Result<SampleSet> {
        self.with_own_data(|experiment| {
            self.check_training_data(experiment)?;
            let all = self.session.load(experiment, SplitName::Train)?;
            let kept = experiment.data.validation.holdout(experiment.seed, &all.labels).train;
            SampleSet::new(all.select(&kept), self.session.device, self.session.settings.workers)
        })
    }

    /// Checks that the training images are those of the run, without which held-out images and those trained on are not known.
    fn check_training_data(&self, experiment: &Experiment) -> Result<()> {
        if self.trained.is_some() { self.run.check_data(&experiment.data) } else { Ok(()) }
    }

    /// Runs `work` on the run's own experiment: `--data` names another test set, not another training set.
    fn with_own_data<T>(&self, work: impl FnOnce(&Experiment) -> Result<T>) -> Result<T> {
        match &self.trained {
            Some(_) => {
                let own = Experiment::read_to_evaluate(&load_config(&[self.run.config()], &self.roots)?)?;
                located(&own, work(&own))
            }
            None => work(&self.experiment),
        }
    }

    /// Returns the training images of the run, with which the test images of other data are compared. There is nothing to compare if
    /// the data are the run's own, which were compared in training, or if the training images are not there any more.
    pub fn seen(&self) -> Seen {
        if self.own_data || self.trained.is_none() {
            return Seen::Others;
        }
        let listing = Request::listing(self.session.settings.workers, &|_, _| ());
        let split = self.with_own_data(|own| own.data.dataset.load(SplitName::Train, &listing));
        split.map_or_else(
            |why| {
                tracing::debug!("test images are not compared with the training images: {why:#}");
                Seen::Others
            },
            |split| Seen::of(&split),
        )
    }

    /// Returns whether the images of a split are among the calibration images, or among those that were trained on.
    pub fn is_of_training(&self, split: SplitName) -> bool {
        is_of_training(self.own_data, split)
    }
}
