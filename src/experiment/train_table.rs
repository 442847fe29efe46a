//! The table `[train]`: the loop of training, its batches, and how they are cut to fit in memory.

use std::ops::RangeInclusive;

use anyhow::{Result, bail, ensure};
use serde::Serialize;

use super::criterion::Criterion;
use super::data::Validation;
use crate::data::mix::Mixup;
use crate::machine::{Chunk, Precision};
use crate::metrics::NLL;
use crate::schema::{Bounds, CommandLine, Field, Reader, Setting, settings, words};

settings! {
    /// The table `[train]`; `batches` and `select` are the defaults of these keys.
    pub struct TrainSpec(batches: Batches, select: Selection) {
        /// Passes over the training images.
        pub epochs: usize, in 1..=1_000_000;
        /// Images in a batch of each particle.
        pub batch_size: usize, in 1..=1_000_000;
        /// Steps over which the learning rate rises from 0.
        pub warmup_steps: usize = 0, in 0..=1_000_000_000;
        /// Learning rate after the warm-up.
        pub schedule: Schedule = Schedule::Cosine;
        /// Factor of the learning rate of a trained head.
        pub head_rate: f64 = 1.0, in above(0.0), omit 1.0;
        /// Factor of the learning rate from each block to the one below it, as in timm: the head has 1, the last block, with what follows
        /// it, this factor, and what comes before the blocks one more than the first.
        pub layer_decay: f64 = 1.0, in above(0.0), omit 1.0;
        /// Factor of the learning rate of the factors B of low-rank updates (LoRA+).
        pub b_rate: f64 = 1.0, in above(0.0), omit 1.0;
        /// Number type of forward and backward; masters and optimizer state are f32, and distances and kernels of particles f64.
        pub precision: Precision = Precision::F32;
        /// Whether each particle has its own order of the images; `shared` is the default of `ibdr`, and of `svgd` with any `space` but `weights`.
        pub batches: Batches = batches;
        /// Epoch whose posterior is kept; `best-epoch`, by `select_by`, where images are held out and the method
        /// does not gather its posterior along the training, as `swag` and the samplers do.
        pub select: Selection = select;
        /// Metric of the held-out images, of averaged logits, by which `best-epoch` and `early_stop` compare epochs; an epoch without a
        /// value, as `auroc_entropy_error` is without a mistake, gains nothing.
        pub select_by: Criterion = Criterion(&NLL), omit Criterion(&NLL);
        /// Weights of the classes in the loss, `balanced` or one number each, as in torch's cross-entropy; equal if nothing is set.
        pub class_weights: Option<ClassWeights>, in above(0.0);
        /// Share of the loss in which every class is the label, as in torch's cross-entropy.
        pub label_smoothing: f64 = 0.0, in from_below(0.0, 1.0), omit 0.0;
        pub mixup: Option<Mixup>, by |table| table.table_if_given("mixup", Mixup::read);
        pub ema: Option<Ema>, by |table| table.table_if_given("ema", Ema::read);
        /// Order of the images in an epoch: each once, or drawn with replacement so that all classes are as likely.
        pub sampling: Sampling = Sampling::Shuffled, omit Sampling::Shuffled;
        /// Particles that go through the network at once; 0 for all, `auto` for as many as memory allows.
        pub particle_chunk: Chunk = Chunk::Auto, in 0..=1_000_000;
        /// Parts that a batch is split into, whose gradients are added; `auto` for one part, cut into as many passes as
        /// memory asks for.
        pub accumulate: Accumulate = Accumulate::Auto, in 1..=1_000_000;
        /// Largest norm of a particle's direction.
        pub clip_norm: Option<f64>, in above(0.0);
        /// Images in a batch of evaluation.
        pub eval_batch_size: usize = 256, in 1..=1_000_000;
        /// Whether activations within blocks are computed again on the way back, instead of being kept.
        pub recompute: bool = false, omit false;
        /// Where the output of the blocks below the first trained one is kept.
        pub prefix_cache: PrefixCache = PrefixCache::Auto;
        /// Number of training images, chosen at random by the seed, on which the leave-one-out loss is estimated after each epoch; 0 for none.
        pub loo_samples: usize = 0, in 0..=u32::MAX as usize, omit 0;
        /// Minutes between two writings of the resume file within an epoch.
        pub save_minutes: f64 = 10.0, in above(0.0);
        /// Epochs without a gain in `select_by` after which training ends before its last epoch.
        pub early_stop: Option<usize>, in 1..=1_000_000;
        /// Formats in which training is logged in the run's folder, beside `train.csv`.
        pub log: Vec<LogFormat>, unset Vec::new(), omit Vec::new();
        /// Command that gets the row of each epoch as JSON on its standard input.
        pub on_epoch: Option<CommandLine>;
        /// Seconds after which the command of `on_epoch` is stopped; 60 if nothing is set.
        pub on_epoch_seconds: Option<f64>, in above(0.0);
    }
}

