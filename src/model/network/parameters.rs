//! Named tensors: the frozen weights that all particles share.

use tch::{Device, Kind, Tensor};

/// The frozen weights under canonical names, in the order of the forward pass.
pub struct Parameters(Vec<(String, Tensor)>);

impl Parameters {
    /// Collects names and tensors, given in the order of the forward pass.
    pub fn new(named: Vec<(String, Tensor)>) -> Parameters {
        Parameters(named)
    }

    /// Returns all names and tensors.
    pub fn all(&self) -> &[(String, Tensor)] {
        &self.0
    }

    /// Returns the tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// Returns the tensor called `name`, so that it can be replaced.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tensor> {
        self.0.iter_mut().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// Returns the number of scalars.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, tensor)| tensor.numel()).sum()
    }

    /// Returns the same weights on another device and in another type.
    pub fn to(&self, device: Device, kind: Kind) -> Parameters {
        Parameters(self.0.iter().map(|(name, t)| (name.clone(), t.to_device(device).to_kind(kind))).collect())
    }
}
