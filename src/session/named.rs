//! A finished run that a command names, with its config, before its weights are read.
//!
//! The configs of all runs of a command are checked before the first of the runs is opened.

use std::path::Path;

use anyhow::{Result, anyhow, bail, ensure};

use crate::base::small::Usage;
use crate::data::{Dataset, Split, SplitName};
use crate::experiment::{DataSpec, Experiment, Overrides, load_config};
use crate::run::RunFolder;

/// The refusal to fit on held-out images where there are none.
pub(super) const NOTHING_HELD_OUT: &str = "nothing to calibrate on: no training images are held out (data.*.validation = 0) and the data \
                                           set has no val split: train with data.*.validation, say 0.2";

/// A finished run and its config with the overrides of the command line.
pub struct Named {
    pub run: RunFolder,
    pub experiment: Experiment,
    /// The overrides with their keys written in full.
    pub(super) overrides: Overrides,
    /// Whether the run was named by its folder.
    pub(super) by_folder: bool,
    /// Whether the images are those of the run's own config, wherever they are stored.
    pub(super) own_data: bool,
    /// The overrides that locate the run's own data.
    pub(super) roots: Vec<String>,
}

impl Named {
    /// Finds a finished run below the results folder `out`: the named one, or the latest.
    ///
    /// # Errors
    /// Fails if there is no such run, if it is not finished, if the overrides change what it was trained with, or if its config cannot be
    /// read.
    pub fn find(named: Option<&str>, overrides: &Overrides, out: &Path) -> Result<Named> {
        let run = RunFolder::find(out, named)?;
        run.expect_finished()?;
        let by_folder = named.is_some_and(|named| Path::new(named).join("config.toml").is_file());
        Ok(Named { by_folder, ..Named::of(run, overrides)? })
    }

    /// Reads the config of a run with the overrides.
    ///
    /// # Errors
    /// Fails if the overrides change what it was trained with, or if its config cannot be read.
    pub fn of(run: RunFolder, overrides: &Overrides) -> Result<Named> {
        let overrides = overrides.in_full(&[run.config()])?;
        overrides.check_for_run()?;
        let experiment = overrides.read_run(run.config())?;
        let own = run.data()?.key;
        let (own_data, roots) = (overrides.keep_data(&own), overrides.roots(&own));
        Ok(Named { run, experiment, overrides, by_folder: false, own_data, roots })
    }

    /// Returns the names of the classes of the run's data.
    ///
    /// # Errors
    /// Fails if the files that tell them cannot be read.
    pub fn classes(&self) -> Result<Vec<String>> {
        located(&self.experiment, self.experiment.data.dataset.classes())
    }

    /// Returns the images of the run's own test sets as `load` reads them.
    ///
    /// # Errors
    /// Fails if `load` does.
    pub fn test_images(&self, mut load: impl FnMut(&dyn Dataset) -> Result<Split>) -> Result<Vec<Split>> {
        located(&self.experiment, self.experiment.data.each_test_set(|_, set| load(set)))
    }

    /// Checks that the run's checkpoint and the files of its head are where its config, or the command line, says.
    ///
    /// # Errors
    /// Fails with the key of the first one that is not there.
    pub(super) fn expect_files(&self) -> Result<()> {
        let missing = ["checkpoint", "head"].into_iter().find_map(|table| self.experiment.missing(table));
        missing.map_or(Ok(()), |missing| bail!("{}: {missing}", self.run.id()))
    }

    /// Checks that there are images on which calibrators and conformal sets can be fitted, as far as the run's config tells.
    ///
    /// # Errors
    /// Fails if there are none.
    pub fn expect_held_out(&self) -> Result<()> {
        let data = DataSpec::alone(load_config(&[self.run.config()], &self.roots)?)?;
        // Where files tell the splits and cannot be read, what is missing is told when they are opened.
        let has_none = data.dataset.splits().is_ok_and(|splits| !splits.contains(&SplitName::Val));
        ensure!(!(data.validation.is_none() && has_none), "{}: {NOTHING_HELD_OUT}", self.run.id());
        Ok(())
    }

    /// Refuses to test a trial of a sweep that was not named by its folder; images of training and held-out ones are open to all.
    ///
    /// # Errors
    /// Fails if the run is a trial that was not named by its folder, and the split is one of test images.
    pub fn check_trial(&self, split: SplitName) -> Result<()> {
        if is_of_training(self.own_data, split) { Ok(()) } else { check_trial(&self.run, self.by_folder) }
    }
}

/// Returns what was read of the data of an experiment, or the error, which names their place where nothing is there.
pub(super) fn located<T>(experiment: &Experiment, read: Result<T>) -> Result<T> {
    read.map_err(|why| match experiment.missing("data") {
        Some(missing) => anyhow!("{missing}"),
        None => why,
    })
}

/// Returns whether the images of a split are among the calibration images, or among those that were trained on. `own_data`: the images are
/// those of the run's own config.
pub(super) fn is_of_training(own_data: bool, split: SplitName) -> bool {
    own_data && split != SplitName::Test
}

/// Refuses to test a trial of a sweep unless its folder was named. Test images that choose among trials no longer
/// measure the chosen one.
///
/// # Errors
/// Fails if the run is a trial that was not named by its folder.
pub(super) fn check_trial(run: &RunFolder, by_folder: bool) -> Result<()> {
    let Some(sweep) = run.trial().filter(|_| !by_folder) else { return Ok(()) };
    let why = format!(
        "{}: a trial of the sweep {sweep}, which chooses by held-out images: testing trials would choose by test images. \
         `bella train --config` with the sweep's chosen.toml tests the chosen one; to test this one all the same, name its \
         folder: {}",
        run.id(),
        run.path().display()
    );
    Err(Usage(why).into())
}