/// The number of parts that a batch is split into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accumulate {
    /// One part for the method. The images go through the network in as many passes as memory requires.
    Auto,
    /// A number of parts. Methods that draw noise draw it again for each part.
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

impl Setting for Accumulate {
    type Range = RangeInclusive<usize>;

    fn field(reader: &Reader, key: &str, range: RangeInclusive<usize>) -> Field<Accumulate> {
        reader.count_or_auto(key, range).map(|parts| parts.map_or(Accumulate::Auto, Accumulate::Parts))
    }

    fn stand_in() -> Accumulate {
        Accumulate::Auto
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

/// The weights of the classes in the loss.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassWeights {
    /// N / (C N_c) for the N_c of N training images that are of class c.
    Balanced,
    /// One number for each class.
    Numbers(Vec<f64>),
}

impl ClassWeights {
    /// Returns the weights, given the number of training images of each class.
    ///
    /// # Errors
    /// Fails if there are not as many numbers as classes, or if a class has no image by which to balance it.
    pub fn numbers(&self, images: &[usize]) -> Result<Vec<f64>> {
        let classes = images.len();
        let all: usize = images.iter().sum();
        match self {
            ClassWeights::Numbers(numbers) => {
                let given = numbers.len();
                ensure!(
                    given == classes,
                    "train.class_weights: has {given} numbers for {classes} classes: give one a class"
                );
                Ok(numbers.clone())
            }
            ClassWeights::Balanced => {
                if let Some(class) = images.iter().position(|images| *images == 0) {
                    bail!("train.class_weights = \"balanced\": class {class} has no training image: give numbers");
                }
                Ok(images.iter().map(|images| all as f64 / (classes * images) as f64).collect())
            }
        }
    }
}

impl Setting for ClassWeights {
    type Range = Bounds;

    fn field(reader: &Reader, key: &str, range: Bounds) -> Field<ClassWeights> {
        let named = |numbers: Option<Vec<f64>>| numbers.map_or(ClassWeights::Balanced, ClassWeights::Numbers);
        reader.floats_or_word(key, "balanced", range).map(named)
    }

    fn stand_in() -> ClassWeights {
        ClassWeights::Balanced
    }
}

impl Serialize for ClassWeights {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            ClassWeights::Balanced => serializer.serialize_str("balanced"),
            ClassWeights::Numbers(numbers) => numbers.serialize(serializer),
        }
    }
}

words! {
    /// The order of the training images in an epoch.
    pub enum Sampling {
        /// Each image is drawn once.
        Shuffled = "shuffled",
        /// Images are drawn with replacement, as many times as there are images, each with a probability inverse to the number
        /// of images of its class.
        Balanced = "balanced",
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
        /// The best epoch by a metric of the held-out images.
        Best = "best-epoch",
        Last = "last-epoch",
    }
}

