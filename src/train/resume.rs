//! The resume file, from which an interrupted run continues: its content, and how it is read.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::trainer::{ADVICE, Clock, Trainer};
use crate::base::files::is_there;
use crate::base::tensor::host_f64;
use crate::base::tensor_file::{RUN, State};
use crate::machine::Chunk;
use crate::machine::memory::Cut;
use crate::machine::parallel::World;
use crate::run::RunFolder;
use crate::subspace::layout::LAYOUT;

impl Trainer<'_> {
    /// Writes everything that a resumed run needs. Only the first process writes.
    pub(super) fn save(&self, clock: &mut Clock) -> Result<()> {
        self.check_finite()?;
        clock.saved = Instant::now();
        if !self.world.leads() {
            return Ok(());
        }
        let mut state = State::default();
        state.describe(RUN, self.folder.id());
        state.describe(LAYOUT, self.subspace.layout().digest());
        state.put("theta", &self.theta);
        self.method.save(&mut state);
        if let Some(name) = state.not_finite() {
            bail!(
                "`{name}` of the resume file has values that are not finite after step {}: {ADVICE}",
                self.progress.steps
            );
        }
        state.put_count("threads", i64::from(tch::get_num_threads()));
        let Cut { members, images } = self.cutter.cut();
        state.put_count("particle_chunk", members as i64);
        state.put_count("images_at_once", images as i64);
        state.put_count("processes", self.world.size() as i64);
        let wall_seconds = self.progress.earlier_seconds + clock.started.elapsed().as_secs_f64();
        self.progress.save(&mut state, wall_seconds)?;
        state.put_text("data", &self.material.fingerprint);
        state.put_text("computed_on", &self.computed_on());
        state.write(&self.folder.resume_file()).context(
            "the resume file could not be written; the one before it is intact: make room, and the same command goes on",
        )
    }

    /// Continues from a resume file and logs from which step.
    pub(super) fn go_on(&mut self, state: &State) -> Result<()> {
        let file = self.folder.resume_file();
        self.resume(state).with_context(|| format!("{}: cannot resume (--force starts anew)", file.display()))?;
        tracing::info!("resuming after {} steps (epoch {})", self.progress.steps, self.progress.epoch + 1);
        Ok(())
    }

    /// Restores the run from its resume file.
    fn resume(&mut self, state: &State) -> Result<()> {
        self.subspace.layout().check(&self.folder.resume_file(), state.described(LAYOUT))?;
        if state.text("data")? != self.material.fingerprint {
            bail!("the training images are not those that the run was started with: put them back");
        }
        let stored = state.text("computed_on")?;
        let now = self.computed_on();
        if stored != now {
            tracing::warn!("this run computed on {stored}, now on {now}: it goes on, but not bit for bit");
        } else {
            // Another split would round differently, and the run would not continue bit for bit.
            self.cutter.go_on_with(stored_cut(state, self.cutter.cut(), self.spec.particle_chunk)?);
        }
        state.copy_into("theta", &mut self.theta)?;
        self.method.load(state)?;
        self.progress.load(state)
    }

    /// Returns the device, type and number of processes, which determine results bit for bit.
    fn computed_on(&self) -> String {
        let (device, kind) =
            (crate::machine::device::name(self.model.device), crate::machine::device::precision_name(self.model.kind));
        match self.world.size() {
            1 => format!("{device} in {kind}"),
            processes => format!("{device} in {kind}, {processes} processes"),
        }
    }

    /// Checks that theta is finite, since a loss may still be finite when the step after it is not.
    ///
    /// # Errors
    /// Fails with the first particle that has a NaN or infinite parameter.
    fn check_finite(&self) -> Result<()> {
        let finite = host_f64(&self.theta.isfinite().all_dim(1, false).to_kind(tch::Kind::Double))?;
        match finite.iter().position(|ok| *ok == 0.0) {
            Some(particle) => bail!(
                "particle {particle} has parameters that are not finite after step {}: {ADVICE}",
                self.progress.steps
            ),
            None => Ok(()),
        }
    }
}

/// Returns the split that the run was started with. Earlier versions did not split images.
fn stored_cut(state: &State, now: Cut, chunk: Chunk) -> Result<Cut> {
    let count = |name: &str, otherwise: usize| {
        if state.has(name) { state.count(name).map(|count| count.max(1) as usize) } else { Ok(otherwise) }
    };
    let members = if chunk == Chunk::Auto { count("particle_chunk", now.members)? } else { now.members };
    Ok(Cut { members, images: count("images_at_once", now.images)? })
}

const UNUSABLE: &str = "cannot go on from the run's resume file (--force starts anew)";

/// Reads the resume file that the first process finds in the folder of a run, and returns it in all processes.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn read_resume_file(run: &RunFolder, world: &World) -> Result<Option<State>> {
    let path = run.resume_file();
    if !world.any(world.leads() && is_there(&path)) {
        return Ok(None);
    }
    let read = || crate::base::files::read_file(&path).with_context(|| format!("{}: cannot read", path.display()));
    let state = match world.size() {
        1 => State::read(&path),
        _ => State::parse(world.from_first(read)?, &path),
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
pub fn stored_threads(asked: Option<i32>, state: Option<&State>, world: &World) -> Result<Option<i32>> {
    let Some(state) = state else { return Ok(asked) };
    let processes = if state.has("processes") { state.count("processes")? } else { 1 };
    if processes != world.size() as i64 {
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
