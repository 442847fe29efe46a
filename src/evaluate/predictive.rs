//! How a trained posterior predicts: with its particles, with the means of its Gaussians, or with draws from them.

use anyhow::Result;
use tch::Tensor;

use crate::config::Experiment;
use crate::posterior::Mixture;

/// Which members stand for the posterior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictive {
    /// The particles themselves: points, or means of Gaussians.
    Particles,
    /// The means of Gaussians (IVON@mean).
    Mean,
    /// So many draws a particle.
    Draws(usize),
}

impl Predictive {
    /// What the method asks for: its number of draws, or its particles.
    pub fn of(experiment: &Experiment) -> Predictive {
        match configured(experiment) {
            Some(draws) => Predictive::Draws(draws),
            None => Predictive::Particles,
        }
    }

    /// What is evaluated at the end of training: where there are draws, the means as well.
    pub fn after_training(experiment: &Experiment) -> Vec<Predictive> {
        match Predictive::of(experiment) {
            Predictive::Particles => vec![Predictive::Particles],
            draws => vec![draws, Predictive::Mean],
        }
    }

    /// The cell in results: empty for what the method asks for.
    pub fn name(self, experiment: &Experiment) -> String {
        match self {
            Predictive::Particles => String::new(),
            Predictive::Mean => "mean".to_string(),
            Predictive::Draws(draws) if Some(draws) == configured(experiment) => String::new(),
            Predictive::Draws(draws) => format!("draws-{draws}"),
        }
    }

    /// Members `[m, P]`.
    ///
    /// # Errors
    /// Draws from particles that are points.
    pub fn theta(self, posterior: &Mixture) -> Result<Tensor> {
        match self {
            Predictive::Particles | Predictive::Mean => Ok(posterior.theta.shallow_clone()),
            Predictive::Draws(draws) => posterior.draw(draws),
        }
    }

    /// Members in one forward, from the particles that the config asks for (0: all).
    pub fn chunk(self, configured: usize) -> usize {
        /// Draws may be many more than the particles that training had to hold.
        const DRAWS: usize = 8;
        match self {
            Predictive::Draws(_) if configured == 0 => DRAWS,
            _ => configured,
        }
    }
}

fn configured(experiment: &Experiment) -> Option<usize> {
    experiment.training.as_ref().and_then(|training| training.method.spec.samples())
}
