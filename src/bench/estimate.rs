//! The cost of a whole experiment from its config alone: operations over a rate, images over the rate of decoding, the memory
//! of a step by the plan that training itself makes, and bytes on disk. Nothing is trained.
//!
//! [`crate::rehearse`] measures the same experiment instead, and is closer; both take their numbers of images and steps from
//! [`Real`].

use anyhow::{Context, Result, bail, ensure};
use tch::{Device, Kind, Tensor};

use super::flops::{Pass, count};
use crate::base::tensor::wide;
use crate::data::SplitName;
use crate::experiment::{Batches, Experiment, PrefixCache, Training};
use crate::machine::Precision;
use crate::machine::memory::Cut;
use crate::methods::Course;
use crate::model::head::Head;
use crate::model::network::{Network, Parameters};
use crate::model::vit::forward::Vit;
use crate::model::vit::shapes::Shape;
use crate::model::{CheckpointKind, Model, OpenedCheckpoint, Preparation, Preprocess};
use crate::posterior::Predictive;
use crate::rehearse::estimate::{KEPT_IN_MEMORY, checkpoint_bytes};
use crate::rehearse::models;
use crate::rehearse::sizes::{Real, classes_of, official};
use crate::schema::Choice;
use crate::subspace::Subspace;
use crate::train::chunks::Step;

/// The share of the rate of matrix products that a training step reaches: 0.64 to 0.72 were measured on two cores
/// (results/speed.md).
pub const SHARE: f64 = 0.65;

/// The machine that the estimate is for.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// The rate of large matrix products, in floating-point operations per second.
    pub rate: f64,
    /// The number of images that are decoded and resized per second.
    pub image_rate: f64,
    /// The free memory of the computing device, in bytes.
    pub memory: u64,
    /// The type that `train.precision = "auto"` stands for.
    pub auto: Kind,
}

impl Machine {
    fn kind(&self, precision: Precision) -> Kind {
        match precision {
            Precision::Auto => self.auto,
            Precision::F32 => Kind::Float,
            Precision::Bf16 => Kind::BFloat16,
            Precision::F64 => Kind::Double,
        }
    }
}

/// A part of the experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// The floating-point operations.
    pub flop: f64,
    /// The number of images that are decoded.
    pub decoded: f64,
}

impl Part {
    /// Returns the seconds that the part takes. Images are decoded while the step before computes.
    pub fn seconds(&self, machine: &Machine) -> f64 {
        (self.flop / (SHARE * machine.rate)).max(self.decoded / machine.image_rate)
    }
}

/// The expected cost of an experiment.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The name of the shape, or the checkpoint's file where it is there.
    pub network: String,
    pub kind: Kind,
    pub parameters: i64,
    pub particles: i64,
    pub members: i64,
    pub real: Real,
    /// The images of the test split; `None` if no number is published.
    pub test: Option<usize>,
    pub training: Part,
    /// The predictions of held-out images after each epoch.
    pub validation: Part,
    /// The predictions of the test split.
    pub evaluation: Option<Part>,
    /// One FGSM budget on the test split: the gradient of the pixels, and the prediction of what it moves.
    pub attack: Option<Part>,
    /// The particles and images that go through the network at once, and the bytes of that with weights and state.
    pub cut: Cut,
    pub memory_bytes: u64,
    /// The bytes of the checkpoint, the posterior, the resume file and the predictions.
    pub disk_bytes: u64,
}

/// The network of a config, with weights of the right sizes.
struct Sized {
    name: String,
    vit: Vit,
    base: Parameters,
    checkpoint_bytes: u64,
}

