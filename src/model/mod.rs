//! A model: backbone, frozen base and head, with the image preprocessing that the checkpoint expects.

pub mod archive;
pub mod head;
mod preprocess;
mod spec;
pub mod vit;

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::base::tensor::wide;
use crate::data::Interpolation;
use crate::machine::memory::{Cut, Cutter, Need, Task};
use crate::model::archive::Archive;
use crate::model::head::{Checkpoint, Head, HeadSpec, Surroundings};
use crate::model::vit::Base;
use crate::model::vit::footprint::{Graph, Pass};
use crate::model::vit::forward::Vit;
use crate::model::vit::identify::{Fixed, Identified, identify};
use crate::model::vit::weights::Weights;

pub use preprocess::{Normalize, Preprocess};
pub use spec::CheckpointSpec;

/// A checkpoint with its head, on one device, in one compute type.
pub struct Model {
    pub vit: Vit,
    /// Frozen weights in the compute type.
    pub base: Base,
    pub head: Head,
    pub preprocess: Preprocess,
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

/// Opens and self-checks the configured checkpoint.
fn open_checkpoint(spec: &CheckpointSpec) -> Result<(Archive, Identified)> {
    let archive = Archive::open(&spec.path)?;
    let fixed = Fixed { heads: spec.heads, activation: spec.activation, eps: spec.eps };
    let mut identified = identify(&archive, fixed)?;
    if let Some(size) = spec.image_size {
        identified.base = identified.base.at_image_size(size)?;
        identified.vit.geometry = identified.base.geometry.clone();
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
        let (width, traits) = (identified.base.geometry.output, identified.vit.traits);
        let hash = || checkpoint.sha256().map(str::to_string);
        let source = Checkpoint { archive: &archive, traits, hash: &hash, device };
        let head = head.build(&Surroundings { width, classes, own: identified.head.as_ref(), checkpoint: source })?;
        let CheckpointSpec { normalize, interpolation, .. } = *checkpoint;
        Ok(Loaded { identified, head, normalize, interpolation })
    }

    /// Moves everything to where it computes.
    pub fn into_model(self, device: Device, kind: Kind) -> Model {
        let Identified { vit, base, .. } = self.identified;
        let preprocess = Preprocess::new(vit.geometry.image_size(), self.normalize, self.interpolation, (device, kind));
        Model { vit, base: base.to(device, kind), head: self.head.to(device, wide(kind)), preprocess, device, kind }
    }
}

/// What a forward starts from.
pub enum Input {
    /// Images as bytes `[p, B, 3, h, w]`: a fraction of the memory of preprocessed ones, which only those need that go through
    /// the network now.
    Images(Tensor),
    /// What enters a block, `[p, B, T, d]`, and which.
    Tokens(Tensor, usize),
}

impl Input {
    /// The same of some particles and samples.
    pub fn map(&self, of: impl Fn(&Tensor) -> Tensor) -> Input {
        match self {
            Input::Images(images) => Input::Images(of(images)),
            Input::Tokens(tokens, block) => Input::Tokens(of(tokens), *block),
        }
    }
}

impl Model {
    /// The memory of a pass, for each image and for each image of each member.
    pub fn need(&self, graph: Graph) -> Need {
        Pass { vit: &self.vit, kind: self.kind, graph }.need()
    }

    /// Plans passes of one member over batches of `images`, with `fixed` bytes besides.
    ///
    /// # Errors
    /// One image does not fit.
    pub fn plan(&self, what: &str, graph: Graph, (images, fixed): (usize, u64), advice: &str) -> Result<Cutter> {
        let need = self.need(graph);
        let need = Need { fixed: need.fixed + fixed, ..need };
        Task { what, coming: 0, need, whole: Cut { members: 1, images }, members: None, device: self.device, advice }
            .plan()
    }

    /// As [`logits`](Self::logits), from wherever the forward starts.
    pub fn logits_of(&self, weights: &Weights, input: &Input) -> Tensor {
        match input {
            Input::Images(bytes) => self.logits(weights, &self.preprocess.batches(bytes)),
            Input::Tokens(tokens, block) => {
                self.head.logits(weights, &self.vit.features_from(weights, *block, tokens.shallow_clone()))
            }
        }
    }

    /// Logits `[p, B, C]`, in f32 or wider, of preprocessed images `[p, B, 3, S, S]`.
    pub fn logits(&self, weights: &Weights, images: &Tensor) -> Tensor {
        let features = self.vit.features(weights, images);
        self.head.logits(weights, &features)
    }
}
