//! The result of training: a distribution over the rows of theta, as one type. A method returns it; the snapshot that
//! best-epoch selection keeps, the file of the run and the ways to predict follow from it.

pub mod curvature;
mod draws;
mod file;
mod fitted;
mod predictive;

use anyhow::{Result, ensure};
use tch::{Device, Tensor};

use crate::base::tensor::snapshot;
use crate::base::tensor_file::State;

pub use draws::Draws;
pub use file::Stored;
pub use fitted::{Approximation, Fitted};
pub use predictive::{Output, Predictive};

/// A mixture of n components with equal weights, each around a row of theta `[n, P]`, f32.
pub enum Posterior {
    /// Particles that are points.
    Points { theta: Tensor },
    /// Gaussians with independent columns: means `[n, P]` and standard deviations `[n, P]`.
    Gaussians { mean: Tensor, std: Tensor },
    /// Gaussians from the curvature around the modes `[n, P]`.
    Laplace { mode: Tensor, fitted: Fitted },
    /// Gaussians with covariance (diag(std²) + Dᵀ D / (K − 1)) / 2 (SWAG; Maddox et al. 2019, arXiv 1902.02476): means
    /// `[n, P]`, standard deviations `[n, P]`, deviations D `[n, K, P]`.
    LowRankGaussians { mean: Tensor, std: Tensor, deviations: Tensor },
    /// Draws `[m, P]` kept while sampling, such as those of stochastic-gradient Langevin dynamics.
    Bank { draws: Tensor },
}

impl Posterior {
    /// Returns the rows that represent the components, `[n, P]`: points, draws, modes or means.
    pub fn theta(&self) -> &Tensor {
        match self {
            Posterior::Points { theta } => theta,
            Posterior::Laplace { mode, .. } => mode,
            Posterior::Gaussians { mean, .. } | Posterior::LowRankGaussians { mean, .. } => mean,
            Posterior::Bank { draws } => draws,
        }
    }

    /// Returns the number of components n.
    pub fn particles(&self) -> i64 {
        self.theta().size()[0]
    }

    /// Returns whether the components have a spread from which members can be drawn.
    pub fn is_random(&self) -> bool {
        !matches!(self, Posterior::Points { .. } | Posterior::Bank { .. })
    }

    /// Returns the predictives for the evaluation after training, where `own` is that of the method. For Gaussians this
    /// includes their means.
    pub fn predictives(&self, own: Predictive) -> Vec<Predictive> {
        if self.is_random() && own != Predictive::Particles { vec![own, Predictive::Mean] } else { vec![own] }
    }

    /// Returns the same posterior with rows that later training steps do not change.
    pub fn snapshot(self) -> Posterior {
        match self {
            Posterior::Points { theta } => Posterior::Points { theta: snapshot(&theta) },
            Posterior::Gaussians { mean, std } => Posterior::Gaussians { mean: snapshot(&mean), std },
            Posterior::Laplace { mode, fitted } => Posterior::Laplace { mode: snapshot(&mode), fitted },
            Posterior::LowRankGaussians { mean, std, deviations } => {
                Posterior::LowRankGaussians { mean: snapshot(&mean), std, deviations }
            }
            bank @ Posterior::Bank { .. } => bank,
        }
    }

    /// Adds the tensors to those of a file, under names that start with `prefix`.
    pub fn save(&self, prefix: &str, state: &mut State) {
        let mut put = |name: &str, tensor: &Tensor| state.put(&format!("{prefix}{name}"), tensor);
        match self {
            Posterior::Points { theta } => put("theta", theta),
            Posterior::Gaussians { mean, std } => {
                put("theta", mean);
                put("std", std);
            }
            Posterior::LowRankGaussians { mean, std, deviations } => {
                put("theta", mean);
                put("std", std);
                put("deviations", deviations);
            }
            Posterior::Bank { draws } => put("draws", draws),
            Posterior::Laplace { mode, fitted } => {
                put("theta", mode);
                fitted.save(prefix, state);
            }
        }
    }

    /// Reads what [`save`](Self::save) added. The tensors in the file determine the variant.
    ///
    /// # Errors
    /// Fails if tensors are missing, damaged, or of shapes that do not fit each other.
    pub fn load(prefix: &str, state: &State, device: Device) -> Result<Posterior> {
        let has = |name: &str| state.has(&format!("{prefix}{name}"));
        let matrix = |name: &str| {
            let tensor = state.get(&format!("{prefix}{name}"))?.to_device(device);
            ensure!(tensor.dim() == 2, "{name} is not a matrix");
            Ok(tensor)
        };
        if has("draws") {
            return Ok(Posterior::Bank { draws: matrix("draws")? });
        }
        let theta = matrix("theta")?;
        if has("std") {
            let std = matrix("std")?;
            ensure!(std.size() == theta.size(), "std has another shape than theta");
            if !has("deviations") {
                return Ok(Posterior::Gaussians { mean: theta, std });
            }
            let deviations = state.get(&format!("{prefix}deviations"))?.to_device(device);
            let (found, (particles, parameters)) = (deviations.size(), theta.size2()?);
            let fits = found.len() == 3 && (found[0], found[2]) == (particles, parameters);
            ensure!(fits, "deviations have shape {found:?} around theta [{particles}, {parameters}]");
            return Ok(Posterior::LowRankGaussians { mean: theta, std, deviations });
        }
        Ok(match Fitted::load(prefix, state, &theta, device)? {
            Some(fitted) => Posterior::Laplace { mode: theta, fitted },
            None => Posterior::Points { theta },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    #[test]
    fn every_variant_survives_its_file() {
        tch::manual_seed(3);
        let random = |size: &[i64]| Tensor::randn(size, (Kind::Float, Device::Cpu));
        let (mean, std) = (random(&[2, 5]), random(&[2, 5]).square());
        let clone = Tensor::shallow_clone;
        let variants = [
            Posterior::Points { theta: clone(&mean) },
            Posterior::Gaussians { mean: clone(&mean), std: clone(&std) },
            Posterior::LowRankGaussians { mean, std, deviations: random(&[2, 3, 5]) },
            Posterior::Bank { draws: random(&[7, 5]) },
        ];
        for posterior in variants {
            let mut state = State::default();
            posterior.save("best_", &mut state);
            let read = Posterior::load("best_", &state, Device::Cpu).unwrap();
            assert_eq!(std::mem::discriminant(&posterior), std::mem::discriminant(&read));
            assert!(posterior.theta().equal(read.theta()));
            assert_eq!(read.is_random(), posterior.is_random());
            if read.is_random() {
                let draw = |from: &Posterior| Draws::new(from, 2, 1).unwrap().rows(0..4).unwrap();
                assert!(draw(&posterior).equal(&draw(&read)));
            }
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let zeros = |size: &[i64]| Tensor::zeros(size, (Kind::Float, Device::Cpu));
        let refused = |tensors: &[(&str, &[i64])]| {
            let mut state = State::default();
            tensors.iter().for_each(|(name, size)| state.put(name, &zeros(size)));
            Posterior::load("", &state, Device::Cpu).err().unwrap().to_string()
        };
        assert_eq!(refused(&[("theta", &[3])]), "theta is not a matrix");
        assert_eq!(refused(&[("theta", &[2, 3]), ("std", &[2, 4])]), "std has another shape than theta");
        let low_rank = refused(&[("theta", &[2, 3]), ("std", &[2, 3]), ("deviations", &[2, 5, 4])]);
        assert_eq!(low_rank, "deviations have shape [2, 5, 4] around theta [2, 3]");
    }
}
