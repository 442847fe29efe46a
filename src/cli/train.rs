//! `bella train`: trains a posterior, resumes an interrupted run, and evaluates the posterior on the test split.
//!
//! If several processes train together, only the first one writes; otherwise all of them do the same.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail};
use clap::Args;
use tch::Device;

use super::failure::Stopped;
use super::options::{ComputeArgs, ConfigArgs, TableArgs};
use super::signals;
use crate::base::files::create_folder;
use crate::base::usage::Usage;
use crate::evaluate::{IMAGES, after_training, experiment_csv};
use crate::experiment::{Experiment, LogFormat};
use crate::machine::memory;
use crate::machine::parallel::World;
use crate::results::images::TESTED;
use crate::results::store::{Row, Table, read};
use crate::run::{Record, RunFolder, RunLock, open_answers, open_predictions};
use crate::session::{Session, Settings};
use crate::train::{self, Finished, Material, Outcome, Watch, read_resume_file, stored_threads};

/// Train a posterior, then evaluate it on the test split.
///
/// The same command continues an interrupted run from where it was last saved; a finished run is not repeated.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella train --config configs/quickstart.toml\n  \
    bella train -c configs/cifar10.toml -s method.svgd.particles=20 -s seed=2")]
pub struct TrainArgs {
    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,

    /// Continue an interrupted run; fail if there is none.
    #[arg(long, conflicts_with = "force")]
    resume: bool,

    /// Start again from the beginning, even if there is a finished or interrupted run.
    #[arg(long)]
    force: bool,

    /// Finished run around whose particles Gaussians are fitted instead of training (method.laplace.from).
    #[arg(long, value_name = "RUN", add = super::completions::of_runs())]
    from: Option<String>,

    /// Pause after this epoch; the same command without this option goes on to the end.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    until_epoch: Option<u32>,

    /// Log training in the run's folder in this format as well (train.log).
    #[arg(long, value_name = "FORMAT")]
    log: Vec<LogFormat>,

    /// Sweep of which a new run is a trial.
    #[arg(long, hide = true, value_name = "NAME")]
    trial: Option<String>,

    /// Skip the evaluation on the test split.
    #[arg(long)]
    no_eval: bool,

    #[command(flatten)]
    table: TableArgs,
}

pub fn run(args: &TrainArgs, world: Rc<World>) -> Result<()> {
    if args.config.configs.is_empty() {
        return Err(Usage("train needs a config: bella train --config configs/quickstart.toml".into()).into());
    }
    let from = args.from.as_ref().map(|run| format!("method.laplace.from={}", toml::Value::from(run.as_str())));
    let formats: Vec<String> = args.log.iter().map(|format| format!("\"{format}\"")).collect();
    let log = (!formats.is_empty()).then(|| format!("train.log=[{}]", formats.join(",")));
    let experiment = args.config.read(from.into_iter().chain(log))?;
    if experiment.training.is_none() {
        let missing = "the config has nothing to train: add [subspace.*], [method.*], [optimizer.*] and [train]";
        return Err(Usage(missing.into()).into());
    }
    let settings = args.compute.settings();
    let run = RunFolder::of(&settings.out, &experiment)?;
    world.agree("the run", &run.id())?;
    let is_new = !run.path().exists();
    let _lock = if world.leads() { Some(open_run(args, &experiment, &run)?) } else { None };
    if world.size() == 1 && is_new {
        let unused = run.clone();
        signals::end_at_once("stopped before the first step: nothing was trained", move || unused.discard())?;
    }
    tracing::info!("run: {}", run.path().display());
    if world.any(world.leads() && run.is_finished()) {
        tracing::info!("this run is finished (--force repeats it)");
        let shown =
            args.no_eval || !world.any(world.leads() && !show_stored(&experiment, &settings, &run, &args.table)?);
        return if shown { Ok(()) } else { evaluate_finished(&experiment, (settings, world), &run, &args.table) };
    }
    let (began, leads) = (Cell::new(false), world.leads());
    let trained = train(&experiment, (settings, world), (&run, &began), args);
    if trained.is_err() && is_new && leads && !began.get() {
        run.discard();
    }
    trained
}

