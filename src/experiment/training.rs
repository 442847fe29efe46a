//! The settings of training, `[subspace.*]`, `[method.*]`, `[optimizer.*]` and `[train]`, and the rules that connect
//! them.

use serde::Serialize;

use super::chosen::{Chosen, choose};
use super::data::{DataSpec, Validation};
use crate::machine::{Chunk, Precision};
use crate::methods::{Circumstances, Entry, MethodSpec, RowsAre, Update, registered};
use crate::optimizers::{OPTIMIZERS, OptimizerSpec};
use crate::schema::{Bounds, Choice, Reader, words};
use crate::subspace::{SUBSPACES, SubspaceSpec};

/// The settings of training: the subspace, the method, the optimizer and the table `[train]`.
pub struct Training {
    pub subspace: Chosen<dyn SubspaceSpec>,
    pub method: Chosen<dyn MethodSpec>,
    pub optimizer: Chosen<dyn OptimizerSpec>,
    pub train: TrainSpec,
}

/// The table `[train]`.
#[derive(Serialize)]
pub struct TrainSpec {
    pub epochs: usize,
    pub batch_size: usize,
    pub warmup_steps: usize,
    pub schedule: Schedule,
    pub precision: Precision,
    pub batches: Batches,
    pub select: Selection,
    /// The number of particles in one forward pass.
    pub particle_chunk: Chunk,
    /// The number of parts that a batch is split into; their gradients are added.
    pub accumulate: Accumulate,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip_norm: Option<f64>,
    pub eval_batch_size: usize,
    /// Whether activations within blocks are recomputed in the backward pass instead of being kept.
    #[serde(skip_serializing_if = "is_false")]
    pub recompute: bool,
    pub prefix_cache: PrefixCache,
    /// The number of training images on which the leave-one-out loss is estimated after each epoch; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub loo_samples: usize,
    /// The number of minutes between two writings of the resume file within an epoch.
    pub save_minutes: f64,
    /// The number of epochs without a lower validation NLL after which training ends; `None` for all epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub early_stop: Option<usize>,
}

/// The number of parts that a batch is split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulate {
    /// One part for the method. The images go through the network in as many passes as memory requires.
    Auto,
    /// This many parts. Methods that draw noise draw it again for each part.
    Parts(usize),
}

impl Accumulate {
    /// Returns the number of parts that a method sees.
    pub fn parts(self) -> usize {
        match self {
            Accumulate::Auto => 1,
            Accumulate::Parts(count) => count,
        }
    }
}

impl Serialize for Accumulate {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Accumulate::Auto => serializer.serialize_str("auto"),
            Accumulate::Parts(count) => serializer.serialize_u64(*count as u64),
        }
    }
}

words! {
    /// The learning rate over time, after a linear warm-up.
    pub enum Schedule { Cosine = "cosine", Constant = "constant" }
}
words! {
    /// The order in which particles see the images: each in its own order, or all in the same one.
    pub enum Batches { Independent = "independent", Shared = "shared" }
}
words! {
    /// Where the output of the blocks below the first trained one is cached, one entry per image for all particles and
    /// epochs.
    pub enum PrefixCache {
        /// In memory if it takes at most half of the free memory, else nowhere.
        Auto = "auto",
        Memory = "memory",
        /// In a memory-mapped file of the run's folder, removed after training.
        Disk = "disk",
        Off = "off",
    }
}
words! {
    /// The epoch whose particles become the posterior.
    pub enum Selection {
        /// The epoch with the lowest validation NLL of the averaged logits.
        Best = "best-epoch",
        Last = "last-epoch",
    }
}

/// What the data set of a config is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Images {
    /// Training and what follows it.
    OfTraining,
    /// The evaluation of a run that was trained on other images.
    Others,
}

