//! The inputs that a module takes: images, the tokens of texts, or rows of numbers.
//!
//! The loaded copies of a module ([`Copies`]) give every particle of a pass a module of its own.
//! A module reads its parameters from tensors that it owns. Before a forward pass they are filled with a particle's
//! values by `copy_`, which autograd records: the gradient flows from the output through the copy into the leaf, or
//! into the factors of a low-rank update, so it is exact. A pass with a graph keeps those tensors for the backward
//! pass. Hence every particle of such a pass has its own copy of the module. A copy that is filled again while a graph
//! still needs its values makes libtorch refuse the backward pass, since `copy_` and [`Held::share`] raise the
//! version of the tensor. Threads that pass pieces of samples and particles have copies of their own.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use anyhow::{Context, Result, anyhow};
use tch::{CModule, Device, IValue, Kind, Tensor, no_grad};

use crate::base::tensor::first_line;
use crate::data::fields::{Fields, IDS, KINDS, MASK, PIXELS, VALUES, of_texts};
use crate::model::archive::{Archive, call, tensor_of};
use crate::model::network::{Parameters, Weights};
use crate::schema::words;

/// What a module takes.
#[derive(Clone, Debug)]
pub enum Intake {
    /// Images `[B, 3, S, S]` of S pixels per side.
    Images(i64),
    Texts(Texts),
    /// Rows `[B, F]` of F numbers.
    Rows(i64),
}

/// The tokens of texts that a module takes.
#[derive(Clone, Debug)]
pub struct Texts {
    /// The most tokens of a text.
    pub tokens: i64,
    /// The number of tensors `[B, T]` that `forward` takes: ids and mask, and the kinds of tokens if there are three.
    pub inputs: usize,
    pub padding: Padding,
}

/// What stands in a text that is shorter than others of its batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    /// The token that fills the text up.
    pub id: i64,
    pub side: Side,
}

words! {
    /// The side of a text on which padding stands.
    pub enum Side {
        Left = "left",
        Right = "right",
    }
}

impl Intake {
    /// Returns the word for one sample, for messages.
    pub fn sample(&self) -> &'static str {
        match self {
            Intake::Images(_) => "image",
            Intake::Texts(_) => "text",
            Intake::Rows(_) => "row",
        }
    }

    /// Returns a few words about what it takes, for the log.
    pub fn about(&self) -> String {
        match self {
            Intake::Images(size) => format!("{size} px"),
            Intake::Texts(texts) => format!("texts of at most {} tokens", texts.tokens),
            Intake::Rows(width) => format!("rows of {width} numbers"),
        }
    }

    /// Returns the line that `bella inspect` prints about what it takes.
    pub fn line(&self) -> String {
        match self {
            Intake::Images(size) => format!("image         {size} x {size} px"),
            Intake::Texts(texts) => {
                let kinds = if texts.inputs == 3 { ", mask and kinds of tokens" } else { " and mask" };
                let tokens = texts.tokens;
                format!("texts         token ids{kinds}, at most {tokens} tokens here (checkpoint.max_tokens)")
            }
            Intake::Rows(width) => format!("rows          {width} numbers each"),
        }
    }

    /// Returns the number of pixels per side of an image; `None` for texts and rows.
    pub fn image_size(&self) -> Option<i64> {
        match self {
            Intake::Images(size) => Some(*size),
            Intake::Texts(_) | Intake::Rows(_) => None,
        }
    }

    /// Returns the shapes of one sample.
    pub fn shape(&self) -> Fields<Vec<i64>> {
        match self {
            Intake::Images(size) => Fields::of(PIXELS, vec![3, *size, *size]),
            Intake::Texts(texts) => {
                let names = [IDS, MASK, KINDS].into_iter().take(texts.inputs);
                Fields::new(names.map(|name| (name, vec![texts.tokens])).collect())
            }
            Intake::Rows(width) => Fields::of(VALUES, vec![*width]),
        }
    }

    /// Returns the samples of one tensor: images `[B, 3, S, S]`, texts `[B, 2 or 3, T]`, or rows `[B, F]`.
    pub fn samples(&self, packed: &Tensor) -> Fields {
        match self {
            Intake::Images(_) => Fields::of(PIXELS, packed.shallow_clone()),
            Intake::Texts(_) => of_texts(packed),
            Intake::Rows(_) => Fields::of(VALUES, packed.shallow_clone()),
        }
    }

    /// Returns the method of a module that takes such samples.
    pub fn method(&self, archive: &Archive) -> &'static str {
        match self {
            Intake::Images(_) => archive.image_method(),
            Intake::Texts(_) | Intake::Rows(_) => "forward",
        }
    }

    /// Returns the arguments of the module's method for samples `[B, …]`.
    pub fn arguments(&self, samples: &Fields) -> Vec<IValue> {
        match self {
            Intake::Images(_) => vec![IValue::Tensor(samples.get(PIXELS).shallow_clone())],
            Intake::Texts(texts) => texts.padding.arguments(samples).into_iter().map(IValue::Tensor).collect(),
            Intake::Rows(_) => vec![IValue::Tensor(samples.get(VALUES).shallow_clone())],
        }
    }
}

impl Padding {
    /// Returns ids, mask and, if there are any, the kinds of tokens, each int64 `[B, T]`, of texts whose padding stands on the
    /// right.
    pub fn arguments(self, samples: &Fields) -> Vec<Tensor> {
        let samples = self.on_its_side(samples.map(|values| values.to_kind(Kind::Int64)));
        let ids = samples.get(IDS).masked_fill(&samples.get(MASK).eq(0), self.id);
        samples.with(IDS, ids).into_values().collect()
    }

