//! Measures one case: complete training steps split into their parts, predictions, memory, and the rate of matrix
//! products for comparison.

use std::rc::Rc;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor, no_grad};

use super::case::{CLASSES, Choices, Measurable, Source};
use super::clock::{Clock, Elapsed, Samples};
use super::flops::{self, Pass};
use super::rate;
use super::timed::{Given, Spent, TimedObjective, TimedOptimizer, nothing_spent};
use crate::base::tensor::guarded;
use crate::data::batches::Batch;
use crate::experiment::{Batches, Training};
use crate::machine::memory::{self, Cutter, free_bytes, gib};
use crate::methods::{Method, Objective, Parts};
use crate::model::network::Weights;
use crate::model::vit;
use crate::model::{Input, Model};
use crate::predict::{Members, Predictor};
use crate::schema::words;
use crate::subspace::Subspace;
use crate::subspace::geometry::Geometry;
use crate::train::chunks::Step;
use crate::train::{Cut, Likelihood};

/// The number of repetitions of each measurement and their input.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The number of timed training steps; 0 for none.
    pub steps: usize,
    /// The number of timed predictions; 0 for none.
    pub predictions: usize,
    /// The number of untimed repetitions before each measurement.
    pub warmup: usize,
    /// The number of images per prediction.
    pub prediction_images: i64,
    pub feed: Feed,
}

words! {
    /// The input of a training step.
    pub enum Feed {
        /// Bytes of images.
        Images = "images",
        /// Cached output of the blocks below the first trained one.
        Prefix = "prefix",
        /// Given gradients, to time only the method and the optimizer.
        Gradients = "gradients",
    }
}

/// The results of one case.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    pub precision: String,
    pub device: String,
    pub threads: i32,
    pub particle_chunk: usize,
    pub particles: i64,
    pub parameters_per_particle: i64,
    pub base_bytes: u64,
    pub posterior_bytes: u64,
    pub train_peak_bytes: Option<u64>,
    pub predict_peak_bytes: Option<u64>,
    pub train_images: i64,
    pub step: Samples,
    /// The parts of the training step, measured on the CPU only: preparing the images, the forward and backward pass,
    /// the method's own work, and the optimizer.
    pub input: Samples,
    pub gradient: Samples,
    pub method: Samples,
    pub optimizer: Samples,
    pub step_flop: f64,
    pub prediction_images: i64,
    pub prediction: Samples,
    pub prediction_flop: f64,
    pub matmul_rates: Vec<f64>,
}

impl Measured {
    /// Appends another round of the same case.
    pub fn extend(&mut self, other: Measured) {
        self.train_peak_bytes = self.train_peak_bytes.max(other.train_peak_bytes);
        self.predict_peak_bytes = self.predict_peak_bytes.max(other.predict_peak_bytes);
        self.step.extend(other.step);
        self.input.extend(other.input);
        self.gradient.extend(other.gradient);
        self.method.extend(other.method);
        self.optimizer.extend(other.optimizer);
        self.prediction.extend(other.prediction);
        self.matmul_rates.extend(other.matmul_rates);
    }
}

/// A case that is ready to run.
struct Setup<'a> {
    model: &'a Model,
    geometry: &'a vit::Geometry,
    subspace: &'a dyn Subspace,
    training: &'a Training,
    plan: Plan,
    particles: i64,
}

/// Measures one case on a device.
///
/// # Errors
/// Fails if the case does not fit into memory or cannot be computed.
pub fn measure(source: &Source, choices: &Choices, plan: Plan, device: Device) -> Result<Measured> {
    let experiment = choices.experiment(source)?;
    let Some(training) = &experiment.training else { bail!("the bench config trains") };
    let Measurable { model, geometry, base_bytes } = source.model(&experiment, device)?;
    let base = model.base.to(Device::Cpu, Kind::Float);
    let subspace = training.subspace.spec.build(&*model.network, &base, &model.head)?;
    drop(base);
    let (layout, particles) = (subspace.layout(), training.method.spec.particles());
    expect_room(particles, layout.parameters(), device)?;
    let rows: Vec<Tensor> = (0..particles as u64).map(|p| subspace.initial(1, p)).collect::<Result<_>>()?;
    let mut theta = Tensor::stack(&rows, 0).to_kind(Kind::Float).to_device(device);
    drop(rows);

    let stored = training.method.spec.matrices_of_the_posterior();
    let mut found = Measured {
        precision: crate::machine::device::precision_name(model.kind).to_string(),
        device: crate::machine::device::name(device),
        threads: tch::get_num_threads(),
        particles,
        parameters_per_particle: layout.parameters(),
        base_bytes,
        posterior_bytes: stored * (theta.numel() * Kind::Float.elt_size_in_bytes()) as u64,
        train_images: training.train.batch_size as i64,
        prediction_images: plan.prediction_images,
        ..Measured::default()
    };
    let setup = Setup { model: &model, geometry: &geometry, subspace: &*subspace, training, plan, particles };
    setup.run(&mut theta, &mut found)?;
    found.matmul_rates.extend(rate::matmul_rates(device, model.kind)?);
    Ok(found)
}

/// Checks the memory for theta, its gradients and two moments. They are held at once, however the step is split.
fn expect_room(particles: i64, parameters: i64, device: Device) -> Result<()> {
    const MATRICES: u64 = 4;
    let needed = MATRICES * (particles * parameters) as u64 * Kind::Float.elt_size_in_bytes() as u64;
    match free_bytes(device) {
        Some(free) if needed > free => bail!(
            "out of memory: particles, gradients and moments alone take {:.1} GiB, {:.1} are free",
            gib(needed),
            gib(free)
        ),
        _ => Ok(()),
    }
}

