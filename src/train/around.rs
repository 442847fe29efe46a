//! `[method.laplace]`, `[method.tfb]` and `[method.bayesvlm]`: fit Gaussians around the particles just trained, around those
//! of another run, or around the checkpoint.

use anyhow::{Context, Result, bail, ensure};

use super::material::Material;
use super::tfb::Anchored;
use crate::base::random::some_of;
use crate::experiment::{Experiment, Training, load_config};
use crate::laplace::fit::Fitter;
use crate::methods::Fitting;
use crate::methods::laplace::Parameters;
use crate::posterior::Posterior;
use crate::run::{Record, RunFolder};
use crate::session::Session;

/// Logs the memory of the Laplace fit, if there is one.
///
/// # Errors
/// Fails if the fit needs more memory than allowed, before anything is trained.
pub(super) fn announce(training: &Training, session: &Session) -> Result<()> {
    let Some(settings) = training.method.spec.course().laplace() else { return Ok(()) };
    let classes = session.model.head.classes();
    ensure!(
        settings.parameters == Parameters::LastLayer || session.model.network.records_layers(),
        "method.laplace.parameters = \"all\" needs what enters and leaves the layers, which a module (checkpoint.kind = \
         \"module\") does not show: set method.laplace.parameters = \"last-layer\", with a head \
         that is trained ([head.linear], or [subspace.full] or [subspace.last-layer])"
    );
    let estimate = settings.estimate(session.subspace()?, training.method.spec.particles(), classes)?;
    tracing::info!("laplace: {estimate}");
    Ok(())
}

/// Fits Gaussians around the particles of a posterior.
///
/// # Errors
/// Fails if [`Fitter::fit`] or [`Anchored::fit`] fails.
pub(super) fn fit(
    posterior: Posterior,
    fitting: Fitting,
    (training, seed): (&Training, u64),
    session: &Session,
    material: &Material,
) -> Result<Posterior> {
    let (model, subspace, batch_size) = (&session.model, session.subspace()?, training.train.eval_batch_size);
    let (train, validation) = (&material.holdout.train, &material.holdout.validation);
    let (images, held_out) = (&material.train, (material.validation(), validation.as_slice()));
    let mode = posterior.theta().shallow_clone();
    match fitting {
        Fitting::Laplace(settings) => {
            let fitter = Fitter { model, subspace, settings, images, train, held_out, batch_size, seed };
            let fitted = fitter.fit(&mode)?;
            Ok(Posterior::Laplace { mode, fitted })
        }
        Fitting::Projections(settings) => {
            let fitter = Fitter { model, subspace, settings, images, train, held_out, batch_size, seed };
            let fitted = fitter.fit(&mode)?;
            Ok(Posterior::Laplace { mode, fitted })
        }
        Fitting::Tfb(settings) => {
            let (images, anchors) = if validation.is_empty() { (images, train.as_slice()) } else { held_out };
            let anchors = &some_of(anchors, settings.anchors, seed);
            Anchored { model, subspace, settings, images, anchors, batch_size, seed }.fit(&mode)
        }
    }
}

/// Returns the record and the particles of the finished run `from`.
///
/// # Errors
/// Fails if the run does not exist or is not finished, if its seed, checkpoint, head, data or subspace differ from
/// those of this config, or if it kept Gaussians or draws instead of points.
pub(super) fn adopt(from: &str, experiment: &Experiment, session: &Session) -> Result<(Record, Posterior)> {
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
    Ok((Record::read(&run)?, Posterior::Points { theta }))
}
