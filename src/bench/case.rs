//! A measured case: a model, a subspace, a method, n, and how a training step is split. Settings are read like those of
//! a config, so mistakes give the same messages.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::wide;
use crate::data::Interpolation;
use crate::experiment::{Experiment, load_config};
use crate::machine::Precision;
use crate::machine::device::compute_kind;
use crate::machine::quantised::Scheme;
use crate::methods::{Entry, Particles, Update, Variant, registered};
use crate::model::described::Published;
use crate::model::head::{Head, Training as HeadTraining};
use crate::model::network::quantisable;
use crate::model::vit::architecture::Shape;
use crate::model::{Loaded, Model, Normalize, Preprocess, checkpoint_name};
use crate::rehearse::estimate::checkpoint_bytes;
use crate::schema::{Choice, Problems};

/// The number of classes of the random head.
pub const CLASSES: i64 = 10;

/// The logit scale of CLIP, which is the norm of each row of a zero-shot head.
const LOGIT_SCALE: f64 = 100.0;

/// The source of the weights. Speed does not depend on their values.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Random weights in a published shape.
    Shape(&'static Shape),
    /// A published language network, or one that sees images, of which costs are estimated alone.
    Published(&'static Published),
    /// The folder, file of weights or archive of a network of images.
    Checkpoint(&'a Path),
}

impl Source<'_> {
    /// Returns the name of the shape or of the file.
    pub fn name(&self) -> String {
        match self {
            Source::Shape(shape) => shape.key.to_string(),
            Source::Published(published) => published.key.to_string(),
            Source::Checkpoint(path) => checkpoint_name(path),
        }
    }

    /// Returns the overrides of a config that say what the network is, what it reads, and which of its layers are adapted by
    /// default.
    fn sets(&self) -> &'static [&'static str] {
        let Source::Published(published) = self else {
            return &["checkpoint.normalize=clip", "head.zero-shot.weights=random", "data.digits={}"];
        };
        published.kind().entry().bench
    }

    /// Returns the model with a frozen random head.
    ///
    /// # Errors
    /// Fails if the checkpoint cannot be read, or if it or this machine cannot compute in the type that is asked for.
    pub fn model(&self, experiment: &Experiment, device: Device) -> Result<Measurable> {
        let precision = experiment.training.as_ref().context("the bench config trains")?.train.precision;
        let kind = compute_kind(precision, device).context("train.precision")?;
        match self {
            Source::Shape(shape) => shaped(shape, experiment.checkpoint.quantize, (device, kind)),
            Source::Published(published) => bail!("{}: its costs can be estimated alone (--estimate)", published.key),
            Source::Checkpoint(_) => {
                let loaded = Loaded::with_head(&experiment.checkpoint, |opened| {
                    Ok(random_head(opened.tower.network().feature_width()))
                })?;
                loaded.tower.check_kind(kind)?;
                let base_bytes = checkpoint_bytes(experiment.checkpoint.local()?);
                Ok(Measurable { model: loaded.into_model(device, kind)?, base_bytes })
            }
        }
    }
}

/// Returns a vision transformer of a published shape, with random weights and a random head.
fn shaped(shape: &Shape, quantize: Option<Scheme>, place: (Device, Kind)) -> Result<Measurable> {
    let (vit, mut base) = shape.random(1);
    let base_bytes = (base.count() * Kind::Float.elt_size_in_bytes()) as u64;
    if let Some(scheme) = quantize {
        base.quantise(&quantisable(&vit), scheme)?;
    }
    let (side, output) = (vit.geometry.image_size(), vit.geometry.output);
    let (device, kind) = place;
    let model = Model {
        network: Box::new(vit),
        base: base.into_kind(device, kind),
        head: random_head(output).to(device, wide(kind)),
        preparation: Box::new(Preprocess::new(side, Normalize::CLIP, Interpolation::Bicubic, place)),
        device,
        kind,
    };
    Ok(Measurable { model, base_bytes })
}

/// Returns a frozen random head for so many features, like a zero-shot head of CLIP.
fn random_head(features: i64) -> Head {
    let weight = Tensor::randn([CLASSES, features], (Kind::Float, Device::Cpu));
    let norm = weight.norm_scalaropt_dim(2.0, [-1], true);
    Head {
        weight: weight / norm * LOGIT_SCALE,
        bias: Tensor::zeros([CLASSES], (Kind::Float, Device::Cpu)),
        normalised: true,
        random: None,
        rows: None,
        cap: None,
        training: HeadTraining::Never,
        texts: None,
        gaussian: None,
    }
}

/// A network to be measured.
pub struct Measurable {
    pub model: Model,
    /// The size of the base on disk in bytes: that of the archive, or of its weights in f32.
    pub base_bytes: u64,
}

/// A method with one of the variants in its registry entry.
#[derive(Clone, Copy)]
pub struct BenchMethod {
    pub entry: &'static Entry,
    pub variant: &'static Variant,
}

impl BenchMethod {
    /// Returns every method that can be measured, in the order of the registry.
    pub fn all() -> Vec<BenchMethod> {
        let of = |entry: &'static Entry| entry.bench.iter().map(move |variant| BenchMethod { entry, variant });
        registered().into_iter().flat_map(of).collect()
    }