impl TrainSpec {
    /// Returns the first key whose value gives columns a learning rate of their own.
    pub fn changed_rate(&self) -> Option<&'static str> {
        let keys = [("head_rate", self.head_rate), ("layer_decay", self.layer_decay), ("b_rate", self.b_rate)];
        keys.into_iter().find(|(_, factor)| *factor != 1.0).map(|(key, _)| key)
    }

    /// Returns the first key that asks for another schedule of the learning rate than the usual or a constant one.
    pub fn changed_schedule(&self) -> Option<&'static str> {
        let warms_up = (self.warmup_steps > 0).then_some("warmup_steps");
        warms_up.or((self.schedule == Schedule::Linear).then_some("schedule"))
    }

    /// Returns the first key whose value changes the loss of a label.
    pub(super) fn changed_loss(&self) -> Option<&'static str> {
        let smoothed = (self.label_smoothing > 0.0).then_some("label_smoothing");
        let mixed = self.mixup.as_ref().map(|_| "mixup");
        self.class_weights.as_ref().map(|_| "class_weights").or(smoothed).or(mixed)
    }

    /// Returns a sentence for each setting that so few steps on this number of training images leave without its effect.
    pub(super) fn warnings(&self, images: usize) -> Vec<String> {
        let (epochs, steps) = (self.epochs, self.epochs * images.div_ceil(self.batch_size));
        let mut warnings = vec![];
        if self.warmup_steps >= steps {
            warnings.push(format!(
                "train.warmup_steps = {} of {steps} steps: the learning rate never reaches its value",
                self.warmup_steps
            ));
        }
        if self.ema.as_ref().is_some_and(|ema| ema.decay_at(steps) == 0.0) {
            warnings.push(format!(
                "train.ema: of {steps} steps the average forgets all but the last one: lower update_after_step, or raise decay"
            ));
        }
        if let Some(patience) = self.early_stop.filter(|patience| patience + 1 >= epochs) {
            warnings.push(format!(
                "train.early_stop = {patience} of {epochs} epochs: training cannot end before its last one"
            ));
        }
        warnings
    }

    /// Reports mistakes of several keys together, in a config that trains.
    pub(super) fn check(&self, reader: &Reader, validation: Validation) {
        if self.select == Selection::Best && validation.is_none() {
            reader.problem("select", "best-epoch needs validation images: set data.*.validation, say to 0.2");
        }
        if self.early_stop.is_some() && validation.is_none() {
            reader.problem("early_stop", "needs validation images: set data.*.validation, say to 0.2");
        }
        if self.select_by != Criterion(&NLL) && self.select != Selection::Best && self.early_stop.is_none() {
            reader.problem("select_by", "has no meaning without select = \"best-epoch\" or early_stop");
        }
        if self.mixup.is_some() && self.class_weights.is_some() {
            let why = "has two labels an image, and class weights are those of one: leave class_weights or mixup out";
            reader.problem("mixup", why);
        }
        if self.mixup.is_some() && self.batch_size == 1 {
            reader.problem("mixup", "a batch of one image has nothing to mix it with: raise batch_size");
        }
        if self.on_epoch_seconds.is_some() && self.on_epoch.is_none() {
            reader.problem("on_epoch_seconds", "has no meaning without on_epoch");
        }
    }
}

settings! {
    /// The table `[train.ema]`. Its keys are those of timm's `ModelEmaV3`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Ema {
        /// Weight of the average in each step; that of theta is one minus it.
        decay: f64, in from_below(0.0, 1.0);
        /// Steps after which averaging begins; until then the average is theta.
        update_after_step: usize = 0, in 0..=1_000_000_000;
        /// Whether the weight rises to `decay` by 1 − (1 + t / γ)^−p, t the steps since averaging began.
        use_warmup: bool = false;
        /// The γ of this rule.
        warmup_gamma: f64 = 1.0, in above(0.0);
        /// The p of this rule.
        warmup_power: f64 = 2.0 / 3.0, in above(0.0);
    } then check
}

impl Ema {
    fn check(&self, table: &Reader) {
        for key in ["warmup_gamma", "warmup_power"] {
            if table.sets(key) && !self.use_warmup {
                table.problem(key, "has no meaning without use_warmup = true");
            }
        }
    }

    /// Returns the weight of the average in step number `step`, from 1.
    pub fn decay_at(&self, step: usize) -> f64 {
        let steps = step.saturating_sub(self.update_after_step + 1);
        match (steps, self.use_warmup) {
            (0, _) => 0.0,
            (_, false) => self.decay,
            (steps, true) => {
                let risen = 1.0 - (1.0 + steps as f64 / self.warmup_gamma).powf(-self.warmup_power);
                risen.min(self.decay)
            }
        }
    }
}