/// Prepares the folder of the run and locks it against other processes.
fn open_run(args: &TrainArgs, experiment: &Experiment, run: &RunFolder) -> Result<RunLock> {
    if args.resume && !run.resume_file().is_file() && !run.is_finished() {
        bail!("{}: nothing to resume from; leave --resume out to start the run", run.path().display());
    }
    create_folder(args.compute.out())?;
    let is_new = !run.config().exists();
    create_folder(run.path())?;
    let lock = run.lock()?;
    match &args.trial {
        // A run that was there before the sweep stays what it is.
        Some(sweep) if is_new => run.set_trial(Some(sweep))?,
        Some(_) => {}
        None => run.set_trial(None)?,
    }
    run.create(experiment)?;
    if args.force {
        run.clear()?;
    }
    crate::base::logging::open_log(&run.log())?;
    Ok(lock)
}

fn train(
    experiment: &Experiment,
    (mut settings, world): (Settings, Rc<World>),
    (run, began): (&RunFolder, &Cell<bool>),
    args: &TrainArgs,
) -> Result<()> {
    let no_eval = args.no_eval;
    experiment.command().iter().for_each(|command| tracing::info!("{command}"));
    let device = open_device(&settings, &world)?;
    let state = read_resume_file(run, &world)?;
    settings.threads = stored_threads(settings.threads, state.as_ref(), &world)?;
    let session = open_session(experiment, settings, device, experiment.data.dataset.classes()?, world)?;
    let material = Material::read(experiment, &session)?;
    let tests = if no_eval { Vec::new() } else { session.test_images(experiment)? };
    let stop = signals::stop(&session.world)?;
    let saved = format!("stopped after training, which is saved: the same command goes on (run {})", run.id());
    let trained = || signals::end(saved.clone(), session.world.leads());
    let until_epoch = args.until_epoch.map(|epoch| epoch as usize);
    let watch = Watch { stop: stop.clone(), trained: &trained, until_epoch, began };
    let job = train::Run { experiment, session: &session, material, folder: run, state };
    let Finished { record, posterior } = match train::run(job, &watch)? {
        Outcome::Finished(finished) => *finished,
        Outcome::Interrupted { steps } => {
            return interrupted(steps, run, session.world.any(stop.load(Ordering::Relaxed)));
        }
    };
    if session.world.any(stop.load(Ordering::Relaxed)) && !no_eval {
        return Err(Stopped(format!(
            "stopped before the evaluation; the posterior is saved: the same command evaluates it (run {})",
            run.id()
        ))
        .into());
    }
    let rows = after_training(experiment, &session, (run, &record), &posterior, &tests)?;
    show(&session, experiment, &rows, &args.table)
}

/// Reports a pause by --until-epoch, or fails because the user stopped the training.
fn interrupted(steps: usize, run: &RunFolder, stopped: bool) -> Result<()> {
    let id = run.id();
    if !stopped {
        tracing::info!(
            "paused after {steps} steps, which are saved: the same command without --until-epoch continues (run {id})"
        );
        return Ok(());
    }
    let text = format!("stopped after {steps} steps, which are saved: the same command continues (run {id})");
    Err(Stopped(text).into())
}

/// Returns the device of this process among those that train together: its own GPU, or a part of the machine's memory.
/// It must be opened before any tensor is created or read from a file, because libtorch asks only once which devices
/// exist.
fn open_device(settings: &Settings, world: &World) -> Result<Device> {
    let place = world.place();
    memory::divide_among(place.neighbours);
    settings.device.open_for(place.local_rank)
}

