//! Standard normal noise as a pure function of (seed, purpose, place). It does not depend on earlier draws, on threads,
//! or on which other particles this process holds.

use rand::Rng;
use tch::{Kind, Tensor};

use crate::base::random::{Purpose, stream};

/// The place of a draw in a run.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub step: i64,
    pub sample: i64,
    pub part: i64,
}

/// A source of noise.
pub enum Noise {
    /// Noise that is a pure function of the place.
    Seeded { seed: u64, purpose: Purpose },
    /// Given draws `[n, P]`, used in turn, for comparison with other code.
    Given(Vec<Tensor>),
}

impl Noise {
    pub fn new(seed: u64, purpose: Purpose) -> Noise {
        Noise::Seeded { seed, purpose }
    }

    /// Returns noise for `theta: [n, P]`, in its type and on its device.
    pub fn draw(&self, at: At, theta: &Tensor) -> Tensor {
        match self {
            Noise::Seeded { seed, purpose } => {
                let row = |particle| row(*seed, *purpose, at, particle, theta);
                Tensor::stack(&(0..theta.size()[0]).map(row).collect::<Vec<_>>(), 0)
            }
            Noise::Given(draws) => draws[(at.step + at.sample) as usize % draws.len()].expand_as(theta),
        }
    }
}

/// Returns standard normal numbers for one particle, `[P]` for `theta: [n, P]`.
pub fn row(seed: u64, purpose: Purpose, at: At, particle: i64, theta: &Tensor) -> Tensor {
    let place = [at.step, at.sample, at.part, particle].map(|index| index as u64);
    // Only libtorch's generator is fast on every device, so it is seeded again for every draw.
    tch::manual_seed(stream(seed, purpose, &place).next_u64() as i64);
    let kind = if theta.kind() == Kind::Double { Kind::Double } else { Kind::Float };
    Tensor::randn([theta.size()[1]], (kind, theta.device()))
}

/// Returns the noise ε `[P]` of one draw from the posterior of a particle, for `theta: [n, P]`.
pub fn posterior_row(seed: u64, sample: i64, particle: i64, theta: &Tensor) -> Tensor {
    row(seed, Purpose::Posterior, At { step: 0, sample, part: 0 }, particle, theta)
}
