//! The running means that optimizers keep, with the key of the first one.

use anyhow::Result;
use tch::Tensor;

use crate::base::tensor_file::State;
use crate::schema::{Reader, limits};

/// Reads the decay of the gradient's running mean, `beta1`; methods that step by themselves have it, too.
pub fn beta1(reader: &Reader) -> f64 {
    reader.float("beta1", limits::from_below(0.0, 1.0)).about("Decay of the gradient's running mean.").or(0.9)
}

/// Two running means and the number of steps that are in them.
pub(super) struct Moments {
    /// The name of the optimizer, with which the names of its tensors begin.
    key: &'static str,
    /// The first moment m, `[n, P]`.
    pub first: Tensor,
    /// The second moment v, `[n, P]`.
    pub second: Tensor,
    pub steps: i64,
}

impl Moments {
    /// Creates the moments of no step for `theta: [n, P]`.
    pub fn new(key: &'static str, theta: &Tensor) -> Moments {
        Moments { key, first: theta.zeros_like(), second: theta.zeros_like(), steps: 0 }
    }

    /// Returns 1 − β^t after t steps, by which a running mean that began at 0 is divided.
    pub fn correction(&self, beta: f64) -> f64 {
        1.0 - beta.powi(self.steps.min(i64::from(i32::MAX)) as i32)
    }

    fn names(&self) -> [String; 3] {
        ["first", "second", "steps"].map(|name| format!("{}.{name}", self.key))
    }

    pub fn save(&self, state: &mut State) {
        let [first, second, steps] = self.names();
        state.put(&first, &self.first);
        state.put(&second, &self.second);
        state.put_count(&steps, self.steps);
    }

    pub fn load(&mut self, state: &State) -> Result<()> {
        let [first, second, steps] = self.names();
        state.copy_into(&first, &mut self.first)?;
        state.copy_into(&second, &mut self.second)?;
        self.steps = state.count(&steps)?;
        Ok(())
    }
}
