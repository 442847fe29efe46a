//! The files of a run: those that change while it is trained, and the record that it leaves; and results that are taken over from
//! another run.

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use tch::Tensor;

use super::context::Context;
use super::particles::Particles;
use super::progress::{ADVICE, EpochRow, Progress};
use super::validation::Selector;
use crate::base::files::is_there;
use crate::base::small::Usage;
use crate::base::tensor_file::{RUN, State};
use crate::experiment::{Experiment, load_config};
use crate::machine::device::{LIBTORCH_VERSION, name, precision_name};
use crate::machine::memory::{ChunkSize, Chunker};
use crate::machine::parallel::ProcessGroup;
use crate::machine::{Chunk, memory};
use crate::posterior::Posterior;
use crate::results::store::{self, Row, Table};
use crate::run::{LATEST, Record, RunFolder};
use crate::session::Session;
use crate::subspace::{LAYOUT, Layout};

/// Writes the files that change while a run is trained. Only the first process writes.
pub(super) struct Saver<'a> {
    folder: &'a RunFolder,
    group: &'a ProcessGroup,
    layout: &'a Layout,
    /// The fingerprint of the training images.
    data: &'a str,
    /// The device, type and number of processes, which determine results bit for bit.
    computed_on: String,
    /// Whether the number of particles at once is that of several runs.
    is_packed: bool,
    chunk: Chunk,
    /// The number of particles and images that go through the network at once.
    chunker: Rc<Chunker>,
    /// The seconds between two writings within an epoch, and the time of the last one.
    seconds: f64,
    saved: Instant,
}

impl<'a> Saver<'a> {
    pub fn new(context: &Context<'a>, folder: &'a RunFolder, chunker: Rc<Chunker>) -> Saver<'a> {
        let (spec, group) = (context.spec(), context.group());
        let (device, kind) = (name(context.session.device), precision_name(context.model().kind));
        let computed_on = match group.size() {
            1 if context.is_packed => format!("{device} in {kind}, packed with other runs"),
            1 => format!("{device} in {kind}"),
            processes => format!("{device} in {kind}, {processes} processes"),
        };
        Saver {
            folder,
            group,
            layout: context.subspace.layout(),
            data: &context.material.fingerprint,
            computed_on,
            is_packed: context.is_packed,
            chunk: spec.particle_chunk,
            chunker,
            seconds: spec.save_minutes * 60.0,
            saved: Instant::now(),
        }
    }

    /// Returns whether the last writing is so long ago that the next is due within an epoch.
    pub fn is_due(&self) -> bool {
        self.saved.elapsed().as_secs_f64() > self.seconds
    }

    /// Writes everything that a resumed run needs.
    ///
    /// # Errors
    /// Fails if something is not finite, or if the file cannot be written.
    pub fn save(&mut self, particles: &mut Particles) -> Result<()> {
        particles.check_finite()?;
        self.saved = Instant::now();
        if !self.group.is_main() {
            return Ok(());
        }
        let mut state = State::default();
        state.describe(RUN, self.folder.id());
        state.describe(LAYOUT, self.layout.digest());
        state.store(|keeper| particles.keep(keeper))?;
        if let Some(name) = state.not_finite() {
            bail!(
                "`{name}` of the resume file has values that are not finite after step {}: {ADVICE}",
                particles.progress.steps
            );
        }
        if let Some(scale) = &particles.scale {
            scale.save(&mut state)?;
        }
        state.put_count("threads", i64::from(tch::get_num_threads()));
        let ChunkSize { members, images } = self.chunker.cut();
        state.put_count("particle_chunk", members as i64);
        state.put_count("images_at_once", images as i64);
        state.put_count("processes", self.group.size() as i64);
        particles.progress.save(&mut state)?;
        state.put_text("data", self.data);
        state.put_text("computed_on", &self.computed_on);
        state.write(&self.folder.resume_file()).context(
            "the resume file could not be written; the one before it is intact: make room, and the same command goes on",
        )
    }

    /// Writes `train.csv`.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn write_history(&self, progress: &Progress) -> Result<()> {
        if self.group.is_main() { write_history(self.folder, &progress.rows) } else { Ok(()) }
    }

    /// Continues from the content of a resume file and logs from which step.
    ///
    /// # Errors
    /// Fails if the file is not that of this run.
    pub fn resume(&self, state: State, particles: &mut Particles) -> Result<()> {
        let file = self.folder.resume_file();
        let restored = self.restore(&state, particles);
        restored.with_context(|| format!("{}: cannot resume (--force starts anew)", file.display()))?;
        let Progress { steps, epoch, .. } = particles.progress;
        tracing::info!("resuming after {steps} steps (epoch {})", epoch + 1);
        Ok(())
    }

    fn restore(&self, state: &State, particles: &mut Particles) -> Result<()> {
        self.layout.check(&self.folder.resume_file(), state.described(LAYOUT))?;
        if state.text("data")? != self.data {
            bail!("the training images are not those that the run was started with: put them back");
        }
        let (stored, now) = (state.text("computed_on")?, &self.computed_on);
        if stored != *now {
            tracing::warn!("this run computed on {stored}, now on {now}: it goes on, but not bit for bit");
        } else if !self.is_packed {
            // Another split would round differently, and the run would not continue bit for bit.
            self.chunker.go_on_with(self.stored_chunk_size(state)?);
        }
        state.restore(|keeper| particles.keep(keeper))?;
        if let Some(scale) = &mut particles.scale {
            scale.load(state)?;
        }
        particles.progress.load(state)
    }

    /// Returns the numbers of particles and images at once that the run was started with.
    fn stored_chunk_size(&self, state: &State) -> Result<ChunkSize> {
        let count = |name: &str| state.count(name).map(|count| count.max(1) as usize);
        let members = if self.chunk == Chunk::Auto { count("particle_chunk")? } else { self.chunker.cut().members };
        Ok(ChunkSize { members, images: count("images_at_once")? })
    }
}

