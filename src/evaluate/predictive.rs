//! What the members are made of when a trained posterior predicts.

use anyhow::{Result, bail};

use crate::laplace::Linearised;
use crate::posterior::{Draws, Posterior, Predictive};
use crate::predict::{Members, Rows};
use crate::subspace::Subspace;

/// What the members of a predictive are made of; draws are those of `seed`.
///
/// # Errors
/// Draws from particles that are points; linearised predictions of a posterior without a Laplace approximation.
pub fn prepare<'a>(
    predictive: Predictive,
    subspace: &'a dyn Subspace,
    posterior: &'a Posterior,
    seed: u64,
) -> Result<Prepared<'a>> {
    match (predictive, posterior) {
        (Predictive::Draws(draws), _) => Ok(Prepared::Rows(subspace, Box::new(Draws::new(posterior, draws, seed)?))),
        (Predictive::Particles | Predictive::Mean, _) => {
            Ok(Prepared::Rows(subspace, Box::new(posterior.theta().shallow_clone())))
        }
        (Predictive::Linearised(output, samples), Posterior::Laplace { mode, fitted }) => {
            Ok(Prepared::Linearised(Linearised::new(subspace, mode, fitted, (output, samples), seed)?))
        }
        (Predictive::Linearised(..), _) => {
            bail!("this run has no Laplace approximation: linearised predictions need [method.laplace]")
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
