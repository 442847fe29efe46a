//! The sums from which the class-wise calibration error follows.

use super::bins::{BINS, bin_of};

/// The sums of 1[y = c] − p_c, one for every class c and every bin of its probability, over the samples whose p_c falls into the bin.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassGaps {
    /// `[C, BINS]`.
    sums: Vec<f64>,
    samples: usize,
}

impl ClassGaps {
    pub fn new(classes: usize) -> ClassGaps {
        ClassGaps { sums: vec![0.0; classes * BINS], samples: 0 }
    }

    /// Adds a sample by the probabilities of its classes, `[C]`.
    pub fn add(&mut self, probabilities: &[f64], label: usize) {
        self.samples += 1;
        for (class, (probability, bins)) in probabilities.iter().zip(self.sums.chunks_exact_mut(BINS)).enumerate() {
            bins[bin_of(*probability)] += f64::from(u8::from(class == label)) - probability;
        }
    }

    /// Returns the sums over all parts, added in order.
    pub fn joined<'a>(classes: usize, parts: impl Iterator<Item = &'a ClassGaps>) -> ClassGaps {
        let mut all = ClassGaps::new(classes);
        for part in parts {
            all.samples += part.samples;
            all.sums.iter_mut().zip(&part.sums).for_each(|(sum, own)| *sum += own);
        }
        all
    }

    /// Returns the mean over the classes of the share-weighted |accuracy − probability| of their bins. `None` if there are no samples.
    pub fn error(&self) -> Option<f64> {
        let classes = self.sums.len() / BINS;
        let sum: f64 = self.sums.iter().map(|sum| sum.abs()).sum();
        (self.samples > 0).then(|| sum / (classes * self.samples) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // By hand: of class 0, the samples .7 (right) and .8 (wrong) lie in bins 10 and 11 with the gaps .3 and −.8; of class 1, .3 and .2
    // in bins 4 and 2 with the gaps −.3 and .8.
    #[test]
    fn two_classes_by_hand() {
        let mut parts = [ClassGaps::new(2), ClassGaps::new(2)];
        parts[0].add(&[0.7, 0.3], 0);
        parts[1].add(&[0.8, 0.2], 1);
        let all = ClassGaps::joined(2, parts.iter());
        assert!((all.error().unwrap() - 2.2 / 4.0).abs() < 1e-15);
        assert_eq!(ClassGaps::new(2).error(), None);
    }
}
