//! The checked experiment: the meaning of every key of a config. Every mistake is reported at once, before any weight
//! is read.

mod criterion;
mod data;
mod identity;
pub mod keys;
mod layers;
mod overrides;
mod packing;
mod places;
mod recipe;
mod train_table;
mod training;

use std::cell::OnceCell;

use crate::data::SplitName;
use crate::machine::Chunk;
use crate::methods::PostHoc;
use crate::metrics::NLL;
use crate::model::CheckpointSpec;
use crate::model::head::{HEADS, HeadSpec};
use crate::posterior::{Output, Predictive};
use crate::schema::{Problems, Reader, Resolved, Tree};
use crate::tasks::{self, Task};
use training::{Images, choose};

pub use criterion::Criterion;
pub use data::{DataSpec, Validation};
pub use identity::{Group, column_of, digest_in, digest_of};
pub use layers::{CHOICE_TABLES, full_key, is_part, load_config, may_be_short, over};
pub use overrides::{Overrides, data_table, forget, load_without, on_other_data};
pub use places::Scope;
pub use train_table::{Batches, Ema, LogFormat, PrefixCache, Sampling, Schedule, Selection, TrainSpec};
pub use training::{Selected, Training};

/// The message of commands that train, about a config that trains nothing.
pub const NOTHING_TO_TRAIN: &str =
    "the config has nothing to train: add [subspace.*], [method.*], [optimizer.*] and [train]";

/// The checked settings of a run.
pub struct Experiment {
    /// The name of the experiment; the results of all its runs share one CSV file.
    pub name: String,
    pub seed: u64,
    pub checkpoint: CheckpointSpec,
    pub head: Selected<dyn HeadSpec>,
    pub data: DataSpec,
    /// The task that the head learns from the labels.
    pub task: Box<dyn Task>,
    /// The training settings; absent if the checkpoint is only evaluated.
    pub training: Option<Training>,
    /// The SHA-256 of the files it names, once it has been computed.
    file_hashes: OnceCell<String>,
}

/// The longest name of an experiment in bytes: file systems take 255, and files of its results add to the name.
const LONGEST_NAME: usize = 200;

/// Returns why an experiment cannot have this name: its results would share a file of the results folder that bella
/// writes for another purpose. On some systems, names that differ only in case are the same file.
fn taken(name: &str) -> Option<String> {
    let lower = name.to_lowercase();
    let file = if let Some(other) = lower.strip_suffix("-ood") {
        format!("{other}-ood.csv holds the out-of-distribution results of an experiment `{other}`")
    } else if let Some(other) = lower.strip_suffix("-conformal") {
        format!("{other}-conformal.csv holds the conformal sets of an experiment `{other}`")
    } else if lower == "bench" {
        "bench.csv holds the measurements of `bella bench`".to_string()
    } else {
        return None;
    };
    Some(format!(
        "must not be `bench` or end in `-ood` or `-conformal`: {file}; choose another name, say `{name}-experiment`"
    ))
}

/// Checks that the samples of the data set are of the kind that the network takes, and returns whether they are.
fn check_medium(root: &Reader, checkpoint: &CheckpointSpec, data: &DataSpec) -> bool {
    let (taken, there) = (checkpoint.medium(), data.dataset.medium());
    if taken != there && checkpoint.is_decided() {
        match checkpoint.stranger() {
            Some(why) => root.problem("checkpoint", why),
            None => {
                let why = format!("{} has {there}, but the network of checkpoint.path takes {taken}", data.key);
                root.problem("data", why);
            }
        }
    }
    taken == there
}

/// Checks that nothing trains weights that are stored in fewer bits.
fn check_quantised(root: &Reader, checkpoint: &CheckpointSpec, training: Option<&Training>) {
    let Some(scheme) = checkpoint.quantize else { return };
    if training.is_some_and(|training| training.subspace.key == "full") {
        let why = format!(
            "quantize = \"{scheme}\": subspace.full trains the weights, which are frozen where they are quantised: use \
             [subspace.low-rank], or leave it out"
        );
        root.problem("checkpoint", why);
    }
}

impl Experiment {
    /// Reads and checks a merged config.
    ///
    /// # Errors
    /// Fails with every mistake in it.
    pub fn read(tree: &Tree) -> Result<Experiment, Problems> {
        Experiment::read_from(Reader::root(tree), Images::OfTraining)
    }

    /// Reads and checks a config whose posterior or checkpoint is only evaluated, perhaps on another data set. The rules of
    /// training do not concern it.
    ///
    /// # Errors
    /// Fails with every other mistake in it.
    pub fn read_to_evaluate(tree: &Tree) -> Result<Experiment, Problems> {
        Experiment::read_from(Reader::root(tree), Images::OfEvaluation)
    }

    /// Returns the line that names the command of the config that training runs, if there is one.
    pub fn command(&self) -> Option<String> {
        let command = self.training.as_ref()?.train.on_epoch.as_ref()?;
        Some(format!("train.on_epoch: training runs this command after every epoch: {command}"))
    }

