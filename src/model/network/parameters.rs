//! The frozen weights of a network by their canonical names, some of which may be stored in fewer bits.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use tch::{Device, Kind, Tensor};

use crate::base::tensor::is_finite;
use crate::machine::quantised::{Quantised, Scheme};
use crate::model::network::layers::Param;

/// The frozen weights under canonical names, in the order of the forward pass.
#[derive(Default)]
pub struct Parameters {
    named: Vec<(String, Tensor)>,
    /// The weights that are stored in fewer bits, by name. `named` has tensors of their sizes for them.
    quantised: HashMap<String, Quantised>,
    /// A second name of a tensor that two layers share, and its first.
    tied: Option<(String, String)>,
}

/// Checks that a weight of a checkpoint is finite; `what` names it.
///
/// # Errors
/// Fails if it is not.
pub fn expect_finite(what: &str, weight: &Tensor) -> Result<()> {
    ensure!(
        is_finite(weight),
        "{what} has a number that is NaN or infinite: its training diverged, or the file is damaged: give other weights"
    );
    Ok(())
}

/// A frozen weight that has been read.
pub enum Weight {
    Plain(Tensor),
    Quantised(Quantised),
}

impl Weight {
    pub fn size(&self) -> Vec<i64> {
        match self {
            Weight::Plain(tensor) => tensor.size(),
            Weight::Quantised(quantised) => quantised.size().to_vec(),
        }
    }

    /// Returns its values, which are made of a quantised weight.
    pub fn into_values(self) -> Tensor {
        match self {
            Weight::Plain(tensor) => tensor,
            Weight::Quantised(quantised) => quantised.numbers(),
        }
    }

    /// Stores a plain weight in fewer bits.
    ///
    /// # Errors
    /// Fails if it is NaN or infinite.
    pub fn quantised(self, scheme: Scheme) -> Result<Weight> {
        match self {
            Weight::Plain(tensor) => Quantised::of(&tensor, scheme).map(Weight::Quantised),
            quantised => Ok(quantised),
        }
    }
}

/// Returns a tensor that has the size, type and device of a quantised weight, and takes no memory. Its entries are NaN, so that whoever
/// takes them for the weight notices.
fn outline(of: &Quantised) -> Tensor {
    Tensor::full([1], f64::NAN, (of.kind(), of.device())).expand(of.size(), false)
}

impl Parameters {
    /// Collects names and tensors, given in the order of the forward pass.
    pub fn new(named: Vec<(String, Tensor)>) -> Parameters {
        Parameters { named, ..Parameters::default() }
    }

    /// Collects names and weights, given in the order of the forward pass.
    pub fn of(weights: Vec<(String, Weight)>) -> Parameters {
        let mut all = Parameters::default();
        for (name, weight) in weights {
            let tensor = match weight {
                Weight::Plain(tensor) => tensor,
                Weight::Quantised(quantised) => {
                    let sized = outline(&quantised);
                    all.quantised.insert(name.clone(), quantised);
                    sized
                }
            };
            all.named.push((name, tensor));
        }
        all
    }

    /// Makes tensors of these names and shapes in a type, all entries of which are one zero: they have sizes and take no memory.
    pub fn without_memory(sizes: Vec<(String, Vec<i64>)>, kind: Kind) -> Parameters {
        let zero = Tensor::zeros([1], (kind, Device::Cpu));
        let named = |(name, shape): (String, Vec<i64>)| {
            let shape = if shape.is_empty() { vec![1] } else { shape };
            (name, zero.expand(&shape, false))
        };
        Parameters::new(sizes.into_iter().map(named).collect())
    }

    /// Returns whether they are weights on the CPU, and not [sizes](Self::without_memory) of weights of which nobody knows where they will
    /// be.
    pub fn lie_on_cpu(&self) -> bool {
        let takes_memory = |tensor: &Tensor| tensor.stride().iter().any(|step| *step > 0);
        self.named.iter().any(|(_, tensor)| tensor.device() == Device::Cpu && takes_memory(tensor))
    }

    /// Stores the weights of linear layers in fewer bits, those that are not yet.
    ///
    /// # Errors
    /// Fails if one of them is NaN or infinite.
    pub fn quantise(&mut self, layers: &[String], scheme: Scheme) -> Result<()> {
        self.store(layers, |tensor| Quantised::of(tensor, scheme))
    }

    /// Makes the weights of linear layers [without memory](Self::without_memory) quantised ones that take none either.
    pub fn lay_out_quantised(&mut self, layers: &[String], scheme: Scheme) -> Result<()> {
        self.store(layers, |tensor| {
            let (outputs, inputs) = tensor.size2()?;
            Ok(Quantised::without_memory([outputs, inputs], scheme, tensor.kind()))
        })
    }

