//! The loaded copies of a module, which give every particle of a pass a module of its own.
//!
//! A module reads its parameters from tensors that it owns. Before a forward pass they are filled with a particle's
//! values by `copy_`, which autograd records: the gradient flows from the output through the copy into the leaf, or
//! into the factors of a low-rank update, so it is exact. A pass with a graph keeps those tensors for the backward
//! pass. Hence every particle of such a pass has its own copy of the module. A copy that is filled again while a graph
//! still needs its values makes libtorch refuse the backward pass, since `copy_` and [`Held::share`] raise the
//! version of the tensor.

use std::cell::RefCell;

use anyhow::{Context, Result, anyhow};
use tch::{CModule, Device, Tensor, no_grad};

use super::intake::Intake;
use crate::base::tensor::first_line;
use crate::data::Fields;
use crate::model::archive::{Archive, call, tensor_of};
use crate::model::network::{Parameters, Weights};

/// The origin of the value of one of the module's parameters.
#[derive(Debug)]
pub enum Source {
    /// The parameter of this name, which particles may train.
    Parameter(String),
    /// A constant in place of the stored value.
    Constant(Tensor),
}

/// The copies of one module on one device.
pub struct Copies {
    archive: Box<Archive>,
    intake: Intake,
    /// The source of each parameter, in the order of the module.
    sources: Vec<Source>,
    loaded: RefCell<Vec<Loaded>>,
}

struct Loaded {
    module: CModule,
    device: Device,
    parameters: Vec<Held>,
}

/// A tensor that a module owns.
struct Held {
    tensor: Tensor,
    /// Whether its storage is its own, rather than that of a frozen parameter.
    own: bool,
}

impl Held {
    /// Fills the tensor with a particle's value, through which gradients flow.
    fn take(&mut self, value: &Tensor) {
        let _ = self.tensor.detach_();
        if !self.own {
            self.tensor.set_data(&no_grad(|| value.empty_like()));
            self.own = true;
        }
        self.tensor.copy_(value);
    }

    /// Makes the tensor one with a frozen one, sharing its storage.
    fn share(&mut self, frozen: &Tensor) {
        if !self.own && self.tensor.data_ptr() == frozen.data_ptr() {
            return;
        }
        let _ = self.tensor.detach_();
        self.tensor.set_data(frozen);
        self.own = false;
        // `set_data` leaves the version as it is; an empty operation in place raises it.
        let _ = no_grad(|| self.tensor.flatten(0, -1).narrow(0, 0, 0).zero_());
    }
}

impl Copies {
    pub fn new(archive: Archive, intake: Intake, sources: Vec<Source>) -> Copies {
        let archive = Box::new(archive);
        Copies { archive, intake, sources, loaded: RefCell::default() }
    }

    /// Replaces the sources of all parameters from now on.
    pub fn set_sources(&mut self, sources: Vec<Source>) {
        self.sources = sources;
        self.loaded.borrow_mut().clear();
    }

    /// Returns the names of the parameters that particles may train.
    pub fn names(&self) -> Vec<&str> {
        let sources = self.sources.iter();
        let names = sources.filter_map(|source| match source {
            Source::Parameter(name) => Some(name.as_str()),
            Source::Constant(_) => None,
        });
        names.collect()
    }

    /// Returns what the module takes.
    pub fn intake(&self) -> &Intake {
        &self.intake
    }

    /// Returns the output of copy `index` for samples `[B, …]`, with the weights of a particle, or with the frozen ones for
    /// `None`.
    ///
    /// # Errors
    /// Fails if the module cannot be loaded or does not run, with libtorch's message.
    pub fn forward(&self, index: usize, samples: &Fields, weights: &Weights, particle: Option<i64>) -> Result<Tensor> {
        let (method, arguments) = (self.intake.method(&self.archive), self.intake.arguments(samples));
        self.archive.try_first(Some(method), &arguments)?;
        let (mut loaded, device) = (self.loaded.borrow_mut(), samples.first().device());
        if loaded.first().is_some_and(|copy| copy.device != device) {
            loaded.clear();
        }
        while loaded.len() <= index {
            loaded.push(self.load(device)?);
        }
        let copy = &mut loaded[index];
        for (held, source) in copy.parameters.iter_mut().zip(&self.sources) {
            let Source::Parameter(name) = source else { continue };
            match particle.and_then(|particle| weights.of_particle(name, particle)) {
                Some(own) => held.take(&own),
                None => held.share(weights.frozen_parameter(name).with_context(|| format!("the base lacks {name}"))?),
            }
        }
        tensor_of(call(&copy.module, method, &arguments)?)
    }

    fn load(&self, device: Device) -> Result<Loaded> {
        let module = self.archive.copy_on(device)?;
        let mut parameters = Vec::new();
        for (tensor, source) in tensors(&module)?.into_iter().map(|(_, tensor)| tensor).zip(&self.sources) {
            // The values are a particle's or a constant; nothing is learnt in the module itself.
            let mut held = Held { tensor: tensor.set_requires_grad(false), own: true };
            if let Source::Constant(constant) = source {
                held.share(&constant.to_device(device));
            }
            parameters.push(held);
        }
        Ok(Loaded { module, device, parameters })
    }
}

/// Returns the parameters of a loaded module: the tensors that it reads, not copies of them.
pub fn tensors(module: &CModule) -> Result<Vec<(String, Tensor)>> {
    module.named_parameters().map_err(|e| anyhow!("{}", first_line(&e)))
}

/// Returns copies of all parameters of an archive in the order of the module, each with the index of the first one that
/// is the same tensor: its own, or that of a weight to which it is tied.
///
/// # Errors
/// Fails if libtorch cannot load the archive.
pub fn stored(archive: &Archive) -> Result<Vec<(String, Tensor, usize)>> {
    let found = tensors(&archive.copy_on(Device::Cpu)?)?;
    let same = |a: &Tensor, b: &Tensor| a.data_ptr() == b.data_ptr() && a.size() == b.size() && a.numel() > 0;
    let first = |index: usize| found.iter().position(|(_, tensor)| same(tensor, &found[index].1)).unwrap_or(index);
    let copied = |(index, (name, tensor)): (usize, &(String, Tensor))| {
        (name.clone(), crate::base::tensor::snapshot(tensor), first(index))
    };
    Ok(found.iter().enumerate().map(copied).collect())
}

/// Returns the frozen parameters that sources read.
pub fn frozen(stored: &[(String, Tensor)]) -> Parameters {
    Parameters::new(stored.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect())
}
