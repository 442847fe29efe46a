//! `bella train`: trains a posterior, resumes one that was interrupted, evaluates it on the test split.
//!
//! Of several processes that train together, the first one alone writes; all others do the same otherwise.

mod start;

use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use clap::Args;
use tch::Device;

use super::failure::{Stopped, Usage};
use super::laplace;
use super::options::{ComputeArgs, ConfigArgs};
use crate::base::files::create_folder;
use crate::data::Split;
use crate::data::batches::{ImageSet, TestImages};
use crate::evaluate::{Condition, Evaluation, IMAGES, Predictive, experiment_csv};
use crate::experiment::{Experiment, Training};
use crate::machine::Chunk;
use crate::machine::memory;
use crate::machine::parallel::World;
use crate::posterior::{Mixture, Posterior};
use crate::predict::Predictor;
use crate::predictions::Predictions;
use crate::results::images::TESTED;
use crate::results::store::read;
use crate::run::{Record, RunFolder, RunLock};
use crate::session::{Session, Settings};
use crate::train::{Ending, Trainer};
use start::{
    Images, assemble, end_on_signals, hold_out, open_device, open_session, read_checkpoint, with_stored_threads,
};

/// Train a posterior, then evaluate it on the test split.
///
/// The same command continues an interrupted run from its last checkpoint; a finished run is not repeated.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella train --config configs/quickstart.toml\n  \
    bella train -c configs/cifar10.toml -s method.svgd.particles=20 -s seed=2")]
pub struct TrainArgs {
    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    compute: ComputeArgs,

    /// Continue an interrupted run; an error if there is none.
    #[arg(long, conflicts_with = "force")]
    resume: bool,

    /// Start anew, also where a finished or interrupted run lies.
    #[arg(long)]
    force: bool,

    /// Fit Gaussians around the particles of this finished run instead of training: method.laplace.from.
    #[arg(long, value_name = "RUN")]
    from: Option<String>,

    /// Leave out the evaluation on the test split.
    #[arg(long)]
    no_eval: bool,
}

pub fn run(args: &TrainArgs, world: Rc<World>) -> Result<()> {
    if args.config.configs.is_empty() {
        return Err(Usage("train needs a config: bella train --config configs/quickstart.toml".into()).into());
    }
    let from = args.from.as_ref().map(|run| format!("method.laplace.from={}", toml::Value::from(run.as_str())));
    let experiment = args.config.read(from)?;
    let Some(training) = &experiment.training else {
        let missing = "the config has nothing to train: add [subspace.*], [method.*], [optimizer.*] and [train]";
        return Err(Usage(missing.into()).into());
    };
    let settings = args.compute.settings();
    let run = RunFolder::of(&settings.out, &experiment)?;
    world.agree("the run", &run.id())?;
    let _lock = if world.leads() { Some(open_run(args, &experiment, &run)?) } else { None };
    tracing::info!("run: {}", run.path().display());
    if world.any(world.leads() && run.is_finished()) {
        tracing::info!("this run is finished (--force repeats it)");
        return if args.no_eval || !world.any(world.leads() && !show_stored(&experiment, &settings, &run)?) {
            Ok(())
        } else {
            evaluate_finished(&experiment, settings, &run, world)
        };
    }
    train(&experiment, training, (settings, world), &run, args.no_eval)
}

/// Makes the run's folder ready, and keeps other programs out of it.
fn open_run(args: &TrainArgs, experiment: &Experiment, run: &RunFolder) -> Result<RunLock> {
    if args.resume && !run.checkpoint().is_file() && !run.is_finished() {
        bail!("{}: no checkpoint to resume from; leave --resume out to start the run", run.path().display());
    }
    create_folder(run.path())?;
    let lock = run.lock()?;
    run.create(experiment)?;
    if args.force {
        run.clear()?;
    }
    crate::base::logging::open_log(&run.log())?;
    Ok(lock)
}

