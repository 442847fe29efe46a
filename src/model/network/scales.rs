//! Factors of the inputs and outputs of a linear layer, one of each per particle.

use tch::{Kind, Tensor};

/// The weights W_0 ∘ (s_i r_iᵀ) of n particles: y = (W_0 (x ∘ r_i)) ∘ s_i (Wen et al. 2020, arXiv 2002.06715, equation 5), so that no
/// weight of a particle is formed.
#[derive(Debug)]
pub struct Scales {
    /// The factors r of the inputs, `[n, 1, in]`.
    pub inputs: Tensor,
    /// The factors s of the outputs, `[n, out]`.
    pub outputs: Tensor,
}

/// The text between a layer's name and `inputs` or `outputs` in the names of its factors.
pub const SCALES: &str = ".scales";

impl Scales {
    /// Returns x ∘ r, `[n, M, in]`, for `x: [p, M, in]`.
    pub(super) fn enter(&self, x: &Tensor) -> Tensor {
        x * &self.inputs
    }

    /// Returns y ∘ s, `[n, M, out]`, for `y: [n, M, out]`.
    pub(super) fn leave(&self, y: &Tensor) -> Tensor {
        y * self.outputs.unsqueeze(1)
    }

    /// Returns the number of particles, n.
    pub(super) fn particles(&self) -> i64 {
        self.inputs.size()[0]
    }

    /// Returns the weight of one particle in the shape of the frozen one.
    pub(super) fn of_particle(&self, weight: &Tensor, particle: i64) -> Tensor {
        let factors = self.outputs.select(0, particle).unsqueeze(1) * self.inputs.select(0, particle);
        weight * factors.view(weight.size().as_slice())
    }

    /// Returns the same factors, sharing their tensors.
    pub(super) fn again(&self) -> Scales {
        Scales { inputs: self.inputs.shallow_clone(), outputs: self.outputs.shallow_clone() }
    }

    /// Returns the factors of output rows `start..start + length`.
    pub(super) fn rows(&self, start: i64, length: i64) -> Scales {
        Scales { inputs: self.inputs.shallow_clone(), outputs: self.outputs.narrow(1, start, length) }
    }

    /// Returns the factors of the output rows `index: [k]`.
    pub(super) fn picked(&self, index: &Tensor) -> Scales {
        Scales { inputs: self.inputs.shallow_clone(), outputs: self.outputs.index_select(1, index) }
    }

    /// Returns the same factors in a type.
    pub(super) fn to_kind(&self, kind: Kind) -> Scales {
        Scales { inputs: self.inputs.to_kind(kind), outputs: self.outputs.to_kind(kind) }
    }
}