    /// Moves the padding of texts `[B, T]`, which stands on the right, to its side.
    fn on_its_side(self, samples: Fields) -> Fields {
        if self.side == Side::Right {
            return samples;
        }
        let mask = samples.get(MASK);
        let tokens = mask.sum_dim_intlist([1i64].as_slice(), true, Kind::Int64);
        let length = mask.size()[1];
        let index = (Tensor::arange(length, (Kind::Int64, mask.device())) + tokens).remainder(length);
        samples.map(|values| values.gather(1, &index, false))
    }
}

/// The origin of the value of one of the module's parameters.
#[derive(Debug)]
pub enum Source {
    /// The parameter of this name, which particles may train.
    Parameter(String),
    /// A constant in place of the stored value.
    Constant(Tensor),
}

/// The copies of one module on one device. Each thread has its own.
pub struct Copies {
    intake: Intake,
    /// The source of each parameter, in the order of the module.
    sources: Vec<Source>,
    own: Mutex<Own>,
}

/// The archive, and the copies of each thread that makes no pass just now. The threads are those of one pool, so that none ends with its
/// copies left here; those of a pass that fails are dropped.
struct Own {
    archive: Box<Archive>,
    loaded: HashMap<ThreadId, Vec<Loaded>>,
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
        let own = Own { archive: Box::new(archive), loaded: HashMap::new() };
        Copies { intake, sources, own: Mutex::new(own) }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the sources of all parameters from now on.
    pub fn set_sources(&mut self, sources: Vec<Source>) {
        self.sources = sources;
        self.own().loaded.clear();
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
        let arguments = self.intake.arguments(samples);
        let (mut loaded, method) = self.take(index, &arguments, samples.first().device())?;
        let copy = &mut loaded[index];
        for (held, source) in copy.parameters.iter_mut().zip(&self.sources) {
            let Source::Parameter(name) = source else { continue };
            match particle.and_then(|particle| weights.of_particle(name, particle)) {
                Some(own) => held.take(&own),
                None => held.share(&weights.frozen_parameter(name).with_context(|| format!("the base lacks {name}"))?),
            }
        }
        let output = call(&copy.module, method, &arguments);
        self.own().loaded.insert(thread::current().id(), loaded);
        tensor_of(output?)
    }

    /// Takes this thread's copies, `index` and those before it at least, and names the method that they are called by.
    fn take(&self, index: usize, arguments: &[IValue], device: Device) -> Result<(Vec<Loaded>, &'static str)> {
        let mut own = self.own();
        let method = self.intake.method(&own.archive);
        own.archive.try_first(Some(method), arguments)?;
        let mut loaded = own.loaded.remove(&thread::current().id()).unwrap_or_default();
        loaded.retain(|copy| copy.device == device);
        while loaded.len() <= index {
            loaded.push(self.load(&own.archive, device)?);
        }
        Ok((loaded, method))
    }

    fn load(&self, archive: &Archive, device: Device) -> Result<Loaded> {
        let module = archive.copy_on(device)?;
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

/// A parameter as the archive stores it.
pub struct Stored {
    pub name: String,
    pub tensor: Tensor,
    /// The place of the first parameter that is the same tensor: its own, or that of a weight to which it is tied.
    pub first: usize,
}

/// Returns copies of all parameters of an archive in the order of the module.
///
/// # Errors
/// Fails if libtorch cannot load the archive.
pub fn stored(archive: &Archive) -> Result<Vec<Stored>> {
    let found = tensors(&archive.copy_on(Device::Cpu)?)?;
    let same = |a: &Tensor, b: &Tensor| {
        a.data_ptr() == b.data_ptr() && a.size() == b.size() && a.stride() == b.stride() && a.numel() > 0
    };
    let first = |index: usize| found.iter().position(|(_, tensor)| same(tensor, &found[index].1)).unwrap_or(index);
    let copied = |(index, (name, tensor)): (usize, &(String, Tensor))| Stored {
        name: name.clone(),
        tensor: crate::base::tensor::snapshot(tensor),
        first: first(index),
    };
    Ok(found.iter().enumerate().map(copied).collect())
}

/// Returns the frozen parameters that sources read.
pub fn frozen(stored: &[(String, Tensor)]) -> Parameters {
    Parameters::new(stored.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(inputs: usize, side: Side) -> Vec<Vec<i64>> {
        let padding = Padding { id: 9, side };
        let samples = Tensor::from_slice(&[5i32, 6, 7, 0, 1, 1, 1, 0, 0, 0, 1, 0]).view([1, 3, 4]);
        let arguments = padding.arguments(&of_texts(&samples.narrow(1, 0, inputs as i64)));
        arguments.iter().map(|tensor| Vec::try_from(tensor.reshape([-1])).unwrap()).collect()
    }

    #[test]
    fn padding_has_its_token_and_stands_on_its_side() {
        assert_eq!(texts(3, Side::Right), [[5, 6, 7, 9], [1, 1, 1, 0], [0, 0, 1, 0]]);
        assert_eq!(texts(3, Side::Left), [[9, 5, 6, 7], [0, 1, 1, 1], [0, 0, 0, 1]]);
        assert_eq!(texts(2, Side::Right).len(), 2);
    }
}