    fn store(&mut self, layers: &[String], of: impl Fn(&Tensor) -> Result<Quantised>) -> Result<()> {
        for (name, tensor) in &mut self.named {
            let layer = name.strip_suffix(".weight").filter(|layer| layers.iter().any(|known| known == layer));
            if layer.is_none() || self.quantised.contains_key(name) {
                continue;
            }
            let quantised = of(tensor).with_context(|| format!("checkpoint.quantize: {name}"))?;
            *tensor = outline(&quantised);
            self.quantised.insert(name.clone(), quantised);
        }
        Ok(())
    }

    /// Adds other weights behind these.
    pub fn with(mut self, other: Parameters) -> Parameters {
        self.named.extend(other.named);
        self.quantised.extend(other.quantised);
        Parameters { tied: self.tied.or(other.tied), ..self }
    }

    /// Gives the tensor `first` a second name, by which another layer reads it. It stays one parameter.
    pub fn tie(self, second: &str, first: &str) -> Parameters {
        Parameters { tied: Some((second.to_string(), first.to_string())), ..self }
    }

    /// Returns the first name of a tensor that has two; any other name is returned as it is.
    pub fn first_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.tied.as_ref().filter(|(second, _)| second == name).map_or(name, |(_, first)| first)
    }

    /// Returns all names and tensors, those of quantised weights for their sizes alone. A tensor with two names is there once.
    pub fn all(&self) -> &[(String, Tensor)] {
        &self.named
    }

    /// Returns the tensor called `name`; that of a quantised weight has its size, and is otherwise NaN.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let name = self.first_name(name);
        self.named.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// Returns the values called `name`, which are made of a quantised weight.
    pub fn value(&self, name: &str) -> Option<Tensor> {
        match self.quantised.get(self.first_name(name)) {
            Some(quantised) => Some(quantised.numbers()),
            None => self.get(name).map(Tensor::shallow_clone),
        }
    }

    /// Returns the tensor that a layer reads under `name`.
    pub(super) fn param(&self, name: &str) -> Option<Param> {
        match self.quantised.get(self.first_name(name)) {
            Some(quantised) => Some(Param::Quantised(quantised.again())),
            None => self.get(name).map(|tensor| Param::Shared(tensor.shallow_clone())),
        }
    }

    /// Returns whether the weight called `name` is quantised.
    pub fn is_quantised(&self, name: &str) -> bool {
        self.quantised.contains_key(self.first_name(name))
    }

    /// Returns whether some weights are quantised.
    pub fn has_quantised(&self) -> bool {
        !self.quantised.is_empty()
    }

    /// Returns the tensor called `name`, so that it can be replaced.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tensor> {
        self.named.iter_mut().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// Checks that all weights are finite. Those in fewer bits are looked at when they are made.
    ///
    /// # Errors
    /// Fails with the name of the first one that is not.
    pub fn check_finite(&self) -> Result<()> {
        let mut plain = self.named.iter().filter(|(name, _)| !self.quantised.contains_key(name));
        plain.try_for_each(|(name, tensor)| expect_finite(&format!("`{name}`"), tensor))
    }

    /// Returns the number of scalars.
    pub fn count(&self) -> usize {
        self.named.iter().map(|(_, tensor)| tensor.numel()).sum()
    }

    /// Returns the bytes that the weights take in a type.
    pub fn bytes(&self, kind: Kind) -> u64 {
        let plain = self.named.iter().filter(|(name, _)| !self.quantised.contains_key(name));
        let numbers: usize = plain.map(|(_, tensor)| tensor.numel()).sum();
        (numbers * kind.elt_size_in_bytes()) as u64 + self.quantised.values().map(Quantised::bytes).sum::<u64>()
    }

    /// Returns the most bytes that a product makes of a quantised weight at a time, in a type.
    pub fn slice_bytes(&self, kind: Kind) -> u64 {
        self.quantised.values().map(|quantised| quantised.slice_bytes(kind)).max().unwrap_or(0)
    }

    /// Returns the same weights on another device and in another type.
    pub fn to(&self, device: Device, kind: Kind) -> Parameters {
        let named = self.named.iter().map(|(name, tensor)| (name.clone(), tensor.shallow_clone())).collect();
        let quantised = self.quantised.iter().map(|(name, quantised)| (name.clone(), quantised.again())).collect();
        Parameters { named, quantised, tied: self.tied.clone() }.into_kind(device, kind)
    }

    /// Turns the weights into the same ones on another device and in another type, one after the other, so that they are
    /// never there twice.
    pub fn into_kind(mut self, device: Device, kind: Kind) -> Parameters {
        for quantised in self.quantised.values_mut() {
            *quantised = quantised.to(device, kind);
        }
        for (name, tensor) in &mut self.named {
            *tensor = match self.quantised.get(name) {
                Some(quantised) => outline(quantised),
                None => tensor.to_device(device).to_kind(kind),
            };
        }
        self
    }
}
