//! Low-rank updates of a linear layer, one per particle, and factors of its inputs and outputs.

use tch::{Kind, Tensor};

/// The updates ΔW_i = scale · B_i A_i.
#[derive(Debug)]
pub struct LowRank {
    /// The matrices A, `[n, rank, in]`.
    pub a: Tensor,
    /// The matrices B, `[n, out, rank]`.
    pub b: Tensor,
    /// The factor alpha / rank.
    pub scale: f64,
    /// The lengths m to which the rows of W_0 + ΔW_i are scaled, `[n, out]` (DoRA).
    pub magnitude: Option<Tensor>,
}

/// Noise in the factor A of which each sample b sees E ∘ (q_b r_bᵀ), with random signs q_b and r_b of its own (flipout; Wen et
/// al. 2018, arXiv 1803.04386).
#[derive(Debug)]
pub struct Flipped {
    /// The noise E, `[n, rank, in]`.
    pub noise: Tensor,
    /// The signs r, `[n, B, in]`.
    pub inputs: Tensor,
    /// The signs q, `[n, B, rank]`.
    pub outputs: Tensor,
}

impl Flipped {
    /// Returns ((x ∘ r) Eᵀ) ∘ q, `[n, M, rank]`, for `x: [p, M, in]` with the M / B tokens of each sample one after the other.
    fn product(&self, x: &Tensor) -> Tensor {
        let (n, batch, inputs) = self.inputs.size3().expect("signs have three axes");
        let signed = x.view([x.size()[0], batch, -1, inputs]) * self.inputs.unsqueeze(2);
        let low = signed.flatten(1, 2).bmm(&self.noise.transpose(1, 2));
        (low.view([n, batch, -1, low.size()[2]]) * self.outputs.unsqueeze(2)).flatten(1, 2)
    }

    /// Returns the same noise in a type.
    pub(super) fn to_kind(&self, kind: Kind) -> Flipped {
        let Flipped { noise, inputs, outputs } = self;
        Flipped { noise: noise.to_kind(kind), inputs: inputs.to_kind(kind), outputs: outputs.to_kind(kind) }
    }

    /// Returns the same noise, sharing its tensors.
    pub(super) fn again(&self) -> Flipped {
        let Flipped { noise, inputs, outputs } = self;
        Flipped { noise: noise.shallow_clone(), inputs: inputs.shallow_clone(), outputs: outputs.shallow_clone() }
    }
}

impl LowRank {
    /// Returns `y + scale · (x Aᵀ) Bᵀ` for `x: [p, M, in]`, `y: [p, M, out]`, where A has noise if `flipped` says so.
    pub(super) fn add_to(&self, y: Tensor, x: &Tensor, flipped: Option<&Flipped>) -> Tensor {
        let particles = self.particles();
        let b = self.b.transpose(1, 2) * self.scale;
        let low = self.down(x);
        let low = match flipped {
            Some(flipped) => low + flipped.product(x),
            None => low,
        };
        // Not in place: `y` is a view of the frozen product, and autograd would copy it three times in the backward pass.
        y.expand([particles, -1, -1], false).baddbmm(&low, &b, 1.0, 1.0)
    }

    /// Returns x Aᵀ `[n, M, rank]` for `x: [p, M, in]`.
    fn down(&self, x: &Tensor) -> Tensor {
        let (particles, rank, inputs) = (self.a.size()[0], self.a.size()[1], self.a.size()[2]);
        if x.size()[0] == particles {
            return x.bmm(&self.a.transpose(1, 2));
        }
        // One product with the A of all particles reads x once instead of n times.
        let rows = x.size()[1];
        let low = x.squeeze_dim(0).matmul(&self.a.reshape([particles * rank, inputs]).tr());
        low.view([rows, particles, rank]).transpose(0, 1)
    }