impl Training {
    /// Reads the tables that define training.
    pub(super) fn read(
        root: &Reader,
        (data, images): (&Option<DataSpec>, Images),
        head: Option<crate::model::head::Training>,
    ) -> Option<Training> {
        let subspace = choose(root, "subspace", SUBSPACES.iter().map(|e| (e.key, e.read)), |read, r| read(r));
        let circumstances = Circumstances { subspace: subspace.as_ref().map_or("", |s| s.spec.key()) };
        let method = choose(root, "method", registered().into_iter().map(|e| (e.key, e)), |entry, r| {
            (entry.read)(r, &circumstances)
        });
        let optimizer = choose(root, "optimizer", OPTIMIZERS.iter().map(|e| (e.key, e.read)), |read, r| read(r));
        let validation = data.as_ref().map_or(Validation::HeldOut(0.0), |d| d.validation);
        let shared = method.as_ref().is_some_and(|method| method.spec.needs_shared_batches());
        let batches = if shared { Batches::Shared } else { Batches::Independent };
        let train = TrainSpec::read(root.section("train"), validation, batches);
        let training = Training { subspace: subspace?, method: method?, optimizer: optimizer?, train };
        training.cross_check(root);
        if images == Images::OfTraining {
            training.check_tuning(root, validation);
        }
        if let Some(head) = head {
            training.check_separation(root, head);
        }
        Some(training)
    }

    /// Returns the registry entry of the method.
    pub fn method_entry(&self) -> Option<&'static Entry> {
        registered().into_iter().find(|entry| entry.key == self.method.key)
    }

    /// Checks that there are images to choose the precision of a prior by.
    fn check_tuning(&self, root: &Reader, validation: Validation) {
        let tuning = self.method.spec.course().laplace().map(|laplace| laplace.tuning);
        if tuning == Some(crate::methods::laplace::Tuning::Validation) && validation.is_none() {
            root.problem(
                "method",
                "laplace.tuning = \"validation\" needs held-out images: set data.*.validation, say to 0.1",
            );
        }
    }

    /// Checks the rules that connect several tables.
    fn cross_check(&self, root: &Reader) {
        self.check_optimizer(root);
        let particles = self.method.spec.particles() as usize;
        if let Chunk::Fixed(count) = self.train.particle_chunk
            && count > particles
        {
            root.problem("train", format!("particle_chunk = {count}: must not exceed the {particles} particles"));
        }
        if self.method.spec.needs_shared_batches() && self.train.batches != Batches::Shared {
            let why = format!(
                "batches: method.{} compares the particles' predictions for the same images; leave it out, or set \
                 batches = \"shared\"",
                self.method.key
            );
            root.problem("train", why);
        }
        let gaussians = self.method_entry().is_some_and(|entry| entry.rows == RowsAre::Gaussians);
        if self.train.loo_samples > 0 && !(gaussians && self.subspace.key == "low-rank") {
            let why = "loo_samples: needs a Gaussian posterior while training: [method.ivon] in [subspace.low-rank]";
            root.problem("train", why);
        }
        if self.method.spec.schedules_rate() && self.train.schedule != Schedule::Constant {
            let why = format!(
                "schedule = \"{}\": method.{} has a schedule of its own: write schedule = \"constant\"",
                self.train.schedule.word(),
                self.method.key
            );
            root.problem("train", why);
        }
        let parts = self.train.accumulate.parts();
        if parts > self.train.batch_size {
            root.problem("train", format!("accumulate = {parts}: must not exceed batch_size"));
        }
    }

    /// Checks that the method has an optimizer if it needs one, with one learning rate for all particles or one for
    /// each.
    fn check_optimizer(&self, root: &Reader) {
        let (particles, method, optimizer) = (self.method.spec.particles() as usize, &self.method.key, &self.optimizer);
        let rates = optimizer.spec.rates();
        if rates.len() > 1 && rates.len() != particles {
            let why = format!(
                "{}.lr has {} learning rates for {particles} particles: give one, or one a particle",
                optimizer.key,
                rates.len()
            );
            root.problem("optimizer", why);
        }
        let own_update = self.method_entry().is_some_and(|entry| entry.update == Update::Own);
        match (own_update, optimizer.key == "none") {
            (true, false) => {
                let written = &optimizer.key;
                let why =
                    format!("method.{method} is its own optimizer: write [optimizer.none] for [optimizer.{written}]");
                root.problem("optimizer", why);
            }
            (false, true) => {
                let why =
                    format!("none: method.{method} needs an optimizer: write [optimizer.adamw] or [optimizer.sgd]");
                root.problem("optimizer", why);
            }
            _ => {}
        }
        if own_update && self.train.clip_norm.is_some() {
            root.problem("train", format!("clip_norm: method.{method} has its own update; leave it out"));
        }
    }

    /// Checks that particles become different. Those that start equal and see the same images at the same rate would
    /// stay equal.
    fn check_separation(&self, root: &Reader, head: crate::model::head::Training) {
        let rates = self.optimizer.spec.rates();
        if self.method_entry().is_some_and(|entry| entry.rows != RowsAre::Points) {
            return; // The noise of these methods makes particles differ.
        }
        let equal_rates = rates.windows(2).all(|pair| pair[0] == pair[1]);
        let shared = self.train.batches == Batches::Shared;
        if self.method.spec.particles() > 1 && self.subspace.spec.equal_starts(head) && shared && equal_rates {
            let why = format!(
                "batches = \"shared\" with subspace.{} and one learning rate: all particles start equal and would stay \
                 equal; use batches = \"independent\" or one learning rate a particle",
                self.subspace.key
            );
            root.problem("train", why);
        }
    }
}

