//! The table `[train]`: the loop of training, its batches, and how they are cut to fit in memory.

use serde::Serialize;

use super::data::Validation;
use crate::machine::{Chunk, Precision};
use crate::schema::{Bounds, CommandLine, Reader, words};

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
    /// The formats in which training is logged beside `train.csv`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogFormat>,
    /// The command that gets the row of each epoch as JSON on its standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_epoch: Option<CommandLine>,
    /// The seconds after which that command is stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_epoch_seconds: Option<f64>,
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
    pub enum Schedule { Cosine = "cosine", Linear = "linear", Constant = "constant" }
}
words! {
    /// A format in which training is logged.
    pub enum LogFormat { TensorBoard = "tensorboard" }
}
words! {
    /// The order in which particles see the images: each in its own order, or all in the same one.
    pub enum Batches { Independent = "independent", Shared = "shared" }
}
words! {
    /// The place where the output of the blocks below the first trained one is cached, one entry per image for all particles
    /// and epochs.
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

impl TrainSpec {
    /// Reads the table; `batches` and `select` are the defaults of these keys. Without `validation` the rules of training are not
    /// checked, since nothing is trained.
    pub(super) fn read(
        reader: Reader,
        validation: Option<Validation>,
        (batches, select): (Batches, Selection),
    ) -> TrainSpec {
        let spec = TrainSpec {
            epochs: reader.count("epochs", 1..=1_000_000).about("Passes over the training images.").required(),
            batch_size: reader
                .count("batch_size", 1..=1_000_000)
                .about("Images in a batch of each particle.")
                .required(),
            warmup_steps: reader
                .count("warmup_steps", 0..=1_000_000_000)
                .about("Steps over which the learning rate rises from 0.")
                .or(0),
            schedule: reader.choice("schedule").about("Learning rate after the warm-up.").or(Schedule::Cosine),
            precision: reader
                .choice("precision")
                .about("Number type of forward and backward; masters, kernels and optimizer state are f32.")
                .or(Precision::F32),
            batches: reader
                .choice("batches")
                .about("Whether each particle has its own order of the images; `shared` is the default of `ibdr`.")
                .or(batches),
            select: reader
                .choice("select")
                .about(
                    "Epoch whose posterior is kept; `best-epoch`, by validation NLL, where images are held out and the \
                     method does not gather its posterior along the training, as `swag` and the samplers do.",
                )
                .or(select),
            particle_chunk: match reader
                .count_or_auto("particle_chunk", 0..=1_000_000)
                .about("Particles that go through the network at once; 0 for all, `auto` for as many as memory allows.")
                .or(None)
            {
                Some(count) => Chunk::Fixed(count),
                None => Chunk::Auto,
            },
            accumulate: reader
                .count_or_auto("accumulate", 1..=1_000_000)
                .about(
                    "Parts that a batch is split into, whose gradients are added; `auto` for one part, cut into as \
                     many passes as memory asks for.",
                )
                .or(None)
                .map_or(Accumulate::Auto, Accumulate::Parts),
            clip_norm: reader
                .float("clip_norm", Bounds::above(0.0))
                .about("Largest norm of a particle's direction.")
                .optional(),
            eval_batch_size: reader
                .count("eval_batch_size", 1..=1_000_000)
                .about("Images in a batch of evaluation.")
                .or(256),
            recompute: reader
                .boolean("recompute")
                .about("Whether activations within blocks are computed again on the way back, instead of being kept.")
                .or(false),
            prefix_cache: reader
                .choice("prefix_cache")
                .about("Where the output of the blocks below the first trained one is kept.")
                .or(PrefixCache::Auto),
            loo_samples: reader
                .count("loo_samples", 0..=u32::MAX as usize)
                .about("Training images on which the leave-one-out loss is estimated after each epoch; 0 for none.")
                .or(0),
            save_minutes: reader
                .float("save_minutes", Bounds::above(0.0))
                .about("Minutes between two writings of the resume file within an epoch.")
                .or(10.0),
            early_stop: reader
                .count("early_stop", 1..=1_000_000)
                .about("Epochs without a lower validation NLL after which training ends before its last epoch.")
                .optional(),
            log: reader
                .choices("log")
                .about("Formats in which training is logged in the run's folder, beside `train.csv`.")
                .optional()
                .unwrap_or_default(),
            on_epoch: reader
                .command("on_epoch")
                .about("Command that gets the row of each epoch as JSON on its standard input.")
                .optional(),
            on_epoch_seconds: reader
                .float("on_epoch_seconds", Bounds::above(0.0))
                .about("Seconds after which the command of `on_epoch` is stopped; 60 if nothing is set.")
                .optional(),
        };
        if let Some(validation) = validation {
            spec.check(&reader, validation);
        }
        reader.finish();
        spec
    }

    fn check(&self, reader: &Reader, validation: Validation) {
        if self.select == Selection::Best && validation.is_none() {
            reader.problem("select", "best-epoch needs validation images: set data.*.validation, say to 0.2");
        }
        if self.early_stop.is_some() && validation.is_none() {
            reader.problem("early_stop", "needs validation images: set data.*.validation, say to 0.2");
        }
        if self.on_epoch_seconds.is_some() && self.on_epoch.is_none() {
            reader.problem("on_epoch_seconds", "has no meaning without on_epoch");
        }
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
