//! `bella train`: trains a posterior, resumes an interrupted run, and evaluates the posterior on the test split.
//!
//! If several processes train together, only the first one writes; otherwise all of them do the same.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::ending;
use super::ending::Stopped;
use super::options::{ComputeArgs, ConfigArgs, TableArgs};
use super::packed::Packed;
use crate::base::files::{create_folder, read_text};
use crate::base::small::Usage;
use crate::data::labels::Labels;
use crate::data::overlap::Seen;
use crate::evaluate::{after_training, stored_rows};
use crate::experiment::{Experiment, LogFormat, NOTHING_TO_TRAIN, full_key};
use crate::machine::parallel::ProcessGroup;
use crate::methods::Origin;
use crate::results::experiment_csv;
use crate::results::rebuild::{clear, mend};
use crate::results::store::Row;
use crate::run::{Record, RunFolder, RunLock};
use crate::session::{Session, Settings};
use crate::train::{self, Finished, Material, Outcome, Watch, read_resume_file, stored_threads};

/// Train a posterior, then evaluate it on the test split.
///
/// The same command continues an interrupted run from where it was last saved; a finished run is not repeated.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella train configs/quickstart.toml\n  \
    bella train configs/cifar10.toml -s method.svgd.particles=20 -s seed=2\n  bella train configs/quickstart.toml --seeds 1,2,3")]
pub struct TrainArgs {
    /// TOML experiment; several merge left to right, before those of --config.
    #[arg(value_name = "CONFIG")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    config: ConfigArgs,

    #[command(flatten)]
    pub compute: ComputeArgs,

    /// Train one run after the other with these seeds, then print means and 95 % intervals: `--seeds 1,2,3`.
    #[arg(long, value_name = "SEED", value_delimiter = ',')]
    seeds: Vec<u64>,

    /// Train the seeds together: their particles are rows of one matrix, which share the passes through the network.
    #[arg(long, requires = "seeds", conflicts_with_all = ["resume", "force", "from"])]
    packed: bool,

    /// Lists of overrides, as JSON: a run for each of them, trained together.
    #[arg(long, hide = true, value_name = "FILE", conflicts_with_all = ["seeds", "resume", "force", "from"])]
    variants: Option<PathBuf>,

    /// Continue an interrupted run; fail if there is none.
    #[arg(long, conflicts_with = "force")]
    resume: bool,

    /// Start again from the beginning, even if there is a finished or interrupted run.
    #[arg(long)]
    force: bool,

    /// Finished run around whose particles Gaussians are fitted instead of training: by the config's method if that
    /// reads runs (method.tfb.from), otherwise by Laplace's (method.laplace.from).
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

/// The end of a command that a signal stops while nothing is at stake.
const NOTHING_LOST: &str = "stopped; what was finished before is saved";

pub fn run(args: &TrainArgs, group: Rc<ProcessGroup>) -> Result<()> {
    if let Some(file) = &args.variants {
        return train_packed(args, &args.read_variants(file)?, &group);
    }
    if args.seeds.is_empty() {
        let rows = train_one(args, &args.read(None)?, group.clone())?;
        return args.show(&rows, &group, super::report::print_rows);
    }
    // Mistakes are found before the first run trains.
    let experiments = args.seeds.iter().map(|seed| args.read(Some(*seed))).collect::<Result<Vec<_>>>()?;
    if args.packed && experiments.len() > 1 {
        train_packed(args, &experiments, &group)?;
        if args.until_epoch.is_some() {
            return Ok(());
        }
    }
    let mut rows = Vec::new();
    for (at, experiment) in experiments.iter().enumerate() {
        tracing::info!("seed {}: run {} of {}", experiment.seed, at + 1, experiments.len());
        rows.extend(train_one(args, experiment, group.clone())?);
    }
    args.show(&rows, &group, super::report::print_intervals)
}

impl TrainArgs {
    /// Returns the arguments that train a config with several seeds, together if they are to be packed.
    pub fn with_seeds(config: PathBuf, seeds: Vec<u64>, packed: bool, compute: ComputeArgs) -> TrainArgs {
        TrainArgs {
            files: vec![config],
            config: ConfigArgs { configs: Vec::new(), sets: Vec::new(), unsets: Vec::new() },
            compute,
            seeds,
            packed,
            variants: None,
            resume: false,
            force: false,
            from: None,
            until_epoch: None,
            log: Vec::new(),
            trial: None,
            no_eval: false,
            table: TableArgs::default(),
        }
    }

