//! Opens a TorchScript module and finds out, by running it, what training needs to know: what its output is, whether
//! its last operation is a classifier, and how much memory a pass keeps.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tch::{Device, Kind, Tensor, no_grad};

use super::Module;
use super::copies::{Copies, Source, frozen, stored};
use crate::machine::memory::allocated_bytes;
use crate::model::archive::Archive;
use crate::model::network::{HEAD, Parameters, Weights};
use crate::model::vit::OwnHead;
use crate::model::vit::identify::{check_images, compare};

/// The largest relative difference between the classifier on the features and the module's own output.
const MAX_DIFFERENCE: f64 = 1e-5;

/// The largest relative difference between an image alone and the same image in a batch. Products of other sizes round
/// differently.
const MAX_BATCH_DIFFERENCE: f64 = 1e-3;

/// The largest number of layers that are tried as the classifier.
const TRIED: usize = 4;

/// A module that was loaded and tried.
pub struct Opened {
    pub module: Module,
    /// The parameters that particles may train, which are all but the classifier's.
    pub base: Parameters,
    /// The last linear layer, if it is the module's last operation.
    pub head: Option<OwnHead>,
    /// Whether the module normalises by running statistics, which stay as they are stored.
    pub running_statistics: bool,
}

/// Opens the module at `path` for images of `image_size` pixels per side.
///
/// # Errors
/// Fails if the archive cannot be opened or does not run, if it is not stored in f32, or if its output is not a vector
/// per image that depends on that image alone.
pub fn open(path: &Path, image_size: i64) -> Result<Opened> {
    let shown = path.display();
    let archive = Archive::open(path)?;
    let running_statistics = archive.code().contains("running_mean");
    let parameters = stored(&archive).with_context(|| shown.to_string())?;
    check_parameters(&parameters).with_context(|| shown.to_string())?;
    let trial = Trial { parameters: named(parameters), images: check_images(image_size) };
    let mut copies = Copies::new(archive, trial.sources(None));
    let output = trial.output(&copies).with_context(|| shown.to_string())?;
    let found = trial.classifier(&mut copies, &output)?;
    let kept_bytes = trial.kept_bytes(&copies).with_context(|| shown.to_string())?;
    let (width, base) = (found.as_ref().map_or(output.size()[1], |own| own.weight.size()[1]), trial.base(&copies));
    let shapes = base.all().iter().map(|(name, tensor)| (name.clone(), tensor.size())).collect();
    let module = Module { copies, shapes, image_size, width, kept_bytes };
    Ok(Opened { module, base, head: found, running_statistics })
}

fn check_parameters(parameters: &[(String, Tensor, usize)]) -> Result<()> {
    ensure!(
        !parameters.is_empty(),
        "the TorchScript module lists no parameters (was it frozen by torch.jit.freeze?): export the unfrozen module"
    );
    if let Some((name, tensor, _)) = parameters.iter().find(|(_, tensor, _)| tensor.kind() != Kind::Float) {
        bail!(
            "`{name}` is stored as {:?}, and a module computes in the type in which it is stored: export it in f32 \
             (model.float())",
            tensor.kind()
        );
    }
    Ok(())
}

/// A parameter of the module as particles see it.
struct Named {
    /// The name in the archive.
    stored: String,
    /// The name among the parameters that particles train. Tied ones have one name.
    name: String,
    tensor: Tensor,
}

/// Returns the name of a module's parameter among those that particles train: `head.` belongs to bella's own heads.
pub fn trained_as(stored: &str) -> String {
    if stored.starts_with(HEAD) { format!("module.{stored}") } else { stored.to_string() }
}

/// Returns the parameters under their own names.
fn named(parameters: Vec<(String, Tensor, usize)>) -> Vec<Named> {
    let known: Vec<String> = parameters.iter().map(|(name, ..)| name.clone()).collect();
    let one =
        |(stored, tensor, first): (String, Tensor, usize)| Named { stored, name: trained_as(&known[first]), tensor };
    parameters.into_iter().map(one).collect()
}

/// The parameters of a module and the random images on which it is tried.
struct Trial {
    parameters: Vec<Named>,
    images: Tensor,
}

impl Trial {
    /// Returns the sources of all parameters, with the identity in place of `classifier`.
    fn sources(&self, classifier: Option<&Classifier>) -> Vec<Source> {
        let source = |parameter: &Named| match classifier.and_then(|classifier| classifier.constant(parameter)) {
            Some(constant) => Source::Constant(constant),
            None => Source::Parameter(parameter.name.clone()),
        };
        self.parameters.iter().map(source).collect()
    }

    fn all(&self) -> Parameters {
        let mut all: Vec<(String, Tensor)> = Vec::new();
        for Named { name, tensor, .. } in &self.parameters {
            if all.iter().all(|(known, _)| known != name) {
                all.push((name.clone(), tensor.shallow_clone()));
            }
        }
        frozen(&all)
    }

    /// Returns the parameters that `copies` read.
    fn base(&self, copies: &Copies) -> Parameters {
        let read = copies.names();
        let all = self.all();
        let kept = all.all().iter().filter(|(name, _)| read.contains(&name.as_str()));
        frozen(&kept.map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect::<Vec<_>>())
    }

    fn run(&self, copies: &Copies, images: &Tensor) -> Result<Tensor> {
        let base = self.all();
        no_grad(|| copies.forward(0, images, &Weights::frozen(&base), None))
    }

