//! The weights that a forward pass reads, as layers of n particles.
//!
//! Activations are `[p, …]` with p = 1 before the first layer in which particles differ, and p = n after it.

use std::borrow::Cow;
use std::collections::HashMap;

use tch::{Kind, Tensor};

use super::low_rank::Scales;
use crate::model::network::layers::{Linear, Norm, Param, Recorder, RmsNorm, Tap, Tape};
use crate::model::network::low_rank::{Flipped, LowRank};
use crate::model::network::parameters::Parameters;

/// The weights that a forward pass reads: the frozen base, overridden where particles differ.
pub struct Weights<'a> {
    base: &'a Parameters,
    own: HashMap<String, Tensor>,
    /// Frozen parameters that take the place of the base's.
    shared: HashMap<String, Tensor>,
    updates: HashMap<String, LowRank>,
    flips: HashMap<String, Flipped>,
    /// By layer: the factors of its inputs and outputs.
    scales: HashMap<String, Scales>,
    tape: Option<Tape>,
    /// A layer whose uses are recorded although it has no low-rank update.
    watched: Option<&'static str>,
    /// Whether gradients of a pass are differentiated again.
    twice: bool,
    /// The prefix of every name that is asked for: the name of a part of the network, or nothing.
    part: &'static str,
}

impl<'a> Weights<'a> {
    /// Returns the weights of the checkpoint without training.
    pub fn frozen(base: &'a Parameters) -> Weights<'a> {
        let (own, shared, updates, flips, scales) = Default::default();
        Weights { base, own, shared, updates, flips, scales, tape: None, watched: None, twice: false, part: "" }
    }

    /// Returns the weights of a part of the network, whose names begin with `part`, by the rest of their names.
    pub fn within(&self, part: &'static str) -> Weights<'a> {
        let here = |name: &str| name.starts_with(part);
        let own = self.own.iter().filter(|(name, _)| here(name));
        let shared = self.shared.iter().filter(|(name, _)| here(name));
        let updates = self.updates.iter().filter(|(name, _)| here(name));
        let flips = self.flips.iter().filter(|(name, _)| here(name));
        let scales = self.scales.iter().filter(|(name, _)| here(name));
        Weights {
            base: self.base,
            own: own.map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect(),
            shared: shared.map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect(),
            updates: updates.map(|(name, update)| (name.clone(), update.again())).collect(),
            flips: flips.map(|(name, flipped)| (name.clone(), flipped.again())).collect(),
            scales: scales.map(|(name, scales)| (name.clone(), scales.again())).collect(),
            tape: self.tape.clone(),
            watched: self.watched,
            twice: self.twice,
            part,
        }
    }

    /// Returns the same weights for a pass whose gradients are differentiated again. It leaves out operations that libtorch
    /// differentiates once only.
    pub fn differentiated_twice(self) -> Weights<'a> {
        Weights { twice: true, ..self }
    }

    pub fn are_differentiated_twice(&self) -> bool {
        self.twice
    }

    /// Returns the whole name of a parameter, of which a part knows the end.
    fn whole<'n>(&self, name: &'n str) -> Cow<'n, str> {
        if self.part.is_empty() { Cow::Borrowed(name) } else { Cow::Owned(format!("{}{name}", self.part)) }
    }

    /// Replaces the parameter `name` by one per particle, `[n, …shape]`.
    pub fn replace(&mut self, name: &str, tensor: Tensor) {
        self.own.insert(name.to_string(), tensor);
    }

    /// Replaces the frozen parameter `name` for all particles.
    pub fn share(&mut self, name: &str, tensor: Tensor) {
        self.shared.insert(name.to_string(), tensor);
    }

    /// Adds a low-rank update to the weight of the linear layer `layer`.
    pub fn update(&mut self, layer: &str, update: LowRank) {
        self.updates.insert(layer.to_string(), update);
    }

    /// Multiplies the inputs and outputs of the linear layer `layer` by factors of each particle.
    pub fn scale(&mut self, layer: &str, scales: Scales) {
        self.scales.insert(layer.to_string(), scales);
    }

    /// Adds noise to the factor A of the low-rank update of `layer`, which a forward pass of as many samples sees.
    pub fn flip(&mut self, layer: &str, flipped: Flipped) {
        self.flips.insert(layer.to_string(), flipped);
    }

    /// Records on `tape` every use of an updated linear layer, and of a head that particles train.
    pub fn record(&mut self, tape: &Tape) {
        self.tape = Some(tape.clone());
    }

    /// Records on `tape` every use of the linear layer `layer`.
    pub fn watch(&mut self, layer: &'static str, tape: &Tape) {
        (self.watched, self.tape) = (Some(layer), Some(tape.clone()));
    }

    /// Records a use of the head: `features: [p, B, d]`, `logits: [p', B, C]`.
    pub fn record_head(&self, features: &Tensor, logits: &Tensor) {
        if let Some(tape) = &self.tape {
            let (input, output) = (features.unsqueeze(2), logits.unsqueeze(2));
            tape.push(Tap { layer: "head".to_string(), from: 0, input, output });
        }
    }

    /// Returns the tensor of a parameter that differs between particles, `[n, …shape]`; `None` for a shared one.
    pub fn own(&self, name: &str) -> Option<&Tensor> {
        self.own.get(name)
    }

    /// Returns the frozen parameter `name`; the numbers of a quantised one.
    pub fn frozen_parameter(&self, name: &str) -> Option<Tensor> {
        self.shared.get(name).map(Tensor::shallow_clone).or_else(|| self.base.value(name))
    }

    /// Returns the number of particles with weights of their own in the network; `None` if all share the frozen ones. A
    /// head does not count, since the network does not read it.
    pub fn particles(&self) -> Option<i64> {
        let own = self.own.iter().filter(|(name, _)| self.base.get(name).is_some()).map(|(_, tensor)| tensor.size()[0]);
        let adapted = self.updates.values().map(LowRank::particles).chain(self.scales.values().map(Scales::particles));
        own.chain(adapted).max()
    }

    /// Returns the parameter `name` of one particle in its own shape, with its low-rank update added or its factors multiplied;
    /// `None` for a parameter that all particles share.
    pub fn of_particle(&self, name: &str, particle: i64) -> Option<Tensor> {
        if let Some(own) = self.own.get(name) {
            return Some(own.select(0, particle));
        }
        let layer = name.strip_suffix(".weight")?;
        if let Some(scales) = self.scales.get(layer) {
            return Some(scales.of_particle(&self.frozen_parameter(name)?, particle));
        }
        Some(self.updates.get(layer)?.of_particle(&self.frozen_parameter(name)?, particle))
    }

    /// Returns the compute type of the frozen weights.
    pub fn kind(&self) -> Kind {
        self.base.all().first().map_or(Kind::Float, |(_, t)| t.kind())
    }

    fn optional(&self, name: &str) -> Option<Param> {
        let name = &*self.whole(name);
        match self.own.get(name).or_else(|| self.own.get(self.base.first_name(name))) {
            Some(tensor) => Some(Param::PerParticle(tensor.shallow_clone())),
            None => match self.shared.get(name) {
                Some(tensor) => Some(Param::Shared(tensor.shallow_clone())),
                None => self.base.param(name),
            },
        }
    }

    fn required(&self, name: &str) -> Param {
        // `recognise` has already checked that every parameter of the forward pass exists.
        self.optional(name).unwrap_or_else(|| panic!("the base lacks {name}"))
    }

    /// Returns the parameter `name` with a leading particle axis of 1 or n.
    pub fn param(&self, name: &str) -> Tensor {
        self.required(name).with_particles()
    }

    pub fn has(&self, name: &str) -> bool {
        self.base.get(&self.whole(name)).is_some()
    }

    /// Returns the linear layer `layer`.
    pub fn linear(&self, layer: &str) -> Linear {
        let (weight, bias) = (self.required(&format!("{layer}.weight")), self.optional(&format!("{layer}.bias")));
        let layer = &*self.whole(layer);
        Linear {
            weight,
            bias,
            low_rank: self.updates.get(layer).map(LowRank::again),
            flipped: self.flips.get(layer).map(Flipped::again),
            scales: self.scales.get(layer).map(Scales::again),
            recorder: self.tape.as_ref().filter(|_| self.records(layer)).map(|tape| Recorder {
                tape: tape.clone(),
                layer: layer.to_string(),
                from: 0,
            }),
        }
    }

    /// Returns whether particles have an update, factors or weights of their own in the linear layer `layer`.
    pub fn adapts(&self, layer: &str) -> bool {
        let weight = format!("{layer}.weight");
        self.updates.contains_key(layer)
            || self.scales.contains_key(layer)
            || self.own.contains_key(&weight)
            || self.own.contains_key(self.base.first_name(&weight))
    }

    /// Returns whether the weight and the bias of the linear layer `layer` are those of the checkpoint.
    pub fn keeps(&self, layer: &str) -> bool {
        ["weight", "bias"].iter().all(|parameter| {
            let name = format!("{}.{parameter}", self.whole(layer));
            ![name.as_str(), self.base.first_name(&name)]
                .iter()
                .any(|name| self.own.contains_key(*name) || self.shared.contains_key(*name))
        })
    }

    /// Returns the norm `layer` by the root mean square.
    pub fn rms_norm(&self, layer: &str, more: f64) -> RmsNorm {
        RmsNorm { weight: self.required(&format!("{layer}.weight")), more }
    }

    /// Returns whether uses of `layer` are recorded where there is a tape.
    fn records(&self, layer: &str) -> bool {
        self.updates.contains_key(layer) || self.watched == Some(layer)
    }

    /// Returns the linear layer `layer` of queries, keys and values with the parameter `<layer>.keyless_bias`: the biases
    /// of queries and of values, one after the other. Keys have none.
    pub fn linear_without_key_bias(&self, layer: &str) -> Linear {
        let with_zeros = |bias: &Tensor| {
            let parts = bias.chunk(2, -1);
            Tensor::cat(&[&parts[0], &parts[0].zeros_like(), &parts[1]], -1)
        };
        let bias = match self.required(&format!("{layer}.keyless_bias")) {
            Param::PerParticle(bias) => Param::PerParticle(with_zeros(&bias)),
            shared => Param::Shared(with_zeros(&shared.of_all())),
        };
        Linear { bias: Some(bias), ..self.linear(layer) }
    }

    /// Returns the layer norm `layer`.
    pub fn norm(&self, layer: &str) -> Norm {
        Norm { weight: self.required(&format!("{layer}.weight")), bias: self.optional(&format!("{layer}.bias")) }
    }
}