    /// Reads the config, with a seed instead of its own if one is given.
    fn read(&self, seed: Option<u64>) -> Result<Experiment> {
        let configs: Vec<PathBuf> = self.files.iter().chain(&self.config.configs).cloned().collect();
        if configs.is_empty() {
            return Err(Usage("train needs a config: bella train configs/quickstart.toml".into()).into());
        }
        if let Some(at) = (1..self.seeds.len()).find(|at| self.seeds[..*at].contains(&self.seeds[*at])) {
            return Err(Usage(format!("--seeds: {} comes twice", self.seeds[at])).into());
        }
        let is_seed = |set: &&String| set.split('=').next().is_some_and(|key| key.trim() == "seed");
        if let Some(set) = self.config.sets.iter().find(is_seed).filter(|_| seed.is_some()) {
            return Err(Usage(format!("--set {set}: --seeds gives the seeds: leave one of them out")).into());
        }
        let config = ConfigArgs { configs, ..self.config.clone() };
        let from = self.from.as_ref().map(|run| taken_from(run, &config)).transpose()?;
        let formats: Vec<String> = self.log.iter().map(|format| format!("\"{format}\"")).collect();
        let log = (!formats.is_empty()).then(|| format!("train.log=[{}]", formats.join(",")));
        let seed = seed.map(|seed| format!("seed={seed}"));
        let experiment = config.read(from.into_iter().chain(log).chain(seed))?;
        if experiment.training.is_none() {
            return Err(Usage(NOTHING_TO_TRAIN.into()).into());
        }
        Ok(experiment)
    }

    /// Reads the config with each of the lists of overrides in a file.
    fn read_variants(&self, file: &Path) -> Result<Vec<Experiment>> {
        let named = || file.display().to_string();
        let lists: Vec<Vec<String>> =
            serde_json::from_str(&read_text(file).with_context(named)?).with_context(named)?;
        lists.into_iter().map(|sets| Ok(self.config.read(sets)?)).collect()
    }

    fn until_epoch(&self) -> Option<usize> {
        self.until_epoch.map(|epoch| epoch as usize)
    }

    /// Prints rows, if there are any, and says where they are stored.
    fn show(&self, rows: &[Row], group: &ProcessGroup, print: impl Fn(&[Row], &TableArgs) -> Result<()>) -> Result<()> {
        let Some(experiment) = rows.first().and_then(|row| row.get("experiment")) else { return Ok(()) };
        if group.is_main() {
            print(rows, &self.table)?;
        }
        tracing::info!("results: {}", experiment_csv(self.compute.out(), experiment).display());
        Ok(())
    }
}

/// Returns the override by which a config takes the particles of a run.
///
/// # Errors
/// Fails if the config's method is fitted to the pretrained network, which no run has trained.
fn taken_from(run: &str, config: &ConfigArgs) -> Result<String> {
    let tree = config.tree([])?;
    let training = Experiment::read(&tree).ok().and_then(|experiment| experiment.training);
    if let Some(method) =
        training.map(|training| training.method).filter(|method| method.spec.origin() == Origin::Checkpoint)
    {
        let why = format!("--from: method.{} is fitted to the pretrained network: leave one of them out", method.key);
        return Err(Usage(why).into());
    }
    let key = full_key(&tree, "from").map_err(|why| Usage(format!("--from: {why}")))?;
    Ok(format!("{}={}", key.unwrap_or_else(|| "method.laplace.from".to_string()), toml::Value::from(run)))
}

/// Trains runs together and evaluates them, as far as that is still to be done.
fn train_packed(args: &TrainArgs, experiments: &[Experiment], group: &Rc<ProcessGroup>) -> Result<()> {
    let open = |experiment: &Experiment, run: &RunFolder| open_run(args, experiment, run);
    let (settings, until_epoch) = (args.compute.settings(), args.until_epoch());
    Packed { settings, until_epoch, evaluates: !args.no_eval, open: &open }.train(experiments, group)
}

/// Trains a run and evaluates it, as far as that is still to be done. Returns the rows of its test sets.
fn train_one(args: &TrainArgs, experiment: &Experiment, group: Rc<ProcessGroup>) -> Result<Vec<Row>> {
    let settings = args.compute.settings();
    let run = RunFolder::of(&settings.out, experiment)?;
    group.agree("the run", &run.id())?;
    let is_new = !run.path().exists();
    let _lock = if group.is_main() { Some(open_run(args, experiment, &run)?) } else { None };
    if group.is_main() {
        crate::base::logging::open_log(&run.log())?;
    }
    if group.size() == 1 {
        let unused = is_new.then(|| run.clone());
        let saved = if is_new { "stopped before the first step: nothing was trained" } else { NOTHING_LOST };
        ending::end_at_once(saved, move || unused.iter().for_each(RunFolder::discard))?;
    }
    tracing::info!("run: {}", run.path().display());
    if is_new {
        warn_of_another_commit(experiment, &run);
    }
    let (began, leads, is_finished) =
        (Cell::new(false), group.is_main(), group.any(group.is_main() && run.is_finished()));
    let job = Job { experiment, settings, group, run: &run };
    if is_finished {
        return job.rows(args.no_eval);
    }
    let trained = job.train(&began, args);
    if trained.is_err() && is_new && leads && !began.get() {
        run.discard();
    }
    trained
}

/// Says that a run is another one than that of the same config at an earlier commit of a repository.
fn warn_of_another_commit(experiment: &Experiment, run: &RunFolder) {
    let Some(other) = run.of_another_commit(experiment) else { return };
    let (shown, key, commit) = (other.run.path().display(), &other.key, &other.commit);
    tracing::warn!(
        "{key}: the repository is at commit {commit} now, so this is another run than {shown}: to keep to that \
         one's, write the name with its commit, as its config.toml does"
    );
}

/// Prepares the folder of the run and locks it against other processes.
fn open_run(args: &TrainArgs, experiment: &Experiment, run: &RunFolder) -> Result<RunLock> {
    if args.resume && !run.resume_file().is_file() && !run.is_finished() {
        bail!(Usage(format!("{}: nothing to resume from; leave --resume out to start the run", run.path().display())));
    }
    create_folder(args.compute.out())?;
    // What another program has changed would be refused after the training.
    mend(args.compute.out(), &experiment.name)?;
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
        clear(args.compute.out(), &experiment.name, run)?;
    }
    Ok(lock)
}

