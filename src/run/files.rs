//! The files of a run that are read again: each must be whole, and say that it belongs to this run.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tch::Device;

use super::RunFolder;
use super::settings::Record;
use crate::base::files::{open_file, read_text};
use crate::base::hash::check_toml;
use crate::base::mapped::Mapped;
use crate::base::tensor_file::{self, RUN};
use crate::experiment::{DataSpec, Experiment, digest_in, digest_of};
use crate::posterior::Stored;
use crate::predictions::Predictions;
use crate::predictions::answers::Answers;
use crate::schema::Tree;
use crate::tasks;
use crate::tasks::Outcome;

impl RunFolder {
    /// Reads the posterior of the run.
    ///
    /// # Errors
    /// Fails if the posterior cannot be read, or if it is that of another run.
    pub fn read_posterior(&self, device: Device) -> Result<Stored> {
        let stored = Stored::read(&self.posterior(), device)?;
        self.check_owner(&self.posterior(), stored.run.as_deref())?;
        Ok(stored)
    }

    /// Returns the number of classes that the run knows, by the header of its posterior alone; `None` if there is none yet, or if it does
    /// not say it.
    pub fn classes(&self) -> Option<usize> {
        let path = self.posterior();
        let map = Mapped::new(&open_file(&path).ok()?, &path).ok()?;
        let names = tensor_file::described(&map, "classes").ok()??;
        serde_json::from_str::<Vec<String>>(&names).ok().map(|names| names.len())
    }

    /// Returns the run in whose folder a file of predictions lies; none for a file elsewhere.
    pub fn of_predictions(file: &Path) -> Option<RunFolder> {
        let path = file.canonicalize().ok()?.parent()?.parent()?.to_path_buf();
        (path.join("posterior.safetensors").is_file() && digest_in(path.file_name()?.to_str()?).is_some())
            .then_some(RunFolder { path })
    }

    /// Checks that a file in the run's folder, which says that it belongs to the run `stored`, does so.
    ///
    /// # Errors
    /// Fails if it names another run, or none.
    pub fn check_owner(&self, file: &Path, stored: Option<&str>) -> Result<()> {
        let (shown, id) = (file.display(), self.id());
        match stored {
            Some(stored) if stored == id => Ok(()),
            Some(stored) => bail!(
                "{shown}: belongs to the run {stored}, not to {id}: put this run's own file back (or give the folder its name \
                 back), or train the run again with --force"
            ),
            None => bail!("{shown}: does not say which run it belongs to: train the run {id} again with --force"),
        }
    }

    /// Reads the posterior of a finished run and checks that its config and the files of `experiment` are those that it was
    /// trained with.
    ///
    /// # Errors
    /// Fails if the posterior cannot be read, or if its config, its checkpoint or its head has changed.
    pub fn stored(&self, experiment: &Experiment, device: Device) -> Result<Stored> {
        let stored = self.read_posterior(device)?;
        self.check_config(&stored.file_hashes)?;
        stored.check_files(experiment.file_hashes()?, &experiment.checkpoint.path)?;
        Ok(stored)
    }

    /// Checks that the stored config is the one that the run was trained with. The run's id contains the hash of the
    /// config and of the files that it names.
    ///
    /// # Errors
    /// Fails if the config cannot be read, or if it has been changed.
    pub fn check_config(&self, file_hashes: &str) -> Result<()> {
        let (id, shown) = (self.id(), self.config().display().to_string());
        let settings = self.read_config()?;
        let Some(stored) = digest_in(&id) else {
            tracing::warn!("{shown}: not compared with the run: its folder has another name than the run's id");
            return Ok(());
        };
        let found = digest_of(settings, file_hashes)?;
        ensure!(
            found == stored,
            "{shown}: changed since the run was trained: its settings have the hash {found}, the run's id has {stored}: \
             undo the change, or train a run with the new settings"
        );
        Ok(())
    }

    /// Checks that the user's own files still list the samples that the run was trained on. Published sets, and data that cannot be
    /// read any more, are not compared; a warning says so of the latter.
    ///
    /// # Errors
    /// Fails if the run's record cannot be read, or if the samples are others.
    pub fn check_data(&self, data: &DataSpec) -> Result<()> {
        let Some(trained) = Record::read(self)?.data_contents else { return Ok(()) };
        let found = match data.contents() {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!("{error:#}: the data are not compared with those that the run was trained on");
                return Ok(());
            }
        };
        ensure!(
            found.as_ref() == Some(&trained),
            "data.{}: the training data have changed since the run {} was trained on them: put them back, train it again with \
             --force, or give the experiment another `name`, which keeps both",
            data.key,
            self.id()
        );
        Ok(())
    }

    /// Returns the data set of the run's config.
    ///
    /// # Errors
    /// Fails if the config cannot be read.
    pub fn data(&self) -> Result<DataSpec> {
        self.data_in(&self.config_text()?)
    }

    /// Returns the data set of the text of the run's config.
    ///
    /// # Errors
    /// Fails if the text is no config.
    pub fn data_in(&self, config: &str) -> Result<DataSpec> {
        Ok(DataSpec::alone(Tree::parse(&self.config().display().to_string(), config)?)?)
    }

    /// Reads the resolved config, as bella wrote it.
    ///
    /// # Errors
    /// Fails if the file is missing, or has been changed.
    pub fn read_config(&self) -> Result<toml::Table> {
        self.table_in(&self.config_text()?)
    }

    /// Reads the text of the resolved config, as bella wrote it.
    ///
    /// # Errors
    /// Fails if the file is missing, or has been changed.
    pub fn config_text(&self) -> Result<String> {
        let shown = self.config().display().to_string();
        let text = read_text(&self.config()).with_context(|| format!("{shown}: cannot read"))?;
        check_toml(&text).with_context(|| shown)?;
        Ok(text)
    }

    pub(super) fn table_in(&self, config: &str) -> Result<toml::Table> {
        toml::from_str(config).map_err(|error| anyhow!("{}: {}", self.config().display(), error.message()))
    }
}

/// Opens a file of predictions. In the folder of a run it must be that run's.
///
/// # Errors
/// Fails if the file cannot be read, or if it belongs to another run.
pub fn open_predictions(path: &Path) -> Result<Predictions> {
    let predictions = Predictions::open(path)?;
    if let Some(run) = RunFolder::of_predictions(path) {
        run.check_owner(path, predictions.metadata().get(RUN).map(String::as_str))?;
    }
    Ok(predictions)
}

/// Opens a file of the outcome of a task, as [`open_predictions`] opens one of predictions.
///
/// # Errors
/// Fails if the file cannot be read, or if it belongs to another run.
pub fn open_outcome(path: &Path) -> Result<Box<dyn Outcome>> {
    let found = tasks::open(path)?;
    if let Some(run) = RunFolder::of_predictions(path) {
        run.check_owner(path, found.metadata().get(RUN).map(String::as_str))?;
    }
    Ok(found)
}

/// Opens a file of answers, as [`open_predictions`] does one of predictions.
///
/// # Errors
/// Fails if the file cannot be read, or if it belongs to another run.
pub fn open_answers(path: &Path) -> Result<Answers> {
    let answers = Answers::open(path)?;
    if let Some(run) = RunFolder::of_predictions(path) {
        run.check_owner(path, answers.metadata.get(RUN).map(String::as_str))?;
    }
    Ok(answers)
}
