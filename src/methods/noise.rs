//! Standard normal noise as a pure function of (seed, purpose, place): nothing depends on what was drawn before, on
//! threads, or on which other particles this process holds.

use rand::Rng;
use tch::{Kind, Tensor};

use crate::data::order::{Purpose, stream};

/// Where in a run a draw belongs.
#[derive(Clone, Copy, Debug)]
pub struct At {
    pub step: i64,
    pub sample: i64,
    pub part: i64,
}

/// A source of noise.
pub struct Noise {
    seed: u64,
    purpose: Purpose,
    /// Given draws, for comparison with other code.
    #[cfg(test)]
    pub given: Vec<Tensor>,
}

impl Noise {
    pub fn new(seed: u64, purpose: Purpose) -> Noise {
        Noise {
            seed,
            purpose,
            #[cfg(test)]
            given: Vec::new(),
        }
    }

    /// Noise for `theta: [n, P]`, in its type and on its device.
    pub fn draw(&self, at: At, theta: &Tensor) -> Tensor {
        #[cfg(test)]
        if !self.given.is_empty() {
            return self.given[(at.step + at.sample) as usize % self.given.len()].expand_as(theta);
        }
        let rows: Vec<Tensor> = (0..theta.size()[0]).map(|particle| self.row(at, particle, theta)).collect();
        Tensor::stack(&rows, 0)
    }

    /// Noise for one particle, `[P]`.
    pub fn row(&self, at: At, particle: i64, theta: &Tensor) -> Tensor {
        let place = [at.step, at.sample, at.part, particle].map(|index| index as u64);
        // libtorch's generator is the only fast one on every device; its state is set anew for every draw.
        tch::manual_seed(stream(self.seed, self.purpose, &place).next_u64() as i64);
        let kind = if theta.kind() == Kind::Double { Kind::Double } else { Kind::Float };
        Tensor::randn([theta.size()[1]], (kind, theta.device()))
    }
}
