//! The set-up that training and evaluation share: device, threads, the model, image sets and the subspace.

mod named;
mod opened;
mod posterior;
mod precision;

use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context, Result, anyhow, ensure};
use tch::{Device, Kind, Tensor};

use self::precision::kind_of;
use crate::base::tensor::first_line;
use crate::data::augment::Views;
use crate::data::batches::{SampleSet, TestImages};
use crate::data::labels::Labels;
use crate::data::lines::Line;
use crate::data::order::replace_labels;
use crate::data::overlap::{Overlap, Seen};
use crate::data::versions::Version;
use crate::data::{Dataset, Inputs, Request, Split, SplitName};
use crate::experiment::{Experiment, Validation};
use crate::machine::device::{DeviceChoice, precision_name};
use crate::machine::parallel::ProcessGroup;
use crate::machine::{Precision, memory, wait};
use crate::model::stored::StoredNames;
use crate::model::{Loaded, Model};
use crate::subspace::Subspace;

pub use named::Named;
pub use opened::{Computing, Opened};
pub use posterior::{Prepared, prepare};

/// The memory in bytes up to which all images of a set of image files are decoded once. It is not a share of the free
/// memory, because a resumed run must see the images in the same form.
const MEMORY_BYTES: usize = 2 << 30;

/// The places in which decoded images may be kept.
struct Room<'a> {
    memory_bytes: usize,
    cache: Option<&'a Path>,
}

impl Room<'_> {
    fn of(experiment: &Experiment) -> Room<'_> {
        Room { memory_bytes: MEMORY_BYTES, cache: experiment.data.cache.as_deref() }
    }
}

/// The settings of the computation, which come from the command line and not from a config.
#[derive(Clone, Debug)]
pub struct Settings {
    pub device: DeviceChoice,
    /// The threads of libtorch; its own choice if absent.
    pub threads: Option<i32>,
    /// The number of threads that decode images.
    pub workers: usize,
    /// The compute type, if it differs from the config's.
    pub precision: Option<Precision>,
    /// The results folder.
    pub out: PathBuf,
}

impl Settings {
    /// Returns the device of this process among those that train together: its own GPU, or a part of the machine's memory.
    /// It must be opened before any tensor is created or read from a file, because libtorch asks only once which devices
    /// exist.
    ///
    /// # Errors
    /// Fails if there is no such device.
    pub fn open_device(&self, group: &ProcessGroup) -> Result<Device> {
        let place = group.place();
        memory::divide_among(place.neighbours);
        self.device.open_for(place.local_rank)
    }

    /// Returns the settings for what follows a training: in f32 where this machine does not compute in the number type of the training.
    pub fn after_training(self, experiment: &Experiment, device: Device) -> Settings {
        Settings { precision: precision::after_training(experiment, self.precision, device), ..self }
    }
}

/// Checks that a layer is trained whose weights the checkpoint does not have.
fn check_trained(layer: &str, subspace: Option<&dyn Subspace>, experiment: &Experiment) -> Result<()> {
    let weight = format!("{layer}.weight");
    let is_trained =
        subspace.is_some_and(|subspace| subspace.layout().columns.iter().any(|column| column.name == weight));
    ensure!(
        is_trained,
        "checkpoint.features = \"pooled\": {} has no weights of `{layer}`, so that the layer is new: train it whole by [subspace.low-rank] with \
         whole = [\"{layer}\"], or by [subspace.full]; or read other features (\"first\", \"mean\")",
        experiment.checkpoint.path.display()
    );
    Ok(())
}

/// A model ready to compute, with the subspace of the experiment if it has one.
pub struct Session {
    pub settings: Settings,
    /// The processes that train and predict together.
    pub group: Rc<ProcessGroup>,
    pub device: Device,
    pub model: Model,
    pub subspace: Option<Box<dyn Subspace>>,
    pub classes: Vec<String>,
    /// The family of the parameters' names in the checkpoint, such as `timm`.
    pub naming: &'static str,
    /// The names that the parameters have in the checkpoint.
    pub names: StoredNames,
    /// The layer whose weights are new, since the checkpoint has none for it.
    pub new_layer: Option<&'static str>,
    /// The relative difference of the native forward pass from the archive's own, if the archive ran.
    pub self_check_difference: Option<f64>,
}

/// The training split of an experiment, with the hashes by which it is known.
pub struct TrainingImages {
    pub images: SampleSet,
    /// The hash of the samples as the user's own files list them (see [`Split::listing`]); `None` of other sets.
    pub listing: Option<String>,
    /// The fingerprint of the samples with the labels that training sees.
    pub fingerprint: String,
    /// The training images with which test images are compared.
    pub seen: Seen,
}

/// The images of the test sets of an experiment.
pub struct TestSets {
    /// Each with its label in results.
    pub tests: Vec<(String, TestImages)>,
    /// The test images that are among the training images.
    pub overlap: Vec<Overlap>,
}

