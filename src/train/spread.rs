//! The work before the first step. A method prepares itself by the first batch. Where particles are Gaussians, draws from the Gaussians at
//! the start must not undo the network, since a training that begins with such noise ends in NaN, an epoch or an hour later.

use anyhow::{Result, bail};
use tch::{Kind, Tensor};

use super::context::Context;
use super::particles::Particles;
use crate::base::tensor::host_f64;
use crate::methods::{Objective, RowsAre};
use crate::posterior::Draws;

/// The factor of the loss of a draw over that of the mean, or over that of a guess if this is larger, from which a draw counts as noise.
const UNDONE: f64 = 10.0;

/// The number of draws around each particle.
const DRAWS: usize = 4;

/// The factor of the loss of a draw over that of the mean from which the noise is doubtful, if the draw knows no more than a guess.
const DOUBTFUL: f64 = 2.0;

/// Prepares the method, and compares draws with means.
///
/// # Errors
/// Fails if a draw undoes the network, or if the objective fails.
pub(super) fn begin(context: &Context, particles: &mut Particles, objective: &mut dyn Objective) -> Result<()> {
    let Particles { theta, method, .. } = particles;
    method.prepare(theta, objective)?;
    let training = context.training;
    // Others, such as a sampler without draws, may have no posterior yet.
    if training.method_entry().is_none_or(|entry| entry.rows != RowsAre::Gaussians) {
        return Ok(());
    }
    let posterior = method.posterior(theta);
    if !posterior.is_random() {
        return Ok(());
    }
    let draws = Draws::new(&posterior, DRAWS, context.experiment.seed)?;
    let mut losses = |theta: &Tensor| Ok::<_, anyhow::Error>(objective.losses(theta)?.losses.to_kind(Kind::Double));
    let means = losses(theta)?;
    let mut largest = means.shallow_clone();
    for draw in 0..DRAWS {
        let of = |particle: usize| draws.rows(particle * DRAWS + draw..particle * DRAWS + draw + 1);
        let rows = (0..theta.size()[0] as usize).map(of).collect::<Result<Vec<_>>>()?;
        // A loss of NaN counts as the largest.
        largest = largest.maximum(&losses(&Tensor::cat(&rows, 0).to_kind(theta.kind()))?);
    }
    let compared = Compared {
        means: host_f64(&means)?,
        draws: host_f64(&largest)?,
        guess: (context.model().head.classes().max(2) as f64).ln(),
    };
    let (key, advice) = (&training.method.key, training.method.spec.narrowed_by());
    let advice = if advice.is_empty() { String::new() } else { format!(": {advice}") };
    if let Some((particle, _)) = compared.worst().filter(|(_, factor)| *factor >= UNDONE) {
        bail!("method.{key}: {}, so the noise at the start undoes the network{advice}", compared.said(particle));
    }
    if let Some(particle) = compared.doubtful() {
        tracing::warn!("method.{key}: {}: training starts in much noise{advice}", compared.said(particle));
    }
    Ok(())
}

/// The losses of each particle's mean and of its worst draw, and that of a guess, on one batch.
struct Compared {
    means: Vec<f64>,
    draws: Vec<f64>,
    guess: f64,
}

impl Compared {
    /// Returns the particle whose draw is worst, and by which factor: infinity for a draw whose loss is not finite.
    fn worst(&self) -> Option<(usize, f64)> {
        let factor = |(mean, draw): (&f64, &f64)| {
            if draw.is_finite() { draw / mean.max(self.guess) } else { f64::INFINITY }
        };
        // A mean that is not finite is an error of its own, after the step.
        let finite = self.means.iter().zip(&self.draws).enumerate().filter(|(_, (mean, _))| mean.is_finite());
        finite.map(|(particle, both)| (particle, factor(both))).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    /// Returns the particle whose draw has lost most of what its mean knows, if one knows no more than a guess.
    fn doubtful(&self) -> Option<usize> {
        let factor = |particle: usize| self.draws[particle] / self.means[particle];
        let lost = |&particle: &usize| self.draws[particle] >= self.guess && factor(particle) >= DOUBTFUL;
        (0..self.means.len()).filter(lost).max_by(|&a, &b| factor(a).total_cmp(&factor(b)))
    }

    fn said(&self, particle: usize) -> String {
        format!(
            "a draw from where particle {particle} starts has the loss {:.3} on the first batch, its mean {:.3}",
            self.draws[particle], self.means[particle]
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_draw_is_compared_with_its_mean_or_with_a_guess() {
        let compared = |means: &[f64], draws: &[f64]| Compared { means: means.into(), draws: draws.into(), guess: 2.0 };
        assert_eq!(compared(&[0.1, 4.0], &[3.0, 20.0]).worst(), Some((1, 5.0)));
        assert_eq!(compared(&[0.1, 4.0], &[30.0, 20.0]).worst(), Some((0, 15.0)));
        assert_eq!(compared(&[0.1, 4.0], &[3.0, f64::NAN]).worst(), Some((1, f64::INFINITY)));
        assert_eq!(compared(&[f64::NAN], &[f64::NAN]).worst(), None);
        // Noise that turns a good network into a guess is doubtful, though no draw is worse than a guess by much.
        assert_eq!(compared(&[0.9, 0.3], &[2.1, 2.1]).doubtful(), Some(1));
        assert_eq!(compared(&[0.1, 1.5], &[1.9, 2.9]).doubtful(), None);
        assert_eq!(compared(&[4.0], &[8.0]).doubtful(), Some(0));
    }
}