    /// Returns how the posterior predicts unless the command line says otherwise. A checkpoint without training has one
    /// member.
    pub fn predictive(&self) -> Predictive {
        self.training.as_ref().map_or(Predictive::Particles, |training| training.method.spec.predictive())
    }

    /// Returns the predictive with an output and a number of draws, where these are given, or else that of the method.
    pub fn predictive_as(&self, output: Option<Output>, draws: Option<u32>) -> Predictive {
        let own = self.post_hoc().and_then(|method| method.output());
        let samples = draws.map_or(own.map_or(64, |(_, samples)| samples), |draws| draws as usize);
        match (output, draws) {
            (Some(output), _) => Predictive::laplace(output, samples),
            (None, None) => self.predictive(),
            (None, Some(0)) => Predictive::Mean,
            (None, Some(_)) => {
                own.map_or(Predictive::Draws(samples), |(output, _)| Predictive::laplace(output, samples))
            }
        }
    }

    /// Returns the post-hoc method that is fitted around the particles, if there is one.
    pub fn post_hoc(&self) -> Option<&dyn PostHoc> {
        self.training.as_ref()?.method.spec.post_hoc()
    }

    /// Returns the number of members that go through the network at once.
    pub fn particle_chunk(&self) -> Chunk {
        self.training.as_ref().map_or(Chunk::Auto, |training| training.train.particle_chunk)
    }

    /// Returns the number of images per forward pass of a prediction.
    pub fn eval_batch_size(&self) -> usize {
        self.training.as_ref().map_or(256, |training| training.train.eval_batch_size)
    }

    fn read_from(root: Reader, images: Images) -> Result<Experiment, Problems> {
        let name =
            root.string("name").about("Name of the experiment: runs of one name share a results file.").required();
        if name.contains(['/', '\\']) || name.starts_with('.') || name.len() > LONGEST_NAME {
            let rule =
                format!("must be usable as a file name: no slashes, no leading dot, at most {LONGEST_NAME} bytes");
            root.problem("name", rule);
        }
        if let Some(why) = taken(&name) {
            root.problem("name", why);
        }
        let seed = root
            .integer("seed", 0..=i64::MAX)
            .about("Seed of every random draw: data order, initial values, noise.")
            .required() as u64;
        let checkpoint = root.table("checkpoint", CheckpointSpec::read);
        let head = choose(&root, "head", HEADS.iter().map(|e| (e.key, e.read)), |read, reader| read(reader));
        let data = DataSpec::of(&root);
        let trains = ["subspace", "method", "optimizer", "train"].iter().any(|key| root.has(key));
        let head_training = head.as_ref().map(|h| h.spec.training());
        let training = if trains { Training::read(&root, data.as_ref(), images, head_training) } else { None };
        let (Some(mut head), Some(data)) = (head, data) else {
            return Err(root.close(()).err().unwrap_or_default());
        };
        let incomplete = trains && training.is_none();
        if check_medium(&root, &checkpoint, &data) {
            let asked = training.as_ref().filter(|_| images == Images::OfTraining);
            check_learnt(&root, &head, &data, asked);
            asked.iter().for_each(|training| training.check_mixup(&root, &data));
            asked.iter().for_each(|training| training.check_pixels(&root, &data, &checkpoint));
        }
        check_quantised(&root, &checkpoint, training.as_ref());
        // The head is settled now because the resolved config must not change with the data set of an evaluation.
        head.spec.settle(&data.key);
        let (file_hashes, task) = (OnceCell::new(), tasks::of(&*head.spec));
        let experiment = Experiment { name, seed, checkpoint, head, data, task, training, file_hashes };
        let experiment = root.close(experiment)?;
        // A table that could not be read has already been reported.
        debug_assert!(!incomplete);
        Ok(experiment)
    }

    /// Returns the settings as a config that reads back to the same experiment.
    pub fn resolved(&self) -> toml::Table {
        let mut all = toml::Table::new();
        let nest = |key: &str, table: toml::Table| {
            toml::Value::Table(toml::Table::from_iter([(key.to_string(), toml::Value::Table(table))]))
        };
        all.insert("name".into(), self.name.clone().into());
        all.insert("seed".into(), (self.seed as i64).into());
        all.insert("checkpoint".into(), self.checkpoint.resolved().into());
        all.insert("head".into(), nest(&self.head.key, self.head.spec.resolved()));
        all.insert("data".into(), nest(&self.data.key, self.data.resolved()));
        if let Some(training) = &self.training {
            all.insert("subspace".into(), nest(&training.subspace.key, training.subspace.spec.resolved()));
            all.insert("method".into(), nest(&training.method.key, training.method.spec.resolved()));
            all.insert("optimizer".into(), nest(&training.optimizer.key, training.optimizer.spec.resolved()));
            all.insert("train".into(), training.train.resolved().into());
        }
        all
    }
}

/// The largest factor between `ess` and the number of training images that raises no warning.
const FAR: f64 = 2.0;

