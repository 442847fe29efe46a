//! Several runs that train in lockstep: their particles are rows of one matrix, and one forward and one backward pass of a step serves all of
//! them. Everything else is done for each run by the code that trains it alone ([`Training`]), with its own order of the images, start,
//! optimizer, validation, best epoch, early stop, resume file and history. So a run's numbers are those of its own training but for the
//! rounding of a pass with more rows, and a run that fails leaves the others alone.
//!
//! Runs of one seed see the same images, which are read once; where all their particles share a batch, the pass shares it, too. Runs that
//! have come less far (one was killed while it wrote its resume file) catch up before they go on with the others.

use std::cell::Cell;
use std::mem::take;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use anyhow::{Result, bail, ensure};
use tch::Tensor;

use super::batches::{Batches, Objectives, TrainBatch};
use super::context::{Context, Material};
use super::run::{Outcome, Training, Watch, store};
use super::{chunks, prefix};
use crate::base::tensor::guarded;
use crate::base::tensor_file::State;
use crate::experiment::Experiment;
use crate::machine::memory::{ChunkSize, Chunker};
use crate::machine::parallel::Shard;
use crate::methods::{Answer, Evaluation, Objective, Request};
use crate::run::RunFolder;
use crate::session::Session;

/// One of several runs that are trained together.
pub struct PackedRun<'a> {
    pub experiment: &'a Experiment,
    /// The images, which runs of one seed share.
    pub material: &'a Material,
    pub folder: &'a RunFolder,
    /// The content of the resume file, if the run was interrupted.
    pub state: Option<State>,
}

/// Trains runs together, each from where it was interrupted, and stores each in its folder as soon as it is over. Returns how each has
/// ended, in their order. [`Experiment::check_packed`] says which runs can be trained so; `watch.trained` is not called.
///
/// # Errors
/// Fails if the runs do not fit together, if memory runs out, or if images cannot be read. A failure of one run alone is that run's outcome.
pub fn run_packed(session: &Session, runs: Vec<PackedRun>, watch: &Watch) -> Result<Vec<Result<Outcome>>> {
    let contexts: Vec<Context> = runs.iter().map(|run| context(run, session)).collect::<Result<_>>()?;
    let Some(first) = contexts.first() else { return Ok(Vec::new()) };
    check(&contexts)?;
    let (particles, coming) = (first.particles() as usize, chunks::coming(&contexts));
    let prefix = prefix::of(first, runs[0].folder, &trained_on(&contexts), coming)?.map(Rc::new);
    let chunker = chunks::plan_packed(&contexts)?;
    let share = Shard::whole(particles);
    let sharding = session.group.sharding(particles * contexts.len());
    let mut pack = Pack {
        streams: Vec::new(),
        objectives: Objectives::new(first, &sharding, chunker.clone()),
        members: Vec::new(),
        ended: Vec::new(),
        chunker,
    };
    for (place, (run, context)) in runs.into_iter().zip(&contexts).enumerate() {
        let known = pack.streams.iter().position(|(seed, _)| *seed == context.experiment.seed);
        let stream = known.unwrap_or(pack.streams.len());
        if known.is_none() {
            pack.streams.push((context.experiment.seed, Batches::new(context, &share, prefix.clone())));
        }
        match Training::begin(*context, run.folder, run.state, pack.chunker.clone(), watch, place == 0) {
            Ok(training) => pack.members.push(Member { place, stream, training }),
            Err(error) => pack.ended.push((place, Err(error))),
        }
    }
    watch.began.set(true);
    first.announce(&sharding);
    tracing::info!("{} runs in one pass: {} rows", contexts.len(), particles * contexts.len());
    pack.train(watch)
}

fn context<'a>(run: &PackedRun<'a>, session: &'a Session) -> Result<Context<'a>> {
    Ok(Context { is_packed: true, ..Context::new(run.experiment, session, run.material)? })
}

