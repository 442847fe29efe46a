//! The network of a config, with weights of the right sizes.

use anyhow::{Result, bail};
use tch::{Device, Kind};

use crate::bench::case::Source;
use crate::bench::flops::Sample;
use crate::experiment::Experiment;
use crate::model::described::{Described, Text, laid_out};
use crate::model::network::{Network, Parameters};
use crate::model::vit::architecture::{Shape, sizes};
use crate::model::vit::forward::Vit;
use crate::model::vit::parts::Parts;
use crate::model::{CheckpointKind, Model, Normalize, OpenedCheckpoint, language};
use crate::rehearse::estimate::checkpoint_bytes;
use crate::rehearse::models;
use crate::rehearse::sizes::classes_of;
use crate::schema::Choice;

/// The network of a config. Its weights have sizes; those of a published shape, and those of a language network, take no memory.
pub struct Sized {
    pub name: String,
    pub network: Box<dyn Network>,
    pub counted: Counted,
    pub base: Parameters,
    pub kind: Kind,
    pub checkpoint_bytes: u64,
}

/// The sizes from which operations are counted.
#[derive(Clone)]
pub enum Counted {
    Images { side: i64 },
    Texts(CountedTexts),
}

/// The language network that operations are counted from.
#[derive(Clone)]
pub struct CountedTexts {
    pub geometry: language::Geometry,
    /// The number of patches of an image and the token that stands for one, where the network sees images.
    pub sight: Option<(i64, u32)>,
    /// The number of pixels per side of an image; 0 without one.
    pub side: i64,
    /// The most tokens of a prompt.
    pub most: i64,
}

impl Counted {
    /// Returns the number of pixels per side of what the network sees; 0 where it sees no images.
    pub fn side(&self) -> i64 {
        match self {
            Counted::Images { side } => *side,
            Counted::Texts(texts) => texts.side,
        }
    }
}

impl CountedTexts {
    fn of(network: &Text) -> CountedTexts {
        let language = network.language();
        let (geometry, most) = (language.geometry.clone(), language.tokens);
        let Text::Llava(llava) = network else { return CountedTexts { geometry, sight: None, side: 0, most } };
        let eyes = &llava.sight.eyes;
        let sight = (llava.sight.patches(), eyes.token as u32);
        CountedTexts { geometry, sight: Some(sight), side: eyes.image_size, most }
    }

    /// Returns a prompt of so many tokens.
    pub fn prompt(&self, tokens: i64) -> Sample {
        match self.sight {
            None => Sample::Text { tokens },
            Some(_) => Sample::Question { tokens, side: self.side },
        }
    }
}

impl Sized {
    /// Returns the network of the checkpoint's file where it is there, else a published shape of its name, in a type.
    ///
    /// # Errors
    /// Fails if the shape is not known, or if the checkpoint cannot be read.
    pub fn of(experiment: &Experiment, kind: Kind) -> Result<Sized> {
        let spec = &experiment.checkpoint;
        match spec.kind {
            CheckpointKind::Language | CheckpointKind::VisionLanguage => {
                let normalize = spec.normalize.unwrap_or(Normalize::CLIP);
                let found = Described::of(&spec.path, spec.kind, spec.max_tokens, normalize)?;
                let there = checkpoint_bytes(&spec.path);
                Ok(Sized::described(experiment, found, (kind, there)))
            }
            CheckpointKind::Native => Sized::images(experiment, kind),
            CheckpointKind::Encoder => bail!(
                "checkpoint.kind = \"{}\": the operations of text encoders are not estimated: measure them by a short `bella train` \
                 (train.epochs = 1, data.*.subset)",
                spec.kind.word()
            ),
            CheckpointKind::Module => bail!(
                "checkpoint.kind = \"{}\": operations are counted from a network's shape, which a module does not show: measure it \
                 by a short `bella train` (train.epochs = 1, data.*.subset)",
                spec.kind.word()
            ),
        }
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
                Ok(Sized::of_vit((about.to_string(), vit), base, (kind, bytes)))
            }
            Source::Published(published) => {
                let found = published.described(experiment.checkpoint.max_tokens, Normalize::CLIP)?;
                Ok(Sized::described(experiment, found, (kind, 0)))
            }
            Source::Checkpoint(_) => Sized::of(experiment, kind),
        }
    }

    fn described(experiment: &Experiment, found: Described, (kind, there): (Kind, u64)) -> Sized {
        let base = found.base(kind);
        let (counted, name) = (Counted::Texts(CountedTexts::of(&found.network)), found.name);
        let checkpoint_bytes = there.max(base.count() as u64 * found.stored);
        let network = found.network.under(experiment.head.spec.training());
        Sized { name, network, counted, base, kind, checkpoint_bytes }
    }

    fn of_vit((name, vit): (String, Vit), base: Parameters, (kind, checkpoint_bytes): (Kind, u64)) -> Sized {
        let counted = Counted::Images { side: vit.geometry.image_size() };
        Sized { name, network: Box::new(vit), counted, base, kind, checkpoint_bytes }
    }

    fn images(experiment: &Experiment, kind: Kind) -> Result<Sized> {
        let spec = &experiment.checkpoint;
        let (name, mut vit, mut base, bytes) = if spec.path.exists() {
            let found = OpenedCheckpoint::open(spec.local()?, spec.fixed.clone())?.identified;
            (spec.path.display().to_string(), found.vit, found.base, checkpoint_bytes(&spec.path))
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
            let (vit, base) = shape.random(1);
            (format!("the shape of {}", model.about), vit, base, bytes)
        };
        if let Some(size) = spec.image_size {
            vit.resize(&mut base, size)?;
        }
        Ok(Sized::of_vit((name, vit), base.into_kind(Device::Cpu, kind), (kind, bytes)))
    }

    /// Returns a model of this network, with a head of zeros.
    pub fn model(self, experiment: &Experiment) -> Model {
        let classes = classes_of(&*experiment.data.dataset) as i64;
        let head = (experiment.head.spec.training(), experiment.head.key == "zero-shot");
        laid_out(self.network, self.base, head, classes, (Device::Cpu, self.kind))
    }
}
