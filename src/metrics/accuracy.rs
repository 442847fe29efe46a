//! The share of samples whose label is the most probable class, or among the five most probable.

use super::scores::mean;
use super::{Average, Better, Metric, Resampled, Scope, Shown, Unit};

pub static ACCURACY: Metric = Metric {
    key: "accuracy",
    short: "accuracy",
    about: "share of samples classified correctly",
    definition: "mean of 1[argmax_c p_c = y]; the first of equal classes is taken",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown { tables: &Average::ALL, seeds: &Average::ALL, ..Shown::IN_FILES },
    resampled: Some(Resampled::Mean(|scores, average| ones(&scores.averaged(average).correct).collect())),
    eval: |scores, average| mean(ones(&scores.averaged(average).correct)),
};

pub static TOP5: Metric = Metric {
    key: "top5",
    short: "top-5",
    about: "share of samples whose label is among the five most probable classes; empty for five classes or fewer",
    definition: "mean of 1[fewer than five classes ahead of y]",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| mean(ones(scores.averaged(average).in_top5.as_ref()?)),
};

/// The quantile of the standard normal distribution at 0.975.
const Z: f64 = 1.959_963_984_540_054;

/// Returns whether a column of results is the share of samples that are right.
pub fn is_column(column: &str) -> bool {
    column == "class_accuracy"
        || [&ACCURACY, &TOP5].iter().any(|metric| metric.columns().iter().any(|(name, _)| name == column))
}

/// Returns the 95 % interval (Wilson's score interval) of a share of `samples` samples. `None` without samples, or if
/// `share` is none.
pub fn interval(share: f64, samples: u64) -> Option<[f64; 2]> {
    if samples == 0 || !(0.0..=1.0).contains(&share) {
        return None;
    }
    let (n, z2) = (samples as f64, Z * Z);
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    Some([(middle - half).max(0.0), (middle + half).min(1.0)])
}

/// Returns 1 for each hit and 0 for each miss.
fn ones(hits: &[bool]) -> impl Iterator<Item = f64> {
    hits.iter().map(|hit| f64::from(u8::from(*hit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    // scipy.stats.binomtest(k, n).proportion_ci(0.95, method="wilson"), scipy 1.17.1
    const SCIPY: &[(u64, u64, [f64; 2])] = &[
        (0, 10, [0.0, 0.27753279986288926]),
        (35, 36, [0.8583028134672613, 0.9950795928601895]),
        (24, 24, [0.8620237953250198, 1.0]),
        (7193, 10000, [0.7104101519666586, 0.7280214263479627]),
        (1, 3, [0.06149194472039626, 0.7923403991979523]),
    ];

    #[test]
    fn intervals_are_those_of_scipy() {
        for (right, samples, expected) in SCIPY {
            let found = interval(*right as f64 / *samples as f64, *samples).unwrap();
            let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12);
            assert!(close, "{right} of {samples}: {found:?} instead of {expected:?}");
        }
        assert_eq!((interval(0.5, 0), interval(f64::NAN, 3), interval(1.1, 3)), (None, None, None));
    }
}