    /// Returns `carried` plus the derivatives `[S, M, out]` of this update of one particle, ΔW x, for an input `x: [1, M, in]` that moves
    /// by `[S, M, in]`, and for S moves Ȧ and Ḃ of its matrices: scale · (B (A ẋ + Ȧ x) + Ḃ A x), as one product of twice the rank.
    pub(super) fn add_moved(
        &self,
        carried: Option<Tensor>,
        (x, moved): (&Tensor, Option<&Tensor>),
        moves: Option<&LowRank>,
    ) -> Tensor {
        let by_input = moved.map(|moved| moved.matmul(&self.a.squeeze_dim(0).tr()));
        let by_a = moves.map(|moves| moves.down(x));
        let (mut low, mut b) = (Vec::new(), Vec::new());
        let sum = [by_input, by_a].into_iter().flatten().reduce(|a, b| a + b);
        let count = sum.as_ref().map_or(1, |sum| sum.size()[0]);
        if let Some(sum) = sum {
            low.push(sum);
            b.push(self.b.expand([count, -1, -1], false));
        }
        if let Some(moves) = moves {
            low.push(self.down(x).expand([count, -1, -1], false));
            b.push(moves.b.shallow_clone());
        }
        let (low, b) = (Tensor::cat(&low, 2), Tensor::cat(&b, 2).transpose(1, 2) * self.scale);
        match carried {
            Some(carried) => carried.baddbmm(&low, &b, 1.0, 1.0),
            None => low.bmm(&b),
        }
    }

    /// Returns the number of particles, n.
    pub(super) fn particles(&self) -> i64 {
        self.a.size()[0]
    }

    /// Returns the factors m / ‖W_0 + ΔW_i‖ of the rows of `weight: [out, in]`, `[n, out]` (Liu et al. 2024, arXiv 2402.09353,
    /// equation 5). The gradient takes the norm as a constant (section 4.3, equation 11), as PEFT does. A row of zeros, such
    /// as one that pads a vocabulary, has the magnitude 0 and stays one; divided by its norm it would be NaN.
    pub(super) fn row_factors(&self, weight: &Tensor) -> Option<Tensor> {
        let magnitude = self.magnitude.as_ref()?;
        let norms = tch::no_grad(|| self.norms(weight).to_kind(magnitude.kind()));
        let norms = norms.where_self(&norms.gt(0.0), &norms.ones_like());
        Some(magnitude / norms)
    }

    /// Returns ‖W_0 + s B A‖ of each row, `[n, out]`, from ‖W_0‖² + 2 s B (W_0 Aᵀ)ᵀ + s² B (A Aᵀ) Bᵀ, so that no ΔW is formed.
    fn norms(&self, weight: &Tensor) -> Tensor {
        let kind = crate::base::tensor::wide(weight.kind());
        let (weight, a, b) = (weight.to_kind(kind), self.a.to_kind(kind), self.b.to_kind(kind));
        let (particles, rank, inputs) = (a.size()[0], a.size()[1], a.size()[2]);
        let mixed = weight.matmul(&a.reshape([particles * rank, inputs]).tr());
        let mixed = mixed.view([-1, particles, rank]).transpose(0, 1);
        let own = b.matmul(&a.bmm(&a.transpose(1, 2)));
        let sum = |t: Tensor| t.sum_dim_intlist([-1i64].as_slice(), false, kind);
        let update = sum(&b * (mixed * (2.0 * self.scale) + own * (self.scale * self.scale)));
        (sum(weight.square()) + update).clamp_min(0.0).sqrt()
    }

    /// Returns the weight of one particle in the shape of the frozen one.
    pub(super) fn of_particle(&self, weight: &Tensor, particle: i64) -> Tensor {
        let update = self.b.select(0, particle).matmul(&self.a.select(0, particle)) * self.scale;
        let whole = weight + update.view(weight.size().as_slice());
        match self.row_factors(weight) {
            Some(factors) => whole * factors.select(0, particle).unsqueeze(1),
            None => whole,
        }
    }

    /// Applies `to` to the lengths of rows.
    fn lengths(&self, to: impl FnOnce(&Tensor) -> Tensor) -> Option<Tensor> {
        self.magnitude.as_ref().map(to)
    }