    /// Returns the module's output `[B, k]` for all images.
    ///
    /// # Errors
    /// Fails if the module does not run on such images, if its output is not a vector per image, or if it depends on
    /// the other images of a batch.
    fn output(&self, copies: &Copies) -> Result<Tensor> {
        let size = self.images.size();
        let output = self.run(copies, &self.images).with_context(|| {
            format!(
                "its forward fails on {} images of {} x {} pixels (checkpoint.image_size)",
                size[0], size[2], size[3]
            )
        })?;
        let vector = output.dim() >= 2 && output.size()[0] == size[0] && output.size()[2..].iter().all(|one| *one == 1);
        ensure!(
            vector && output.kind() == Kind::Float,
            "its forward returns {:?} of {:?} for {} images, not one vector of f32 per image: export it with its pooling, \
             and with a classifier or without",
            output.kind(),
            output.size(),
            size[0]
        );
        let alone: Vec<Tensor> = (0..size[0])
            .map(|image| self.run(copies, &self.images.narrow(0, image, 1)))
            .collect::<Result<_>>()
            .context(
                "its forward knows its batch size: export it by torch.jit.script, or trace it without gradients",
            )?;
        let difference = compare(&Tensor::cat(&alone, 0).flatten(1, -1), &output.flatten(1, -1)).relative;
        ensure!(
            difference <= MAX_BATCH_DIFFERENCE,
            "the output for an image changes by {difference:.1e} with the other images of its batch, or from call to call: \
             it was exported in training mode; call model.eval() first"
        );
        Ok(output.flatten(1, -1))
    }

    /// Finds the classifier and puts the identity in its place; `None` if the last operation is another one.
    fn classifier(&self, copies: &mut Copies, output: &Tensor) -> Result<Option<OwnHead>> {
        let classes = output.size()[1];
        let candidates = self.parameters.iter().rev().filter_map(|parameter| self.candidate(parameter, classes));
        for candidate in candidates.take(TRIED) {
            copies.set_sources(self.sources(Some(&candidate)));
            let fits = |features: Tensor| {
                let features = features.flatten(1, -1);
                features.size()[1] == candidate.head.weight.size()[1] && {
                    let again = features.linear(&candidate.head.weight, Some(&candidate.head.bias));
                    compare(&again, output).relative <= MAX_DIFFERENCE
                }
            };
            // A layer in the middle of the network has no room for the identity, and the module may fail.
            if self.run(copies, &self.images).is_ok_and(fits) {
                return Ok(Some(candidate.head));
            }
        }
        copies.set_sources(self.sources(None));
        Ok(None)
    }

    /// Returns the linear layer whose weight this is, if it has as many outputs as the module.
    fn candidate(&self, parameter: &Named, classes: i64) -> Option<Classifier> {
        let layer = parameter.stored.strip_suffix("weight")?;
        let size = parameter.tensor.size();
        let fits = matches!(size[..], [rows, _] | [rows, _, 1, 1] if rows == classes);
        let is_tied = self.parameters.iter().filter(|other| other.name == parameter.name).count() > 1;
        if !fits || is_tied {
            return None;
        }
        let bias = self.parameters.iter().find(|other| other.stored == format!("{layer}bias"));
        let zeros = || Tensor::zeros([classes], (Kind::Float, Device::Cpu));
        let (weight, bias) = (parameter.tensor.flatten(1, -1), bias.map_or_else(zeros, |b| b.tensor.shallow_clone()));
        Some(Classifier { layer: layer.to_string(), axes: size.len(), head: OwnHead { weight, bias } })
    }

    /// Returns the bytes that a graph of one image keeps, measured on the CPU; 0 where the system does not tell.
    fn kept_bytes(&self, copies: &Copies) -> Result<u64> {
        let base = self.all();
        let weights = Weights::frozen(&base);
        // The graph reaches down to the pixels, so that it keeps what an attack needs, too. Weights that particles train
        // add nothing but the copies of the weights, since the inputs of layers are kept for either.
        let images = self.images.shallow_clone().set_requires_grad(true);
        let mut own = Weights::frozen(&base);
        for (name, tensor) in base.all() {
            own.replace(name, tensor.unsqueeze(0).set_requires_grad(true));
        }
        drop(tch::with_grad(|| copies.forward(0, &images, &own, Some(0)))?);
        let before = allocated_bytes();
        let output = tch::with_grad(|| copies.forward(0, &images, &own, Some(0)))?;
        let after = allocated_bytes();
        drop(output);
        let _ = no_grad(|| copies.forward(0, &self.images, &weights, None))?;
        let kept = before.zip(after).map_or(0, |(before, after)| after.saturating_sub(before));
        Ok(kept / self.images.size()[0] as u64)
    }
}

/// A layer that may be the module's last operation.
struct Classifier {
    /// The name of the layer in the archive, with a dot at the end.
    layer: String,
    /// The number of axes of its weight: two, or four of a 1 × 1 convolution.
    axes: usize,
    head: OwnHead,
}

impl Classifier {
    /// Returns what stands in place of one of its parameters, so that its output is its input; `None` for a parameter
    /// of another layer.
    fn constant(&self, parameter: &Named) -> Option<Tensor> {
        let width = self.head.weight.size()[1];
        let options = (Kind::Float, Device::Cpu);
        match parameter.stored.strip_prefix(&self.layer)? {
            "weight" if self.axes == 2 => Some(Tensor::eye(width, options)),
            "weight" => Some(Tensor::eye(width, options).view([width, width, 1, 1])),
            "bias" => Some(Tensor::zeros([width], options)),
            _ => None,
        }
    }
}
