//! The particles of another run, around which something is fitted.

use anyhow::{Context as _, Result, bail, ensure};

use super::record::Finished;
use crate::experiment::{Experiment, load_config};
use crate::posterior::Posterior;
use crate::run::{Record, RunFolder};
use crate::session::Session;

/// Returns the record and the particles of the finished run `from`.
///
/// # Errors
/// Fails if the run does not exist or is not finished, if its seed, checkpoint, head, data or subspace differ from
/// those of this config, or if it kept Gaussians or draws instead of points.
pub(super) fn adopt(from: &str, experiment: &Experiment, session: &Session) -> Result<Finished> {
    let training = experiment.training.as_ref().context("the config has nothing to train")?;
    let method = &training.method.key;
    let key = format!("method.{method}.from = {from:?}");
    let run = RunFolder::find(&session.settings.out, Some(from)).with_context(|| key.clone())?;
    ensure!(run.is_finished(), "{key}: this run is not finished: continue it with `bella train`");
    let theirs = Experiment::read_to_evaluate(&load_config(&[run.config()], &[])?)?.resolved();
    let ours = experiment.resolved();
    for table in ["seed", "checkpoint", "head", "data", "subspace"] {
        ensure!(
            ours.get(table) == theirs.get(table),
            "{key}: its `{table}` is not this config's: fit Gaussians with the settings that the run was trained with ({})",
            run.config().display()
        );
    }
    let theta = match session.stored_by(&run, experiment)?.posterior {
        Posterior::Points { theta } | Posterior::Laplace { mode: theta, .. } => theta,
        Posterior::Gaussians { .. } | Posterior::LowRankGaussians { .. } | Posterior::BlockGaussians { .. } => {
            bail!("{key}: the run's particles are Gaussians already")
        }
        Posterior::Dropout { .. } => {
            bail!("{key}: the run's particles predict with dropout, and are no modes without it")
        }
        Posterior::Bank { .. } => bail!("{key}: the run kept draws, which are no modes to fit Gaussians around"),
    };
    let particles = theta.size()[0];
    let asked = training.method.spec.particles();
    ensure!(
        particles == asked,
        "{key}: the run has {particles} particles: set method.{method}.particles = {particles}"
    );
    tracing::info!("particles: {}", run.path().display());
    Ok(Finished { record: Record::read(&run)?, posterior: Posterior::Points { theta } })
}
