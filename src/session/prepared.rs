//! Builds the members with which a trained posterior predicts.

use anyhow::{Result, bail};

use crate::laplace::Linearised;
use crate::laplace::cosine::Cosines;
use crate::posterior::{Draws, Posterior, Predictive};
use crate::predict::{Members, Rows};
use crate::subspace::Subspace;

/// Builds the members of a predictive. `seed` determines the draws.
///
/// # Errors
/// Fails for draws from particles that are points, and for linearised predictions of a posterior without a Laplace
/// approximation.
pub fn prepare<'a>(
    predictive: Predictive,
    subspace: &'a dyn Subspace,
    posterior: &'a Posterior,
    seed: u64,
) -> Result<Prepared<'a>> {
    match (predictive, posterior) {
        (Predictive::Draws(draws), _) => Ok(Prepared::Rows(subspace, Box::new(Draws::new(posterior, draws, seed)?))),
        (Predictive::Particles | Predictive::Mean, _) => Ok(Prepared::Rows(subspace, Box::new(posterior))),
        (Predictive::Linearised(output, samples), Posterior::Laplace { fitted, .. })
            if subspace.projection().is_some() =>
        {
            Ok(Prepared::Cosines(Cosines::new(subspace, fitted, (output, samples), seed)?))
        }
        (Predictive::Linearised(output, samples), Posterior::Laplace { mode, fitted }) => {
            Ok(Prepared::Linearised(Linearised::new(subspace, mode, fitted, (output, samples), seed)?))
        }
        (Predictive::Linearised(..), _) => {
            bail!("this run has no Laplace approximation: linearised predictions need [method.laplace]")
        }
    }
}

/// The owner of the data that members borrow while they predict.
pub enum Prepared<'a> {
    /// The checkpoint without training.
    Checkpoint,
    Rows(&'a dyn Subspace, Box<dyn Rows + 'a>),
    Linearised(Linearised<'a>),
    Cosines(Cosines<'a>),
}

impl Prepared<'_> {
    pub fn members(&self) -> Members<'_> {
        match self {
            Prepared::Checkpoint => Members::Checkpoint,
            Prepared::Rows(subspace, rows) => Members::Rows { subspace: *subspace, rows: &**rows },
            Prepared::Linearised(linearised) => Members::Linear(linearised),
            Prepared::Cosines(cosines) => Members::Linear(cosines),
        }
    }
}