/// Settings that are allowed and yet hardly meant, once the number of training images is known: a method's file merged over another data
/// set than it was written for.
impl Experiment {
    /// Returns the number of training images that the publisher's numbers, `subset` and the held-out share give; `None`
    /// for a set without published numbers.
    pub fn published_training_images(&self) -> Option<usize> {
        let all = self.data.dataset.published().images_of(SplitName::Train)?;
        let images = match self.data.dataset.resolved().get("subset") {
            None => all,
            Some(toml::Value::Table(of)) => of.get("train").and_then(as_count).unwrap_or(all),
            Some(count) => as_count(count)?,
        };
        Some(match self.data.validation {
            Validation::Published => images,
            Validation::HeldOut(share) => (images as f64 * (1.0 - share)).round() as usize,
        })
    }

    /// Returns a sentence for each setting that does not suit this number of training images.
    pub fn warnings(&self, images: usize) -> Vec<String> {
        let Some(training) = &self.training else { return vec![] };
        let mut warnings = vec![];
        let key = &training.method.key;
        if !training.method.spec.wants_more_samples_than_images()
            && let Some(ess) = training.method.spec.resolved().get("ess").and_then(as_number)
            && (ess > FAR * images as f64 || ess * FAR < images as f64)
        {
            warnings.push(format!(
                "method.{key}.ess = {ess}, but there are {images} training images: it is usually their number"
            ));
        }
        warnings.extend(training.train.warnings(images));
        warnings
    }
}

fn as_count(value: &toml::Value) -> Option<usize> {
    value.as_integer().and_then(|count| count.try_into().ok())
}

fn as_number(value: &toml::Value) -> Option<f64> {
    value.as_float().or(value.as_integer().map(|whole| whole as f64))
}

/// Checks that the head learns labels of this kind, and that training does without classes where there are none. `training` is that
/// of a config that trains.
fn check_learnt(root: &Reader, head: &Selected<dyn HeadSpec>, data: &DataSpec, training: Option<&Training>) {
    let Some(what) = without_classes(root, head, data) else { return };
    if data.label_noise > 0.0 {
        root.problem("data", format!("label_noise: {} are no labels of classes: leave it out", what.are));
    }
    let Some(training) = training else { return };
    what.check_training(root, training);
    let method = &training.method;
    let why = match head.spec.noise() {
        Some(noise) => method.spec.refuses_numbers(noise),
        None => {
            method.spec.needs_classes().then(|| "needs the logits of classes, and free answers have none".to_string())
        }
    };
    if let Some(why) = why {
        root.problem("method", format!("{} {why}: try {}", method.key, what.methods));
    }
}

/// Labels that are learnt in place of classes.
struct Learnt {
    /// The name of such labels, for messages.
    are: &'static str,
    /// The methods that learn them.
    methods: &'static str,
}

const ANSWERS: Learnt = Learnt { are: "free answers", methods: "map, svgd or ivon" };
const NUMBERS: Learnt = Learnt { are: "numbers", methods: "map, ensemble, svgd, mc-dropout, swag, sgld or ivon" };

/// Returns the labels that are learnt in place of classes; `None` for classes, or if the head does not fit the labels, which is reported.
fn without_classes(root: &Reader, head: &Selected<dyn HeadSpec>, data: &DataSpec) -> Option<Learnt> {
    let (writes, asks) = (head.spec.answer_tokens().is_some(), data.dataset.has_free_answers());
    let (predicts, numbers) = (head.spec.noise().is_some(), data.dataset.has_numbers());
    let key = &data.key;
    let why = if asks && !writes {
        format!("{key} has questions with free answers: write [head.answers], or set data.{key}.labels")
    } else if writes && !asks {
        format!("answers: {key} has no free answers: choose another head")
    } else if numbers && !predicts {
        format!("{key} has numbers and no classes: write [head.gaussian]")
    } else if predicts && !numbers {
        format!(
            "{}: {key} has classes and no numbers: choose another head, or name the number where the set has one \
             (data.list.columns.target, data.jsonl.target, data.parquet.target)",
            head.key
        )
    } else {
        return if asks { Some(ANSWERS) } else { numbers.then_some(NUMBERS) };
    };
    root.problem("head", why);
    None
}

impl Learnt {
    fn check_training(&self, root: &Reader, training: &Training) {
        let Learnt { are, .. } = self;
        if training.subspace.key == "last-layer" && *are == ANSWERS.are {
            root.problem("subspace", "last-layer trains a head of classes: use low-rank with targets = [\"lm_head\"]");
        }
        if training.train.select_by != Criterion(&NLL) {
            root.problem("train", format!("select_by: {are} have no metric of classes: leave it out, which means nll"));
        }
        let balanced = (training.train.sampling == Sampling::Balanced).then_some("sampling");
        if let Some(key) = training.train.changed_loss().or(balanced) {
            root.problem("train", format!("{key}: {are} have no classes: leave it out"));
        }
        if training.train.loo_samples > 0 {
            root.problem("train", "loo_samples: leave-one-out losses are those of classes: leave it out");
        }
    }
}
