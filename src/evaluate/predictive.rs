//! How a trained posterior predicts: with its particles, with the means of its Gaussians, with draws from them, or with
//! logits linearised around them.

use anyhow::{Context, Result};
use tch::Tensor;

use crate::experiment::Experiment;
use crate::laplace::{Linearised, Output};
use crate::posterior::Mixture;
use crate::predict::Members;
use crate::subspace::Subspace;

/// Which members stand for the posterior.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Predictive {
    /// The particles themselves: points, or means of Gaussians.
    Particles,
    /// The means of Gaussians (IVON@mean).
    Mean,
    /// So many draws of weights a particle.
    Draws(usize),
    /// Gaussian logits of a Laplace approximation, with so many draws a particle where draws are members.
    Linearised(Output, usize),
}

impl Predictive {
    /// What the method asks for: its number of draws, or its particles.
    pub fn of(experiment: &Experiment) -> Predictive {
        let Some(method) = experiment.training.as_ref().map(|training| &training.method.spec) else {
            return Predictive::Particles;
        };
        match (method.samples(), method.laplace()) {
            (Some(draws), _) => Predictive::Draws(draws),
            (None, Some(laplace)) => Predictive::laplace(laplace.output, laplace.samples),
            (None, None) => Predictive::Particles,
        }
    }

    /// A Laplace approximation's output.
    pub fn laplace(output: Output, samples: usize) -> Predictive {
        match output {
            Output::Sampled => Predictive::Draws(samples),
            Output::Mc | Output::Probit | Output::Bridge => Predictive::Linearised(output, samples),
        }
    }

    /// What is evaluated at the end of training: where there are Gaussians, their means as well.
    pub fn after_training(experiment: &Experiment) -> Vec<Predictive> {
        match Predictive::of(experiment) {
            Predictive::Particles => vec![Predictive::Particles],
            asked => vec![asked, Predictive::Mean],
        }
    }

    /// The cell in results: empty for what the method asks for.
    pub fn name(self, experiment: &Experiment) -> String {
        match self {
            Predictive::Particles => String::new(),
            asked if asked == Predictive::of(experiment) => String::new(),
            Predictive::Mean => "mean".to_string(),
            Predictive::Draws(draws) => format!("draws-{draws}"),
            Predictive::Linearised(Output::Mc, draws) => format!("mc-{draws}"),
            Predictive::Linearised(output, _) => output.to_string(),
        }
    }

    /// Members `[m, P]`, or the particles that logits are linearised around.
    ///
    /// # Errors
    /// Draws from particles that are points.
    pub fn theta(self, posterior: &Mixture) -> Result<Tensor> {
        match self {
            Predictive::Draws(draws) => posterior.draw(draws),
            Predictive::Particles | Predictive::Mean | Predictive::Linearised(..) => {
                Ok(posterior.theta.shallow_clone())
            }
        }
    }

    /// What linearised predictions need, for those.
    ///
    /// # Errors
    /// A posterior without a Laplace approximation.
    pub fn linearised<'a>(self, subspace: &'a dyn Subspace, posterior: &'a Mixture) -> Result<Option<Linearised<'a>>> {
        let Predictive::Linearised(output, samples) = self else { return Ok(None) };
        let fitted = posterior.laplace.as_ref();
        let fitted =
            fitted.context("this run has no Laplace approximation: linearised predictions need [method.laplace]")?;
        Linearised::new(subspace, &posterior.theta, fitted, (output, samples), posterior.seed).map(Some)
    }

    /// The members of rows that [`theta`](Self::theta) made, `chunk` of them in one forward, or those that [`linearised`](Self::linearised) made.
    pub fn members<'a>(
        subspace: &'a dyn Subspace,
        theta: &'a Tensor,
        linearised: &'a Option<Linearised<'a>>,
        chunk: usize,
    ) -> Members<'a> {
        match linearised {
            Some(linearised) => Members::Linearised(linearised),
            None => Members::Rows { subspace, theta, chunk },
        }
    }
}
