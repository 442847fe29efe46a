//! The models of a run that leave: particles, draws, or their average.

use anyhow::{Result, bail, ensure};
use tch::Tensor;

use super::destination::Destination;
use crate::posterior::{Draws, Posterior, Predictive};
use crate::session::Opened;
use crate::subspace::updates::mean;
use crate::subspace::{Combined, Space};

/// The choice among the models of a run.
#[derive(Clone, Copy)]
pub enum Models {
    All,
    /// The average of all particles' updates.
    Soup,
    /// One model, counted from 0.
    One(u32),
}

/// The models that leave.
pub struct Selection {
    pub models: Models,
    /// The number of draws from each Gaussian; 0 for the means.
    pub draws: Option<u32>,
}

impl Selection {
    /// Says which part of a run leaves, if it is not all of it.
    pub fn part(&self) -> Option<String> {
        match (self.models, self.draws) {
            (Models::One(particle), _) => Some(format!("particle {particle}")),
            (Models::Soup, _) => Some("the average of all particles' updates".to_string()),
            (Models::All, Some(0)) => Some("the mean of each Gaussian".to_string()),
            (Models::All, Some(draws)) => Some(format!("{draws} draws from each Gaussian")),
            (Models::All, None) => None,
        }
    }

    /// Writes the models of an opened run, and returns the Python that loads them.
    ///
    /// # Errors
    /// Fails if the run does not have the models, or as [`Destination::write`] does.
    pub fn write(&self, destination: &Destination, opened: &Opened) -> Result<String> {
        let theta = self.theta(opened)?;
        let name =
            |number: usize| format!("{}-{number}", if self.draws.unwrap_or(0) > 0 { "draw" } else { "particle" });
        let count = theta.size()[0] as usize;
        let subspace = opened.session.subspace()?;
        match self.models {
            Models::Soup => {
                ensure!(
                    count > 1,
                    "{}: this run has one particle: there is nothing to average: leave --soup out",
                    opened.run.id()
                );
                let weights = opened.stored()?.posterior.weights();
                let Combined { subspace, theta } = mean(subspace, &theta, weights, Space::Weights)?;
                destination.write(opened, (&*subspace, &theta), vec!["soup".to_string()])
            }
            Models::One(particle) => {
                let rule = format!("--particle {particle}: the run has models 0 to {}", count - 1);
                ensure!((particle as usize) < count, rule);
                let one = theta.narrow(0, i64::from(particle), 1);
                destination.write(opened, (subspace, &one), vec![name(particle as usize)])
            }
            Models::All => destination.write(opened, (subspace, &theta), (0..count).map(name).collect()),
        }
    }

    /// Returns the rows that are exported.
    fn theta(&self, opened: &Opened) -> Result<Tensor> {
        let posterior = &opened.stored()?.posterior;
        let run = opened.run.id();
        match (self.draws, posterior.is_random()) {
            (None, true) if matches!(opened.experiment.predictive(), Predictive::Linearised(..)) => bail!(
                "{run}: its predictions are those of a linearised model, which no weights have: --draws 0 exports the particles \
                 that it was fitted around, --draws N so many draws of weights around each"
            ),
            (None | Some(1..), true) if matches!(posterior, Posterior::Dropout { .. }) => bail!(
                "{run}: its members drop inputs at random, which no weights do: --draws 0 exports the particles without dropout"
            ),
            (None, true) => bail!(
                "{run}: its particles are Gaussians, and a model has one value per weight: --draws 0 exports their means, \
                 --draws N so many draws from each"
            ),
            (Some(draws), true) if draws > 0 => {
                let draws = Draws::new(posterior, draws as usize, opened.experiment.seed)?;
                draws.rows(0..draws.count())
            }
            (Some(draws), false) if draws > 0 => {
                bail!("{run}: its particles are points, without draws: leave --draws out")
            }
            _ => Ok(posterior.theta().shallow_clone()),
        }
    }
}