/// Checks that the steps of runs fit together.
fn check(contexts: &[Context]) -> Result<()> {
    contexts.iter().try_for_each(Context::check)?;
    let first = &contexts[0];
    ensure!(first.group().size() == 1, "packed runs are trained by one process");
    let images = |context: &Context| context.material.holdout.train.len();
    if let Some(other) = contexts.iter().find(|other| images(other) != images(first)) {
        bail!(
            "seed: seed {} leaves {} training images and seed {} leaves {}, and packed runs share the steps of an epoch",
            first.experiment.seed,
            images(first),
            other.experiment.seed,
            images(other)
        );
    }
    Ok(())
}

/// Returns the images that some of the runs train on, sorted.
fn trained_on(contexts: &[Context]) -> Vec<u32> {
    let mut all: Vec<u32> = contexts.iter().flat_map(|context| &context.material.holdout.train).copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// A run in the pack.
struct Member<'a> {
    /// Its place among the runs that were given.
    place: usize,
    /// The number of its stream of batches.
    stream: usize,
    training: Training<'a>,
}

impl Member<'_> {
    /// Returns the epoch and the step in it that come next.
    fn position(&self) -> (usize, usize) {
        (self.training.particles.progress.epoch, self.training.particles.progress.step)
    }
}

/// Runs in lockstep.
struct Pack<'a> {
    /// The batches of each seed.
    streams: Vec<(u64, Batches<'a>)>,
    objectives: Objectives<'a>,
    /// The number of rows and images that go through the network at once.
    chunker: Rc<Chunker>,
    /// The runs that train.
    members: Vec<Member<'a>>,
    /// The outcomes of the other runs, with their places.
    ended: Vec<(usize, Result<Outcome>)>,
}

impl<'a> Pack<'a> {
    fn train(mut self, watch: &Watch) -> Result<Vec<Result<Outcome>>> {
        let mut stopped = false;
        loop {
            self.part(watch.until_epoch, stopped);
            if self.members.is_empty() {
                break;
            }
            self.advance(watch)?;
            stopped = watch.stop.load(Ordering::Relaxed);
        }
        self.ended.sort_by_key(|(place, _)| *place);
        Ok(self.ended.into_iter().map(|(_, outcome)| outcome).collect())
    }

    /// Lets the runs leave that are over, that pause, or, if training is stopped, all of them.
    fn part(&mut self, until_epoch: Option<usize>, stopped: bool) {
        for mut member in take(&mut self.members) {
            let training = &mut member.training;
            let is_over = training.is_over();
            if !is_over && !stopped && !training.pauses(until_epoch) {
                self.members.push(member);
                continue;
            }
            training.close();
            let steps = training.particles.progress.steps;
            let outcome = if is_over { finished(member.training) } else { Ok(Outcome::Interrupted { steps }) };
            self.ended.push((member.place, outcome));
        }
    }

    /// Trains those that have come least far up to where the next ones are, or to the end of their epoch.
    fn advance(&mut self, watch: &Watch) -> Result<()> {
        let Some((epoch, step)) = self.members.iter().map(Member::position).min() else { return Ok(()) };
        let (mut group, mut others): (Vec<_>, Vec<_>) =
            take(&mut self.members).into_iter().partition(|member| member.position() == (epoch, step));
        let share = 1.0 / group.len() as f64;
        group.iter_mut().for_each(|member| member.training.particles.progress.share_time(share));
        others.iter_mut().for_each(|member| member.training.particles.progress.share_time(0.0));
        let in_epoch = others.iter().map(Member::position).filter(|(other, _)| *other == epoch);
        let whole = group[0].training.context.steps_per_epoch();
        let end = in_epoch.map(|(_, step)| step).min().unwrap_or(whole);
        let cut = self.chunker.cut();
        self.take_steps(&mut group, end - step, watch)?;
        if !others.is_empty() {
            // Few rows have limited it.
            self.chunker.set(ChunkSize { members: cut.members, ..self.chunker.cut() });
        }
        if group.first().is_some_and(|member| member.position().1 == whole) {
            self.each(&mut group, |member| member.training.end_epoch());
        }
        self.members = group.into_iter().chain(others).collect();
        Ok(())
    }

