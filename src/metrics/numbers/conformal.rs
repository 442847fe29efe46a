//! Split conformal intervals of numbers: intervals that hold the true number with probability at least 1 − α, for samples that are
//! exchangeable with the calibration samples (Vovk et al. 2005; Lei et al. 2018, arXiv 1604.04173; Romano et al. 2019, arXiv 1905.03222).
//!
//! A score s(x, y) says how far a number y is from what is predicted for x. The threshold q is the ⌈(n + 1)(1 − α)⌉-th smallest of the
//! scores of n calibration samples, and the interval of x is {y : s(x, y) ≤ q}.

use anyhow::Result;

use super::scored::Mixture;
use crate::metrics::conformal::{Alpha, TooFew, threshold};
use crate::predictions::Numbers;

/// A score of numbers.
pub struct IntervalScore {
    pub key: &'static str,
    pub definition: &'static str,
    /// Returns the interval whose numbers have the score q at most; the score of y is the smallest q whose interval holds y.
    interval: fn(&Predicted, f64) -> [f64; 2],
    score: fn(&Predicted, f64) -> f64,
}

/// Every score of numbers.
pub static INTERVAL_SCORES: [&IntervalScore; 3] = [
    &IntervalScore {
        key: "absolute",
        definition: "|y - mean|: intervals of one width",
        interval: |of, q| [of.mean - q, of.mean + q],
        score: |of, y| (y - of.mean).abs(),
    },
    &IntervalScore {
        key: "normalised",
        definition: "|y - mean| / deviation of the mixture: intervals as wide as the prediction is uncertain",
        interval: |of, q| [of.mean - q * of.deviation, of.mean + q * of.deviation],
        score: |of, y| (y - of.mean).abs() / of.deviation,
    },
    &IntervalScore {
        key: "cqr",
        definition: "max(low - y, y - high) for the mixture's central interval with the share 1 - alpha",
        interval: |of, q| [of.central[0] - q, of.central[1] + q],
        score: |of, y| (of.central[0] - y).max(y - of.central[1]),
    },
];

/// The prediction for a sample.
struct Predicted {
    mean: f64,
    deviation: f64,
    /// The ends of the central interval with the share 1 − α.
    central: [f64; 2],
}

fn predicted(numbers: &Numbers, alpha: Alpha) -> impl Iterator<Item = (Predicted, f64)> {
    let shares = numbers.shares();
    (0..numbers.samples()).map(move |sample| {
        let mixture = Mixture::new(&shares, numbers.of_sample(sample));
        let [aleatoric, epistemic] = mixture.variances();
        let (mean, deviation) = (mixture.mean(), (aleatoric + epistemic).sqrt());
        (Predicted { mean, deviation, central: mixture.central(1.0 - alpha.value()) }, numbers.numbers()[sample])
    })
}

/// A threshold that was taken from calibration samples.
pub struct Interval {
    pub score: &'static IntervalScore,
    pub alpha: Alpha,
    pub threshold: f64,
    /// The number of calibration samples.
    pub samples: usize,
}

/// The measured properties of the intervals of a test set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub samples: usize,
    /// The share of intervals that hold the number.
    pub coverage: f64,
    pub mean_width: f64,
    /// The share of intervals without any number, which `cqr` may have.
    pub empty: f64,
}

impl Interval {
    /// Takes the thresholds of every score and level from predictions on calibration samples.
    ///
    /// # Errors
    /// Fails if there are too few samples for a level.
    pub fn all(alphas: &[Alpha], held_out: &Numbers) -> Result<Vec<Interval>, TooFew> {
        let mut all = Vec::new();
        for alpha in alphas {
            let predicted: Vec<_> = predicted(held_out, *alpha).collect();
            for score in INTERVAL_SCORES {
                let scores = predicted.iter().map(|(of, y)| (score.score)(of, *y)).collect();
                let threshold = threshold(scores, *alpha)?;
                all.push(Interval { score, alpha: *alpha, threshold, samples: held_out.samples() });
            }
        }
        Ok(all)
    }

    /// Measures the intervals of a test set.
    pub fn measure(&self, tested: &Numbers) -> Measured {
        let samples = tested.samples();
        let (mut covered, mut width, mut empty) = (0, 0.0, 0);
        for (of, y) in predicted(tested, self.alpha) {
            let [low, high] = (self.score.interval)(&of, self.threshold);
            covered += usize::from((self.score.score)(&of, y) <= self.threshold);
            width += (high - low).max(0.0);
            empty += usize::from(high < low);
        }
        let share = |count: usize| count as f64 / samples as f64;
        Measured { samples, coverage: share(covered), mean_width: width / samples as f64, empty: share(empty) }
    }
}

#[cfg(test)]
mod tests {
    use tch::{Kind, Tensor};