/// The work on one run, and how it computes.
struct Job<'a> {
    experiment: &'a Experiment,
    settings: Settings,
    group: Rc<ProcessGroup>,
    run: &'a RunFolder,
}

impl Job<'_> {
    /// Returns the rows of a finished run, which is evaluated where that was not done.
    fn rows(self, no_eval: bool) -> Result<Vec<Row>> {
        let Job { experiment, settings, group, run } = &self;
        if group.is_main() {
            run.check_data(&experiment.data)?;
        }
        tracing::info!("this run is finished (--force repeats it)");
        if no_eval {
            return Ok(Vec::new());
        }
        let stored = if group.is_main() { stored_rows(experiment, &settings.out, run)? } else { None };
        match group.any(group.is_main() && stored.is_none()) {
            false => Ok(stored.unwrap_or_default()),
            true => self.evaluate(),
        }
    }

    /// Trains the run and evaluates it. Sets `began` when the first step begins.
    fn train(self, began: &Cell<bool>, args: &TrainArgs) -> Result<Vec<Row>> {
        let Job { experiment, mut settings, group, run } = self;
        let no_eval = args.no_eval;
        experiment.command().iter().for_each(|command| tracing::info!("{command}"));
        let device = settings.open_device(&group)?;
        let state = read_resume_file(run, &group)?;
        settings.threads = stored_threads(settings.threads, state.as_ref(), &group)?;
        let session = Session::open_among(experiment, settings, device, Labels::of(&*experiment.data.dataset)?, group)?;
        let (mut material, seen) = Material::read(experiment, &session)?;
        let mut tests = Vec::new();
        if !no_eval {
            let found = session.test_images(experiment, &seen)?;
            (tests, material.overlap) = (found.tests, found.overlap);
        }
        drop(seen);
        let stop = ending::stop(&session.group)?;
        let saved = format!("stopped after training, which is saved: the same command goes on (run {})", run.id());
        let trained = || ending::end(saved.clone(), session.group.is_main());
        let watch = Watch { stop: stop.clone(), trained: &trained, until_epoch: args.until_epoch(), began };
        let job = train::Run { experiment, session: &session, material, folder: run, state };
        let Finished { record, posterior } = match train::run(job, &watch)? {
            Outcome::Finished(finished) => *finished,
            Outcome::Interrupted { steps } => {
                interrupted(steps, run, session.group.any(stop.load(Ordering::Relaxed)))?;
                return Ok(Vec::new());
            }
        };
        if session.group.any(stop.load(Ordering::Relaxed)) && !no_eval {
            return Err(Stopped(format!(
                "stopped before the evaluation; the posterior is saved: the same command evaluates it (run {})",
                run.id()
            ))
            .into());
        }
        after_training(experiment, &session, run, &record, &posterior, &tests)
    }

    /// Evaluates the run, which was finished earlier.
    fn evaluate(self) -> Result<Vec<Row>> {
        let Job { experiment, settings, group, run } = self;
        let device = settings.open_device(&group)?;
        let stored = run.read_posterior(device)?;
        let settings = settings.after_training(experiment, device);
        let session = Session::open_among(experiment, settings, device, stored.labels(), group)?;
        session.check_layout(run, &stored)?;
        let posterior = stored.posterior;
        // What is among the training images was said by the training, and is in its record.
        let tests = session.test_images(experiment, &Seen::Others)?.tests;
        let record = Record::read(run)?;
        after_training(experiment, &session, run, &record, &posterior, &tests)
    }
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