    /// Takes so many steps with all members of a group, which are equally far, unless a stop is requested.
    fn take_steps(&mut self, group: &mut Vec<Member<'a>>, count: usize, watch: &Watch) -> Result<()> {
        let progress = &group[0].training.particles.progress;
        let is_used = |stream: usize| group.iter().any(|member| member.stream == stream);
        let mut streams: Vec<_> = (0..)
            .zip(&self.streams)
            .map(|(at, (_, batches))| is_used(at).then(|| batches.left_in_epoch(progress)))
            .collect();
        group.iter_mut().for_each(|member| member.training.start_epoch());
        for _ in 0..count {
            let next = streams.iter_mut().map(|stream| stream.as_mut().and_then(Iterator::next).transpose());
            let batches: Vec<Option<TrainBatch>> = next.collect::<Result<_>>()?;
            self.step(group, &batches)?;
            let stops = watch.stop.load(Ordering::Relaxed);
            self.each(group, |member| member.training.save_within_epoch(stops));
            if stops || group.is_empty() {
                return Ok(());
            }
            group.iter_mut().for_each(|member| member.training.start_step());
        }
        Ok(())
    }

    /// Takes a step with all members of a group, each on the batch of its stream.
    fn step(&mut self, group: &mut Vec<Member<'a>>, batches: &[Option<TrainBatch>]) -> Result<()> {
        let own: Vec<&TrainBatch> = group.iter().filter_map(|member| batches[member.stream].as_ref()).collect();
        let particles = group[0].training.context.particles();
        let name = format!("step {}", group[0].training.particles.progress.steps + 1);
        let Evaluation { losses, gradients } = guarded(&name, group[0].training.context.training.room(), || {
            let rows: Vec<&Tensor> = group.iter().map(|member| &member.training.particles.theta).collect();
            self.objectives.on(&TrainBatch::joined(&own, particles), 1.0).losses(&Tensor::cat(&rows, 0))
        })?;
        let start = Cell::new(0);
        let rows = |all: &Tensor| all.narrow(0, start.get(), particles);
        self.each(group, |Member { stream, training, .. }| {
            let found = Evaluation { losses: rows(&losses), gradients: rows(&gradients) };
            start.set(start.get() + particles);
            let mut given = Given { at: training.particles.theta.data_ptr() as usize, found: Some(found) };
            batches[*stream].as_ref().map_or(Ok(()), |batch| training.step(batch, &mut given))
        });
        Ok(())
    }

    /// Lets every member of a group work. One that fails leaves with its error.
    fn each(&mut self, group: &mut Vec<Member<'a>>, work: impl Fn(&mut Member<'a>) -> Result<()>) {
        for mut member in take(group) {
            match work(&mut member) {
                Ok(()) => group.push(member),
                Err(error) => {
                    member.training.close();
                    self.ended.push((member.place, Err(error)));
                }
            }
        }
    }
}

/// Stores a run that is over.
fn finished(training: Training) -> Result<Outcome> {
    let (context, folder) = (training.context, training.folder);
    let kept = store(&context, folder, training.finish()?, &Cell::new(true))?;
    Ok(Outcome::Finished(Box::new(kept)))
}

/// The losses and gradients of a run's rows, which the pass of all runs has given. They answer one question.
struct Given {
    /// The address of the rows.
    at: usize,
    found: Option<Evaluation>,
}

impl Objective for Given {
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let theta = request.plain()?;
        let is_there = request.part.is_none() && theta.data_ptr() as usize == self.at;
        let found = self.found.take().filter(|_| is_there).map(Answer::from);
        found.ok_or_else(|| {
            request.refused("packed runs get their losses and gradients once a step, at their particles")
        })
    }
}