    use super::*;
    use crate::base::golden::Golden;

    fn numbers(means: &[f64], deviations: &[f64], y: &[f64]) -> Numbers {
        Numbers::new(means.to_vec(), deviations.iter().map(|one| one * one).collect(), y.to_vec()).unwrap()
    }

    fn alpha(text: &str) -> Alpha {
        text.parse().unwrap()
    }

    /// Four residuals 1, 2, 3, 4 with the deviations 1, 4, 1, 1: with α = 0.4 the threshold is the ⌈5 · 0.6⌉ = 3rd smallest.
    #[test]
    fn thresholds_and_intervals_by_hand() {
        let held_out = numbers(&[0.0; 4], &[1.0, 4.0, 1.0, 1.0], &[1.0, -2.0, 3.0, -4.0]);
        let found = Interval::all(&[alpha("0.4")], &held_out).unwrap();
        assert_eq!(found.iter().map(|one| one.score.key).collect::<Vec<_>>(), ["absolute", "normalised", "cqr"]);
        let z = 0.8416212335729143; // the quantile of 0.8
        let expected = [3.0, 3.0, 3.0 - z];
        for (one, expected) in found.iter().zip(expected) {
            assert!((one.threshold - expected).abs() < 1e-9, "{}: {}", one.score.key, one.threshold);
        }
        let tested = numbers(&[10.0, 10.0], &[1.0, 2.0], &[13.0, 15.0]);
        let measured: Vec<Measured> = found.iter().map(|one| one.measure(&tested)).collect();
        let widths = [6.0, 9.0, 2.0 * (z + 2.0 * z) / 2.0 + 2.0 * (3.0 - z)];
        for ((one, width), coverage) in measured.iter().zip(widths).zip([0.5, 1.0, 0.5]) {
            assert!((one.mean_width - width).abs() < 1e-9 && one.coverage == coverage, "{one:?} {width}");
        }
    }

    /// Mixtures of two Gaussians; the intervals of 15 test samples by 40 others at three levels are those of crepes and MAPIE
    /// (tests/fixtures/intervals.json, written by scripts/make_interval_goldens.py).
    #[test]
    fn intervals_are_those_of_crepes_and_mapie() {
        let golden = Golden::of("intervals");
        let part = |of: &str| {
            let [means, variances, numbers] =
                ["means", "variances", "numbers"].map(|what| golden.tensor(&format!("{of}/{what}")).flatten(0, -1));
            let list = |of: Tensor| Vec::<f64>::try_from(of).unwrap();
            Numbers::new(list(means), list(variances), list(numbers)).unwrap()
        };
        let (held_out, tests) = (part("held_out"), part("tests"));
        for level in 0..3 {
            let alpha = alpha(&golden.number(&format!("expected/{level}/alpha")).to_string());
            for one in Interval::all(&[alpha], &held_out).unwrap() {
                let expected = golden.tensor(&format!("expected/{level}/{}", one.score.key));
                for (sample, (of, _)) in predicted(&tests, alpha).enumerate() {
                    for (end, found) in (one.score.interval)(&of, one.threshold).into_iter().enumerate() {
                        let expected = expected.double_value(&[sample as i64, end as i64]);
                        assert!((found - expected).abs() < 1e-6, "{} {sample}: {found} {expected}", one.score.key);
                    }
                }
                let [low, high] = [0, 1].map(|end| expected.select(1, end));
                let widths = (&high - &low).clamp_min(0.0).mean(Kind::Double).double_value(&[]);
                let y = golden.tensor("tests/numbers");
                let inside = y.ge_tensor(&low).logical_and(&y.le_tensor(&high));
                let coverage = inside.to_kind(Kind::Double).mean(Kind::Double).double_value(&[]);
                let measured = one.measure(&tests);
                assert!((measured.mean_width - widths).abs() < 1e-6 && (measured.coverage - coverage).abs() < 1e-12);
            }
        }
    }

    #[test]
    fn too_few_samples_are_refused() {
        let held_out = numbers(&[0.0; 4], &[1.0; 4], &[1.0, 2.0, 3.0, 4.0]);
        let error = Interval::all(&[alpha("0.1")], &held_out).err().unwrap().to_string();
        assert!(error.contains("4 calibration images do not suffice"), "{error}");
    }

    /// A wide central interval needs a negative threshold, by which others become empty.
    #[test]
    fn intervals_may_be_empty() {
        let held_out = numbers(&[0.0; 9], &[10.0; 9], &[0.0; 9]);
        let found = Interval::all(&[alpha("0.1")], &held_out).unwrap();
        let measured = found[2].measure(&numbers(&[0.0], &[1.0], &[0.0]));
        assert_eq!((measured.empty, measured.mean_width, measured.coverage), (1.0, 0.0, 0.0));
    }
}