impl Session {
    /// Reads the checkpoint and moves it to the device, for this process alone.
    pub fn open(
        experiment: &Experiment,
        settings: Settings,
        device: Device,
        labels: impl Into<Labels>,
    ) -> Result<Session> {
        let Labels { classes, scale } = labels.into();
        ensure!(
            classes.len() > 1 || scale.is_some(),
            "data.{}: {} class ({}): there is nothing to tell apart: at least two classes are needed",
            experiment.data.key,
            classes.len(),
            classes.join(", ")
        );
        // Always set, so that a resumed run has the same set-up as the first one.
        tch::set_num_threads(settings.threads.unwrap_or_else(tch::get_num_threads));
        wait::announce();
        tracing::debug!("threads: {}, which wait in the way `{}`", tch::get_num_threads(), wait::of_environment());
        let kind = kind_of(experiment, settings.precision, device)?;
        let reading = crate::base::logging::doing("reading the checkpoint");
        let loaded = Loaded::open(&experiment.checkpoint, &*experiment.head.spec, &classes, device)?.scaled(scale);
        loaded.tower.check_kind(kind)?;
        let deviations = experiment.checkpoint.deviations(experiment.data.dataset.resize());
        deviations.iter().for_each(|deviation| tracing::warn!("{deviation}"));
        let self_check_difference = loaded.tower.announce();
        let (network, base) = (loaded.tower.network(), loaded.tower.base());
        let subspace = match &experiment.training {
            Some(training) => Some(training.subspace.spec.build(network, base, &loaded.head)?),
            None => None,
        };
        let new_layer = loaded.tower.new_layer();
        if let Some(layer) = new_layer {
            check_trained(layer, subspace.as_deref(), experiment)?;
        }
        let (naming, names) = (loaded.tower.naming(), loaded.tower.names());
        let model = loaded.into_model(device, kind)?;
        reading.finish_and_clear();
        let group = Rc::new(ProcessGroup::alone());
        Ok(Session {
            settings,
            group,
            device,
            model,
            subspace,
            classes,
            naming,
            names,
            new_layer,
            self_check_difference,
        })
    }

    /// Returns the session of this process among those that train together, with its share of the cores unless the command
    /// line sets the threads.
    ///
    /// # Errors
    /// Fails as [`Session::open`] does, or if the processes compute in different number types.
    pub fn open_among(
        experiment: &Experiment,
        mut settings: Settings,
        device: Device,
        labels: impl Into<Labels>,
        group: Rc<ProcessGroup>,
    ) -> Result<Session> {
        let place = group.place();
        if group.size() > 1 {
            settings.threads = settings.threads.or(Some(place.cores as i32));
            settings.workers = settings.workers.min(place.cores);
        }
        let mut session = Session::open(experiment, settings, device, labels)?;
        group.agree("the precision", precision_name(session.model.kind))?;
        session.group = group;
        Ok(session)
    }

    /// Returns the trained subspace.
    pub fn subspace(&self) -> Result<&dyn Subspace> {
        self.subspace.as_deref().context("the config has no [subspace.*], so there is nothing to train")
    }

    /// Reads the images of every test set, and warns of those that are among the training images.
    pub fn test_images(&self, experiment: &Experiment, seen: &Seen) -> Result<TestSets> {
        let serve = |split: Split| TestImages::new(split, self.device, self.settings.workers);
        let mut overlap = Vec::new();
        let tests = experiment.data.each_test_set(|label, set| {
            let split = self.load_test(experiment, set)?;
            overlap.extend(seen.overlap(label, &split)?);
            Ok((label.to_string(), serve(split)?))
        })?;
        overlap.iter().for_each(|found| tracing::warn!("{found}"));
        Ok(TestSets { tests, overlap })
    }

    /// Reads the test split of one of several test sets.
    pub fn load_test(&self, experiment: &Experiment, set: &dyn Dataset) -> Result<Split> {
        let load = |request: &Request| set.load(SplitName::Test, request);
        self.read(experiment, Room::of(experiment), load)
    }

    /// Reads the published validation split, if the config asks for it.
    pub fn published_validation(&self, experiment: &Experiment) -> Result<Option<Split>> {
        match experiment.data.validation {
            Validation::HeldOut(_) => Ok(None),
            Validation::Published => {
                let split = self.load(experiment, SplitName::Val);
                split.with_context(|| format!("data.{}.validation = \"val\"", experiment.data.key)).map(Some)
            }
        }
    }

