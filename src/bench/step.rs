//! Complete training steps, timed and split into their parts.

use std::rc::Rc;

use anyhow::{Result, bail};
use tch::{Device, Kind, Tensor, no_grad};

use super::clock::{Clock, Elapsed};
use super::measured::{Feed, Measured};
use super::setup::{Setup, random_batch};
use super::timed::{Given, Spent, TimedObjective, TimedOptimizer, nothing_spent};
use crate::data::batches::Batch;
use crate::experiment::Batches;
use crate::machine::memory::Chunker;
use crate::methods::{Method, Objective, Parts};
use crate::model::Input;
use crate::model::network::Weights;
use crate::subspace::geometry::Geometry;
use crate::train::chunks::Step;
use crate::train::{Learner, Likelihood, Passes};

impl Setup<'_> {
    /// Times training steps as the plan says.
    ///
    /// # Errors
    /// Fails if a step cannot be computed.
    pub(super) fn train(&self, theta: &mut Tensor, found: &mut Measured) -> Result<()> {
        let optimizer_spent = nothing_spent();
        let inner = self.training.optimizer.spec.build(theta);
        let mut method = self.training.method.spec.build(Parts {
            theta: theta.shallow_clone(),
            seed: 1,
            optimizer: Box::new(TimedOptimizer { inner, spent: optimizer_spent.clone() }),
            geometry: Geometry::new(self.subspace.layout()),
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
        let spec = &self.training.train;
        let (model, images, method) = (self.model, spec.batch_size, &*self.training.method.spec);
        let optimizer = &*self.training.optimizer.spec;
        // Theta and what is kept of it are there already.
        Step { spec, model, layout, method, optimizer, images, particles, own: particles, validates: false, coming: 0 }
            .plan()
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
                let tokens = cache.index_select(0, rows).to_device(self.model.device);
                let input = Input::Entering(tokens.unflatten(0, [self.orders(), -1].as_slice()), *block);
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
                let prepared = self.model.preparation.prepare(&batch.samples.unsqueeze(0));
                let cache = no_grad(|| self.model.network.enter_at(&weights, block, &prepared)).squeeze_dim(0);
                let cache = cache.to_device(Device::Cpu);
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
        self.work(images, own_images, from_block).total()
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
    /// The cache, `[K, T, d]`.
    cache: Tensor,
    /// The rows that a step reads.
    rows: Tensor,
    block: usize,
}
