//! The posterior of a run as its file stores it, with everything that the file tells of itself.
//!
//! Also builds the members with which such a posterior predicts.

use anyhow::{Context, Result};
use tch::{Device, Kind};

use super::Session;
use crate::experiment::Experiment;
use crate::methods::PostHoc;
use crate::methods::post_hoc::{NO_GAUSSIAN_LOGITS, Predicted};
use crate::posterior::description::{HeadKind, Preprocessing, Source, parameters};
use crate::posterior::{Description, Draws, Posterior, Predictive, Stored};
use crate::predict::{Linear, Members, Rows};
use crate::run::RunFolder;
use crate::subspace::Subspace;

impl Session {
    /// Returns a posterior with the facts that its file states.
    ///
    /// # Errors
    /// Fails if the checkpoint cannot be read, or if nothing is trained.
    pub fn stored(&self, posterior: Posterior, experiment: &Experiment) -> Result<Stored> {
        let trained = self.subspace()?.layout().outputs_of_head().is_some();
        let head = self.model.head.to(Device::Cpu, Kind::Float);
        Ok(Stored {
            posterior,
            classes: self.classes.clone(),
            scale: self.model.head.gaussian.map(|gaussian| gaussian.scale),
            file_hashes: experiment.file_hashes()?.to_string(),
            about: self.description(experiment)?,
            run: None,
            layout: Some(self.subspace()?.layout().digest()),
            frozen_head: (!trained).then_some([head.weight, head.bias]),
        })
    }

    /// Reads the posterior of a finished run, whose theta must have the layout of this session.
    ///
    /// # Errors
    /// Fails as [`RunFolder::stored`] does, or if the layout is another one.
    pub fn stored_by(&self, run: &RunFolder, experiment: &Experiment) -> Result<Stored> {
        let stored = run.stored(experiment, self.device)?;
        self.check_layout(run, &stored)?;
        Ok(stored)
    }

    /// Checks that theta in a run's posterior has the layout of this session.
    ///
    /// # Errors
    /// Fails if it has another one.
    pub fn check_layout(&self, run: &RunFolder, stored: &Stored) -> Result<()> {
        self.subspace()?.layout().check(&run.posterior(), stored.layout.as_deref())
    }

    /// Returns the facts that the file of the run's posterior states.
    fn description(&self, experiment: &Experiment) -> Result<Description> {
        let training = experiment.training.as_ref().context("nothing is trained")?;
        let checkpoint = &experiment.checkpoint;
        let name = checkpoint.path.known_as().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let head = &self.model.head;
        let rows = head.rows.as_ref().map(|rows| Vec::try_from(rows.to_device(Device::Cpu)).context("the label words"));
        let preprocessing = match self.model.image_side() {
            0 => None,
            side => Some(Preprocessing::new(side, checkpoint)?),
        };
        Ok(Description {
            method: training.method.key.clone(),
            subspace: training.subspace.key.clone(),
            layout: parameters(self.subspace()?, &self.names),
            checkpoint: Source { name, sha256: checkpoint.sha256()?.to_string(), naming: self.naming.to_string() },
            head: HeadKind { kind: experiment.head.key.clone(), normalised: head.normalised, rows: rows.transpose()? },
            preprocessing,
        })
    }
}

/// Builds the members of a predictive of a run whose posterior `method` has fitted, if one has. `seed` determines the draws.
///
/// # Errors
/// Fails for draws from particles that are points, and for linearised predictions of a posterior without Gaussian logits.
pub fn prepare<'a>(
    predictive: Predictive,
    method: Option<&dyn PostHoc>,
    subspace: &'a dyn Subspace,
    posterior: &'a Posterior,
    seed: u64,
) -> Result<Prepared<'a>> {
    match predictive {
        Predictive::Draws(draws) => Ok(Prepared::Rows(subspace, Box::new(Draws::new(posterior, draws, seed)?))),
        Predictive::Particles | Predictive::Mean => Ok(Prepared::Rows(subspace, Box::new(posterior))),
        Predictive::Linearised(output, samples) => {
            let predicted = Predicted { subspace, posterior, output, samples, seed };
            Ok(Prepared::Linear(method.context(NO_GAUSSIAN_LOGITS)?.predict(predicted)?))
        }
    }
}

/// The owner of the data that members borrow while they predict.
pub enum Prepared<'a> {
    /// The checkpoint without training.
    Checkpoint,
    Rows(&'a dyn Subspace, Box<dyn Rows + 'a>),
    Linear(Box<dyn Linear + 'a>),
}

impl Prepared<'_> {
    pub fn members(&self) -> Members<'_> {
        match self {
            Prepared::Checkpoint => Members::Checkpoint,
            Prepared::Rows(subspace, rows) => Members::Rows { subspace: *subspace, rows: &**rows },
            Prepared::Linear(linear) => Members::Linear(&**linear),
        }
    }
}
