//! The numbers of each sample from which metrics of predicted numbers follow. The members are a mixture of Gaussians, with the
//! distribution function F; its moment-matched Gaussian has the same mean and variance.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use rayon::prelude::*;

use crate::predictions::Numbers;
use crate::predictions::numbers::Moments;

/// One sample with what was predicted of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The true number y.
    pub number: f64,
    /// The mean of the mixture.
    pub mean: f64,
    /// The mean of the members' noise.
    pub aleatoric: f64,
    /// The variance of the mean: that of the members' means, and within members that are Gaussians of means.
    pub epistemic: f64,
    /// −log of the mixture's density at y.
    pub nll: f64,
    /// −log of the density of the moment-matched Gaussian at y.
    pub nll_normal: f64,
    /// The continuous ranked probability score of the mixture, and of its moment-matched Gaussian.
    pub crps: f64,
    pub crps_normal: f64,
    /// F(y), in [0, 1].
    pub place: f64,
    /// The widths of the central intervals of the mixture with the shares [`LEVELS`].
    pub widths: [f64; LEVELS.len()],
}

/// The shares of the central intervals whose coverage and width are reported.
pub const LEVELS: [f64; 2] = [0.9, 0.95];

impl Sample {
    /// Returns the smallest share of a central interval that contains the number.
    pub fn share(&self) -> f64 {
        (2.0 * self.place - 1.0).abs()
    }
}

/// Returns all samples of predictions.
pub fn of_all(predicted: &Numbers) -> Vec<Sample> {
    let shares = predicted.shares();
    let one = |sample: usize| Mixture::new(&shares, predicted.of_sample(sample)).scored(predicted.numbers()[sample]);
    (0..predicted.samples()).into_par_iter().map(one).collect()
}

/// A Gaussian of a mixture.
#[derive(Clone, Copy, Debug)]
struct Member {
    share: f64,
    mean: f64,
    /// The root of the whole variance, which is that of the noise and that of the mean.
    deviation: f64,
    noise: f64,
    spread: f64,
}

/// The mixture that the members predict for one sample.
pub struct Mixture(Vec<Member>);

/// The distribution function of the standard normal distribution.
fn below(z: f64) -> f64 {
    0.5 * libm::erfc(-z * FRAC_1_SQRT_2)
}

/// −log of the density of N(mean, deviation²) at y.
fn surprise(y: f64, mean: f64, deviation: f64) -> f64 {
    0.5 * (2.0 * PI).ln() + deviation.ln() + 0.5 * ((y - mean) / deviation).powi(2)
}

/// E |X| for X ~ N(mean, deviation²).
fn distance(mean: f64, deviation: f64) -> f64 {
    let z = mean / deviation;
    2.0 * deviation * (-0.5 * z * z).exp() / (2.0 * PI).sqrt() + mean * (2.0 * below(z) - 1.0)
}

impl Mixture {
    /// Creates the mixture of sound Gaussians with shares that sum to 1.
    pub fn new(shares: &[f64], moments: impl Iterator<Item = Moments>) -> Mixture {
        let member = |(share, Moments { mean, variance, spread }): (&f64, Moments)| Member {
            share: *share,
            mean,
            deviation: variance.sqrt(),
            noise: variance - spread,
            spread,
        };
        Mixture(shares.iter().zip(moments).map(member).filter(|member| member.share > 0.0).collect())
    }

    fn average(&self, of: impl Fn(&Member) -> f64) -> f64 {
        self.0.iter().map(|member| member.share * of(member)).sum()
    }

    /// Returns the number of members with a weight.
    pub fn members(&self) -> usize {
        self.0.len()
    }

    pub fn mean(&self) -> f64 {
        self.average(|member| member.mean)
    }

    /// Returns F(y).
    fn below(&self, y: f64) -> f64 {
        self.average(|member| below((y - member.mean) / member.deviation))
    }

    /// Returns the number at which F is `share`, in (0, 1), by bisection between the quantiles of the members.
    pub fn quantile(&self, share: f64) -> f64 {
        /// Ten deviations hold all but 10⁻²³ of a Gaussian.
        const FAR: f64 = 10.0;
        let bound = |sign: f64| self.0.iter().map(move |member| member.mean + sign * FAR * member.deviation);
        let (mut low, mut high) =
            (bound(-1.0).fold(f64::INFINITY, f64::min), bound(1.0).fold(f64::NEG_INFINITY, f64::max));
        loop {
            let middle = 0.5 * (low + high);
            // The bounds are neighbours when no number is between them. Nothing is between bounds that are no numbers.
            let is_between = low < middle && middle < high;
            if !is_between {
                return middle;
            }
            if self.below(middle) < share { low = middle } else { high = middle }
        }
    }

    /// Returns the ends of the central interval with a share in (0, 1).
    pub fn central(&self, share: f64) -> [f64; 2] {
        [self.quantile(0.5 - 0.5 * share), self.quantile(0.5 + 0.5 * share)]
    }

    /// Returns the noise and the variance of the mean, between members and within them. Their sum is the variance of the mixture.
    pub fn variances(&self) -> [f64; 2] {
        let mean = self.mean();
        [self.average(|member| member.noise), self.average(|member| (member.mean - mean).powi(2) + member.spread)]
    }

