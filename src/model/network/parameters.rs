//! Named tensors: the frozen weights that all particles share.

use tch::{Device, Kind, Tensor};

/// The frozen weights under canonical names, in the order of the forward pass.
#[derive(Default)]
pub struct Parameters {
    named: Vec<(String, Tensor)>,
    /// A second name of a tensor that two layers share, and its first.
    tied: Option<(String, String)>,
}

impl Parameters {
    /// Collects names and tensors, given in the order of the forward pass.
    pub fn new(named: Vec<(String, Tensor)>) -> Parameters {
        Parameters { named, tied: None }
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

    /// Gives the tensor `first` a second name, by which another layer reads it. It stays one parameter.
    pub fn tie(self, second: &str, first: &str) -> Parameters {
        Parameters { tied: Some((second.to_string(), first.to_string())), ..self }
    }

    /// Returns the first name of a tensor that has two; any other name is returned as it is.
    pub fn first_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.tied.as_ref().filter(|(second, _)| second == name).map_or(name, |(_, first)| first)
    }

    /// Returns all names and tensors. A tensor with two names is there once.
    pub fn all(&self) -> &[(String, Tensor)] {
        &self.named
    }

    /// Returns the tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let name = self.first_name(name);
        self.named.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// Returns the tensor called `name`, so that it can be replaced.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tensor> {
        self.named.iter_mut().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// Returns the number of scalars.
    pub fn count(&self) -> usize {
        self.named.iter().map(|(_, tensor)| tensor.numel()).sum()
    }

    /// Returns the same weights on another device and in another type.
    pub fn to(&self, device: Device, kind: Kind) -> Parameters {
        let moved = |(name, t): &(String, Tensor)| (name.clone(), t.to_device(device).to_kind(kind));
        Parameters { named: self.named.iter().map(moved).collect(), tied: self.tied.clone() }
    }

    /// Turns the weights into the same ones on another device and in another type, one after the other, so that they are
    /// never there twice.
    pub fn into_kind(mut self, device: Device, kind: Kind) -> Parameters {
        for (_, tensor) in &mut self.named {
            *tensor = tensor.to_device(device).to_kind(kind);
        }
        self
    }
}
