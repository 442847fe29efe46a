//! How a trained posterior predicts: with its particles, with the means of its Gaussians, with draws from them, or with
//! logits linearised around them.

use anyhow::{Context, Result};

use crate::experiment::Experiment;
use crate::laplace::{Linearised, Output};
use crate::posterior::Mixture;
use crate::predict::{Members, Rows};
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

    /// What the members are made of.
    ///
    /// # Errors
    /// Draws from particles that are points; linearised predictions of a posterior without a Laplace approximation.
    pub fn prepare<'a>(self, subspace: &'a dyn Subspace, posterior: &'a Mixture) -> Result<Prepared<'a>> {
        match self {
            Predictive::Draws(draws) => Ok(Prepared::Rows(subspace, Box::new(posterior.draws(draws)?))),
            Predictive::Particles | Predictive::Mean => {
                Ok(Prepared::Rows(subspace, Box::new(posterior.theta.shallow_clone())))
            }
            Predictive::Linearised(output, samples) => {
                let fitted = posterior
                    .laplace
                    .as_ref()
                    .context("this run has no Laplace approximation: linearised predictions need [method.laplace]")?;
                let around = &posterior.theta;
                let linearised = Linearised::new(subspace, around, fitted, (output, samples), posterior.seed)?;
                Ok(Prepared::Linearised(linearised))
            }
        }
    }
}

/// What members are made of, to be kept while they predict.
pub enum Prepared<'a> {
    /// The checkpoint as it is.
    Checkpoint,
    Rows(&'a dyn Subspace, Box<dyn Rows + 'a>),
    Linearised(Linearised<'a>),
}

impl Prepared<'_> {
    pub fn members(&self) -> Members<'_> {
        match self {
            Prepared::Checkpoint => Members::Checkpoint,
            Prepared::Rows(subspace, rows) => Members::Rows { subspace: *subspace, rows: &**rows },
            Prepared::Linearised(linearised) => Members::Linear(linearised),
        }
    }
}