/// Returns the network of the checkpoint's file where it is there, else a published shape of its name with random weights.
fn network(experiment: &Experiment) -> Result<Sized> {
    let spec = &experiment.checkpoint;
    ensure!(
        spec.kind == CheckpointKind::Native,
        "checkpoint.kind = \"{}\": operations are counted from a vision transformer's shape, which this one does not \
         show: measure it by a short `bella train` (train.epochs = 1, data.*.subset)",
        spec.kind.word()
    );
    let mut found = if spec.path.exists() {
        let found = OpenedCheckpoint::open(&spec.path, spec.fixed.clone())?.identified;
        let checkpoint_bytes = checkpoint_bytes(&spec.path);
        Sized { name: spec.path.display().to_string(), vit: found.vit, base: found.base, checkpoint_bytes }
    } else {
        let stem = spec.path.file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
        let model = models::of_file(&stem).map_err(|_| {
            anyhow::anyhow!(
                "checkpoint.path: {}: is not there, and its name is that of no published shape: put it there, or name it \
                 such as ViT-B-32.pt",
                spec.path.display()
            )
        })?;
        let clip = model.clip(model.has_text())?;
        let checkpoint_bytes = clip.blueprint().root.bytes();
        let shape = Shape { key: model.key, about: model.about, geometry: clip.image, traits: clip.traits };
        let (vit, base) = shape.random(1);
        Sized { name: format!("the shape of {}", model.about), vit, base, checkpoint_bytes }
    };
    if let Some(size) = spec.image_size {
        found.vit.resize(&mut found.base, size)?;
    }
    Ok(found)
}

/// Returns a model whose weights have the right sizes, with a head of zeros.
fn model(experiment: &Experiment, vit: &Vit, base: &Parameters, kind: Kind) -> Result<Model> {
    let (classes, width) = (classes_of(&*experiment.data.dataset) as i64, vit.geometry.output);
    let zeros = |shape: &[i64]| Tensor::zeros(shape, (wide(kind), Device::Cpu));
    let training = experiment.head.spec.training();
    let normalised = experiment.head.key == "zero-shot";
    let spec = &experiment.checkpoint;
    let place = (Device::Cpu, kind);
    Ok(Model {
        network: Box::new(vit.clone()),
        base: base.to(Device::Cpu, kind),
        head: Head {
            weight: zeros(&[classes, width]),
            bias: zeros(&[classes]),
            normalised,
            training,
            rows: None,
            texts: None,
        },
        preparation: Preparation::Images(Preprocess::new(
            vit.geometry.image_size(),
            spec.normalization()?,
            spec.interpolation,
            place,
        )),
        device: Device::Cpu,
        kind,
    })
}

impl Expected {
    /// Computes the cost of an experiment on a machine.
    ///
    /// # Errors
    /// Fails if the config trains nothing, if its data set publishes no numbers of images, or if the shape of its
    /// checkpoint is not known.
    pub fn new(experiment: &Experiment, machine: &Machine) -> Result<Expected> {
        let training = experiment.training.as_ref().context("the config has nothing to train: nothing to estimate")?;
        if let Course::FitCheckpoint(_) = training.method.spec.course() {
            bail!("method.{}: trains nothing; it takes one prediction of its images", training.method.key);
        }
        let real = Real::of(experiment).with_context(|| {
            let key = &experiment.data.key;
            format!("data.{key}: publishes no number of images: say how many by data.{key}.subset")
        })?;
        let kind = machine.kind(training.train.precision);
        let Sized { name, vit, base, checkpoint_bytes } = network(experiment)?;
        let model = model(experiment, &vit, &base, kind)?;
        let subspace = training.subspace.spec.build(&vit, &base, &model.head)?;
        let case = Case { experiment, training, model: &model, vit: &vit, subspace: &*subspace, real };
        let (cut, memory_bytes) = case.memory(machine);
        let test = official(&*experiment.data.dataset, SplitName::Test);
        let members = case.members();
        let state = crate::train::chunks::state_bytes(training, subspace.layout().parameters());
        let matrix = (training.method.spec.particles() * subspace.layout().parameters() * 4) as u64;
        let posterior = matrix * training.method.spec.matrices_of_the_posterior();
        let predictions = test.unwrap_or(0) as i64 * members * model.head.classes() * 4;
        Ok(Expected {
            network: name,
            kind,
            parameters: subspace.layout().parameters(),
            particles: training.method.spec.particles(),
            members,
            real,
            test,
            training: case.training(),
            validation: case.prediction(real.validation * real.epochs, training.method.spec.particles()),
            evaluation: test.map(|images| case.prediction(images, members)),
            // The gradient of the pixels takes a forward pass and about as much again on the way back. All budgets share the
            // decoded images, which are those of the evaluation.
            attack: test.map(|images| Part { flop: 3.0 * case.prediction(images, members).flop, decoded: 0.0 }),
            cut,
            memory_bytes,
            disk_bytes: checkpoint_bytes + state + 2 * posterior + predictions as u64,
        })
    }

