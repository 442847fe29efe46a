//! The settings of training, `[subspace.*]`, `[method.*]`, `[optimizer.*]` and `[train]`, and the rules that connect
//! them.

use super::data::{DataSpec, Validation};
use super::train_table::{Batches, Schedule, Selection, TrainSpec};
use crate::base::tensor::{ROOM_TO_TRAIN, ROOM_WITH_FEWER};
use crate::machine::{Chunk, Precision};
use crate::methods::{Entry, MethodContext, MethodSpec, RowsAre, Update, registered};
use crate::optimizers::{OPTIMIZERS, OptimizerSpec, check_rates};
use crate::schema::{Choice, Reader};
use crate::subspace::{SUBSPACES, SubspaceSpec};

/// The settings of training: the subspace, the method, the optimizer and the table `[train]`.
pub struct Training {
    pub subspace: Selected<dyn SubspaceSpec>,
    pub method: Selected<dyn MethodSpec>,
    pub optimizer: Selected<dyn OptimizerSpec>,
    pub train: TrainSpec,
}

/// The purpose of the data set of a config.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Images {
    /// Training and what follows it.
    OfTraining,
    /// The evaluation of a posterior, of which no rule of training is asked.
    OfEvaluation,
}

impl Training {
    /// Returns why the input of the first trained block is not the same for all epochs and all that a step needs; `None` if it may be
    /// kept.
    pub fn why_no_prefix(&self, is_augmented: bool) -> Option<String> {
        let changes = is_augmented.then_some("data.*.augment").or(self.train.mixup.as_ref().map(|_| "train.mixup"));
        match changes {
            Some(key) => Some(format!("{key} changes the images in every epoch; leave one of them out")),
            None if self.method.spec.differentiates_pixels() => {
                Some("the method takes gradients by pixels, which go through all blocks; leave it out".to_string())
            }
            None => None,
        }
    }

    /// Reads the tables that define training.
    pub(super) fn read(
        root: &Reader,
        data: Option<&DataSpec>,
        images: Images,
        head: Option<crate::model::head::Training>,
    ) -> Option<Training> {
        let subspace = choose(root, "subspace", SUBSPACES.iter().map(|e| (e.key, e.read)), |read, r| read(r));
        let context = MethodContext {
            subspace: subspace.as_ref().map_or("", |s| &s.key),
            scaled_by: subspace.as_ref().and_then(|s| s.spec.scaled_by()),
        };
        // A posterior that is evaluated has been trained: the rules of training do not concern it.
        let trains = images == Images::OfTraining;
        let lenient = (!trains).then(|| root.without_rules());
        let reader = lenient.as_ref().unwrap_or(root);
        let method = choose(reader, "method", registered().into_iter().map(|e| (e.key, e)), |entry, r| {
            (entry.read)(r, &context)
        });
        let optimizer = choose(reader, "optimizer", OPTIMIZERS.iter().map(|e| (e.key, e.read)), |read, r| read(r));
        let validation = data.map_or(Validation::HeldOut(0.0), |d| d.validation);
        let shared = method.as_ref().is_some_and(|method| method.spec.needs_shared_batches());
        let batches = if shared { Batches::Shared } else { Batches::Independent };
        let gathers = method.as_ref().is_some_and(|method| method.spec.gathers_posterior());
        let select = if gathers || validation.is_none() { Selection::Last } else { Selection::Best };
        let train = root.table("train", |table| {
            let train = TrainSpec::read(table, batches, select);
            if trains {
                train.check(table, validation);
            }
            train
        });
        let training = Training { subspace: subspace?, method: method?, optimizer: optimizer?, train };
        training.check_chunk(root);
        if trains {
            training.check_optimizer(root);
            training.check_sizes(root);
            training.check_method(root);
            training.check_post_hoc(root, validation);
            head.iter().for_each(|head| training.check_separation(root, *head));
        }
        Some(training)
    }

