//! A model: backbone, frozen base and head, with the image preprocessing that the checkpoint expects.

use anyhow::Result;
use tch::{Device, Kind, Tensor};

use crate::backbone::Base;
use crate::backbone::footprint::{Graph, Pass};
use crate::backbone::identify::{Fixed, Identified, identify};
use crate::backbone::vit::Vit;
use crate::backbone::weights::Weights;
use crate::checkpoint::Archive;
use crate::config::{CheckpointSpec, Experiment, Normalize};
use crate::data::Interpolation;
use crate::head::{Checkpoint, Head, Surroundings};
use crate::memory::{Cut, Cutter, Need, Task};
use crate::tensor::wide;

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
    /// Reads the checkpoint and the head of an experiment; a head that must be computed is on `device`.
    pub fn open(experiment: &Experiment, classes: &[String], device: Device) -> Result<Loaded> {
        let (archive, identified) = open_checkpoint(&experiment.checkpoint)?;
        let (width, traits) = (identified.base.geometry.output, identified.vit.traits);
        let hash = || experiment.checkpoint_hash().map(str::to_string);
        let checkpoint = Checkpoint { archive: &archive, traits, hash: &hash, device };
        let surroundings = Surroundings { width, classes, own: identified.head.as_ref(), checkpoint };
        let head = experiment.head.spec.build(&surroundings)?;
        let CheckpointSpec { normalize, interpolation, .. } = experiment.checkpoint;
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
        Task { what, need, whole: Cut { members: 1, images }, members: None, device: self.device, advice }.plan()
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

/// From stored bytes to what the network sees.
pub struct Preprocess {
    size: i64,
    mean: Tensor,
    std: Tensor,
    interpolation: Interpolation,
    kind: Kind,
}

impl Preprocess {
    /// For images of `size` pixels a side, computed on a device in a type.
    pub fn new(
        size: i64,
        normalize: Normalize,
        interpolation: Interpolation,
        (device, kind): (Device, Kind),
    ) -> Preprocess {
        let channels =
            |values: &[f64; 3]| Tensor::from_slice(values).to_kind(wide(kind)).to_device(device).view([1, 3, 1, 1]);
        let (mean, std) = (channels(&normalize.mean), channels(&normalize.std));
        Preprocess { size, mean, std, interpolation, kind }
    }

    /// Pixels a side at which the network sees images.
    pub fn size(&self) -> i64 {
        self.size
    }

    /// Bytes `[K, 3, h, w]` as pixels in [0, 1].
    pub fn unit(&self, bytes: &Tensor) -> Tensor {
        bytes.to_kind(wide(self.kind)) / 255.0
    }

    /// The filter by which images get that size.
    pub fn interpolation(&self) -> Interpolation {
        self.interpolation
    }

    /// Pixels in [0, 1] `[K, 3, h, w]` at the network's size: antialiased, clipped; differentiable.
    pub fn resize(&self, pixels: &Tensor) -> Tensor {
        let size = pixels.size();
        if size[2] == self.size && size[3] == self.size {
            return pixels.shallow_clone();
        }
        let to = [self.size, self.size];
        match self.interpolation {
            // Bicubic interpolation leaves [0, 1].
            Interpolation::Bicubic => pixels.internal_upsample_bicubic2d_aa(to, false, None, None).clamp(0.0, 1.0),
            Interpolation::Bilinear => pixels.internal_upsample_bilinear2d_aa(to, false, None, None),
        }
    }

    /// Pixels in [0, 1] `[K, 3, S, S]` to normalised images in the compute type.
    pub fn normalise(&self, pixels: &Tensor) -> Tensor {
        ((pixels - &self.mean) / &self.std).to_kind(self.kind)
    }

    /// Bytes `[p, B, 3, h, w]` to normalised images `[p, B, 3, S, S]`.
    pub fn batches(&self, bytes: &Tensor) -> Tensor {
        self.images(&bytes.flatten(0, 1), bytes.size()[0])
    }

    /// Bytes `[p·B, 3, h, w]` to normalised images `[p, B, 3, S, S]`.
    pub fn images(&self, bytes: &Tensor, particles: i64) -> Tensor {
        // In place where nobody else holds the tensor: a batch is too large to be allocated anew for each operation.
        let mut pixels = self.resize(&bytes.to_kind(wide(self.kind)).g_div_scalar_(255.0));
        let images = pixels.g_sub_(&self.mean).g_div_(&self.std).to_kind(self.kind);
        images.view([particles, -1, 3, self.size, self.size])
    }
}
