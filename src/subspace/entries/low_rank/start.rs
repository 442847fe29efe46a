//! The starts of the factors of a layer, as one particle has them.

use anyhow::{Result, anyhow};
use rand::RngExt;
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, normal, stream};
use crate::base::tensor::first_line;
use crate::subspace::uniform;

/// The start of the factors of all layers.
#[derive(Clone, Copy, Debug)]
pub enum Start {
    /// A is uniform and B is zero: Kaiming's bound, or Xavier's with a gain.
    Uniform { gain: Option<f64> },
    /// A is Gaussian around 0 and B is zero.
    Normal { std: f64 },
    /// Factors that are given for each layer, which particles mix in ways of their own.
    Given,
    /// A has the principal directions of the layer's inputs over training images, which particles mix likewise, and B is zero. Without
    /// images, A is uniform by Kaiming's bound.
    Inputs,
}

/// The factors A `[r, in]` and B `[out, r]` of a layer, f32 on the CPU.
#[derive(Debug)]
pub struct Factors {
    pub a: Tensor,
    pub b: Tensor,
}

impl Factors {
    /// Returns the factors with s B A = U_r S_r V_rᵀ of a weight W `[out, in]` (PiSSA; Meng et al. 2024, arXiv 2404.02948, equations 2
    /// and 3), split evenly as PEFT's `pissa_init` does: A = √(S_r / s) V_rᵀ and B = U_r √(S_r / s).
    ///
    /// # Errors
    /// Fails if the decomposition fails.
    pub fn principal(weight: &Tensor, rank: i64, scale: f64) -> Result<Factors> {
        let weight = weight.to_device(tch::Device::Cpu).to_kind(Kind::Double).flatten(1, -1);
        let (u, s, v) = weight.f_svd(true, true).map_err(|e| anyhow!("{}", first_line(&e)))?;
        let root = (s.narrow(0, 0, rank) / scale).sqrt().unsqueeze(0);
        let host = |t: Tensor| t.to_kind(Kind::Float).contiguous();
        Ok(Factors { a: host((v.narrow(1, 0, rank) * &root).tr()), b: host(u.narrow(1, 0, rank) * &root) })
    }

    pub fn again(&self) -> Factors {
        Factors { a: self.a.shallow_clone(), b: self.b.shallow_clone() }
    }

    /// Returns the factors with which a particle starts: R A and B R⁻¹. The product, and with it the network, stays. R is the unit
    /// for particle 0; that of any other is D Q with an orthogonal Q and a diagonal D from e^{±ln 2}, so that gradient steps, which
    /// an orthogonal R alone would not change, lead particles apart.
    pub fn of_particle(&self, seed: u64, particle: u64, layer: u64) -> Factors {
        if particle == 0 {
            return self.again();
        }
        let rank = self.a.size()[0];
        let mut rng = stream(seed, Purpose::Init, &[particle, layer]);
        let draws: Vec<f64> = (0..rank * rank).map(|_| normal(&mut rng)).collect();
        let lengths: Vec<f64> = (0..rank).map(|_| rng.random_range(-2f64.ln()..2f64.ln()).exp()).collect();
        let (q, _) = Tensor::linalg_qr(&Tensor::from_slice(&draws).view([rank, rank]), "reduced");
        let lengths = Tensor::from_slice(&lengths);
        let (a, b) = (self.a.to_kind(Kind::Double), self.b.to_kind(Kind::Double));
        let a = q.matmul(&a) * lengths.unsqueeze(1);
        let b = b.matmul(&q.tr()) / lengths.unsqueeze(0);
        Factors { a: a.to_kind(Kind::Float), b: b.to_kind(Kind::Float) }
    }

    /// Returns A, then B, as they follow each other in the columns.
    pub fn flat(&self) -> Tensor {
        Tensor::cat(&[self.a.reshape([-1]), self.b.reshape([-1])], 0)
    }
}

/// The random draws of a layer of a particle.
#[derive(Clone, Copy)]
pub struct Drawn {
    pub seed: u64,
    pub particle: u64,
    pub layer: u64,
}

/// Returns the uniform start of A, and zeros for B, as they follow each other in the columns.
pub fn uniform_factors(Drawn { seed, particle, layer }: Drawn, shape: [i64; 3], gain: Option<f64>) -> Tensor {
    let [rank, inputs, _] = shape;
    let (r, d) = (rank as f64, inputs as f64);
    let bound = gain.map_or(1.0 / d.sqrt(), |gain| gain * (6.0 / (r + d)).sqrt());
    with_zeros(&uniform(seed, particle, 2 * layer, (rank * inputs) as usize, bound), shape)
}

/// Returns the Gaussian start of A, and zeros for B, as they follow each other in the columns.
pub fn normal_factors(Drawn { seed, particle, layer }: Drawn, shape: [i64; 3], std: f64) -> Tensor {
    let mut rng = stream(seed, Purpose::Init, &[particle, 2 * layer]);
    let a: Vec<f32> = (0..shape[0] * shape[1]).map(|_| (std * normal(&mut rng)) as f32).collect();
    with_zeros(&a, shape)
}

fn with_zeros(a: &[f32], [rank, _, outputs]: [i64; 3]) -> Tensor {
    Tensor::cat(&[Tensor::from_slice(a), Tensor::zeros([outputs * rank], tch::kind::FLOAT_CPU)], 0)
}

/// Returns the norms of the rows of a weight `[out, in]`, `[out]` in f32 on the CPU.
pub fn row_norms(weight: &Tensor) -> Tensor {
    let wide = weight.to_device(tch::Device::Cpu).to_kind(Kind::Double);
    wide.norm_scalaropt_dim(2.0, [1], false).to_kind(Kind::Float)
}
