//! The Gaussian that a head of numbers predicts: its mean and standard deviation, and the loss of a number under it.
//!
//! | symbol | here |
//! |---|---|
//! | y, m, s | a number, the mean and the standard deviation of the training numbers ([`Scale`]) |
//! | a, b | the outputs of the head, of which b is there unless the noise is fixed |
//! | μ = m + s a | the predicted mean |
//! | σ = s max(softplus(b), 10⁻⁶) | the predicted standard deviation, as in torch-uncertainty's `NormalLinear` |
//! | N(a, v), v the second output | what a linearised network predicts of a where σ is fixed: y ~ N(μ, s² v + σ²) |
//! | ½ log 2π + log σ + ½ ((y − μ) / σ)² | the loss |

use std::f64::consts::PI;

use tch::{Kind, Tensor};

use crate::data::numbers::Scale;
use crate::schema::words;

words! {
    /// The standard deviation of the noise.
    pub enum Noise {
        /// Learnt, and predicted for each sample by itself.
        Sample = "sample",
        /// Learnt, one number for all samples.
        Shared = "shared",
        /// The number `sigma`.
        Fixed = "fixed",
    }
}

/// The smallest standard deviation that is predicted, as a share of that of the training numbers.
const LEAST: f64 = 1e-6;

/// The Gaussian likelihood of a head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gaussian {
    /// The standard deviation of the noise in the unit of the numbers; `None` if it is learnt.
    pub sigma: Option<f64>,
    /// The scale on which means and standard deviations are learnt.
    pub scale: Scale,
}

impl Gaussian {
    /// Returns the means and standard deviations `[…]` on the scale of what is learnt, from outputs `[…, C]`.
    fn standard(&self, outputs: &Tensor) -> [Tensor; 2] {
        let mean = outputs.select(-1, 0);
        let deviation = match self.fixed() {
            Some(fixed) => mean.full_like(fixed),
            None => outputs.select(-1, 1).softplus().clamp_min(LEAST),
        };
        [mean, deviation]
    }

    /// Returns the negative log-likelihoods of numbers, `[p, B]`, from outputs `[p, B, C]` and numbers `[q, B]`.
    pub fn losses(&self, outputs: &Tensor, numbers: &Tensor) -> Tensor {
        let [mean, deviation] = self.standard(outputs);
        // The difference is taken in f64, since numbers may be far from 0 in comparison with their deviation.
        let learnt = ((numbers.to_kind(Kind::Double) - self.scale.mean) / self.scale.std).to_kind(mean.kind());
        let apart = (learnt - mean) / &deviation;
        apart.square() * 0.5 + deviation.log() + (0.5 * (2.0 * PI).ln() + self.scale.std.ln())
    }

    /// Returns the deviation of a fixed noise on the scale of what is learnt; `None` if it is learnt.
    pub fn fixed(&self) -> Option<f64> {
        self.sigma.map(|sigma| sigma / self.scale.std)
    }

    /// Returns the means, the variances, and the parts of these that are those of means, `[…]` in f64 each, in the unit of the numbers,
    /// from outputs `[…, C]`. Where the noise is fixed, the variance of a, of which a linearised network predicts a Gaussian, may follow a.
    pub fn moments(&self, outputs: &Tensor) -> [Tensor; 3] {
        let Scale { mean, std } = self.scale;
        let outputs = outputs.to_kind(Kind::Double);
        let [a, deviation] = self.standard(&outputs);
        let noise = deviation.square();
        let spread = match outputs.size().last() {
            // A variance of 0 may be rounded to less.
            Some(2) if self.sigma.is_some() => outputs.select(-1, 1).clamp_min(0.0),
            _ => noise.zeros_like(),
        };
        [a * std + mean, (noise + &spread) * (std * std), spread * (std * std)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(tensor: &Tensor) -> Vec<f64> {
        Vec::try_from(tensor.to_kind(Kind::Double).reshape([-1])).unwrap()
    }

    /// `python3 -c "from math import *; s=log1p(exp(0.5))*2; print(0.5*log(2*pi)+log(s)+0.5*((7-5.4)/s)**2, 1.4, s*s)"` for the
    /// scale (5, 2), the outputs (0.2, 0.5) and the number 7, whose predicted mean is 5 + 2 · 0.2.
    #[test]
    fn losses_are_in_the_unit_of_the_numbers() {
        let gaussian = Gaussian { sigma: None, scale: Scale { mean: 5.0, std: 2.0 } };
        let outputs = Tensor::from_slice(&[0.2f64, 0.5]).view([1, 1, 2]);
        let y = Tensor::from_slice(&[7f32]).view([1, 1]);
        let deviation = 2.0 * 0.5f64.exp().ln_1p();
        let expected = 0.5 * (2.0 * PI).ln() + deviation.ln() + 0.5 * (1.6 / deviation).powi(2);
        assert!((numbers(&gaussian.losses(&outputs, &y))[0] - expected).abs() < 1e-12);
        let [mean, variance, spread] = gaussian.moments(&outputs);
        assert_eq!(numbers(&spread), [0.0]);
        assert!((numbers(&mean)[0] - 5.4).abs() < 1e-12 && (numbers(&variance)[0] - deviation.powi(2)).abs() < 1e-12);
    }

    #[test]
    fn a_fixed_noise_is_in_the_unit_of_the_numbers() {
        let gaussian = Gaussian { sigma: Some(3.0), scale: Scale { mean: 100.0, std: 10.0 } };
        let outputs = Tensor::from_slice(&[0.0f64, 1.0]).view([1, 2, 1]);
        let [mean, variance, _] = gaussian.moments(&outputs);
        assert_eq!(numbers(&mean), [100.0, 110.0]);
        assert!(numbers(&variance).iter().all(|variance| (variance - 9.0).abs() < 1e-12));
        // A linearised network says how far a varies: by 0.2² around 1 here, which is 2² around 110.
        let linearised = Tensor::from_slice(&[1.0f64, 0.04]).view([1, 1, 2]);
        let [mean, variance, spread] = gaussian.moments(&linearised).map(|one| numbers(&one)[0]);
        assert!(
            mean == 110.0 && (variance - 13.0).abs() < 1e-12 && (spread - 4.0).abs() < 1e-12,
            "{variance} {spread}"
        );
        let found = numbers(&gaussian.losses(&outputs, &Tensor::from_slice(&[103f32, 110.0]).view([1, 2])));
        let base = 0.5 * (2.0 * PI).ln() + 3f64.ln();
        assert!((found[0] - base - 0.5).abs() < 1e-12 && (found[1] - base).abs() < 1e-12, "{found:?}");
    }
}
