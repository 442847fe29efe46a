//! The number of particles and images that go through the network at once in training: as many as memory allows. It is also found
//! without training.

use std::rc::Rc;

use anyhow::Result;
use tch::{Device, Kind};

use super::context::{Context, Material};
use crate::data::labels::Labels;
use crate::data::overlap::Seen;
use crate::experiment::{Batches, Experiment, Selection, TrainSpec, Training};
use crate::machine::Chunk;
use crate::machine::memory::{ChunkSize, Chunker, MemoryEstimate, Task, Within};
use crate::methods::{HeadNumbers, MethodSpec};
use crate::model::Model;
use crate::model::network::Graph;
use crate::model::pieces::Whole;
use crate::optimizers::OptimizerSpec;
use crate::session::{Session, Settings};
use crate::subspace::Layout;
use crate::subspace::geometry::WeightSpace;

/// The inputs of a training step that determine its memory.
pub struct Step<'a> {
    pub spec: &'a TrainSpec,
    pub model: &'a Model,
    pub layout: &'a Layout,
    pub method: &'a dyn MethodSpec,
    pub optimizer: &'a dyn OptimizerSpec,
    /// The advice on how to make room for the step.
    pub room: &'static str,
    /// The number of training images.
    pub images: usize,
    /// The number of particles of a training in all processes.
    pub particles: usize,
    /// The number of trainings that share the passes.
    pub trainings: usize,
    /// The number of particles whose gradients this process computes.
    pub own: usize,
    /// Whether there are validation images, so that the best particles may be kept as well.
    pub validates: bool,
    /// The bytes that are taken between the plan and the first step, and stay taken.
    pub coming: u64,
}

/// Returns the bytes of theta `[n, P]`, and of the matrices that method and optimizer keep from step to step.
pub fn state_bytes(training: &Training, layout: &Layout) -> u64 {
    let spec = &*training.method.spec;
    let rates = u64::from(training.train.changed_rate().is_some());
    let average = u64::from(training.train.ema.is_some());
    let matrices = 1 + spec.kept_matrices() + training.optimizer.spec.kept_matrices() + rates + average;
    bytes(spec, layout, matrices, head_numbers(spec, layout, training.train.batch_size).kept)
}

/// Returns the bytes of a posterior.
pub fn posterior_bytes(training: &Training, layout: &Layout) -> u64 {
    let spec = &*training.method.spec;
    let head = head_numbers(spec, layout, training.train.batch_size);
    bytes(spec, layout, spec.matrices_of_the_posterior(), head.posterior)
}

/// Returns the bytes of matrices `[n, P]` and of further numbers of each particle, in f32.
fn bytes(spec: &dyn MethodSpec, layout: &Layout, matrices: u64, numbers: u64) -> u64 {
    let each = matrices * layout.parameters() as u64 + numbers;
    spec.particles() as u64 * each * Kind::Float.elt_size_in_bytes() as u64
}

fn head_numbers(spec: &dyn MethodSpec, layout: &Layout, images: usize) -> HeadNumbers {
    WeightSpace::new(layout).head().map(|head| spec.head_numbers(head, images)).unwrap_or_default()
}

/// Decides how many particles and images a step of this process, which computes the gradients of `own` particles, sends through
/// the network at once.
///
/// # Errors
/// Fails if one particle and one image do not fit in memory.
pub(super) fn plan(context: &Context, own: usize) -> Result<Rc<Chunker>> {
    let step = Step::of(context.training, context.model(), context.subspace.layout(), Images::of(context.material));
    Step { own, ..step }.plan()
}

/// Decides how many particles and images a step of trainings that share their passes sends through the network at once.
///
/// # Errors
/// Fails if one particle and one image do not fit in memory.
pub(super) fn plan_packed(contexts: &[Context]) -> Result<Rc<Chunker>> {
    let (first, trainings) = (&contexts[0], contexts.len());
    let step = Step::of(first.training, first.model(), first.subspace.layout(), Images::of(first.material));
    Step { trainings, own: step.particles * trainings, coming: coming(contexts), ..step }.plan()
}

/// Returns the bytes of theta and of the matrices that method and optimizer keep, in all trainings.
pub(super) fn coming(contexts: &[Context]) -> u64 {
    contexts.iter().map(|context| state_bytes(context.training, context.subspace.layout())).sum()
}

/// Decides how many particles and images a step of this process alone would send through the network at once, without
/// training. It makes the checks that training makes before its first step.
///
/// # Errors
/// Fails if the config trains nothing, if the method cannot do with so few steps or classes, or if one particle and one image do not
/// fit in memory.
pub fn plan_alone(experiment: &Experiment, session: &Session, material: &Material) -> Result<ChunkSize> {
    let context = Context::new(experiment, session, material)?;
    context.check()?;
    Ok(plan(&context, context.particles() as usize)?.cut())
}

/// The numbers of images of a training.
#[derive(Clone, Copy)]
pub struct Images {
    pub train: usize,
    pub validation: usize,
}

impl Images {
    fn of(material: &Material) -> Images {
        Images { train: material.holdout.train.len(), validation: material.holdout.validation.len() }
    }
}

