//! Members that are drawn from a posterior.

use std::ops::Range;

use anyhow::{Result, bail};
use tch::Tensor;

use super::{Place, Posterior};
use crate::base::random::{At, Purpose, posterior_row, row};
use crate::base::small::Usage;

/// The part of a draw's noise that is along the deviations of a low-rank Gaussian; the other part is 0.
const ALONG_DEVIATIONS: i64 = 1;

/// A number of draws from every component of a posterior; those of one component are adjacent. Each is computed when it
/// is asked for, as a pure function of (seed, draw, component), so fewer draws are the first of more.
pub struct Draws<'a> {
    posterior: &'a Posterior,
    /// The number of draws from each component.
    each: usize,
    seed: u64,
}

impl<'a> Draws<'a> {
    /// Prepares `each` draws from every component of a posterior.
    ///
    /// # Errors
    /// Fails if the posterior has nothing to draw from.
    pub fn new(posterior: &'a Posterior, each: usize, seed: u64) -> Result<Draws<'a>> {
        if !posterior.is_random() {
            bail!(Usage("this run's particles are points: there is nothing to draw from: leave --draws out".into()));
        }
        Ok(Draws { posterior, each, seed })
    }

    /// Returns the number of all draws.
    pub fn count(&self) -> usize {
        self.posterior.particles() as usize * self.each
    }

    /// Returns the draws `members` as rows `[k, P]`.
    ///
    /// # Errors
    /// Fails if the posterior has nothing to draw from.
    pub fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        if members.len() == 1 {
            return Ok(self.draw(members.start)?.unsqueeze(0));
        }
        let theta = self.posterior.theta();
        let rows = Tensor::empty([members.len() as i64, theta.size()[1]], (theta.kind(), theta.device()));
        for (row, member) in members.enumerate() {
            rows.get(row as i64).copy_(&self.draw(member)?);
        }
        Ok(rows)
    }

    /// Returns one draw, `[P]`.
    fn draw(&self, member: usize) -> Result<Tensor> {
        let (component, sample) = ((member / self.each) as i64, (member % self.each) as i64);
        let theta = self.posterior.theta();
        let mean = theta.get(component);
        if let Posterior::Dropout { masks, .. } = self.posterior {
            let at = At { step: 0, sample, part: 0 };
            let place = Place { seed: self.seed, purpose: Purpose::Posterior, at, particle: component };
            return Ok(masks.on(&mean, &masks.factors(place, theta)));
        }
        let mut epsilon = posterior_row(self.seed, sample, component, theta);
        match self.posterior {
            Posterior::Gaussians { std, .. } => Ok(epsilon.g_mul_(&std.get(component)).g_add_(&mean)),
            Posterior::Laplace { fitted, .. } => {
                Ok(fitted.particles[component as usize].draw(&fitted.columns, &mean, &epsilon))
            }
            Posterior::LowRankGaussians { std, deviations, .. } => {
                let along = self.along(&deviations.get(component), sample, component);
                Ok(epsilon.g_mul_(&std.get(component)).g_div_scalar_(std::f64::consts::SQRT_2).g_add_(&mean) + along)
            }
            Posterior::TiedGaussians { std, rows, .. } => {
                let spread = epsilon.zeros_like().unsqueeze(0);
                for own in rows {
                    let numbers = epsilon.narrow(0, own.start, own.count).view([1, own.count, 1]);
                    own.of(&spread).copy_(&(own.of(&std.narrow(0, component, 1)) * numbers));
                }
                Ok(spread.squeeze_dim(0) + mean)
            }
            Posterior::BlockGaussians { std, factors, start, .. } => {
                Ok(in_blocks(epsilon, &std.get(component), &factors.get(component), *start).g_add_(&mean))
            }
            Posterior::Points { .. } | Posterior::Bank { .. } | Posterior::Dropout { .. } => {
                bail!("points have no spread to draw from")
            }
        }
    }

    /// Returns a draw along the deviations `[K, P]` of a component, without the mean.
    fn along(&self, deviations: &Tensor, sample: i64, component: i64) -> Tensor {
        let theta = self.posterior.theta();
        let columns = deviations.size()[0];
        let at = At { step: 0, sample, part: ALONG_DEVIATIONS };
        let like = Tensor::zeros([1, columns], (theta.kind(), theta.device()));
        let along = row(self.seed, Purpose::Posterior, at, component, &like);
        let scale = (2.0 * (columns - 1).max(1) as f64).sqrt();
        deviations.tr().mv(&along.to_kind(deviations.kind())) / scale
    }
}

/// Returns random numbers `[P]` times a deviation, and those of blocks, which begin at column `start`, times their factors `[L, w, w]`.
fn in_blocks(mut epsilon: Tensor, std: &Tensor, factors: &Tensor, start: i64) -> Tensor {
    let (blocks, width) = (factors.size()[0], factors.size()[1]);
    let (own, count) = (epsilon.narrow(0, start, blocks * width), blocks * width);
    let moved = factors.matmul(&own.reshape([blocks, width, 1])).reshape([count]);
    let _ = epsilon.g_mul_(std);
    epsilon.narrow(0, start, count).copy_(&moved);
    epsilon
}

#[cfg(test)]
mod tests {
    use super::*;
    use tch::Kind;

    fn all(posterior: &Posterior, each: usize) -> Tensor {
        let draws = Draws::new(posterior, each, 4).unwrap();
        draws.rows(0..draws.count()).unwrap()
    }

    #[test]
    fn draws_are_gaussian_and_fewer_are_the_first_of_more() {
        let rows = |values: [f32; 2]| Tensor::from_slice(&values).view([2, 1]).expand([2, 20_000], false).contiguous();
        let posterior = Posterior::Gaussians { mean: rows([1.0, -2.0]), std: rows([0.5, 0.1]) };
        let (two, three) = (all(&posterior, 2), all(&posterior, 3));
        assert!(three.get(4).equal(&Draws::new(&posterior, 3, 4).unwrap().rows(4..5).unwrap().get(0)));
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
        let points = Posterior::Points { theta: two };
        assert!(Draws::new(&points, 1, 4).err().unwrap().to_string().contains("nothing to draw from"));
    }

    /// In SWAG (Maddox et al. 2019, arXiv 1902.02476, equation 1) the covariance of draws is half the diagonal plus D
    /// Dᵀ / (2 (K − 1)).
    #[test]
    fn low_rank_gaussians_have_the_covariance_of_their_formula() {
        tch::manual_seed(2);
        let (parameters, columns) = (4, 3);
        let options = (Kind::Float, tch::Device::Cpu);
        let mean = Tensor::randn([1, parameters], options);
        let std = Tensor::rand([1, parameters], options) + 0.5;
        let deviations = Tensor::randn([1, columns, parameters], options);
        let d = deviations.get(0);
        let expected = std.get(0).square().diag(0) / 2.0 + d.tr().matmul(&d) / (2 * (columns - 1)) as f64;
        let centre = mean.get(0);
        let posterior = Posterior::LowRankGaussians { mean, std, deviations };
        let drawn = all(&posterior, 40_000).to_kind(Kind::Double);
        let average = drawn.mean_dim([0i64].as_slice(), false, Kind::Double);
        assert!((&average - centre).abs().max().double_value(&[]) < 0.05, "{average}");
        let centred = drawn - average;
        let found = centred.tr().matmul(&centred) / 40_000.0;
        assert!((&found - expected).abs().max().double_value(&[]) < 0.08, "{found}");
    }
}