    /// Returns the seconds of the training with its validation.
    pub fn training_seconds(&self, machine: &Machine) -> f64 {
        self.training.seconds(machine) + self.validation.seconds(machine)
    }
}

/// An experiment with its network laid out.
struct Case<'a> {
    experiment: &'a Experiment,
    training: &'a Training,
    model: &'a Model,
    vit: &'a Vit,
    subspace: &'a dyn Subspace,
    real: Real,
}

impl Case<'_> {
    /// Returns the number of members that predict.
    fn members(&self) -> i64 {
        let particles = self.training.method.spec.particles();
        match self.training.method.spec.predictive() {
            Predictive::Draws(draws) => particles * draws as i64,
            Predictive::Particles | Predictive::Mean | Predictive::Linearised(..) => particles,
        }
    }

    fn pass(&self, images: i64, particles: i64, own_images: bool, from_block: Option<usize>) -> Pass<'_> {
        let (layout, classes) = (self.subspace.layout(), self.model.head.classes());
        Pass { geometry: &self.vit.geometry, layout, classes, particles, images, own_images, from_block }
    }

    /// Returns the first trained block, if what enters it is kept for all epochs.
    fn kept_from(&self) -> Option<usize> {
        let first = self.model.network.first_stage(self.subspace.layout());
        let is_kept = self.experiment.data.augment.is_none() && self.training.train.prefix_cache != PrefixCache::Off;
        let values: i64 = self.vit.entering(first).iter().product();
        let bytes = values as u64 * self.real.train as u64 * self.model.kind.elt_size_in_bytes() as u64;
        let fits = self.training.train.prefix_cache != PrefixCache::Auto
            || crate::machine::memory::free_bytes(Device::Cpu).is_none_or(|free| bytes <= free / 2);
        (first > 0 && is_kept && fits).then_some(first)
    }

    /// Returns the share of `passes` passes over `images` images in which they are decoded: all of them, or the first where
    /// they are kept.
    fn decoded(&self, images: usize, passes: f64) -> f64 {
        let dataset = &*self.experiment.data.dataset;
        if dataset.resize().is_none() {
            return 0.0;
        }
        let side = self.vit.geometry.image_size();
        let kept = images as u64 * (3 * side * side) as u64 <= KEPT_IN_MEMORY || self.experiment.data.cache.is_some();
        images as f64 * if kept { 1.0 } else { passes }
    }

    fn training(&self) -> Part {
        let Training { train, method, optimizer, .. } = self.training;
        let particles = method.spec.particles();
        let own = train.batches == Batches::Independent;
        let from = self.kept_from();
        let step = count(&self.pass(train.batch_size as i64, particles, own, from)).total();
        let gradients = method.spec.gradients_of_a_step() + optimizer.spec.gradients_of_a_step();
        let filling = from.map_or(0.0, |from| {
            let whole = count(&self.pass(self.real.train as i64, 1, false, None)).forward;
            whole - count(&self.pass(self.real.train as i64, 1, false, Some(from))).forward
        });
        let passes = if from.is_some() { 1 } else { self.real.epochs };
        // With orders of their own, particles want the images of an epoch at different times.
        let orders = if own && from.is_none() { particles as usize } else { 1 };
        let decoded = self.decoded(self.real.train, (passes * orders) as f64);
        Part { flop: self.real.steps as f64 * step * gradients as f64 + filling, decoded }
    }

    fn prediction(&self, images: usize, members: i64) -> Part {
        let flop = count(&self.pass(images as i64, members, false, None)).forward;
        Part { flop, decoded: self.decoded(images, 1.0) }
    }

    /// Returns the split of a step, and its bytes with the weights.
    fn memory(&self, machine: &Machine) -> (Cut, u64) {
        let weights = (self.model.base.count() * self.model.kind.elt_size_in_bytes()) as u64;
        let Real { train, validation, .. } = self.real;
        let step = Step::of(self.training, self.model, self.subspace.layout(), (train, validation));
        let (cut, bytes) = step.within(machine.memory.saturating_sub(weights));
        (cut, bytes + weights)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Tree;

    const TEXT: &str = "name = \"x\"\nseed = 1\n[checkpoint]\npath = \"nowhere/clip-mini.pt\"\nnormalize = \"clip\"\n\
        [head.zero-shot]\nweights = \"h\"\n[data.cifar10]\nroot = \"d\"\nvalidation = 0.2\n\
        [subspace.low-rank]\nrank = 4\ntargets = [\"mlp.fc\"]\nblocks = \"0\"\n[method.svgd]\nparticles = 3\ngamma = 0.01\n\
        [optimizer.adamw]\nlr = 1e-3\n[train]\nepochs = 2\nbatch_size = 100\n";

    const MACHINE: Machine = Machine { rate: 1e12, image_rate: 100.0, memory: 8 << 30, auto: Kind::BFloat16 };

    fn expected(text: &str) -> Expected {
        let experiment = Experiment::read(&Tree::parse("x.toml", text).unwrap()).unwrap();
        Expected::new(&experiment, &MACHINE).unwrap()
    }

    #[test]
    fn the_cost_is_that_of_its_parts() {
        let found = expected(TEXT);
        assert_eq!((found.real.steps, found.real.validation), (800, 10_000));
        assert_eq!((found.particles, found.members, found.test), (3, 3, Some(10_000)));
        assert_eq!(found.training.decoded, 0.0, "CIFAR's images are stored as pixels");
        let evaluation = found.evaluation.unwrap();
        // Validation predicts as many images in each of two epochs.
        assert!((found.validation.flop / evaluation.flop - 2.0).abs() < 1e-9);
        assert!((evaluation.seconds(&MACHINE) - evaluation.flop / (SHARE * 1e12)).abs() < 1e-12);
        assert!(found.disk_bytes > 2_808_576 * 4 && found.memory_bytes > 2_808_576 * 4);
        assert_eq!(found.cut, Cut { members: 3, images: 100 });
    }

    #[test]
    fn more_gradients_more_particles_and_more_epochs_cost_more() {
        let one = expected(TEXT).training.flop;
        let sharp = expected(&TEXT.replace("particles = 3\n", "particles = 3\nsharpness = 0.05\n")).training.flop;
        assert!((sharp / one - 2.0).abs() < 1e-9);
        let epochs = expected(&TEXT.replace("epochs = 2", "epochs = 4")).training.flop;
        assert!((epochs / one - 2.0).abs() < 1e-9);
        let hessian = expected(&TEXT.replace("adamw", "adahessian")).training.flop;
        assert!((hessian / one - 3.0).abs() < 1e-9);
    }

    #[test]
    fn what_cannot_be_counted_is_refused() {
        let error = |text: &str| {
            let experiment = Experiment::read(&Tree::parse("x.toml", text).unwrap()).unwrap();
            Expected::new(&experiment, &MACHINE).err().unwrap().to_string()
        };
        assert!(error(&TEXT.replace("clip-mini", "my-own")).contains("that of no published shape"));
        let untrained = &TEXT[..TEXT.find("[subspace").unwrap()];
        assert!(error(untrained).contains("nothing to train"));
    }
}
