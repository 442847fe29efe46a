//! What `bella train` does with `[method.laplace]`: Gaussians around the particles it has trained, or those of another run.

use anyhow::{Context, Result, ensure};

use crate::data::batches::ImageSet;
use crate::data::order::Holdout;
use crate::experiment::{Experiment, Training, load_config};
use crate::laplace::fit::Fitter;
use crate::posterior::{Mixture, Posterior};
use crate::run::{Record, RunFolder};
use crate::session::Session;

/// Says what the fit will take, where there is one.
///
/// # Errors
/// More than allowed, before anything is trained.
pub(super) fn announce(training: &Training, session: &Session) -> Result<()> {
    let Some(settings) = training.method.spec.laplace() else { return Ok(()) };
    let classes = session.model.head.classes();
    let estimate = settings.estimate(session.subspace()?, training.method.spec.particles(), classes)?;
    tracing::info!("laplace: {estimate}");
    Ok(())
}

/// The images that Gaussians are fitted on.
pub(super) struct Images<'a> {
    pub train: &'a ImageSet,
    /// The split that `holdout.validation` counts images of.
    pub validation: &'a ImageSet,
    pub holdout: &'a Holdout,
}

/// Adds Gaussians to particles, where the method asks for them.
pub(super) fn fit(mixture: &mut Mixture, training: &Training, session: &Session, images: &Images) -> Result<()> {
    let Some(settings) = training.method.spec.laplace() else { return Ok(()) };
    let fitter = Fitter {
        model: &session.model,
        subspace: session.subspace()?,
        settings,
        images: images.train,
        train: &images.holdout.train,
        validation_images: images.validation,
        validation: &images.holdout.validation,
        batch_size: training.train.eval_batch_size,
        seed: mixture.seed,
    };
    mixture.laplace = Some(fitter.fit(&mixture.theta)?);
    Ok(())
}

/// The particles of the finished run `from`, with what they cost.
///
/// # Errors
/// A run that is not there or not finished, that differs in what the particles mean or have seen, or whose particles are
/// Gaussians already.
pub(super) fn adopt(from: &str, experiment: &Experiment, session: &Session) -> Result<(Mixture, Record)> {
    let key = format!("method.laplace.from = {from:?}");
    let run = RunFolder::find(&session.settings.out, Some(from)).with_context(|| key.clone())?;
    ensure!(run.is_finished(), "{key}: this run is not finished: continue it with `bella train`");
    let theirs = Experiment::read(&load_config(&[run.config()], &[])?)?.resolved();
    let ours = experiment.resolved();
    for table in ["seed", "checkpoint", "head", "data", "subspace"] {
        ensure!(
            ours.get(table) == theirs.get(table),
            "{key}: its `{table}` is not this config's: fit Gaussians with the settings that the run was trained with ({})",
            run.config().display()
        );
    }
    let posterior = Posterior::read(&run.posterior(), session.device, experiment.seed)?;
    run.check_config(&posterior.file_hashes)?;
    posterior.check_files(experiment.file_hashes()?, &experiment.checkpoint.path)?;
    let mixture = posterior.mixture;
    ensure!(mixture.std.is_none(), "{key}: the run's particles are Gaussians already");
    let particles = mixture.theta.size()[0];
    let asked = experiment.training.as_ref().map_or(1, |training| training.method.spec.particles());
    ensure!(particles == asked, "{key}: the run has {particles} particles: set method.laplace.particles = {particles}");
    tracing::info!("particles: {}", run.path().display());
    Ok((Mixture { laplace: None, ..mixture }, Record::read(&run)?))
}
