//! `bella train`: trains a posterior, resumes one that was interrupted, evaluates it on the test split.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail};
use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use tch::Device;

use super::{ComputeArgs, ConfigArgs, Usage, laplace};
use crate::config::{Chunk, Experiment, PrefixCache, Training, Validation};
use crate::data::Split;
use crate::data::order::Holdout;
use crate::evaluate::{Condition, Evaluation, Predictive, experiment_csv};
use crate::files::create_folder;
use crate::images::ImageSet;
use crate::methods::Parts;
use crate::posterior::{Mixture, Posterior};
use crate::predict::Predictor;
use crate::results::store::read;
use crate::run::{Record, RunFolder};
use crate::session::{Session, Settings};
use crate::state::State;
use crate::subspace::geometry::Geometry;
use crate::train::prefix::{Plan, Prefix};
use crate::train::progress::Progress;
use crate::train::{Chunks, Ending, Trainer};

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

pub fn run(args: &TrainArgs) -> Result<()> {
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
    if args.resume && !run.checkpoint().is_file() && !run.is_finished() {
        bail!("{}: no checkpoint to resume from; leave --resume out to start the run", run.path().display());
    }
    create_folder(run.path())?;
    let _lock = run.lock()?;
    run.create(&experiment)?;
    if args.force {
        run.clear()?;
    }
    crate::logging::open_log(&run.log())?;
    tracing::info!("run: {}", run.path().display());
    if run.is_finished() {
        tracing::info!("this run is finished (--force repeats it)");
        return if args.no_eval || show_stored(&experiment, &settings, &run)? {
            Ok(())
        } else {
            evaluate_finished(&experiment, settings, &run)
        };
    }
    train(&experiment, training, settings, &run, args.no_eval)
}

fn train(
    experiment: &Experiment,
    training: &Training,
    settings: Settings,
    run: &RunFolder,
    no_eval: bool,
) -> Result<()> {
    // Before any tensor is made: libtorch asks once which devices there are.
    let device = settings.device.open()?;
    let checkpoint = if run.checkpoint().is_file() { Some(State::read(&run.checkpoint())?) } else { None };
    let settings = with_stored_threads(settings, checkpoint.as_ref())?;
    let classes = experiment.data.dataset.classes()?;
    let session = Session::open(experiment, settings, device, classes)?;
    let (images, fingerprint) = session.training_images(experiment)?;
    let published = session.published_validation(experiment)?;
    let data = fingerprint + &published.as_ref().map(Split::fingerprint).unwrap_or_default();
    let published = published.map(|split| ImageSet::new(split, device, session.settings.workers)).transpose()?;
    let tests = if no_eval { Vec::new() } else { session.test_images(experiment)? };
    let holdout = hold_out(experiment, &images, published.as_ref())?;
    let validation = published.as_ref().unwrap_or(&images);
    laplace::announce(training, &session)?;
    if let Some(from) = training.method.spec.from() {
        let (mut mixture, record) = laplace::adopt(from, experiment, &session)?;
        record.write(run)?;
        let images = laplace::Images { train: &images, validation, holdout: &holdout };
        laplace::fit(&mut mixture, training, &session, &images)?;
        let mixture = keep(mixture, experiment, &session, run)?;
        return evaluate(experiment, &session, run, &record, &mixture, &tests);
    }
    let images = Images { set: &images, validation, holdout, data };
    let mut trainer = assemble(experiment, training, &session, images, run)?;
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
        bail!(
            "stopped after {} steps; the checkpoint is saved: the same command continues (run {})",
            trainer.progress.steps,
            run.id()
        );
    }
    let (record, posterior) = finish(experiment, training, &trainer, &session, run)?;
    if trainer.stop.load(Ordering::Relaxed) && !no_eval {
        bail!(
            "stopped before the evaluation; the posterior is saved: the same command evaluates it (run {})",
            run.id()
        );
    }
    evaluate(experiment, &session, run, &record, &posterior, &tests)
}

