//! A model: a network with its frozen weights and a head, and what it does to samples before they enter.

pub mod archive;
pub mod folder;
pub mod head;
pub mod network;
mod preprocess;
mod spec;
pub mod vit;

use anyhow::{Result, bail};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::wide;
use crate::data::Interpolation;
use crate::machine::memory::{Cut, Cutter, Need, Task};
use crate::model::archive::Archive;
use crate::model::head::{Checkpoint, Head, HeadSpec, Surroundings};
use crate::model::network::{Graph, Network, Parameters, Weights};
use crate::model::vit::identify::{Fixed, Identified, identify};

pub use preprocess::{Normalize, Preparation, Preprocess};
pub use spec::CheckpointSpec;

/// A network with its weights and its head, on one device, in one compute type.
pub struct Model {
    pub network: Box<dyn Network>,
    /// Frozen weights in the compute type.
    pub base: Parameters,
    pub head: Head,
    pub preparation: Preparation,
    pub device: Device,
    pub kind: Kind,
}

/// A checkpoint that was read, self-checked and given a head; still in f32 on the CPU.
pub struct Loaded {
    pub identified: Identified,
    pub head: Head,
    normalize: Normalize,
    interpolation: Interpolation,
}

/// Opens the configured checkpoint: an archive, which is self-checked, or a folder.
fn open_checkpoint(spec: &CheckpointSpec) -> Result<(Option<Archive>, Identified)> {
    let fixed = Fixed { heads: spec.heads, activation: spec.activation, eps: spec.eps };
    let (archive, mut identified, usual) = if spec.path.is_dir() {
        (None, folder::identify(&spec.path, fixed)?, folder::Preprocessing::of(&spec.path).image_size)
    } else {
        let archive = Archive::open(&spec.path)?;
        let identified = identify(&archive, fixed)?;
        (Some(archive), identified, None)
    };
    // A folder may say that its images are prepared at another size than the one of its position embeddings.
    let usual = usual.filter(|size| size % identified.vit.geometry.patch == 0);
    if let Some(size) = spec.image_size.or(usual) {
        identified.vit.resize(&mut identified.base, size)?;
    }
    Ok((archive, identified))
}

impl Loaded {
    /// Reads a checkpoint and gives it the head that `head` describes; a head that must be computed is on `device`.
    pub fn open(
        checkpoint: &CheckpointSpec,
        head: &dyn HeadSpec,
        classes: &[String],
        device: Device,
    ) -> Result<Loaded> {
        let (archive, identified) = open_checkpoint(checkpoint)?;
        let (width, traits) = (identified.vit.width(), identified.vit.traits);
        let hash = || checkpoint.sha256().map(str::to_string);
        let source = Checkpoint { archive: archive.as_ref(), traits, hash: &hash, device };
        let head = head.build(&Surroundings { width, classes, own: identified.head.as_ref(), checkpoint: source })?;
        let CheckpointSpec { normalize, interpolation, .. } = *checkpoint;
        Ok(Loaded { identified, head, normalize, interpolation })
    }

    /// Moves everything to where it computes.
    pub fn into_model(self, device: Device, kind: Kind) -> Model {
        let Identified { vit, base, .. } = self.identified;
        let preprocess = Preprocess::new(vit.geometry.image_size(), self.normalize, self.interpolation, (device, kind));
        Model {
            network: Box::new(vit),
            base: base.to(device, kind),
            head: self.head.to(device, wide(kind)),
            preparation: Preparation::Images(preprocess),
            device,
            kind,
        }
    }
}

/// What a forward starts from.
pub enum Input {
    /// Samples as the data set stores them, `[p, B, …]`: a fraction of the memory of prepared ones, which only those need
    /// that go through the network now.
    Stored(Tensor),
    /// Pixels in [0, 1], `[p, B, 3, h, w]`, through which gradients flow.
    Pixels(Tensor),
    /// What enters a stage of the network, `[p, B, …]`, and which.
    Entering(Tensor, usize),
}

impl Input {
    /// The same of some particles and samples.
    pub fn map(&self, of: impl Fn(&Tensor) -> Tensor) -> Input {
        match self {
            Input::Stored(samples) => Input::Stored(of(samples)),
            Input::Pixels(pixels) => Input::Pixels(of(pixels)),
            Input::Entering(values, stage) => Input::Entering(of(values), *stage),
        }
    }

    /// The number B of samples.
    pub fn samples(&self) -> i64 {
        let (Input::Stored(values) | Input::Pixels(values) | Input::Entering(values, _)) = self;
        values.size()[1]
    }
}

impl Model {
    /// The memory of a pass, for each sample and for each sample of each member.
    pub fn need(&self, graph: Graph) -> Need {
        self.network.need(graph, self.kind)
    }

    /// Plans passes of one member over batches of `samples`, with `fixed` bytes besides.
    ///
    /// # Errors
    /// One sample does not fit.
    pub fn plan(&self, what: &str, graph: Graph, (samples, fixed): (usize, u64), advice: &str) -> Result<Cutter> {
        let need = self.need(graph);
        let need = Need { fixed: need.fixed + fixed, ..need };
        let whole = Cut { members: 1, images: samples };
        Task { what, need, whole, members: None, device: self.device, advice }.plan()
    }

    /// The way from stored bytes to the network's images.
    ///
    /// # Errors
    /// A network that takes no images.
    pub fn images(&self) -> Result<&Preprocess> {
        match &self.preparation {
            Preparation::Images(preprocess) => Ok(preprocess),
            Preparation::AsStored => bail!("this network takes no images, which this command needs"),
        }
    }

    /// Samples as the network takes them, `[p, B, …]`.
    ///
    /// # Errors
    /// Pixels for a network that takes no images; what enters a stage, which is no sample.
    pub fn prepared(&self, input: &Input) -> Result<Tensor> {
        match input {
            Input::Stored(samples) => Ok(self.preparation.prepare(samples)),
            Input::Pixels(pixels) => {
                let (images, size) = (self.images()?, pixels.size());
                let normalised = images.normalise(&images.resize(&pixels.flatten(0, 1)));
                Ok(normalised.view([size[0], size[1], 3, images.size(), images.size()]))
            }
            Input::Entering(_, stage) => bail!("what enters stage {stage} is no sample"),
        }
    }

    /// Logits `[p', B, C]`, in f32 or wider, from wherever the forward starts.
    ///
    /// # Errors
    /// Those of [`prepared`](Self::prepared).
    pub fn logits_of(&self, weights: &Weights, input: &Input) -> Result<Tensor> {
        match input {
            Input::Entering(values, stage) => {
                let features = self.network.features_from(weights, *stage, values.shallow_clone());
                Ok(self.head.logits(weights, &features))
            }
            samples => Ok(self.logits(weights, &self.prepared(samples)?)),
        }
    }

    /// Logits `[p', B, C]`, in f32 or wider, of prepared samples `[p, B, …]`.
    pub fn logits(&self, weights: &Weights, samples: &Tensor) -> Tensor {
        self.head.logits(weights, &self.network.forward(weights, samples))
    }
}