const UNUSABLE: &str = "cannot go on from the run's resume file (--force starts anew)";

/// Reads the resume file that the first process finds in the folder of a run, and returns it in all processes.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn read_resume_file(run: &RunFolder, group: &ProcessGroup) -> Result<Option<State>> {
    let path = run.resume_file();
    if !group.any(group.is_main() && is_there(&path)) {
        return Ok(None);
    }
    let read = || crate::base::files::read_file(&path).with_context(|| format!("{}: cannot read", path.display()));
    let state = match group.size() {
        1 => State::read(&path),
        _ => State::parse(group.from_first(read)?, &path),
    };
    let state = state.context(UNUSABLE)?;
    run.check_owner(&path, state.described(RUN)).context(UNUSABLE)?;
    Ok(Some(state))
}

/// Returns the number of libtorch threads with which a resumed run must compute. On the CPU the run is bit-identical
/// only with the number it started with, in as many processes. `asked` is the number on the command line.
///
/// # Errors
/// Fails if the command line asks for another number.
pub fn stored_threads(asked: Option<i32>, state: Option<&State>, group: &ProcessGroup) -> Result<Option<i32>> {
    let Some(state) = state else { return Ok(asked) };
    let processes = if state.has("processes") { state.count("processes")? } else { 1 };
    if processes != group.size() as i64 {
        return Ok(asked);
    }
    let stored = state.count("threads")? as i32;
    match asked {
        Some(asked) if asked != stored => bail!(Usage(format!(
            "--threads {asked}: this run started with {stored} threads, and sums in another order would not continue it bit \
             for bit: leave --threads out, or start anew with --force"
        ))),
        _ => Ok(Some(stored)),
    }
}

/// Writes the whole of `train.csv`, as happens after every epoch.
fn write_history(run: &RunFolder, rows: &[EpochRow]) -> Result<()> {
    let mut table = Table::default();
    for row in rows {
        let mut cells = cells(row);
        cells.push(RUN, run.id());
        table.append(&cells);
    }
    store::write(&run.history(), &table)
}

/// Returns the row of `train.csv` of an epoch.
fn cells(row: &EpochRow) -> Row {
    let mut cells = Row::new();
    row.values().into_iter().for_each(|(column, value)| cells.push_number(column, value));
    cells
}

/// The record of a run and its posterior.
pub struct Finished {
    pub record: Record,
    pub posterior: Posterior,
}