fn train(
    experiment: &Experiment,
    training: &Training,
    (settings, world): (Settings, Rc<World>),
    run: &RunFolder,
    no_eval: bool,
) -> Result<()> {
    let device = open_device(&settings, &world)?;
    let checkpoint = read_checkpoint(run, &world)?;
    let settings = with_stored_threads(settings, checkpoint.as_ref(), &world)?;
    let classes = experiment.data.dataset.classes()?;
    let session = open_session(experiment, settings, device, classes, world)?;
    let (images, fingerprint) = session.training_images(experiment)?;
    let published = session.published_validation(experiment)?;
    let data = fingerprint + &published.as_ref().map(Split::fingerprint).unwrap_or_default();
    session.world.agree("the training data", &data)?;
    let workers = session.settings.workers;
    let published = published.map(|split| ImageSet::new(split, device, workers)).transpose()?;
    let tests = if no_eval { Vec::new() } else { session.test_images(experiment)? };
    let holdout = hold_out(experiment, &images, published.as_ref())?;
    let validation = published.as_ref().unwrap_or(&images);
    laplace::announce(training, &session)?;
    if let Some(from) = training.method.spec.from() {
        let (mut mixture, record) = laplace::adopt(from, experiment, &session)?;
        if session.world.leads() {
            record.write(run)?;
        }
        let images = laplace::Images { train: &images, validation, holdout: &holdout };
        laplace::fit(&mut mixture, training, &session, &images)?;
        let mixture = keep(mixture, experiment, &session, run)?;
        return evaluate(experiment, &session, run, &record, &mixture, &tests);
    }
    let used = Images { set: &images, validation, holdout, data };
    let mut trainer = assemble(experiment, training, &session, used, run)?;
    if let Some(state) = &checkpoint {
        trainer
            .resume(state)
            .with_context(|| format!("{}: cannot resume (--force starts anew)", run.checkpoint().display()))?;
        tracing::info!("resuming after {} steps (epoch {})", trainer.progress.steps, trainer.progress.epoch + 1);
    }
    announce(training, &trainer, &session);
    let ending = trainer.train()?;
    trainer.bar.finish_and_clear();
    if ending == Ending::Interrupted {
        let steps = trainer.progress.steps;
        return Err(Stopped(format!(
            "stopped after {steps} steps; the checkpoint is saved: the same command continues (run {})",
            run.id()
        ))
        .into());
    }
    let saved = format!("stopped after training, which is saved: the same command goes on (run {})", run.id());
    end_on_signals(saved, session.world.leads())?;
    let stop = trainer.stop.clone();
    let (record, posterior) = finish(experiment, training, trainer, &session, run)?;
    // Evaluation plans with what is free: nothing that only training needs is held any longer.
    drop((images, published));
    if session.world.any(stop.load(Ordering::Relaxed)) && !no_eval {
        return Err(Stopped(format!(
            "stopped before the evaluation; the posterior is saved: the same command evaluates it (run {})",
            run.id()
        ))
        .into());
    }
    evaluate(experiment, &session, run, &record, &posterior, &tests)
}

fn announce(training: &Training, trainer: &Trainer, session: &Session) {
    let (particles, parameters) = (trainer.theta.size()[0], trainer.theta.size()[1]);
    tracing::info!(
        "{} x {}: {particles} particles of {parameters} parameters ({} in all), {} training and {} validation images, {} on {}",
        training.subspace.key,
        training.method.key,
        particles * parameters,
        trainer.holdout.train.len(),
        trainer.holdout.validation.len(),
        crate::machine::device::precision_name(session.model.kind),
        crate::machine::device::name(session.device),
    );
    if trainer.world.size() > 1 {
        let share = trainer.team.share();
        tracing::info!(
            "{} processes of {} threads: {} particles and 1/{} of each batch in the first",
            trainer.world.size(),
            tch::get_num_threads(),
            share.rows.len(),
            share.members
        );
    }
    let steps = trainer.spec.epochs * trainer.steps_per_epoch();
    if trainer.spec.warmup_steps >= steps {
        tracing::warn!(
            "train.warmup_steps = {} of {steps} steps: the learning rate never reaches its value",
            trainer.spec.warmup_steps
        );
    }
}

/// Writes run.json, then the posterior, whose presence says that the run is finished.
fn finish(
    experiment: &Experiment,
    training: &Training,
    trainer: Trainer,
    session: &Session,
    run: &RunFolder,
) -> Result<(Record, Mixture)> {
    let (theta, selected_epoch) = trainer.selected();
    let (particles, parameters) = theta.size2()?;
    let rates: Vec<f64> = trainer.progress.rows.iter().filter_map(|row| row.images_per_second).collect();
    let record = Record {
        bella_version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("BELLA_COMMIT").into(),
        libtorch_version: crate::machine::device::LIBTORCH_VERSION.into(),
        device: crate::machine::device::name(session.device),
        processes: session.world.size(),
        threads: tch::get_num_threads(),
        precision: crate::machine::device::precision_name(session.model.kind).into(),
        particles,
        parameters_per_particle: parameters,
        trainable_parameters: particles * parameters,
        train_samples: trainer.holdout.train.len(),
        validation_samples: trainer.holdout.validation.len(),
        epochs: trainer.progress.epoch,
        steps: trainer.progress.steps,
        wall_seconds: trainer.wall_seconds(),
        images_per_second: rates.iter().sum::<f64>() / rates.len() as f64,
        // The process's peak covers the frozen base and everything else; a GPU's own memory is not in it.
        peak_memory_bytes: if session.device == Device::Cpu { memory::peak_bytes() } else { None },
        planned_memory_bytes: Some(memory::planned_bytes()),
        selected_epoch,
        self_check_difference: session.self_check_difference,
    };
    if session.world.leads() {
        record.write(run)?;
    }
    trainer.method.remarks()?.iter().for_each(|remark| tracing::info!("{remark}"));
    let mut mixture = trainer.posterior();
    // The method's state, the best particles and the cache are not needed any more.
    let (train, validation, holdout) = trainer.into_images();
    let images = laplace::Images { train, validation, holdout: &holdout };
    laplace::fit(&mut mixture, training, session, &images)?;
    Ok((record, keep(mixture, experiment, session, run)?))
}