    /// Returns the same update, sharing its tensors.
    pub(super) fn again(&self) -> LowRank {
        let magnitude = self.lengths(Tensor::shallow_clone);
        LowRank { a: self.a.shallow_clone(), b: self.b.shallow_clone(), scale: self.scale, magnitude }
    }

    /// Returns output rows `start..start + length` of the update.
    pub(super) fn rows(&self, start: i64, length: i64) -> LowRank {
        let magnitude = self.lengths(|m| m.narrow(1, start, length));
        LowRank { a: self.a.shallow_clone(), b: self.b.narrow(1, start, length), scale: self.scale, magnitude }
    }

    /// Returns the output rows `index: [k]` of the update.
    pub(super) fn picked(&self, index: &Tensor) -> LowRank {
        let magnitude = self.lengths(|m| m.index_select(1, index));
        LowRank { a: self.a.shallow_clone(), b: self.b.index_select(1, index), scale: self.scale, magnitude }
    }

    /// Returns the same update in a type.
    pub(super) fn to_kind(&self, kind: Kind) -> LowRank {
        let magnitude = self.lengths(|m| m.to_kind(kind));
        LowRank { a: self.a.to_kind(kind), b: self.b.to_kind(kind), scale: self.scale, magnitude }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    /// One layer of one particle with `signs` for as many samples, all of which have two tokens of the same input.
    fn outputs(x: &Tensor, noise: &Tensor, inputs: Tensor, outputs: Tensor) -> (Tensor, Tensor) {
        let batch = inputs.size()[1];
        let a = Tensor::from_slice(&[0.5, -0.2, 0.1, 0.3, 0.7, -0.4]).view([1, 2, 3]);
        let update = LowRank { a, b: Tensor::eye(2, tch::kind::DOUBLE_CPU).unsqueeze(0), scale: 2.0, magnitude: None };
        let x = x.repeat([1, 2 * batch, 1]);
        let y = Tensor::zeros([1, 2 * batch, 2], tch::kind::DOUBLE_CPU);
        let flipped = Flipped { noise: noise.shallow_clone(), inputs, outputs };
        let plain = update.add_to(y.copy(), &x, None);
        (update.add_to(y, &x, Some(&flipped)).view([batch, 2, 2]), plain.view([batch, 2, 2]))
    }

    /// Over all signs the mean of an output is that without noise, and its variance is s² Σ_j E_kj² x_j²; the tokens of a sample
    /// share its signs. `python3 -c "E=[.3,-.1,.2]; x=[1,-2,.5]; print(4*sum((e*v)**2 for e, v in zip(E, x)))"`: 0.56
    #[test]
    fn signs_keep_the_mean_and_the_variance() {
        let x = Tensor::from_slice(&[1.0, -2.0, 0.5]).view([1, 1, 3]);
        let noise = Tensor::from_slice(&[0.3, -0.1, 0.2, 0.05, 0.4, -0.3]).view([1, 2, 3]);
        let all = Tensor::arange(32, (Kind::Int64, tch::Device::Cpu)).unsqueeze(1);
        let bits = all.bitwise_right_shift(&Tensor::arange(5, (Kind::Int64, tch::Device::Cpu))).remainder(2);
        let signs = (bits * 2 - 1).to_kind(Kind::Double).unsqueeze(0);
        let (found, plain) = outputs(&x, &noise, signs.narrow(2, 0, 3), signs.narrow(2, 3, 2));
        assert!(found.select(1, 0).equal(&found.select(1, 1)), "tokens of a sample share its signs");
        let apart = (found - plain).select(1, 0);
        let mean = apart.mean_dim([0i64].as_slice(), false, Kind::Double);
        assert!(mean.abs().max().double_value(&[]) < 1e-14);
        let variance = apart.square().mean_dim([0i64].as_slice(), false, Kind::Double);
        let expected = Tensor::from_slice(&[0.56, 4.0 * (0.05f64.powi(2) + 0.8f64.powi(2) + 0.15f64.powi(2))]);
        assert!(variance.allclose(&expected, 1e-12, 1e-12, false), "{variance}");
    }
}
