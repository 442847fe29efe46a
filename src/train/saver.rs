//! The resume file, from which an interrupted run continues: its content, when it is written, and how it is read.

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use super::context::Context;
use super::particles::Particles;
use super::progress::{ADVICE, EpochRow, Progress};
use crate::base::files::is_there;
use crate::base::tensor_file::{RUN, State};
use crate::machine::Chunk;
use crate::machine::device::{name, precision_name};
use crate::machine::memory::{ChunkSize, Chunker};
use crate::machine::parallel::ProcessGroup;
use crate::results::store::{self, Row, Table};
use crate::run::RunFolder;
use crate::subspace::Layout;
use crate::subspace::layout::LAYOUT;

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
    pub fn save(&mut self, particles: &Particles) -> Result<()> {
        particles.check_finite()?;
        self.saved = Instant::now();
        if !self.group.is_main() {
            return Ok(());
        }
        let mut state = State::default();
        state.describe(RUN, self.folder.id());
        state.describe(LAYOUT, self.layout.digest());
        state.put("theta", &particles.theta);
        if let Some(average) = &particles.average {
            average.save(&mut state);
        }
        particles.method.save(&mut state);
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
        state.copy_into("theta", &mut particles.theta)?;
        if let Some(average) = &mut particles.average {
            average.load(state)?;
        }
        if let Some(scale) = &mut particles.scale {
            scale.load(state)?;
        }
        particles.method.load(state)?;
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
        Some(asked) if asked != stored => bail!(
            "--threads {asked}: this run started with {stored} threads, and sums in another order would not continue it bit \
             for bit: leave --threads out, or start anew with --force"
        ),
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
