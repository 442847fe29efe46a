//! The network of a config, with weights of the right sizes.

use anyhow::Result;
use tch::{Device, Kind};

use crate::bench::case::Source;
use crate::bench::flops::Sample;
use crate::experiment::Experiment;
use crate::model::described::{Described, laid_out};
use crate::model::folder::home;
use crate::model::network::{Network, Parameters, quantisable};
use crate::model::recognition::identify::Identified;
use crate::model::vit::architecture::{Shape, sizes};
use crate::model::vit::forward::Vit;
use crate::model::vit::parts::Parts;
use crate::model::{Model, Normalize, OpenedCheckpoint, Preparation};
use crate::rehearse::estimate::checkpoint_bytes;
use crate::rehearse::models;
use crate::rehearse::sizes::classes_of;

/// The network of a config. Its weights have sizes; those of a published shape, and those of a language network, take no memory.
pub struct Sized {
    pub name: String,
    pub network: Box<dyn Network>,
    /// The longest sample.
    pub longest: Sample,
    /// The tokens of an image, where a text has one.
    pub patches: Option<i64>,
    /// The tokenizer of a network of texts, where its folder is there.
    pub tokenizer: Option<Result<Box<dyn Preparation>>>,
    pub base: Parameters,
    pub kind: Kind,
    pub checkpoint_bytes: u64,
}

/// The type in which weights are computed with, and the bytes of their file; 0 where there is none.
#[derive(Clone, Copy)]
struct Stored {
    kind: Kind,
    bytes: u64,
}

impl Sized {
    /// Returns the network of the checkpoint's file where it is there, else a published shape of its name, in a type.
    ///
    /// # Errors
    /// Fails if the shape is not known, or if the checkpoint cannot be read.
    pub fn of(experiment: &Experiment, kind: Kind) -> Result<Sized> {
        let spec = &experiment.checkpoint;
        if spec.kind.is_image_tower() {
            return Sized::images(experiment, kind);
        }
        let normalize = spec.normalize.unwrap_or(Normalize::CLIP);
        let found = Described::of(&spec.path, spec.kind, spec.max_tokens, normalize)?;
        let there = checkpoint_bytes(&spec.path);
        Ok(Sized::described(experiment, found, Stored { kind, bytes: there }))
    }

    /// Returns the network of a case of `bella bench`, in a type.
    ///
    /// # Errors
    /// Fails if the checkpoint cannot be read, or if the prompts that are asked for exceed what the network reads.
    pub fn of_source(source: &Source, experiment: &Experiment, kind: Kind) -> Result<Sized> {
        match source {
            Source::Shape(Shape { about, geometry, traits, .. }) => {
                let base = Parameters::without_memory(sizes(geometry), kind);
                let bytes = base.count() as u64 * Kind::Float.elt_size_in_bytes() as u64;
                let vit = Vit::new(geometry.clone(), *traits, Parts::PLAIN);
                Ok(Sized::of_vit(about.to_string(), vit, base, Stored { kind, bytes }))
            }
            Source::Published(published) => {
                let found = published.described(experiment.checkpoint.max_tokens, Normalize::CLIP)?;
                Ok(Sized::described(experiment, found, Stored { kind, bytes: 0 }))
            }
            Source::Checkpoint(_) => Sized::of(experiment, kind),
        }
    }

    fn described(experiment: &Experiment, found: Described, stored: Stored) -> Sized {
        let Stored { kind, bytes: there } = stored;
        let found = found.read_by(experiment.checkpoint.features);
        let base = found.base(kind);
        let Described { name, network, stored } = found;
        let longest = Sample { tokens: Some(network.most_tokens()), side: network.image_side() };
        let (path, patches) = (&experiment.checkpoint.path, network.patches());
        let tokenizer = path.exists().then(|| network.tokenizer(&home(path), experiment.checkpoint.chat.as_ref()));
        let checkpoint_bytes = there.max(base.count() as u64 * stored);
        let network = network.reading(experiment.head.spec.training().rows());
        Sized { name, network, longest, patches, tokenizer, base, kind, checkpoint_bytes }
    }

    fn of_vit(name: String, vit: Vit, base: Parameters, stored: Stored) -> Sized {
        let Stored { kind, bytes: checkpoint_bytes } = stored;
        let longest = Sample::of_image(vit.geometry.image_size());
        // The weights are needed no more, and the device of the estimate may be another one than theirs.
        let sizes = base.all().iter().map(|(name, tensor)| (name.clone(), tensor.size())).collect();
        let base = Parameters::without_memory(sizes, kind);
        Sized { name, network: Box::new(vit), longest, patches: None, tokenizer: None, base, kind, checkpoint_bytes }
    }

    fn images(experiment: &Experiment, kind: Kind) -> Result<Sized> {
        let spec = &experiment.checkpoint;
        let (name, vit, base, bytes) = if spec.path.exists() {
            let mut opened = OpenedCheckpoint::open(spec.local()?, spec.fixed.clone())?;
            opened.fit(spec.image_size, &spec.usual)?;
            let Identified { vit, base, .. } = opened.identified;
            (spec.path.display().to_string(), vit, base, checkpoint_bytes(&spec.path))
        } else {
            let stem =
                spec.path.known_as().file_stem().map_or(String::new(), |stem| stem.to_string_lossy().into_owned());
            let model = models::of_file(&stem).map_err(|_| {
                anyhow::anyhow!(
                    "checkpoint.path: {}: is not there, and its name is that of no published shape: put it there, or name it \
                     such as ViT-B-32.pt",
                    spec.path.display()
                )
            })?;
            let clip = model.clip(model.has_text())?;
            let bytes = clip.blueprint().root.bytes();
            let shape = Shape { key: model.key, about: model.about, geometry: clip.image, traits: clip.traits };
            let (mut vit, mut base) = shape.random(1);
            if let Some(size) = spec.image_size {
                vit.resize(&mut base, size)?;
            }
            (format!("the shape of {}", model.about), vit, base, bytes)
        };
        Ok(Sized::of_vit(name, vit, base.into_kind(Device::Cpu, kind), Stored { kind, bytes }))
    }

    /// Returns a model of this network, with a head of zeros. Its weights are stored as the experiment says.
    ///
    /// # Errors
    /// Fails if a weight of a linear layer is no matrix.
    pub fn model(mut self, experiment: &Experiment) -> Result<Model> {
        if let Some(scheme) = experiment.checkpoint.quantize {
            self.base.lay_out_quantised(&quantisable(&*self.network), scheme)?;
        }
        let classes = classes_of(&*experiment.data.dataset);
        let head = experiment.head.spec.outline(classes as i64, self.network.feature_width());
        Ok(laid_out(self.network, self.base, head, Device::Cpu, self.kind))
    }
}