/// On the CPU a resumed run is bit-identical only with the threads it started with.
fn with_stored_threads(mut settings: Settings, checkpoint: Option<&State>) -> Result<Settings> {
    let Some(state) = checkpoint else { return Ok(settings) };
    let stored = state.count("threads")? as i32;
    match settings.threads {
        Some(asked) if asked != stored => bail!(
            "--threads {asked}: this run started with {stored} threads, and sums in another order would not continue it bit \
             for bit: leave --threads out, or start anew with --force"
        ),
        _ => settings.threads = Some(stored),
    }
    Ok(settings)
}

/// What is trained on, and what of the training images or of a published validation split is validated on.
fn hold_out(experiment: &Experiment, images: &ImageSet, published: Option<&ImageSet>) -> Result<Holdout> {
    let validation = experiment.data.validation;
    let mut holdout = validation.holdout(experiment.seed, &images.split.labels);
    if let Some(published) = published {
        holdout.validation = (0..published.samples() as u32).collect();
    }
    let (key, count) = (&experiment.data.key, images.samples());
    if let Validation::HeldOut(share) = validation {
        if holdout.train.is_empty() {
            bail!("data.{key}.validation = {share}: leaves no image to train on");
        }
        if share > 0.0 && holdout.validation.is_empty() {
            bail!("data.{key}.validation = {share}: holds out no image of {count}: raise it");
        }
    }
    Ok(holdout)
}

fn assemble<'a>(
    experiment: &'a Experiment,
    training: &'a Training,
    session: &'a Session,
    images: Images<'a>,
    run: &'a RunFolder,
) -> Result<Trainer<'a>> {
    let subspace = session.subspace()?;
    let particles = training.method.spec.particles();
    let theta = session.initial_theta(experiment.seed, particles)?;
    let parts = Parts {
        theta: theta.shallow_clone(),
        seed: experiment.seed,
        optimizer: training.optimizer.spec.build(&theta),
        geometry: Geometry::new(subspace.layout()),
        clip_norm: training.train.clip_norm,
    };
    let method = training.method.spec.build(parts);
    let progress = Progress::new(particles, method.diagnostics().len(), session.device);
    let bar = crate::logging::bar(0, "training");
    let Images { set: images, validation: validation_images, holdout, data } = images;
    let (model, spec, seed, stop) = (&session.model, &training.train, experiment.seed, stop_on_signals()?);
    let chunks = Chunks::new(spec, model, subspace.layout(), particles as usize);
    let prefix = prefix(training, session, images, &holdout, run)?;
    Ok(Trainer {
        spec,
        seed,
        model,
        subspace,
        method,
        theta,
        images,
        holdout,
        validation_images,
        data,
        run,
        stop,
        progress,
        bar,
        chunks,
        prefix,
    })
}

/// The output of the blocks that are not trained, for the images that are trained on.
fn prefix(
    training: &Training,
    session: &Session,
    images: &ImageSet,
    holdout: &Holdout,
    run: &RunFolder,
) -> Result<Option<Rc<Prefix>>> {
    let (model, spec) = (&session.model, &training.train);
    if images.is_augmented() {
        if !matches!(spec.prefix_cache, PrefixCache::Auto | PrefixCache::Off) {
            bail!("train.prefix_cache: data.*.augment changes the images in every epoch; leave one of them out");
        }
        return Ok(None);
    }
    let plan = Plan {
        model,
        block: session.subspace()?.layout().first_block(model.vit.geometry.blocks),
        images,
        indices: &holdout.train,
        batch_size: spec.eval_batch_size,
        folder: run.path(),
    };
    Ok(Prefix::build(&plan, spec.prefix_cache)?.map(Rc::new))
}

/// Training images, and what is validated on.
struct Images<'a> {
    set: &'a ImageSet,
    /// What `holdout.validation` are images of.
    validation: &'a ImageSet,
    holdout: Holdout,
    data: String,
}

