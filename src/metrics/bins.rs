//! The 15 equal bins of (0, 1], each open below and closed above (Guo et al. 2017, "On Calibration of Modern Neural Networks").

/// The number of equal bins of (0, 1].
pub const BINS: usize = 15;

/// Returns the bin b with b/15 < confidence ≤ (b + 1)/15. Rounding may lift the confidence slightly above 1; it then
/// counts in the last bin.
pub fn bin_of(confidence: f64) -> usize {
    (1..BINS).take_while(|edge| confidence > *edge as f64 / BINS as f64).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_closed_above() {
        assert_eq!([0.0, 1.0 / 15.0, 0.067, 14.0 / 15.0, 1.0, 1.0 + 1e-15].map(bin_of), [0, 0, 1, 13, 14, 14]);
        for edge in 1..=BINS {
            assert_eq!(bin_of(edge as f64 / BINS as f64), edge - 1);
        }
    }
}