impl TrainSpec {
    /// Reads the table; `batches` is the default of that key.
    fn read(reader: Reader, validation: Validation, batches: Batches) -> TrainSpec {
        let default = if validation.is_none() { Selection::Last } else { Selection::Best };
        let spec = TrainSpec {
            epochs: reader.count("epochs", 1..=1_000_000).about("Passes over the training images.").required(),
            batch_size: reader.count("batch_size", 1..=1_000_000).about("Images in a batch of each particle.").required(),
            warmup_steps: reader.count("warmup_steps", 0..=1_000_000_000).about("Steps over which the learning rate rises from 0.").or(0),
            schedule: reader.choice("schedule").about("Learning rate after the warm-up.").or(Schedule::Cosine),
            precision: reader.choice("precision").about("Number type of forward and backward; masters, kernels and optimizer state are f32.").or(Precision::F32),
            batches: reader.choice("batches").about("Whether each particle has its own order of the images; `shared` is the default of `ibdr`.").or(batches),
            select: reader.choice("select").about("Epoch whose particles become the posterior; `best-epoch`, by validation NLL, where images are held out.").or(default),
            particle_chunk: match reader.count_or_auto("particle_chunk", 0..=1_000_000).about("Particles that go through the network at once; 0 for all, `auto` for as many as memory allows.").or(None) {
                Some(count) => Chunk::Fixed(count),
                None => Chunk::Auto,
            },
            accumulate: reader.count_or_auto("accumulate", 1..=1_000_000).about("Parts that a batch is split into, whose gradients are added; `auto` for one part, cut into as many passes as memory asks for.").or(None).map_or(Accumulate::Auto, Accumulate::Parts),
            clip_norm: reader.float("clip_norm", Bounds::above(0.0)).about("Largest norm of a particle's direction.").optional(),
            eval_batch_size: reader.count("eval_batch_size", 1..=1_000_000).about("Images in a batch of evaluation.").or(256),
            recompute: reader.boolean("recompute").about("Whether activations within blocks are computed again on the way back, instead of being kept.").or(false),
            prefix_cache: reader.choice("prefix_cache").about("Where the output of the blocks below the first trained one is kept.").or(PrefixCache::Auto),
            loo_samples: reader.count("loo_samples", 0..=u32::MAX as usize).about("Training images on which the leave-one-out loss is estimated after each epoch; 0 for none.").or(0),
            save_minutes: reader.float("save_minutes", Bounds::above(0.0)).about("Minutes between two writings of the resume file within an epoch.").or(10.0),
            early_stop: reader.count("early_stop", 1..=1_000_000).about("Epochs without a lower validation NLL after which training ends before its last epoch.").optional(),
        };
        if spec.select == Selection::Best && validation.is_none() {
            reader.problem("select", "best-epoch needs validation images: set data.*.validation, say to 0.2");
        }
        if spec.early_stop.is_some() && validation.is_none() {
            reader.problem("early_stop", "needs validation images: set data.*.validation, say to 0.2");
        }
        reader.finish();
        spec
    }
}

/// Makes serde omit the default, so that runs keep their identity.
fn is_false(flag: &bool) -> bool {
    !flag
}

/// Makes serde omit the default, so that runs keep their identity.
fn is_zero(count: &usize) -> bool {
    *count == 0
}