impl Setup<'_> {
    /// Trains and predicts as the plan says.
    fn run(&self, theta: &mut Tensor, found: &mut Measured) -> Result<()> {
        let device = self.model.device;
        if self.plan.steps > 0 {
            memory::restart_peak(device);
            guarded("training step", "lower --batch-size, or set --particle-chunk or --recompute", || {
                self.train(theta, found)
            })?;
            found.train_peak_bytes = memory::peak_bytes(device);
            // Only now: the memory that it takes is no part of the peak.
            found.matmul_rates.extend(rate::matmul_rates(device, self.model.kind)?);
        }
        if self.plan.predictions > 0 {
            memory::restart_peak(device);
            guarded("prediction", "lower --prediction-images, or set --particle-chunk", || self.predict(theta, found))?;
            found.predict_peak_bytes = memory::peak_bytes(device);
        }
        Ok(())
    }

    fn train(&self, theta: &mut Tensor, found: &mut Measured) -> Result<()> {
        let optimizer_spent = nothing_spent();
        let inner = self.training.optimizer.spec.build(theta);
        let mut method = self.training.method.spec.build(Parts {
            theta: theta.shallow_clone(),
            seed: 1,
            optimizer: Box::new(TimedOptimizer { inner, spent: optimizer_spent.clone() }),
            geometry: Geometry::new(self.subspace.layout()),
            clip_norm: self.training.train.clip_norm,
        });
        let cutter = self.plan_step()?;
        found.particle_chunk = cutter.cut().members;
        found.step_flop = self.step_flop();
        let material = self.material()?;
        for step in 0..self.plan.warmup + self.plan.steps {
            let mut moved = Moved { method: &mut *method, theta };
            let parts = self.step(&mut moved, (&material, &cutter), &optimizer_spent)?;
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
    fn plan_step(&self) -> Result<Rc<Cutter>> {
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
        (material, cutter): (&Material, &Rc<Cutter>),
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
                let mut likelihood = self.likelihood(batch, tokens.as_ref(), cutter);
                input = preparing.stop();
                moved.advance(&mut likelihood, &gradient)?;
            }
        }
        let step = clock.stop();
        Ok(StepParts { step, input, gradient: gradient.get(), optimizer: optimizer.get() })
    }

    fn likelihood(&self, batch: &Batch, tokens: Option<&Tokens>, cutter: &Rc<Cutter>) -> Likelihood<'_> {
        let spec = &self.training.train;
        let cut = Cut { particle_chunk: 0, accumulate: spec.accumulate.parts(), recompute: spec.recompute };
        let likelihood = match tokens {
            None => Likelihood::new(self.model, self.subspace, cut, batch, self.orders()),
            Some(Tokens { cache, rows, block }) => {
                let tokens = cache.index_select(0, rows).to_device(self.model.device);
                let input = Input::Entering(tokens.unflatten(0, [self.orders(), -1].as_slice()), *block);
                let labels = batch.labels.view([self.orders(), -1]);
                Likelihood::on(self.model, self.subspace, cut, input, labels)
            }
        };
        likelihood.cut_by(cutter.clone())
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

    fn first_block(&self) -> usize {
        self.model.network.first_stage(self.subspace.layout())
    }

    /// Returns the number of data orders: one per particle, or one for all of them.
    fn orders(&self) -> i64 {
        match self.training.train.batches {
            Batches::Independent => self.particles,
            Batches::Shared => 1,
        }
    }

    fn step_flop(&self) -> f64 {
        if self.plan.feed == Feed::Gradients {
            return 0.0;
        }
        let from_block = (self.plan.feed == Feed::Prefix).then(|| self.first_block());
        let images = self.training.train.batch_size as i64;
        let own_images = self.training.train.batches == Batches::Independent;
        flops::count(&self.pass(images, own_images, from_block)).total()
    }

    fn pass(&self, images: i64, own_images: bool, from_block: Option<usize>) -> Pass<'_> {
        Pass {
            geometry: self.geometry,
            layout: self.subspace.layout(),
            classes: CLASSES,
            particles: self.particles,
            images,
            own_images,
            from_block,
        }
    }

    fn predict(&self, theta: &Tensor, found: &mut Measured) -> Result<()> {
        let images = self.plan.prediction_images;
        let members = Members::Rows { subspace: self.subspace, rows: theta };
        let predictor = Predictor::new(self.model, members, self.training.train.particle_chunk);
        let cutter = predictor.plan(images as usize, images as usize)?;
        let batch = random_batch(self.model, images)?;
        for prediction in 0..self.plan.warmup + self.plan.predictions {
            let clock = Clock::start(self.model.device);
            drop(predictor.logits(&cutter, &Input::Stored(batch.samples.unsqueeze(0)))?);
            let elapsed = clock.stop();
            if prediction >= self.plan.warmup {
                found.prediction.push(elapsed);
            }
        }
        found.prediction_flop = flops::count(&self.pass(images, false, None)).forward;
        Ok(())
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

/// Returns random pixels as images, with random labels.
fn random_batch(model: &Model, images: i64) -> Result<Batch> {
    let (size, cpu) = (model.images()?.size(), Device::Cpu);
    let samples = Tensor::randint(256, [images, 3, size, size], (Kind::Uint8, cpu)).to_device(model.device);
    let labels = Tensor::randint(CLASSES, [images], (Kind::Int64, cpu)).to_device(model.device);
    Ok(Batch { samples, labels })
}