impl<'a> Step<'a> {
    /// Returns the step of a training on these images in one process.
    pub fn of(training: &'a Training, model: &'a Model, layout: &'a Layout, images: Images) -> Step<'a> {
        let Images { train, validation } = images;
        let particles = training.method.spec.particles() as usize;
        Step {
            spec: &training.train,
            model,
            layout,
            method: &*training.method.spec,
            optimizer: &*training.optimizer.spec,
            room: training.room(),
            images: train,
            particles,
            trainings: 1,
            own: particles,
            validates: validation > 0,
            coming: state_bytes(training, layout),
        }
    }

    /// Returns the memory of a step besides theta and the matrices that method and optimizer keep from step to step.
    fn need(&self) -> MemoryEstimate {
        let Step { spec, model, layout, .. } = self;
        let parameters = layout.parameters() as u64;
        let particles = (self.particles * self.trainings) as u64;
        let matrix = particles * parameters * Kind::Float.elt_size_in_bytes() as u64;
        let clipped = u64::from(spec.clip_norm.is_some());
        let keeps_best = self.validates && spec.select == Selection::Best;
        let best = if keeps_best { self.method.matrices_of_the_posterior() } else { 0 };
        let matrices = self.method.matrices_of_a_step(spec.accumulate.parts()) + clipped + best;
        let matrices = matrices + self.optimizer.matrices_of_a_step() + self.results_of_the_optimizer();
        // Trainings that share passes put their rows together.
        let matrices = matrices + u64::from(self.trainings > 1);
        let own_samples = spec.batches == Batches::Independent;
        let (recompute, twice) = (spec.recompute, self.method.differentiates_pixels());
        let mut pass = model.need(Graph::Weights { trained: *layout, recompute, own_samples, twice });
        if twice {
            /// The graph of a pass, the same of its gradients, and what the second pass back makes of both: an estimate.
            const GRAPHS: u64 = 3;
            let whole = model.need(Graph::Samples { budgets: 1 });
            pass.pair = GRAPHS * pass.pair.max(whole.pair);
        }
        // The leaves of the graph and their gradients. In f32 the leaves are theta itself.
        let tensors = if model.kind == Kind::Float { 1 } else { 2 };
        let member = tensors * parameters * model.kind.elt_size_in_bytes() as u64;
        let copies = if self.method.squares_images() { layout.copies_bytes() } else { 0 };
        let compares = self.method.compares_particles();
        let pairs = if compares { WeightSpace::new(layout).bytes_of_pairs(self.particles as i64) } else { 0 };
        let head = head_numbers(self.method, layout, spec.batch_size);
        let numbers = head.step + if keeps_best { head.posterior } else { 0 };
        let images = spec.batch_size.min(self.images) as u64;
        let pixels = 3 * model.preparation.image_side().pow(2) as u64;
        let numbers = numbers + self.method.copies_of_images() * images * pixels;
        let beside = particles * numbers * Kind::Float.elt_size_in_bytes() as u64;
        // The input of the first trained stage is there once for all particles.
        let entering = if own_samples { 0 } else { model.entering() * model.kind.elt_size_in_bytes() as u64 };
        let fixed = pass.fixed + matrices * matrix + beside + copies + pairs;
        MemoryEstimate { fixed, member, image: pass.image + entering, ..pass }
    }

    /// Returns the matrices that an optimizer's formulas make on their way: none on a CPU, where they take theta in tiles.
    fn results_of_the_optimizer(&self) -> u64 {
        if self.model.device == Device::Cpu { 0 } else { 2 }
    }

    /// Splits the step so that it fits in the memory that is free now.
    ///
    /// # Errors
    /// Fails if one particle and one image do not fit.
    pub fn plan(&self) -> Result<Rc<Chunker>> {
        let task = self.task();
        let ChunkSize { members, images: samples } = task.whole;
        let whole = Whole { members, samples, gradients: self.layout.parameters() as usize };
        let at_most = if self.method.passes_together() { None } else { self.model.at_most(whole) };
        Task { at_most, ..task }.plan().map(Rc::new)
    }

    /// Returns how an undivided step would be split where `free` bytes are free besides the frozen weights. Its bytes are those with theta
    /// and the state of method and optimizer.
    pub fn within(&self, free: u64) -> Within {
        self.task().within(free)
    }

    fn task(&self) -> Task<'static> {
        let images = self.spec.batch_size.min(self.images).div_ceil(self.spec.accumulate.parts());
        let members = match self.spec.particle_chunk {
            Chunk::Auto => None,
            Chunk::Fixed(count) => Some(count),
        };
        let whole = ChunkSize { members: self.own, images };
        let (what, device, advice) = ("training step", self.model.device, self.room);
        Task { what, coming: self.coming, need: self.need(), whole, at_most: None, members, device, advice }
    }
}

/// The work of a training step, known before training.
pub struct Opening {
    /// The number of images that are trained on.
    pub trained: usize,
    /// The number of images that are held out.
    pub held_out: usize,
    /// The particles and images that go through the network at once.
    pub cut: ChunkSize,
}

/// Opens everything that training or evaluation would open, in their order, and plans a training step; `None` if the config
/// trains nothing.
///
/// # Errors
/// Fails as training would before its first step.
pub fn open(experiment: &Experiment, settings: Settings) -> Result<Option<Opening>> {
    let device = settings.device.open()?;
    let session = Session::open(experiment, settings, device, Labels::of(&*experiment.data.dataset)?)?;
    let material = experiment.training.as_ref().map(|_| Material::read(experiment, &session)).transpose()?;
    let seen = material.as_ref().map_or(&Seen::Others, |(_, seen)| seen);
    session.test_images(experiment, seen)?;
    let Some((material, _)) = material else { return Ok(None) };
    let cut = plan_alone(experiment, &session, &material)?;
    let (trained, held_out) = (material.holdout.train.len(), material.holdout.validation.len());
    Ok(Some(Opening { trained, held_out, cut }))
}
