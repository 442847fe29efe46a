//! Corrections for many comparisons: the p-values of a family of tests, adjusted so that those below a level hold together.
//!
//! With the m p-values in rising order, p₍₁₎ ≤ … ≤ p₍ₘ₎:
//!
//! | key | adjusted | holds |
//! |---|---|---|
//! | `holm` | max over j ≤ i of min(1, (m − j + 1) p₍ⱼ₎) | the probability of any wrong rejection (Holm 1979) |
//! | `benjamini-hochberg` | min over j ≥ i of min(1, m p₍ⱼ₎ / j) | the expected share of wrong ones among the rejections (Benjamini and Hochberg 1995) |

use crate::schema::words;

words! {
    /// The correction of p-values for the number of comparisons.
    pub enum Correction {
        /// Holm's steps: no wrong rejection at all, with the probability of the level.
        Holm = "holm",
        /// Benjamini and Hochberg's: so large a share of wrong ones among the rejections.
        BenjaminiHochberg = "benjamini-hochberg",
        /// P-values as they are.
        None = "none",
    }
}

impl Correction {
    /// Returns the adjusted p-values, in the order of the given ones.
    pub fn adjusted(self, values: &[f64]) -> Vec<f64> {
        let count = values.len();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
        let mut adjusted = values.to_vec();
        match self {
            Correction::None => {}
            Correction::Holm => {
                let mut most: f64 = 0.0;
                for (rank, at) in order.into_iter().enumerate() {
                    most = most.max(((count - rank) as f64 * values[at]).min(1.0));
                    adjusted[at] = most;
                }
            }
            Correction::BenjaminiHochberg => {
                let mut least: f64 = 1.0;
                for (rank, at) in order.into_iter().enumerate().rev() {
                    least = least.min(count as f64 * values[at] / (rank + 1) as f64);
                    adjusted[at] = least;
                }
            }
        }
        adjusted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::golden::Golden;

    fn is_near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(off < 1e-12, "{found:?}, not {expected:?}");
    }

    /// statsmodels 0.15.0, and for `benjamini-hochberg` SciPy 1.17.1 as well.
    #[test]
    fn adjusted_values_are_those_of_statsmodels() {
        let golden = Golden::of("corrections");
        let numbers = |at: usize, key: &str| -> Vec<f64> {
            let list = golden.value(&format!("{at}/{key}")).as_array().unwrap();
            list.iter().map(|number| number.as_f64().unwrap()).collect()
        };
        for at in 0..4 {
            let values = numbers(at, "values");
            is_near(&Correction::Holm.adjusted(&values), &numbers(at, "holm"));
            is_near(&Correction::BenjaminiHochberg.adjusted(&values), &numbers(at, "benjamini_hochberg"));
            assert_eq!(Correction::None.adjusted(&values), values);
        }
    }

    #[test]
    fn by_hand() {
        // Holm: 3 · 0.01, then 2 · 0.02, then max(0.04, 0.03). Benjamini and Hochberg: min(3 · 0.01, 3/2 · 0.02, 0.03).
        is_near(&Correction::Holm.adjusted(&[0.02, 0.03, 0.01]), &[0.04, 0.04, 0.03]);
        is_near(&Correction::BenjaminiHochberg.adjusted(&[0.02, 0.03, 0.01]), &[0.03; 3]);
        assert_eq!(Correction::Holm.adjusted(&[0.7, 0.9]), [1.0, 1.0]);
        assert!(Correction::Holm.adjusted(&[]).is_empty());
    }
}
