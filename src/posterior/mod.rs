//! What training leaves: particles, or Gaussians around them, and the file they are kept in.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use tch::{Device, Tensor};

use crate::base::tensor_file::State;
use crate::laplace::Fitted;
use crate::methods::noise::posterior_row;
use crate::predict::Rows;

/// n particles with equal weights: points, or means of Gaussians.
pub struct Mixture {
    /// `[n, P]`, f32.
    pub theta: Tensor,
    /// Standard deviations `[n, P]`, where the particles are means.
    pub std: Option<Tensor>,
    /// Laplace approximations around the particles, where they were fitted.
    pub laplace: Option<Fitted>,
    /// Of the draws.
    pub seed: u64,
}

impl Mixture {
    /// `draws` members a particle, a particle's next to each other, each made when it is asked for.
    ///
    /// # Errors
    /// Particles that are points.
    pub fn draws(&self, draws: usize) -> Result<Draws<'_>> {
        ensure!(
            self.std.is_some() || self.laplace.is_some(),
            "this run's particles are points: there is nothing to draw from"
        );
        Ok(Draws { mixture: self, each: draws })
    }

    /// One draw of a particle, `[P]`: a pure function of (seed, draw, particle), so that fewer draws are the first of more.
    fn draw(&self, particle: i64, sample: i64) -> Result<Tensor> {
        let mut epsilon = posterior_row(self.seed, sample, particle, &self.theta);
        let mean = self.theta.get(particle);
        match (&self.std, &self.laplace) {
            (Some(std), _) => Ok(epsilon.g_mul_(&std.get(particle)).g_add_(&mean)),
            (None, Some(fitted)) => Ok(fitted.draw(particle as usize, &mean, &epsilon)),
            (None, None) => bail!("this run's particles are points: there is nothing to draw from"),
        }
    }
}

/// Draws from every particle of a mixture.
pub struct Draws<'a> {
    mixture: &'a Mixture,
    /// Draws a particle.
    each: usize,
}

impl Rows for Draws<'_> {
    fn count(&self) -> usize {
        self.mixture.theta.size()[0] as usize * self.each
    }

    fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        let draw = |member: usize| self.mixture.draw((member / self.each) as i64, (member % self.each) as i64);
        if members.len() == 1 {
            return Ok(draw(members.start)?.unsqueeze(0));
        }
        let theta = &self.mixture.theta;
        let rows = Tensor::empty([members.len() as i64, theta.size()[1]], (theta.kind(), theta.device()));
        for (row, member) in members.enumerate() {
            rows.get(row as i64).copy_(&draw(member)?);
        }
        Ok(rows)
    }

    fn are_made(&self) -> bool {
        true
    }
}

/// A trained posterior with what it belongs to.
pub struct Posterior {
    pub mixture: Mixture,
    pub classes: Vec<String>,
    /// The hashes of the files that it was trained from, one after the other.
    pub file_hashes: String,
}

impl Posterior {
    pub fn write(&self, path: &Path) -> Result<()> {
        let mut state = State::default();
        state.put("theta", &self.mixture.theta);
        if let Some(std) = &self.mixture.std {
            state.put("std", std);
        }
        if let Some(fitted) = &self.mixture.laplace {
            fitted.save(&mut state);
        }
        state.put_text("classes", &serde_json::to_string(&self.classes).context("cannot write the class names")?);
        state.put_text("file_hashes", &self.file_hashes);
        state.write(path)
    }

    /// Checks that the posterior was trained from files of these hashes, the first of which is that of `checkpoint`: it is an
    /// update of one checkpoint, and under another it would mean something else.
    ///
    /// # Errors
    /// Other hashes.
    pub fn check_files(&self, file_hashes: &str, checkpoint: &Path) -> Result<()> {
        ensure!(
            file_hashes == self.file_hashes,
            "{}: the checkpoint or the head's file has changed since the run was trained: put the old one back",
            checkpoint.display()
        );
        Ok(())
    }

    /// `seed` is the run's, of the draws.
    pub fn read(path: &Path, device: Device, seed: u64) -> Result<Posterior> {
        let state =
            State::read(path).context("the posterior cannot be used (`bella train --force` trains it again)")?;
        let theta = state.get("theta")?.to_device(device);
        ensure!(theta.dim() == 2, "{}: theta is not a matrix", path.display());
        let std = if state.has("std") { Some(state.get("std")?.to_device(device)) } else { None };
        let fits = std.as_ref().is_none_or(|std| std.size() == theta.size());
        ensure!(fits, "{}: std has another shape than theta", path.display());
        let laplace = Fitted::load(&state, &theta, device).with_context(|| path.display().to_string())?;
        let classes = serde_json::from_str(&state.text("classes")?);
        let classes = classes.with_context(|| format!("{}: the class names are damaged", path.display()))?;
        Ok(Posterior {
            mixture: Mixture { theta, std, laplace, seed },
            classes,
            file_hashes: state.text("file_hashes")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    #[test]
    fn draws_are_gaussian_and_fewer_are_the_first_of_more() {
        let theta = Tensor::from_slice(&[1.0f32, -2.0]).view([2, 1]).expand([2, 20_000], false).contiguous();
        let std = Tensor::from_slice(&[0.5f32, 0.1]).view([2, 1]).expand([2, 20_000], false).contiguous();
        let mixture = Mixture { theta, std: Some(std), laplace: None, seed: 4 };
        let all = |draws: Draws| draws.rows(0..draws.count()).unwrap();
        let (two, three) = (all(mixture.draws(2).unwrap()), all(mixture.draws(3).unwrap()));
        assert!(three.get(4).equal(&mixture.draws(3).unwrap().rows(4..5).unwrap().get(0)));
        assert_eq!(three.size(), [6, 20_000]);
        for (few, many) in [(0, 0), (1, 1), (2, 3), (3, 4)] {
            assert!(two.get(few).equal(&three.get(many)));
        }
        assert!(!two.get(0).equal(&two.get(1)));
        for (row, mean, std) in [(0, 1.0, 0.5), (5, -2.0, 0.1)] {
            let row = three.get(row).to_kind(Kind::Double);
            assert!((row.mean(Kind::Double).double_value(&[]) - mean).abs() < 0.02);
            assert!((row.std(true).double_value(&[]) - std).abs() < 0.02);
        }
        let points = Mixture { theta: two, std: None, laplace: None, seed: 4 };
        assert!(points.draws(1).err().unwrap().to_string().contains("nothing to draw from"));
    }
}