    /// Returns E |X − y| − ½ E |X − X'| for independent X and X' of the mixture (Grimit et al. 2006).
    fn crps(&self, y: f64) -> f64 {
        let to = self.average(|member| distance(y - member.mean, member.deviation));
        let among =
            |one: &Member| self.average(|other| distance(one.mean - other.mean, one.deviation.hypot(other.deviation)));
        to - 0.5 * self.average(among)
    }

    /// Returns −log of the density at y, by the log-sum-exp of the members.
    fn surprise(&self, y: f64) -> f64 {
        let logs: Vec<f64> =
            self.0.iter().map(|member| member.share.ln() - surprise(y, member.mean, member.deviation)).collect();
        let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        -(largest + logs.iter().map(|log| (log - largest).exp()).sum::<f64>().ln())
    }

    fn scored(&self, number: f64) -> Sample {
        let (mean, [aleatoric, epistemic]) = (self.mean(), self.variances());
        let deviation = (aleatoric + epistemic).sqrt();
        let matched = Mixture(vec![Member { share: 1.0, mean, deviation, noise: aleatoric, spread: epistemic }]);
        let width = |share: f64| {
            let [low, high] = self.central(share);
            high - low
        };
        Sample {
            number,
            mean,
            aleatoric,
            epistemic,
            nll: self.surprise(number),
            nll_normal: surprise(number, mean, deviation),
            crps: self.crps(number),
            crps_normal: matched.crps(number),
            place: self.below(number),
            widths: LEVELS.map(width),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixture(shares: &[f64], moments: &[(f64, f64)]) -> Mixture {
        Mixture::new(shares, moments.iter().map(|&(mean, variance)| Moments { mean, variance, spread: 0.0 }))
    }

    /// The variance of N(a, v) with the noise s² is noise to s², and the members' means vary beside that.
    #[test]
    fn the_variance_of_a_mean_is_no_noise() {
        let moments = [(1.0, 0.5), (3.0, 1.5)].map(|(mean, spread)| Moments { mean, variance: spread + 2.0, spread });
        let both = Mixture::new(&[0.5, 0.5], moments.into_iter());
        let [noise, of_mean] = both.variances();
        assert!((noise - 2.0).abs() < 1e-12 && (of_mean - (1.0 + 1.0)).abs() < 1e-12, "{noise} {of_mean}");
        let scored = both.scored(2.0);
        assert_eq!((scored.aleatoric, scored.epistemic), (noise, of_mean));
    }

    /// `python3 -c "from scipy.stats import norm; print(norm.ppf(0.95), norm.cdf(-8), norm.cdf(1.5))"`
    #[test]
    fn one_gaussian_is_that_of_scipy() {
        let one = mixture(&[1.0], &[(3.0, 4.0)]);
        let [low, high] = one.central(0.9);
        assert!((high - 3.0 - 2.0 * 1.6448536269514722).abs() < 1e-12 && (high + low - 6.0).abs() < 1e-12);
        assert!((below(-8.0) / 6.22096057427178e-16 - 1.0).abs() < 1e-12, "{}", below(-8.0));
        assert!((below(1.5) - 0.9331927987311419).abs() < 1e-15);
        // The score of a Gaussian at its mean is σ (√2 − 1) / √π.
        assert!((one.crps(3.0) - 2.0 * (2f64.sqrt() - 1.0) / PI.sqrt()).abs() < 1e-12);
    }

    /// Equal members are one Gaussian, whatever their weights, and far ones do not underflow.
    #[test]
    fn equal_members_are_one() {
        let two = mixture(&[0.3, 0.7], &[(1.0, 2.0), (1.0, 2.0)]).scored(4.0);
        let one = mixture(&[1.0], &[(1.0, 2.0)]).scored(4.0);
        let pairs = [
            (two.nll, one.nll),
            (two.crps, one.crps),
            (two.crps, two.crps_normal),
            (two.nll, two.nll_normal),
            (two.place, one.place),
            (two.widths[0], one.widths[0]),
            (two.epistemic, 0.0),
        ];
        assert!(pairs.iter().all(|(a, b)| (a - b).abs() < 1e-12), "{pairs:?}");
        let far = mixture(&[0.5, 0.5], &[(0.0, 1.0), (1.0, 1.0)]).scored(1e4);
        assert!(far.nll > 4e7 && far.nll.is_finite() && (far.place - 1.0).abs() < 1e-15);
    }

    /// Half of the mass lies below 0.5 between two narrow Gaussians at 0 and 1.
    #[test]
    fn quantiles_of_a_mixture() {
        let apart = mixture(&[0.5, 0.5], &[(0.0, 1e-6), (1.0, 1e-6)]);
        let [low, high] = apart.central(0.9);
        assert!((low + 1e-3 * 1.2815515655446004).abs() < 1e-9, "{low}");
        assert!((high - 1.0 - 1e-3 * 1.2815515655446004).abs() < 1e-9, "{high}");
        for odd in [f64::NAN, f64::INFINITY] {
            assert!(!mixture(&[1.0], &[(0.0, odd)]).quantile(0.3).is_finite(), "a search that does not end");
        }
        let [aleatoric, epistemic] = apart.variances();
        assert!((aleatoric - 1e-6).abs() < 1e-18 && (epistemic - 0.25).abs() < 1e-15);
    }
}
