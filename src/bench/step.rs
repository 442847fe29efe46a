//! A case that is ready to run (its network, what is trained of it, and random images), and its complete training steps, timed and
//! split into their parts.

use std::rc::Rc;

use anyhow::{Result, bail};
use tch::{Device, Kind, Tensor, no_grad};

use crate::bench::case::CLASSES;
use crate::bench::flops::{Counting, Pass, Reads, Sample, Work};
use crate::bench::measured::{Clock, Elapsed, Feed, Measured, Plan};
use crate::bench::timed::{Given, Spent, TimedObjective, TimedOptimizer, nothing_spent};
use crate::data::batches::Batch;
use crate::data::fields::{Fields, PIXELS};
use crate::experiment::{Batches, Training};
use crate::machine::memory::Chunker;
use crate::methods::{Method, Objective, Parts};
use crate::model::network::Weights;
use crate::model::{Input, Model};
use crate::subspace::Subspace;
use crate::subspace::geometry::WeightSpace;
use crate::train::chunks::{Images, Step};
use crate::train::{Learner, Likelihood, Passes, rate_factors};

impl Setup<'_> {
    /// Times training steps as the plan says.
    ///
    /// # Errors
    /// Fails if a step cannot be computed.
    pub(super) fn train(&self, theta: &mut Tensor, found: &mut Measured) -> Result<()> {
        let optimizer_spent = nothing_spent();
        let factors = rate_factors(&self.training.train, &*self.model.network, self.subspace.layout())?;
        let inner = self.training.optimizer.spec.build(theta, factors.as_ref());
        let mut method = self.training.method.spec.build(Parts {
            theta: theta.shallow_clone(),
            seed: 1,
            optimizer: Box::new(TimedOptimizer { inner, spent: optimizer_spent.clone() }),
            geometry: WeightSpace::new(self.subspace.layout()),
            clip_norm: self.training.train.clip_norm,
        });
        let chunker = self.plan_step()?;
        found.particle_chunk = chunker.cut().members;
        found.step_flop = self.step_flop();
        let material = self.material()?;
        for step in 0..self.plan.warmup + self.plan.steps {
            let mut moved = Moved { method: &mut *method, theta };
            let parts = self.step(&mut moved, (&material, &chunker), &optimizer_spent)?;
            if step < self.plan.warmup {
                continue;
            }
            found.step.push(parts.step);
            // On a GPU, waiting between the parts of a step would change the cost of the step.
            if self.model.device == Device::Cpu {
                found.input.push(parts.input);
                found.gradient.push(parts.gradient);
                found.optimizer.push(parts.optimizer);
                found.method.push(parts.step.minus(parts.input).minus(parts.gradient).minus(parts.optimizer));
            }
        }
        Ok(())
    }

    /// Decides how many particles and images go through the network at once.
    fn plan_step(&self) -> Result<Rc<Chunker>> {
        let (layout, particles) = (self.subspace.layout(), self.particles as usize);
        let images = Images { train: self.training.train.batch_size, validation: 0 };
        let step = Step::of(self.training, self.model, layout, images);
        // Theta and what is kept of it are there already.
        Step { particles, own: particles, coming: 0, ..step }.plan()
    }

    /// Runs one complete training step and times its parts.
    fn step(
        &self,
        moved: &mut Moved,
        (material, chunker): (&Material, &Rc<Chunker>),
        optimizer: &Spent,
    ) -> Result<StepParts> {
        optimizer.set(Elapsed::NONE);
        let device = self.model.device;
        let clock = Clock::start(device);
        let gradient = nothing_spent();
        let mut input = Elapsed::NONE;
        match material {
            Material::Gradients(gradients) => {
                let mut given = Given { gradients: gradients.shallow_clone() };
                moved.advance(&mut given, &gradient)?;
            }
            Material::Samples { batch, tokens } => {
                let preparing = Clock::start(device);
                let mut likelihood = self.likelihood(batch, tokens.as_ref(), chunker);
                input = preparing.stop();
                moved.advance(&mut likelihood, &gradient)?;
            }
        }
        let step = clock.stop();
        Ok(StepParts { step, input, gradient: gradient.get(), optimizer: optimizer.get() })
    }

    fn likelihood(&self, batch: &Batch, tokens: Option<&Tokens>, chunker: &Rc<Chunker>) -> Likelihood<'_> {
        let passes = Passes::of(&self.training.train);
        let learner = Learner::of_classes(self.model, self.subspace);
        let likelihood = match tokens {
            None => Likelihood::new(learner, passes, batch, self.orders()),
            Some(Tokens { cache, rows, block }) => {
                let tokens = cache.map(|values| values.index_select(0, rows).to_device(self.model.device));
                let input = Input::Entering(tokens.of_particles(self.orders()), *block);
                let labels = batch.labels.view([self.orders(), -1]);
                Likelihood::on(learner, passes, input, labels)
            }
        };
        likelihood.chunked_by(chunker.clone())
    }

    /// Returns random samples, or random gradients.
    fn material(&self) -> Result<Material> {
        if self.plan.feed == Feed::Gradients {
            let gradients =
                Tensor::randn([self.particles, self.subspace.layout().parameters()], (Kind::Float, self.model.device))
                    * 1e-3;
            return Ok(Material::Gradients(gradients));
        }
        let images = self.orders() * self.training.train.batch_size as i64;
        let batch = random_batch(self.model, images)?;
        let block = self.first_block();
        let tokens = match self.plan.feed {
            Feed::Prefix if block == 0 => bail!("a cached prefix needs blocks that are not trained: --blocks 6-11"),
            Feed::Prefix => {
                let weights = Weights::frozen(&self.model.base);
                let prepared = self.model.preparation.prepare(&batch.samples.for_all());
                let cache = no_grad(|| self.model.network.enter_at(&weights, block, &prepared));
                let cache = cache.map(|values| values.squeeze_dim(0).to_device(Device::Cpu));
                let rows = Tensor::arange(images, (Kind::Int64, Device::Cpu)).flip([0]);
                Some(Tokens { cache, rows, block })
            }
            _ => None,
        };
        Ok(Material::Samples { batch, tokens })
    }

    fn step_flop(&self) -> f64 {
        if self.plan.feed == Feed::Gradients {
            return 0.0;
        }
        let from_block = (self.plan.feed == Feed::Prefix).then(|| self.first_block());
        let images = self.training.train.batch_size as i64;
        let own_images = self.training.train.batches == Batches::Independent;
        self.work(images, own_images, from_block).map_or(0.0, |work| work.total())
    }
}

