//! What a training run needs before its first step: device, checkpoint, session, held-out images, the assembled trainer.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use tch::Device;

use crate::base::tensor_file::State;
use crate::cli::failure::{Stopped, fail};
use crate::data::batches::ImageSet;
use crate::data::order::Holdout;
use crate::experiment::{Experiment, PrefixCache, Training, Validation};
use crate::machine::memory::{self, Cutter};
use crate::machine::parallel::World;
use crate::methods::Parts;
use crate::run::RunFolder;
use crate::session::{Session, Settings};
use crate::subspace::geometry::Geometry;
use crate::train::chunks::{Step, state_bytes};
use crate::train::prefix::{Plan, Prefix};
use crate::train::progress::Progress;
use crate::train::{Trainer, processes_of};

/// The device of this process among those that train together: a GPU of its own, or a part of the machine's memory. To be
/// opened before any tensor is made, one read from a file included: libtorch asks once which devices there are.
pub(super) fn open_device(settings: &Settings, world: &World) -> Result<Device> {
    let place = world.place();
    memory::divide_among(place.neighbours);
    settings.device.open_for(place.local_rank)
}

/// The checkpoint that the first process finds.
pub(super) fn read_checkpoint(run: &RunFolder, world: &World) -> Result<Option<State>> {
    let path = run.checkpoint();
    if !world.any(world.leads() && path.is_file()) {
        return Ok(None);
    }
    if world.size() == 1 {
        return State::read(&path).map(Some);
    }
    let read = || std::fs::read(&path).with_context(|| format!("{}: cannot read", path.display()));
    State::parse(world.from_first(read)?, &path).map(Some)
}

/// The session of this process among those that train together, with its share of the cores unless the command line says
/// more.
pub(super) fn open_session(
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

/// On the CPU a resumed run is bit-identical only with the threads it started with, in as many processes.
pub(super) fn with_stored_threads(
    mut settings: Settings,
    checkpoint: Option<&State>,
    world: &World,
) -> Result<Settings> {
    let Some(state) = checkpoint else { return Ok(settings) };
    if processes_of(state)? != world.size() as i64 {
        return Ok(settings);
    }
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
pub(super) fn hold_out(experiment: &Experiment, images: &ImageSet, published: Option<&ImageSet>) -> Result<Holdout> {
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

/// Training images, and what is validated on.
pub(super) struct Images<'a> {
    pub set: &'a ImageSet,
    /// What `holdout.validation` are images of.
    pub validation: &'a ImageSet,
    pub holdout: Holdout,
    pub data: String,
}

/// Everything that the training loop needs.
pub(super) fn assemble<'a>(
    experiment: &'a Experiment,
    training: &'a Training,
    session: &'a Session,
    images: Images<'a>,
    run: &'a RunFolder,
) -> Result<Trainer<'a>> {
    let subspace = session.subspace()?;
    let particles = training.method.spec.particles();
    let Images { set: images, validation: validation_images, holdout, data } = images;
    let (model, spec, seed, world) = (&session.model, &training.train, experiment.seed, &*session.world);
    let (team, stop) = (world.team(particles as usize), stop_on_signals(world)?);
    // The cache first: what it takes is not free for activations. All of it before theta, which may be too large itself.
    let prefix = prefix(training, session, images, &holdout, run)?;
    let own = team.share().rows.len();
    let cutter = plan_step(training, session, &holdout, own)?;
    let theta = session.initial_theta(seed, particles)?;
    let parts = Parts {
        theta: theta.shallow_clone(),
        seed,
        optimizer: training.optimizer.spec.build(&theta),
        geometry: Geometry::new(subspace.layout()),
        clip_norm: training.train.clip_norm,
    };
    let method = training.method.spec.build(parts);
    let progress = Progress::new(particles, method.diagnostics().len(), session.device);
    let bar = crate::base::logging::bar(0, "training");
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
        world,
        team,
        stop,
        progress,
        bar,
        cutter,
        prefix,
    })
}

/// How much of a step this process, which computes the gradients of `own` particles, sends through the network at once.
fn plan_step(training: &Training, session: &Session, holdout: &Holdout, own: usize) -> Result<Rc<Cutter>> {
    let layout = session.subspace()?.layout();
    let step = Step {
        spec: &training.train,
        model: &session.model,
        layout,
        method: &*training.method.spec,
        images: holdout.train.len(),
        particles: training.method.spec.particles() as usize,
        own,
        validates: !holdout.validation.is_empty(),
        coming: state_bytes(training, layout.parameters()),
    };
    step.plan()
}

/// The output of the blocks that are not trained, for the images that are trained on.
fn prefix(
    training: &Training,
    session: &Session,
    images: &ImageSet,
    holdout: &Holdout,
    run: &RunFolder,
) -> Result<Option<Rc<Prefix>>> {
    let (model, spec, layout) = (&session.model, &training.train, session.subspace()?.layout());
    if images.is_augmented() {
        if !matches!(spec.prefix_cache, PrefixCache::Auto | PrefixCache::Off) {
            bail!("train.prefix_cache: data.*.augment changes the images in every epoch; leave one of them out");
        }
        return Ok(None);
    }
    let block = layout.first_block(model.vit.geometry.blocks);
    if block == 0 && matches!(spec.prefix_cache, PrefixCache::Memory | PrefixCache::Disk) {
        bail!("train.prefix_cache: the first block is trained, so there is nothing to keep; leave it out");
    }
    let coming = if session.device == Device::Cpu { state_bytes(training, layout.parameters()) } else { 0 };
    let plan = Plan {
        model,
        coming,
        block,
        images,
        indices: &holdout.train,
        batch_size: spec.eval_batch_size,
        file: run.path().join(match session.world.rank() {
            0 => "prefix.cache".to_string(),
            rank => format!("prefix-{rank}.cache"),
        }),
    };
    Ok(Prefix::build(&plan, spec.prefix_cache)?.map(Rc::new))
}

/// From now on those signals end the process with what `saved` says: training is over, and what it has learned is on disk.
pub(super) fn end_on_signals(saved: String, leads: bool) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGUSR1])?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let code = if leads { fail(&Stopped(saved).into()) } else { 1 };
            // Not `process::exit`: libtorch is at work, and must not be taken down under it.
            signal_hook::low_level::exit(code.into());
        }
    });
    Ok(())
}

/// A flag that Ctrl-C, SIGTERM and SIGUSR1 (of batch systems, before the time is up) set; a second Ctrl-C or SIGTERM ends
/// the process at once.
fn stop_on_signals(world: &World) -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGUSR1] {
        // A batch system and the launcher may both pass on one and the same signal.
        if signal != SIGUSR1 && world.size() == 1 {
            signal_hook::flag::register_conditional_shutdown(signal, 1, stop.clone())?;
        }
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}
