//! Builds the members with which a trained posterior predicts.

use anyhow::{Context, Result};

use crate::methods::PostHoc;
use crate::methods::post_hoc::{NO_GAUSSIAN_LOGITS, Predicted};
use crate::posterior::{Draws, Posterior, Predictive};
use crate::predict::{Linear, Members, Rows};
use crate::subspace::Subspace;

/// Builds the members of a predictive of a run whose posterior `method` has fitted, if one has. `seed` determines the draws.
///
/// # Errors
/// Fails for draws from particles that are points, and for linearised predictions of a posterior without Gaussian logits.
pub fn prepare<'a>(
    predictive: Predictive,
    method: Option<&dyn PostHoc>,
    subspace: &'a dyn Subspace,
    posterior: &'a Posterior,
    seed: u64,
) -> Result<Prepared<'a>> {
    match predictive {
        Predictive::Draws(draws) => Ok(Prepared::Rows(subspace, Box::new(Draws::new(posterior, draws, seed)?))),
        Predictive::Particles | Predictive::Mean => Ok(Prepared::Rows(subspace, Box::new(posterior))),
        Predictive::Linearised(output, samples) => {
            let predicted = Predicted { subspace, posterior, output, samples, seed };
            Ok(Prepared::Linear(method.context(NO_GAUSSIAN_LOGITS)?.predict(predicted)?))
        }
    }
}

/// The owner of the data that members borrow while they predict.
pub enum Prepared<'a> {
    /// The checkpoint without training.
    Checkpoint,
    Rows(&'a dyn Subspace, Box<dyn Rows + 'a>),
    Linear(Box<dyn Linear + 'a>),
}

impl Prepared<'_> {
    pub fn members(&self) -> Members<'_> {
        match self {
            Prepared::Checkpoint => Members::Checkpoint,
            Prepared::Rows(subspace, rows) => Members::Rows { subspace: *subspace, rows: &**rows },
            Prepared::Linear(linear) => Members::Linear(&**linear),
        }
    }
}
