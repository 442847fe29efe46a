//! A model: a network with its frozen weights, a head, and the preparation of samples for the network.

pub mod archive;
mod backbone;
pub mod chat;
pub mod described;
pub mod encoder;
pub mod families;
pub mod folder;
pub mod head;
pub mod kind;
pub mod language;
pub mod module;
mod native;
pub mod network;
pub mod pieces;
mod preparation;
pub mod recognition;
pub mod sighted;
mod spec;
pub mod stored;
pub mod values;
pub mod vit;

use std::cell::Cell;

use anyhow::{Context, Result, bail, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::wide;
use crate::data::mix::Mixed;
use crate::data::numbers::Scale;
use crate::data::{Fields, Interpolation};
use crate::machine::linear_kernels;
use crate::machine::memory::{ChunkSize, Chunker, MemoryEstimate, Task, return_large};
use crate::machine::workers;
use backbone::{Opened, Parts};
use head::{Checkpoint, Head, HeadContext, HeadSpec};
use network::{Graph, Network, Parameters, Weights, has_large_blocks};
use vit::OwnHead;

pub use backbone::{Alike, Backbone, Setting};
pub use kind::{KindEntry, Outline};
pub use native::OpenedCheckpoint;
pub use preparation::{AsStored, Example, Normalize, Preparation, Preprocess, Texts, Wording};
pub use spec::{CheckpointSpec, Kind as CheckpointKind, checkpoint_name};

/// A network with its weights and its head, on one device and in one compute type.
pub struct Model {
    pub network: Box<dyn Network>,
    /// The frozen weights in the compute type.
    pub base: Parameters,
    pub head: Head,
    pub preparation: Box<dyn Preparation>,
    pub device: Device,
    pub kind: Kind,
}

/// A checkpoint that has been read, self-checked and given a head. It is still in f32 on the CPU.
pub struct Loaded {
    pub tower: Box<dyn Backbone>,
    pub head: Head,
    normalize: Option<Normalize>,
    interpolation: Interpolation,
}

impl Loaded {
    /// Reads a checkpoint and gives it the head that `head` describes. A head that must be computed is computed on
    /// `device`.
    pub fn open(
        checkpoint: &CheckpointSpec,
        head: &dyn HeadSpec,
        classes: &[String],
        device: Device,
    ) -> Result<Loaded> {
        Loaded::with_head(checkpoint, |Opened { tower, text }| {
            let (width, own) = (tower.network().feature_width(), tower.own_head());
            let hash = || checkpoint.sha256().map(str::to_string);
            let source = Checkpoint { path: &checkpoint.path, text: &**text, hash: &hash, device };
            let (words, medium) = (tower.words(), checkpoint.medium());
            head.build(&HeadContext { width, classes, own, words, medium, checkpoint: source })
        })
    }

    /// Reads a checkpoint and gives it the head that `build` makes for it.
    ///
    /// # Errors
    /// Fails if it cannot be read, or if `build` fails.
    pub fn with_head(checkpoint: &CheckpointSpec, build: impl FnOnce(&Opened) -> Result<Head>) -> Result<Loaded> {
        let opened = checkpoint.open()?;
        check_finite(&*opened.tower).with_context(|| checkpoint.path.display().to_string())?;
        let mut head = build(&opened)?;
        head.normalised |= checkpoint.unit_features;
        let mut tower = opened.tower;
        tower.read(head.training.rows());
        tower.quantise(checkpoint.quantize)?;
        let CheckpointSpec { normalize, interpolation, .. } = *checkpoint;
        Ok(Loaded { tower, head, normalize, interpolation })
    }

    /// Returns the same checkpoint, whose head predicts numbers of this scale.
    pub fn scaled(mut self, scale: Option<Scale>) -> Loaded {
        self.head = self.head.scaled(scale);
        self
    }

    /// Moves everything to the device and type in which the model computes.
    ///
    /// # Errors
    /// Fails if a network of images has no normalisation.
    pub fn into_model(self, device: Device, kind: Kind) -> Result<Model> {
        let images = |size: i64| -> Result<Box<dyn Preparation>> {
            let normalize = self.normalize.context("checkpoint.normalize: must be set for a network of images")?;
            Ok(Box::new(Preprocess::new(size, normalize, self.interpolation, (device, kind))))
        };
        let Parts { network, base, preparation } = self.tower.into_parts(&images)?;
        if has_large_blocks(&base, network.blocks()) {
            return_large();
        }
        Ok(Model {
            network,
            base: base.into_kind(device, kind),
            head: self.head.to(device, wide(kind)),
            preparation,
            device,
            kind,
        })
    }
}

/// Checks that the weights of a checkpoint and of its classifier are finite.
fn check_finite(tower: &dyn Backbone) -> Result<()> {
    tower.base().check_finite()?;
    tower.own_head().map_or(Ok(()), OwnHead::check_finite)
}

/// The input of a forward pass.
pub enum Input {
    /// Samples as the data set stores them, by name, `[p, B, …]`. They take a fraction of the memory of prepared samples, so
    /// only those that go through the network now are prepared.
    Stored(Fields),
    /// Images of a data set that are mixed with each other.
    Mixed(Mixed),
    /// Pixels in [0, 1], `[p, B, 3, h, w]`, through which gradients flow.
    Pixels(Tensor),
    /// The input of a stage of the network, `[p, B, …]`, and the index of that stage.
    Entering(Fields, usize),
}

impl Input {
    /// Applies `of` to each tensor, for example to select some particles and samples.
    pub fn map(&self, of: impl Fn(&Tensor) -> Tensor) -> Input {
        match self {
            Input::Stored(samples) => Input::Stored(samples.map(of)),
            Input::Mixed(images) => Input::Mixed(images.map(of)),
            Input::Pixels(pixels) => Input::Pixels(of(pixels)),
            Input::Entering(values, stage) => Input::Entering(values.map(of), *stage),
        }
    }

    /// Makes one of several inputs of the same kind: `join` gets the tensors at the same place in each of them.
    pub fn joined(all: &[Input], join: impl Fn(Vec<Tensor>) -> Tensor) -> Input {
        let place = Cell::new(0);
        all[0].map(|_| {
            let at = place.replace(place.get() + 1);
            join(all.iter().map(|input| input.values()[at].shallow_clone()).collect())
        })
    }

    /// Returns the tensors in the order of [`map`](Self::map).
    fn values(&self) -> Vec<&Tensor> {
        match self {
            Input::Stored(values) | Input::Entering(values, _) => values.values().collect(),
            Input::Mixed(images) => images.values().collect(),
            Input::Pixels(pixels) => vec![pixels],
        }
    }

    /// Returns the number of samples, B.
    pub fn samples(&self) -> i64 {
        match self {
            Input::Stored(values) | Input::Entering(values, _) => values.length(1),
            Input::Mixed(images) => images.own.length(1),
            Input::Pixels(pixels) => pixels.size()[1],
        }
    }
}

impl Model {
    /// Returns the memory of a pass, per sample and per sample of each member.
    pub fn need(&self, graph: Graph) -> MemoryEstimate {
        let need = self.network.need(&self.base, graph, self.kind);
        MemoryEstimate { fixed: need.fixed + self.dequantised_bytes() + self.packed_bytes(), ..need }
    }

    /// Returns the most bytes of packed matrices that products keep beside the frozen ones.
    fn packed_bytes(&self) -> u64 {
        if !self.base.lie_on_cpu() {
            return 0;
        }
        let is_matrix = |(name, tensor): &&(String, Tensor)| tensor.dim() == 2 && !self.base.is_quantised(name);
        let matrices = self.base.all().iter().filter(is_matrix);
        linear_kernels::packed_bytes(self.kind, matrices.map(|(_, tensor)| tensor.numel()))
    }

    /// Returns the bytes of the numbers that products make of quantised weights at the same time.
    fn dequantised_bytes(&self) -> u64 {
        let threads = if self.device == Device::Cpu { workers::threads() as u64 } else { 1 };
        // A slice, and what operations of libtorch make on the way where no loop of bella's serves.
        let beside = if self.device == Device::Cpu { 1 } else { 4 };
        threads * beside * self.base.slice_bytes(self.kind)
    }

    /// Plans passes of one member over batches of `samples` samples, beside `fixed` bytes of other data.
    ///
    /// # Errors
    /// Fails if one sample does not fit in memory.
    pub fn plan(&self, what: &str, graph: Graph, (samples, fixed): (usize, u64), advice: &str) -> Result<Chunker> {
        let need = self.need(graph);
        let need = MemoryEstimate { fixed: need.fixed + fixed, ..need };
        let whole = ChunkSize { members: 1, images: samples };
        Task { what, coming: 0, need, whole, at_most: None, members: None, device: self.device, advice }.plan()
    }

    /// Returns the preprocessing of stored bytes to the network's images.
    ///
    /// # Errors
    /// Fails if the network takes no images.
    pub fn images(&self) -> Result<&Preprocess> {
        self.preparation.images().context("this network takes no images, which this command needs")
    }

    /// Returns the number of pixels per side of the images that the network sees; 0 where it sees none.
    pub fn image_side(&self) -> i64 {
        self.preparation.image_side()
    }

    /// Returns samples as the network takes them, `[p, B, …]`.
    ///
    /// # Errors
    /// Fails on pixels for a network that takes no images, and on the input of a later stage, which is not a sample.
    pub fn prepared(&self, input: &Input) -> Result<Fields> {
        match input {
            Input::Stored(samples) => Ok(self.preparation.prepare(samples)),
            Input::Mixed(images) => Ok(images.prepared(|stored| self.preparation.prepare(stored))),
            Input::Pixels(pixels) => Ok(self.images()?.pixels(pixels)),
            Input::Entering(_, stage) => bail!("what enters stage {stage} is no sample"),
        }
    }

    /// Checks that the network chooses classes.
    ///
    /// # Errors
    /// Fails if it writes answers, or if it predicts a number.
    pub fn check_classes(&self) -> Result<()> {
        self.check_outputs()?;
        ensure!(
            self.head.gaussian.is_none(),
            "this network predicts a number (head.gaussian), and this needs the logits of classes, which it has none of"
        );
        Ok(())
    }

    /// Checks that the head has outputs: logits of classes, or the Gaussian of a number.
    pub fn check_outputs(&self) -> Result<()> {
        ensure!(
            self.head.classes() > 0,
            "this network writes answers (head.answers), and this needs the logits of classes, which it has none of"
        );
        Ok(())
    }

    /// Returns logits `[p', B, C]`, in f32 or wider, from any kind of input.
    ///
    /// # Errors
    /// Fails if [`prepared`](Self::prepared) fails, or for a network that writes answers.
    pub fn logits_of(&self, weights: &Weights, input: &Input) -> Result<Tensor> {
        self.check_outputs()?;
        Ok(self.head.logits(weights, &self.features_of(weights, input)?))
    }

    /// Returns the features `[p', B, d]` before the head, from any kind of input.
    ///
    /// # Errors
    /// Fails if [`prepared`](Self::prepared) fails.
    pub fn features_of(&self, weights: &Weights, input: &Input) -> Result<Tensor> {
        match input {
            Input::Entering(values, stage) => Ok(self.network.features_from(weights, *stage, values.again())),
            samples => Ok(self.network.forward(weights, &self.prepared(samples)?)),
        }
    }

    /// Returns logits `[p', B, C]`, in f32 or wider, for prepared samples `[p, B, …]`.
    pub fn logits(&self, weights: &Weights, samples: &Fields) -> Tensor {
        self.head.logits(weights, &self.network.forward(weights, samples))
    }
}