/// Writes the posterior.
fn keep(mixture: Mixture, experiment: &Experiment, session: &Session, run: &RunFolder) -> Result<Mixture> {
    let (classes, file_hashes) = (session.classes.clone(), experiment.file_hashes()?.to_string());
    let posterior = Posterior { mixture, classes, file_hashes };
    if session.world.leads() {
        posterior.write(&run.posterior())?;
    }
    Ok(posterior.mixture)
}

/// Prints the results of a finished run, if all of them are there.
fn show_stored(experiment: &Experiment, settings: &Settings, run: &RunFolder) -> Result<bool> {
    let condition = "clean";
    let csv = experiment_csv(&settings.out, &experiment.name);
    if !csv.is_file() {
        return Ok(false);
    }
    let (table, mut rows) = (read(&csv)?, Vec::new());
    for set in experiment.data.test_names() {
        // The predictions say which images are those of the run's own test split.
        let file = run.predictions(&set, condition, "");
        let predictions = match Predictions::open(&file) {
            Ok(predictions) => predictions,
            Err(error) => {
                if file.exists() {
                    tracing::warn!("{error:#}: evaluated again");
                }
                return Ok(false);
            }
        };
        let cells =
            [("run", run.id()), ("set", set), ("condition", condition.to_string()), ("predictive", String::new())];
        let of_images = predictions.metadata().get(IMAGES).map(|images| (TESTED.fingerprint, images.clone()));
        let of_number = (TESTED.count, predictions.samples().to_string());
        let cells: Vec<_> = cells.into_iter().chain([of_number]).chain(of_images).collect();
        let Some(row) = table.find(&cells) else { return Ok(false) };
        rows.push(row);
    }
    super::report::print_rows(&rows);
    tracing::info!("results: {}", csv.display());
    Ok(true)
}

/// The evaluation of a run that was finished earlier.
fn evaluate_finished(experiment: &Experiment, settings: Settings, run: &RunFolder, world: Rc<World>) -> Result<()> {
    let device = open_device(&settings, &world)?;
    let posterior = Posterior::read(&run.posterior(), device, experiment.seed)?;
    let session = open_session(experiment, settings, device, posterior.classes.clone(), world)?;
    let tests = session.test_images(experiment)?;
    evaluate(experiment, &session, run, &Record::read(run)?, &posterior.mixture, &tests)
}

fn evaluate(
    experiment: &Experiment,
    session: &Session,
    run: &RunFolder,
    record: &Record,
    posterior: &Mixture,
    tests: &[(String, TestImages)],
) -> Result<()> {
    if tests.is_empty() {
        return Ok(());
    }
    let spec = experiment.training.as_ref().map(|t| (t.train.particle_chunk, t.train.eval_batch_size));
    let (chunk, batch_size) = spec.unwrap_or((Chunk::Auto, 256));
    let mut rows = Vec::new();
    for predictive in Predictive::after_training(experiment) {
        let prepared = predictive.prepare(session.subspace()?, posterior)?;
        let mut evaluation = Evaluation {
            experiment,
            session,
            run,
            record: Some(record),
            predictor: Predictor::new(&session.model, prepared.members(), chunk),
            predictive: predictive.name(experiment),
            batch_size,
            set: String::new(),
            names_files: true,
            validation: None,
        };
        for (set, images) in tests {
            evaluation.set.clone_from(set);
            rows.push(evaluation.plain(images, &Condition::Clean)?.0);
        }
    }
    if session.world.leads() {
        super::report::print_rows(&rows);
    }
    let csv = experiment_csv(&session.settings.out, &experiment.name);
    tracing::info!("results: {}", csv.display());
    Ok(())
}
