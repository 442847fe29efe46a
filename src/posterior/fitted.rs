//! Gaussians fitted around trained particles (Laplace approximations).

use std::ops::Range;

use anyhow::{Result, ensure};
use tch::{Device, Tensor};

use super::curvature::Curvature;
use crate::base::tensor_file::State;

/// The Gaussian around one particle, with precision H + τ.
#[derive(Debug)]
pub struct Approximation {
    /// The curvature H.
    pub curvature: Curvature,
    /// The prior precision τ.
    pub precision: f64,
}

impl Approximation {
    /// Returns `theta: [P]` with its random `columns` drawn around their mode; `epsilon: [P]` is standard normal.
    pub fn draw(&self, columns: &Range<i64>, theta: &Tensor, epsilon: &Tensor) -> Tensor {
        self.curvature.draw(self.precision, columns, theta, epsilon)
    }
}

/// The Gaussians around all particles.
#[derive(Debug)]
pub struct Fitted {
    /// The columns of theta that are random.
    pub columns: Range<i64>,
    pub particles: Vec<Approximation>,
}

impl Fitted {
    /// Adds everything to the tensors of a file.
    pub fn save(&self, prefix: &str, state: &mut State) {
        let precisions: Vec<f64> = self.particles.iter().map(|particle| particle.precision).collect();
        state.put(&format!("{prefix}laplace.precision"), &Tensor::from_slice(&precisions));
        state.put(&format!("{prefix}laplace.columns"), &Tensor::from_slice(&[self.columns.start, self.columns.end]));
        for (particle, approximation) in self.particles.iter().enumerate() {
            approximation.curvature.save(&format!("{prefix}laplace.{particle}"), state);
        }
    }

    /// Reads what [`save`](Self::save) stored around the modes `theta: [n, P]`; `None` if there is nothing.
    ///
    /// # Errors
    /// Fails if the Gaussians belong to other particles, or if tensors are damaged.
    pub fn load(prefix: &str, state: &State, theta: &Tensor, device: Device) -> Result<Option<Fitted>> {
        if !state.has(&format!("{prefix}laplace.precision")) {
            return Ok(None);
        }
        let columns = state.get(&format!("{prefix}laplace.columns"))?;
        ensure!(columns.size() == [2], "`laplace.columns` is damaged");
        let columns = columns.int64_value(&[0])..columns.int64_value(&[1]);
        let precisions = crate::base::tensor::host_f64(&state.get(&format!("{prefix}laplace.precision"))?)?;
        let (particles, parameters) = theta.size2()?;
        let fits = precisions.len() as i64 == particles && columns.start >= 0 && columns.end <= parameters;
        ensure!(fits, "the Laplace approximation is of other particles than theta");
        let one = |(particle, precision): (usize, f64)| {
            let curvature = Curvature::load(&format!("{prefix}laplace.{particle}"), state, device)?;
            Ok(Approximation { curvature, precision })
        };
        let particles = precisions.into_iter().enumerate().map(one).collect::<Result<_>>()?;
        Ok(Some(Fitted { columns, particles }))
    }
}