/// A flag that Ctrl-C and SIGTERM set; a second signal ends the process at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
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
        crate::device::precision_name(session.model.kind),
        crate::device::name(session.device),
    );
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
    trainer: &Trainer,
    session: &Session,
    run: &RunFolder,
) -> Result<(Record, Mixture)> {
    let (theta, selected_epoch) = trainer.selected();
    let (particles, parameters) = theta.size2()?;
    let rates: Vec<f64> = trainer.progress.rows.iter().map(|row| row.images_per_second).collect();
    let record = Record {
        bella_version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("BELLA_COMMIT").into(),
        libtorch_version: crate::device::LIBTORCH_VERSION.into(),
        device: crate::device::name(session.device),
        threads: tch::get_num_threads(),
        precision: crate::device::precision_name(session.model.kind).into(),
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
        peak_memory_bytes: if session.device == Device::Cpu { crate::device::peak_memory_bytes() } else { None },
        selected_epoch,
        self_check_difference: session.self_check_difference,
    };
    record.write(run)?;
    trainer.method.remarks()?.iter().for_each(|remark| tracing::info!("{remark}"));
    let mut mixture = trainer.posterior();
    let (train, validation) = (trainer.images, trainer.validation_images);
    let images = laplace::Images { train, validation, holdout: &trainer.holdout };
    laplace::fit(&mut mixture, training, session, &images)?;
    Ok((record, keep(mixture, experiment, session, run)?))
}

/// Writes the posterior.
fn keep(mixture: Mixture, experiment: &Experiment, session: &Session, run: &RunFolder) -> Result<Mixture> {
    let (classes, file_hashes) = (session.classes.clone(), experiment.file_hashes()?.to_string());
    let posterior = Posterior { mixture, classes, file_hashes };
    posterior.write(&run.posterior())?;
    Ok(posterior.mixture)
}

/// Prints the results of a finished run, if all of them are there.
fn show_stored(experiment: &Experiment, settings: &Settings, run: &RunFolder) -> Result<bool> {
    let condition = "clean";
    let mut sets: Vec<String> = experiment.data.test_sets().into_iter().map(|(label, _)| label).collect();
    if sets.is_empty() {
        sets.push(experiment.data.label.clone());
    }
    let csv = experiment_csv(&settings.out, &experiment.name);
    if !csv.is_file() || sets.iter().any(|set| !run.predictions(set, condition, "").is_file()) {
        return Ok(false);
    }
    let (table, mut rows) = (read(&csv)?, Vec::new());
    for set in sets {
        let cells = [("run", run.id()), ("set", set), ("condition", condition.to_string())];
        let Some(row) = table.find(&cells) else { return Ok(false) };
        rows.push(row);
    }
    super::report::print_rows(&rows);
    tracing::info!("results: {}", csv.display());
    Ok(true)
}

/// The evaluation of a run that was finished earlier.
fn evaluate_finished(experiment: &Experiment, settings: Settings, run: &RunFolder) -> Result<()> {
    let device = settings.device.open()?;
    let posterior = Posterior::read(&run.posterior(), device, experiment.seed)?;
    let session = Session::open(experiment, settings, device, posterior.classes.clone())?;
    let tests = session.test_images(experiment)?;
    evaluate(experiment, &session, run, &Record::read(run)?, &posterior.mixture, &tests)
}

fn evaluate(
    experiment: &Experiment,
    session: &Session,
    run: &RunFolder,
    record: &Record,
    posterior: &Mixture,
    tests: &[(String, ImageSet)],
) -> Result<()> {
    if tests.is_empty() {
        return Ok(());
    }
    let spec = experiment.training.as_ref().map(|t| (t.train.particle_chunk, t.train.eval_batch_size));
    let (chunk, batch_size) = spec.unwrap_or((Chunk::Auto, 256));
    let mut rows = Vec::new();
    for predictive in Predictive::after_training(experiment) {
        let (subspace, theta) = (session.subspace()?, predictive.theta(posterior)?);
        let linearised = predictive.linearised(subspace, posterior)?;
        let chunk = session.prediction_chunk(chunk, theta.size()[0], batch_size)?;
        let members = Predictive::members(subspace, &theta, &linearised, chunk);
        let mut evaluation = Evaluation {
            experiment,
            session,
            run,
            record: Some(record),
            predictor: Predictor::new(&session.model, &members),
            predictive: predictive.name(experiment),
            batch_size,
            set: String::new(),
            validation: None,
        };
        for (set, images) in tests {
            evaluation.set.clone_from(set);
            rows.push(evaluation.plain(images, &Condition::Clean)?.0);
        }
    }
    super::report::print_rows(&rows);
    let csv = experiment_csv(&session.settings.out, &experiment.name);
    tracing::info!("results: {}", csv.display());
    Ok(())
}