/// Returns the session of this process among those that train together, with its share of the cores unless the command
/// line sets the threads.
fn open_session(
    experiment: &Experiment,
    mut settings: Settings,
    device: Device,
    classes: Vec<String>,
    world: Rc<World>,
) -> Result<Session> {
    let place = world.place();
    if world.size() > 1 {
        settings.threads = settings.threads.or(Some(place.cores as i32));
        settings.workers = settings.workers.min(place.cores);
    }
    let mut session = Session::open(experiment, settings, device, classes)?;
    world.agree("the precision", crate::machine::device::precision_name(session.model.kind))?;
    session.world = world;
    Ok(session)
}

/// Prints the results of a finished run if all of them are stored, and returns whether they are. A kill may have come
/// between the rows of two predictives.
fn show_stored(experiment: &Experiment, settings: &Settings, run: &RunFolder, how: &TableArgs) -> Result<bool> {
    let csv = experiment_csv(&settings.out, &experiment.name);
    if !csv.is_file() {
        return Ok(false);
    }
    let own = experiment.predictive();
    let (table, mut rows) = (read(&csv)?, Vec::new());
    for predictive in run.read_posterior(Device::Cpu)?.posterior.predictives(own) {
        for set in experiment.data.test_names() {
            let Some(row) = stored_row(&table, run, &set, &predictive.name(own)) else { return Ok(false) };
            rows.push(row);
        }
    }
    super::report::print_rows(&rows, how)?;
    tracing::info!("results: {}", csv.display());
    Ok(true)
}

/// Returns the row of a test set and a predictive, if it and its predictions are stored.
fn stored_row(table: &Table, run: &RunFolder, set: &str, predictive: &str) -> Option<Row> {
    let condition = "clean";
    // The predictions say which images are those of the run's own test split.
    let (images, samples) = stored_predictions(run, [set, condition, predictive])?;
    let cells =
        [("run", run.id()), ("set", set.into()), ("condition", condition.into()), ("predictive", predictive.into())];
    let of_images = images.map(|images| (TESTED.fingerprint, images));
    let of_number = (TESTED.count, samples.to_string());
    table.find(&cells.into_iter().chain([of_number]).chain(of_images).collect::<Vec<_>>())
}

/// Returns the fingerprint of the images and the number of samples of stored predictions or answers; `None` if there are none.
fn stored_predictions(run: &RunFolder, name: [&str; 3]) -> Option<(Option<String>, usize)> {
    let (file, answers) = (run.predictions_of(&name), run.answers_of(&name));
    let found = match answers.exists() {
        true => open_answers(&answers).map(|of| (of.metadata.get(IMAGES).cloned(), of.replies.len())),
        false => open_predictions(&file).map(|of| (of.metadata().get(IMAGES).cloned(), of.samples())),
    };
    match found {
        Ok(found) => Some(found),
        Err(error) => {
            if file.exists() || answers.exists() {
                tracing::warn!("{error:#}: evaluated again");
            }
            None
        }
    }
}

/// Evaluates a run that was finished earlier.
fn evaluate_finished(
    experiment: &Experiment,
    (settings, world): (Settings, Rc<World>),
    run: &RunFolder,
    table: &TableArgs,
) -> Result<()> {
    let device = open_device(&settings, &world)?;
    let stored = run.read_posterior(device)?;
    let session = open_session(experiment, settings, device, stored.classes.clone(), world)?;
    session.check_layout(run, &stored)?;
    let posterior = stored.posterior;
    let tests = session.test_images(experiment)?;
    let record = Record::read(run)?;
    let rows = after_training(experiment, &session, (run, &record), &posterior, &tests)?;
    show(&session, experiment, &rows, table)
}

/// Prints new rows and logs where they are stored.
fn show(session: &Session, experiment: &Experiment, rows: &[Row], table: &TableArgs) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    if session.world.leads() {
        super::report::print_rows(rows, table)?;
    }
    tracing::info!("results: {}", experiment_csv(&session.settings.out, &experiment.name).display());
    Ok(())
}
