//! What a checkpoint of training holds, and going on from one.

use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{ADVICE, Clock, Trainer};
use crate::base::tensor::host_f64;
use crate::base::tensor_file::State;
use crate::machine::Chunk;
use crate::machine::memory::Cut;

impl Trainer<'_> {
    /// Writes everything that a resumed run needs, in the first process.
    pub(super) fn save(&self, clock: &mut Clock) -> Result<()> {
        self.check_finite()?;
        clock.saved = Instant::now();
        if !self.world.leads() {
            return Ok(());
        }
        let mut state = State::default();
        state.put("theta", &self.theta);
        self.method.save(&mut state);
        state.put_count("threads", i64::from(tch::get_num_threads()));
        let Cut { members, images } = self.cutter.cut();
        state.put_count("particle_chunk", members as i64);
        state.put_count("images_at_once", images as i64);
        state.put_count("processes", self.world.size() as i64);
        let wall_seconds = self.progress.earlier_seconds + clock.started.elapsed().as_secs_f64();
        self.progress.save(&mut state, wall_seconds)?;
        state.put_text("data", &self.data);
        state.put_text("computed_on", &self.computed_on());
        state.write(&self.run.checkpoint()).context(
            "the checkpoint could not be written; the one before it is intact: make room, and the same command goes on",
        )
    }

    /// Restores the run from its checkpoint.
    pub fn resume(&mut self, state: &State) -> Result<()> {
        if state.text("data")? != self.data {
            bail!("the training images are not those that the run was started with: put them back");
        }
        let stored = state.text("computed_on")?;
        let now = self.computed_on();
        if stored != now {
            tracing::warn!("this run computed on {stored}, now on {now}: it goes on, but not bit for bit");
        } else {
            // Another cut would round otherwise, and the run would not go on bit for bit.
            self.cutter.go_on_with(stored_cut(state, self.cutter.cut(), self.spec.particle_chunk)?);
        }
        state.copy_into("theta", &mut self.theta)?;
        self.method.load(state)?;
        self.progress.load(state)
    }

    /// Device, type and number of processes, on which bits depend.
    fn computed_on(&self) -> String {
        let (device, kind) =
            (crate::machine::device::name(self.model.device), crate::machine::device::precision_name(self.model.kind));
        match self.world.size() {
            1 => format!("{device} in {kind}"),
            processes => format!("{device} in {kind}, {processes} processes"),
        }
    }

    /// A loss may still be finite when the step after it is not.
    ///
    /// # Errors
    /// The first particle with a parameter that is NaN or infinite.
    pub fn check_finite(&self) -> Result<()> {
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

/// The cut that the run was started with; earlier versions did not cut images.
fn stored_cut(state: &State, now: Cut, chunk: Chunk) -> Result<Cut> {
    let count = |name: &str, otherwise: usize| {
        if state.has(name) { state.count(name).map(|count| count.max(1) as usize) } else { Ok(otherwise) }
    };
    let members = if chunk == Chunk::Auto { count("particle_chunk", now.members)? } else { now.members };
    Ok(Cut { members, images: count("images_at_once", now.images)? })
}

/// Processes that trained a checkpoint.
pub fn processes_of(state: &State) -> Result<i64> {
    if state.has("processes") { state.count("processes") } else { Ok(1) }
}