    /// Returns the word for this method on the command line.
    pub fn word(self) -> &'static str {
        self.variant.key
    }

    /// Returns the number of particles of a case that asks for `particles`.
    pub fn particles(self, particles: i64) -> i64 {
        match self.entry.particles {
            Particles::One => 1,
            Particles::Any => particles,
        }
    }

    /// Returns the overrides of a config that select this method.
    fn sets(self, particles: i64) -> Vec<String> {
        let method = format!("method.{}", self.entry.key);
        let mut sets = match self.entry.particles {
            Particles::One => vec![format!("{method}={{}}")],
            Particles::Any => vec![format!("{method}.particles={particles}")],
        };
        sets.extend(self.variant.sets.iter().map(|set| format!("{method}.{set}")));
        match self.entry.update {
            Update::Own | Update::OwnAfter(_) => sets.push("optimizer.none={}".to_string()),
            Update::Optimizer => {
                sets.extend(["optimizer.adamw.lr=1e-3", "optimizer.adamw.weight_decay=0.1"].map(str::to_string));
            }
        }
        sets
    }
}

impl FromStr for BenchMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<BenchMethod, String> {
        let all = BenchMethod::all();
        let known = || all.iter().map(|method| method.word()).collect::<Vec<_>>().join(", ");
        all.iter()
            .find(|method| method.word() == text)
            .copied()
            .ok_or_else(|| format!("unknown method; known: {}", known()))
    }
}

/// The settings of one case, apart from the source of the weights.
#[derive(Clone)]
pub struct Choices {
    /// The key of the subspace.
    pub subspace: String,
    pub method: BenchMethod,
    pub particles: i64,
    /// The number of images per particle and training step.
    pub batch_size: i64,
    pub rank: i64,
    /// The range of blocks in the config; all blocks if absent.
    pub blocks: Option<String>,
    /// The type in which the network is computed.
    pub precision: Precision,
    /// The value in the config: a number or a word.
    pub particle_chunk: String,
    pub recompute: bool,
    /// Further overrides, applied after all others.
    pub sets: Vec<String>,
}

impl Choices {
    /// Builds the config of this case and checks it.
    ///
    /// # Errors
    /// Fails with every mistake, as for any config.
    pub fn experiment(&self, source: &Source) -> Result<Experiment, Problems> {
        let path = match source {
            Source::Shape(shape) => PathBuf::from(shape.key),
            Source::Published(published) => PathBuf::from(published.key),
            Source::Checkpoint(path) => path.to_path_buf(),
        };
        let quoted = |text: &str| toml::Value::from(text).to_string();
        let mut sets = vec![
            "name=bella-bench".to_string(),
            "seed=1".to_string(),
            format!("checkpoint.path={}", quoted(&path.display().to_string())),
            "train.epochs=1".to_string(),
            format!("train.batch_size={}", self.batch_size),
            format!("train.precision={}", quoted(self.precision.word())),
            format!("train.particle_chunk={}", self.particle_chunk),
            format!("train.recompute={}", self.recompute),
        ];
        sets.extend(source.sets().iter().map(|set| set.to_string()));
        match self.subspace.as_str() {
            "low-rank" => {
                sets.push(format!("subspace.low-rank.rank={}", self.rank));
                if let Source::Published(_) = source {
                    sets.push("subspace.low-rank.targets=[\"attn.q\", \"attn.v\"]".to_string());
                }
                sets.extend(self.blocks.as_ref().map(|blocks| format!("subspace.low-rank.blocks={}", quoted(blocks))));
            }
            other => sets.push(format!("subspace.{}={{}}", quoted(other))),
        }
        sets.extend(self.method.sets(self.particles));
        sets.extend(self.sets.iter().cloned());
        Experiment::read(&load_config(&[], &sets)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::families::shapes;

    fn choices() -> Choices {
        Choices {
            subspace: "low-rank".into(),
            method: "svgd".parse().unwrap(),
            particles: 5,
            batch_size: 8,
            rank: 4,
            blocks: None,
            precision: Precision::F32,
            particle_chunk: "0".into(),
            recompute: false,
            sets: Vec::new(),
        }
    }

    #[test]
    fn every_method_in_every_subspace_is_a_valid_config_or_says_which_it_needs() {
        for method in BenchMethod::all() {
            for subspace in crate::subspace::SUBSPACES {
                let case = Choices { subspace: subspace.key.into(), method, ..choices() };
                let experiment = match case.experiment(&Source::Shape(shapes().next().unwrap())) {
                    Ok(experiment) => experiment,
                    Err(problems) => {
                        let text = problems.to_string();
                        let is_of_factors = ["blob", "scalabl"].contains(&method.word());
                        let needs_low_rank = is_of_factors && subspace.key != "low-rank";
                        assert!(
                            needs_low_rank && text.contains("write [subspace.low-rank]"),
                            "{}: {text}",
                            subspace.key
                        );
                        continue;
                    }
                };
                let particles = experiment.training.unwrap().method.spec.particles();
                assert_eq!(particles, if method.word() == "map" { 1 } else { 5 });
            }
        }
    }

    #[test]
    fn mistakes_are_those_of_a_config() {
        let error =
            |case: Choices| case.experiment(&Source::Shape(shapes().next().unwrap())).err().unwrap().to_string();
        let chunk = error(Choices { particle_chunk: "9".into(), ..choices() });
        assert!(chunk.contains("particle_chunk = 9: must not exceed the 5 particles"), "{chunk}");
        let subspace = error(Choices { subspace: "half".into(), ..choices() });
        assert!(subspace.contains("half"), "{subspace}");
        let rank = error(Choices { rank: 0, ..choices() });
        assert!(rank.contains("rank"), "{rank}");
    }
}