/// Returns the record of particles `theta: [n, P]` that no step has moved.
pub(super) fn untrained(context: &Context, theta: &Tensor) -> Record {
    let (particles, parameters) = (theta.size()[0], theta.size()[1]);
    let (session, holdout) = (context.session, &context.material.holdout);
    Record {
        run: String::new(),
        bella_version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("BELLA_COMMIT").into(),
        libtorch_version: LIBTORCH_VERSION.into(),
        checkpoint_commit: context.experiment.checkpoint.path.commit().map(str::to_string),
        data_commit: context.experiment.data.commit(),
        data_contents: context.material.contents.clone(),
        device: name(session.device),
        processes: session.group.size(),
        threads: tch::get_num_threads(),
        precision: precision_name(session.model.kind).into(),
        particles,
        parameters_per_particle: parameters,
        trainable_parameters: particles * parameters,
        train_samples: holdout.train.len(),
        validation_samples: holdout.validation.len(),
        epochs: 0,
        steps: 0,
        wall_seconds: 0.0,
        processor_seconds: None,
        images_per_second: 0.0,
        // On the CPU this is the peak of the process, on a GPU that of its tensors. Both cover the frozen base, and the
        // plan starts from what is held there.
        peak_memory_bytes: memory::peak_bytes(session.device),
        planned_memory_bytes: Some(memory::planned_bytes()),
        selected_epoch: 0,
        self_check_difference: session.self_check_difference,
        overlap: context.material.overlap.clone(),
    }
}

/// Returns the record of particles that have been trained.
pub(super) fn trained(context: &Context, particles: &Particles, selector: Selector) -> Record {
    let Particles { theta, progress, .. } = particles;
    let wall_seconds = progress.rows.last().map_or(progress.earlier_seconds, |row| row.wall_seconds);
    Record {
        run: String::new(),
        epochs: progress.epoch,
        steps: progress.steps,
        wall_seconds,
        processor_seconds: progress.processor_seconds(),
        images_per_second: mean_rate(context, particles, wall_seconds),
        selected_epoch: selector.epoch(progress),
        ..untrained(context, theta)
    }
}

/// Returns the training speed (images of all particles per second), averaged over epochs. An epoch whose last step came
/// before an interruption has no speed of its own; if none has one, the speed of the whole training is returned.
fn mean_rate(context: &Context, Particles { progress, .. }: &Particles, wall_seconds: f64) -> f64 {
    let rates: Vec<f64> = progress.rows.iter().filter_map(|row| row.images_per_second).collect();
    if rates.is_empty() {
        let images = progress.epoch * context.material.holdout.train.len() * context.particles() as usize;
        return images as f64 / wall_seconds.max(1e-9);
    }
    rates.iter().sum::<f64>() / rates.len() as f64
}

/// Returns the record and the particles of the finished run `from`.
///
/// # Errors
/// Fails if the run does not exist or is not finished, if its seed, checkpoint, head, data or subspace differ from
/// those of this config, or if it kept Gaussians or draws instead of points.
pub(super) fn adopted(from: &str, experiment: &Experiment, session: &Session) -> Result<Finished> {
    let training = experiment.training.as_ref().context("the config has nothing to train")?;
    let method = &training.method.key;
    let key = format!("method.{method}.from = {from:?}");
    ensure!(from != LATEST, "{key}: the config would mean another run after the next training: name the run by its id");
    let run = RunFolder::find(&session.settings.out, Some(from)).with_context(|| key.clone())?;
    ensure!(run.is_finished(), "{key}: this run is not finished: continue it with `bella train`");
    let theirs = Experiment::read_to_evaluate(&load_config(&[run.config()], &[])?)?.relevant();
    let ours = experiment.relevant();
    for table in ["seed", "checkpoint", "head", "data", "subspace"] {
        ensure!(
            ours.get(table) == theirs.get(table),
            "{key}: its `{table}` is not this config's: fit Gaussians with the settings that the run was trained with ({})",
            run.config().display()
        );
    }
    run.check_data(&experiment.data).with_context(|| key.clone())?;
    let theta = match session.stored_by(&run, experiment)?.posterior {
        Posterior::Points { theta } | Posterior::Laplace { mode: theta, .. } => theta,
        Posterior::Gaussians { .. }
        | Posterior::LowRankGaussians { .. }
        | Posterior::BlockGaussians { .. }
        | Posterior::TiedGaussians { .. } => {
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
