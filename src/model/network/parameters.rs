//! Named tensors: the frozen weights that all particles share.

use tch::{Device, Kind, Tensor};

/// Frozen weights under canonical names, in the order of the forward.
pub struct Parameters(Vec<(String, Tensor)>);

impl Parameters {
    /// Names and tensors, in the order of the forward.
    pub fn new(named: Vec<(String, Tensor)>) -> Parameters {
        Parameters(named)
    }

    /// The name and the tensor of each.
    pub fn all(&self) -> &[(String, Tensor)] {
        &self.0
    }

    /// The tensor called `name`.
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// The tensor called `name`, to be replaced.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut Tensor> {
        self.0.iter_mut().find(|(known, _)| known == name).map(|(_, tensor)| tensor)
    }

    /// The number of scalars.
    pub fn count(&self) -> usize {
        self.0.iter().map(|(_, tensor)| tensor.numel()).sum()
    }

    /// The same weights on another device and in another type.
    pub fn to(&self, device: Device, kind: Kind) -> Parameters {
        Parameters(self.0.iter().map(|(name, t)| (name.clone(), t.to_device(device).to_kind(kind))).collect())
    }
}
