//! Attacks that are made on the members of another run, and tried on those that are evaluated.

use std::rc::Rc;

use anyhow::{Result, ensure};

use super::Evaluation;
use crate::base::small::Usage;
use crate::experiment::Overrides;
use crate::posterior::Predictive;
use crate::predict::Predictor;
use crate::session::{Computing, Opened, Prepared};

/// The run whose members an attack sees.
#[derive(Clone)]
pub struct Source {
    opened: Rc<Opened>,
}

impl Source {
    /// Opens a finished run.
    ///
    /// # Errors
    /// Fails if there is no such run, if it cannot be read, or if its predictions are linearised.
    pub fn open(named: &str, overrides: &Overrides, computing: Computing) -> Result<Source> {
        let opened = Opened::another(named, overrides, computing)?;
        ensure!(
            !matches!(opened.experiment.predictive(), Predictive::Linearised(..)),
            Usage(format!(
                "--transfer-from {}: its predictions are linearised, and an attack follows weights: name another run",
                opened.run.id()
            ))
        );
        Ok(Source { opened: Rc::new(opened) })
    }

    /// Checks that the attack is not made on the very run that is evaluated.
    ///
    /// # Errors
    /// Fails if `id` is this run's.
    pub(super) fn expect_other(&self, id: &str) -> Result<()> {
        if self.run() == id {
            let why = format!("--transfer-from {id}: is the run that is evaluated: leave it out, or name another run");
            return Err(Usage(why).into());
        }
        Ok(())
    }

    /// Returns the id of the run.
    pub fn run(&self) -> String {
        self.opened.run.id()
    }

    /// Returns the members of the run, with its own way of prediction.
    pub(super) fn prepare(&self) -> Result<Prepared<'_>> {
        self.opened.prepare(self.opened.experiment.predictive())
    }

    /// Returns the predictor of these members, of the classes `among` alone if there are some.
    pub(super) fn predictor<'a>(&'a self, prepared: &'a Prepared<'a>, among: Option<&[u32]>) -> Predictor<'a> {
        let predictor = Predictor::new(&self.opened.session.model, prepared.members(), self.opened.chunk());
        match among {
            Some(classes) => predictor.among(classes.to_vec()),
            None => predictor,
        }
    }

    /// Checks that attacked pixels mean the same to both runs. Each normalises them in its own way.
    ///
    /// # Errors
    /// Fails if the runs are the same, or if the classes, the size, the filter or the crop of images differ.
    pub(super) fn check(&self, of: &Evaluation) -> Result<()> {
        let (id, own) = (self.run(), of.run.id());
        self.expect_other(&own)?;
        let (theirs, ours) = (&self.opened.session, of.session);
        ensure!(
            theirs.classes == ours.classes,
            Usage(format!(
                "--transfer-from {id}: it has other classes than {own}, so that a label means another one: name a run on the same classes"
            ))
        );
        let (seen, sees) = (theirs.model.images()?, ours.model.images()?);
        let crops = [&self.opened.experiment, of.experiment].map(|experiment| experiment.checkpoint.crop_pct);
        let facts = [
            ("pixels per side", seen.size().to_string(), sees.size().to_string()),
            ("the filter", seen.interpolation().to_string(), sees.interpolation().to_string()),
            ("checkpoint.crop_pct", crops[0].to_string(), crops[1].to_string()),
        ];
        for (what, theirs, ours) in facts {
            ensure!(
                theirs == ours,
                Usage(format!(
                    "--transfer-from {id}: {what}: {theirs}, and {ours} for {own}: their images are prepared in different ways; name a run \
                 whose images are prepared alike"
                ))
            );
        }
        Ok(())
    }
}