    /// Returns the registry entry of the method.
    pub fn method_entry(&self) -> Option<&'static Entry> {
        registered().into_iter().find(|entry| entry.key == self.method.key)
    }

    /// Checks that a method that is fitted afterwards has the images that it needs.
    fn check_post_hoc(&self, root: &Reader, validation: Validation) {
        let problem = self.method.spec.post_hoc().and_then(|method| method.check(!validation.is_none()));
        if let Some(problem) = problem {
            root.problem("method", problem);
        }
    }

    /// Checks that no more particles go through the network at once than there are.
    fn check_chunk(&self, root: &Reader) {
        let particles = self.method.spec.particles() as usize;
        if let Chunk::Fixed(count) = self.train.particle_chunk
            && count > particles
        {
            root.problem("train", format!("particle_chunk = {count}: must not exceed the {particles} particles"));
        }
    }

    /// Checks that a batch is not cut into more parts than it has images.
    fn check_sizes(&self, root: &Reader) {
        let parts = self.train.accumulate.parts();
        // A missing batch_size reads as 0 and is a problem of its own.
        if (1..parts).contains(&self.train.batch_size) {
            root.problem("train", format!("accumulate = {parts}: must not exceed batch_size"));
        }
    }

    /// Returns why a step has no activations that could be computed again; `None` where it has.
    fn keeps_activations(&self) -> Option<String> {
        let of_method = self.method.spec.keeps_activations().map(|why| format!("method.{} {why}", self.method.key));
        let of_head = || "subspace.last-layer trains the head alone, below which there is no graph".to_string();
        of_method.or_else(|| (self.subspace.key == "last-layer").then(of_head))
    }

    /// Returns the advice on how to make room for a training step.
    pub fn room(&self) -> &'static str {
        if self.train.recompute || self.keeps_activations().is_some() { ROOM_WITH_FEWER } else { ROOM_TO_TRAIN }
    }

    /// Checks that `[train]` gives the method the batches and the learning rate that it needs.
    fn check_method(&self, root: &Reader) {
        if self.method.spec.needs_shared_batches() && self.train.batches != Batches::Shared {
            let why = format!(
                "batches: method.{} compares the particles' predictions for the same images; leave it out, or set \
                 batches = \"shared\"",
                self.method.key
            );
            root.problem("train", why);
        }
        if let Some(why) = self.keeps_activations().filter(|_| self.train.recompute) {
            root.problem("train", format!("recompute: {why}: leave it out (--unset train.recompute)"));
        }
        self.check_gathering(root);
        self.check_loss(root);
        self.check_ema(root);
        self.check_scaled(root);
        let independent = self.method.spec.has_independent_columns();
        if self.train.loo_samples > 0 && !(independent && self.subspace.key == "low-rank") {
            let why = "loo_samples: needs a Gaussian posterior with independent columns while training: [method.ivon] in [subspace.low-rank]";
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
    }

    /// Checks that a training whose posterior is gathered along the way goes on to its last step.
    fn check_gathering(&self, root: &Reader) {
        if !self.method.spec.gathers_posterior() {
            return;
        }
        if self.train.select == Selection::Best {
            let why = format!(
                "select = \"best-epoch\": the posterior of method.{} is gathered up to the last step, and an earlier epoch has \
                 fewer of its members: leave it out, or set select = \"last-epoch\"",
                self.method.key
            );
            root.problem("train", why);
        }
        if self.train.early_stop.is_some() {
            let why = format!(
                "early_stop: the posterior of method.{} is gathered up to the last step, and a training that ends early has fewer \
                 of its members: leave it out",
                self.method.key
            );
            root.problem("train", why);
        }
    }

    /// Checks that the method has an optimizer if it needs one, with one learning rate for all particles or one for
    /// each.
    fn check_optimizer(&self, root: &Reader) {
        let optimizer = &self.optimizer;
        let halves = matches!(self.train.precision, Precision::Bf16 | Precision::F16);
        if optimizer.spec.needs_f32() && halves {
            let why = format!(
                "precision: \"{}\" loses the differences of gradients of [optimizer.{}]: use \"f32\" or \"auto\"",
                self.train.precision.word(),
                optimizer.key
            );
            root.problem("train", why);
        }
        if let Some(why) = check_rates(optimizer.spec.rates(), self.method.spec.particles()) {
            root.problem("optimizer", format!("{}.lr {why}", optimizer.key));
        }
        self.check_update(root);
    }

    /// Checks that a method with its own update has no optimizer beside it and no option of one, and any other method has an optimizer.
    fn check_update(&self, root: &Reader) {
        let (method, optimizer) = (&self.method, &self.optimizer.key);
        let named = format!("method.{}", method.key);
        let own = match self.method_entry().map(|entry| entry.update) {
            Some(Update::Own) => Some(named.clone()),
            Some(Update::OwnAfter(key)) if !method.spec.starts_by_optimizer() => {
                Some(format!("{named} with {key} = 0"))
            }
            _ => None,
        };
        match &own {
            Some(own) if optimizer != "none" => {
                let why = format!("{own} is its own optimizer: write [optimizer.none] for [optimizer.{optimizer}]");
                root.problem("optimizer", why);
            }
            None if optimizer == "none" => {
                let why = format!("none: {named} needs an optimizer: write [optimizer.adamw] or [optimizer.sgd]");
                root.problem("optimizer", why);
            }
            _ => {}
        }
        let Some(own) = own else { return };
        if let Some(key) = self.train.changed_rate() {
            let why = format!("{key}: {own} is its own optimizer, with one rate for all columns: leave it out");
            root.problem("train", why);
        }
        let is_idle = self.method_entry().is_some_and(|entry| matches!(entry.update, Update::OwnAfter(_)));
        if let Some(key) = self.train.changed_schedule().filter(|_| is_idle) {
            root.problem("train", format!("{key}: {own} has steps of its own length; leave it out"));
        }
        if self.train.clip_norm.is_some() {
            root.problem("train", format!("clip_norm: {own} has its own update; leave it out"));
        }
    }

    /// Checks that particles become different. Those that start equal and see the same images at the same rate would
    /// stay equal.
    fn check_separation(&self, root: &Reader, head: crate::model::head::Training) {
        let rates = self.optimizer.spec.rates();
        let noise_left_out = self.method.spec.noise_left_out();
        if self.method_entry().is_some_and(|entry| entry.rows != RowsAre::Points) && noise_left_out.is_none() {
            return; // The noise of these methods makes particles differ.
        }
        let equal_rates = rates.windows(2).all(|pair| pair[0] == pair[1]);
        let shared = self.train.batches == Batches::Shared;
        if self.method.spec.particles() > 1 && self.subspace.spec.equal_starts(head) && shared && equal_rates {
            let independent = (!self.method.spec.needs_shared_batches()).then_some("batches = \"independent\"");
            let by_rates = (!rates.is_empty()).then_some("one learning rate per particle");
            let ways: Vec<&str> = [independent, by_rates, noise_left_out].into_iter().flatten().collect();
            let why = format!(
                "batches = \"shared\" with subspace.{} and one learning rate: all particles start equal and would stay \
                 equal; use {}",
                self.subspace.key,
                ways.join(" or ")
            );
            root.problem("train", why);
        }
    }
}

/// The selected entry of a registry.
pub struct Selected<T: ?Sized> {
    pub key: String,
    pub spec: Box<T>,
}

/// Reads one of the choice tables with the entries of its registry.
pub fn choose<F: Copy, T: ?Sized>(
    root: &Reader,
    key: &str,
    entries: impl Iterator<Item = (&'static str, F)>,
    read: impl Fn(F, &Reader) -> Box<T>,
) -> Option<Selected<T>> {
    let entries: Vec<(&'static str, F)> = entries.collect();
    let known: Vec<&str> = entries.iter().map(|(key, _)| *key).collect();
    let (key, reader) = root.one_of(key, &known)?;
    let (_, entry) = entries.into_iter().find(|(known, _)| *known == key)?;
    let spec = read(entry, &reader);
    reader.finish();
    Some(Selected { key, spec })
}