/// The method and the particles that it updates.
struct Moved<'a> {
    method: &'a mut dyn Method,
    theta: &'a mut Tensor,
}

impl Moved<'_> {
    /// Runs one training step. On the CPU, `spent` receives the time of the objective.
    fn advance(&mut self, objective: &mut dyn Objective, spent: &Spent) -> Result<()> {
        let mut timed;
        let objective: &mut dyn Objective = if self.theta.device() == Device::Cpu {
            timed = TimedObjective { inner: objective, spent: spent.clone() };
            &mut timed
        } else {
            objective
        };
        self.method.step(self.theta, objective, 1.0).map(drop)
    }
}

/// The time of one complete training step, split into its parts.
struct StepParts {
    step: Elapsed,
    input: Elapsed,
    gradient: Elapsed,
    optimizer: Elapsed,
}

/// The input of the training steps, the same for each step.
enum Material {
    Gradients(Tensor),
    Samples { batch: Batch, tokens: Option<Tokens> },
}

/// The cached output of the blocks that are not trained.
struct Tokens {
    /// The cache, `[K, …]`.
    cache: Fields,
    /// The rows that a step reads.
    rows: Tensor,
    block: usize,
}

/// A case that is ready to run.
pub struct Setup<'a> {
    pub model: &'a Model,
    pub subspace: &'a dyn Subspace,
    pub training: &'a Training,
    pub plan: Plan,
    pub particles: i64,
}

impl Setup<'_> {
    /// Returns the first block that is trained.
    pub fn first_block(&self) -> usize {
        self.model.network.first_stage(self.subspace.layout())
    }

    /// Returns the number of data orders: one per particle, or one for all of them.
    pub fn orders(&self) -> i64 {
        match self.training.train.batches {
            Batches::Independent => self.particles,
            Batches::Shared => 1,
        }
    }

    /// Returns the operations of a pass and of its gradients; `None` for a module, which computes by its own code.
    pub fn work(&self, images: i64, own_images: bool, from_stage: Option<usize>) -> Option<Work> {
        self.model.network.written()?;
        let (layout, particles) = (self.subspace.layout(), self.particles);
        let pass = Pass { layout, classes: CLASSES, particles, images, own_images, from_stage };
        let (network, base) = (&*self.model.network, &self.model.base);
        let sample = Sample::of_image(self.model.image_side());
        Some(Counting { network, base, sample, reads: Reads::Classes, pass }.work())
    }
}

/// Returns random pixels as images, with random labels.
pub fn random_batch(model: &Model, images: i64) -> Result<Batch> {
    let (size, cpu) = (model.images()?.size(), Device::Cpu);
    let samples = Tensor::randint(256, [images, 3, size, size], (Kind::Uint8, cpu)).to_device(model.device);
    let labels = Tensor::randint(CLASSES, [images], (Kind::Int64, cpu)).to_device(model.device);
    Ok(Batch { samples: Fields::of(PIXELS, samples), labels })
}