    /// Reads the training split, with random views if the config asks for them.
    pub fn training_images(&self, experiment: &Experiment) -> Result<TrainingImages> {
        let mut split = self.load_published(experiment, SplitName::Train)?;
        let listing = experiment.data.is_own().then(|| split.listing());
        self.replace_labels(experiment, &split.name, &mut split.labels);
        let (fingerprint, seen) = (split.fingerprint(), Seen::of(&split));
        let (seed, interpolation) = (experiment.seed, experiment.checkpoint.interpolation);
        let views = experiment.data.augment.map(|augment| Views { augment, seed, interpolation });
        let images = SampleSet::training(split, self.device, self.settings.workers, views)?;
        Ok(TrainingImages { images, listing, fingerprint, seen })
    }

    /// Reads one split; training labels get the noise that the config asks for.
    pub fn load(&self, experiment: &Experiment, name: SplitName) -> Result<Split> {
        let mut split = self.load_published(experiment, name)?;
        if name == SplitName::Train {
            self.replace_labels(experiment, &split.name, &mut split.labels);
        }
        Ok(split)
    }

    /// Replaces the labels of the training split `name` that `label_noise` selects.
    pub fn replace_labels(&self, experiment: &Experiment, name: &str, labels: &mut [u32]) {
        if experiment.data.label_noise > 0.0 {
            let (classes, share) = (self.classes.len(), experiment.data.label_noise);
            let replaced = replace_labels(experiment.seed, labels, classes, share);
            tracing::warn!("{name}: {} of {} labels replaced (label_noise)", replaced.len(), labels.len());
        }
    }

    /// Reads one split with the labels of its publisher.
    pub fn load_published(&self, experiment: &Experiment, name: SplitName) -> Result<Split> {
        // Random crops are cut out of the stored images, so these must not be reduced to their centre first.
        let crops = name == SplitName::Train && experiment.data.augment.is_some_and(|augment| augment.crops());
        let room = if crops { Room { memory_bytes: 0, cache: None } } else { Room::of(experiment) };
        let load = |request: &Request| experiment.data.dataset.load(name, request);
        self.read(experiment, room, load)
    }

    /// Reads one published corrupted version of the test split.
    pub fn load_version(&self, experiment: &Experiment, version: &Version) -> Result<Split> {
        let load = |request: &Request| experiment.data.dataset.load_version(version, request);
        self.read(experiment, Room::of(experiment), load)
    }

    /// Reads the questions about images of the lines of files, which need no answers.
    pub fn asked(&self, experiment: &Experiment, lines: &[Line]) -> Result<SampleSet> {
        let load = |request: &Request| experiment.data.dataset.asked(lines, request);
        SampleSet::new(
            self.read(experiment, Room { memory_bytes: MEMORY_BYTES, cache: None }, load)?,
            self.device,
            self.settings.workers,
        )
    }

    /// Reads a split with `load`, giving it a memory limit and a cache folder.
    fn read(&self, experiment: &Experiment, room: Room, load: impl Fn(&Request) -> Result<Split>) -> Result<Split> {
        let bar = crate::base::logging::doing("decoding");
        let progress = |done, total| crate::base::logging::advance(&bar, done, total);
        let Room { memory_bytes, cache } = room;
        let split = load(&Request {
            image_size: self.model.image_side() as usize,
            interpolation: experiment.checkpoint.interpolation,
            crop_pct: experiment.checkpoint.crop_pct,
            centre: experiment.checkpoint.usual.centre,
            cache,
            memory_bytes,
            keeps_corrupt: false,
            workers: self.settings.workers,
            progress: &progress,
        })?;
        let split = self.tokenized(split)?;
        bar.finish_and_clear();
        if let Some(corrupt) = &split.corrupt {
            tracing::warn!("{}: {} corrupt images left out", split.name, corrupt.count);
        }
        let medium = split.inputs.medium();
        ensure!(!split.is_empty(), "{}: has no {medium}", split.name);
        tracing::info!("{}: {} {medium}", split.name, split.len());
        Ok(split)
    }

    /// Returns a split whose texts or questions have their tokens.
    fn tokenized(&self, mut split: Split) -> Result<Split> {
        match &mut split.inputs {
            Inputs::Texts(texts) => texts.tokens = self.model.preparation.tokens(&split.name, &texts.prompts)?,
            Inputs::Questions(questions) => {
                questions.tokens = self.model.preparation.questions(&split.name, questions)?;
            }
            _ => {}
        }
        Ok(split)
    }

    /// Returns the starting `theta: [n, P]`, in f32 on the device.
    pub fn initial_theta(&self, seed: u64, particles: i64) -> Result<Tensor> {
        let subspace = self.subspace()?;
        let theta = Tensor::f_empty([particles, subspace.layout().parameters()], (Kind::Float, self.device));
        let theta = theta.map_err(|e| anyhow!("{}", first_line(&e)))?;
        for particle in 0..particles {
            theta.get(particle).copy_(&subspace.initial(seed, particle as u64)?);
        }
        Ok(theta)
    }
}
