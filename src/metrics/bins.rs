//! The 15 equal bins of (0, 1], each open below and closed above (Guo et al. 2017, "On Calibration of Modern Neural Networks"), and
//! the sums over them from which the class-wise calibration error follows.

/// The number of equal bins of (0, 1].
pub const BINS: usize = 15;

/// Returns the bin b with b/15 < confidence ≤ (b + 1)/15. Rounding may lift the confidence slightly above 1; it then
/// counts in the last bin.
pub fn bin_of(confidence: f64) -> usize {
    (1..BINS).take_while(|edge| confidence > *edge as f64 / BINS as f64).count()
}

/// The sums of 1[y = c] − p_c, one for every class c and every bin of its probability, over the samples whose p_c falls into the bin.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassGaps {
    /// `[C, BINS]`.
    sums: Vec<f64>,
    /// The numbers of samples, and of those that are of the class, `[C, BINS]`.
    counts: Vec<[u32; 2]>,
    samples: usize,
}

/// The samples that give a class a probability in one bin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassBin {
    pub samples: u32,
    /// The number of samples that are of the class.
    pub hits: u32,
    /// The sum of the probabilities.
    pub probability: f64,
}

impl ClassGaps {
    pub fn new(classes: usize) -> ClassGaps {
        ClassGaps { sums: vec![0.0; classes * BINS], counts: vec![[0, 0]; classes * BINS], samples: 0 }
    }

    /// Adds a sample by the probabilities of its classes, `[C]`.
    pub fn add(&mut self, probabilities: &[f64], label: usize) {
        self.samples += 1;
        for (class, probability) in probabilities.iter().enumerate() {
            let (place, hit) = (class * BINS + bin_of(*probability), u8::from(class == label));
            self.sums[place] += f64::from(hit) - probability;
            let [samples, hits] = &mut self.counts[place];
            (*samples, *hits) = (*samples + 1, *hits + u32::from(hit));
        }
    }

    /// Returns the sums over all parts, added in order.
    pub fn joined<'a>(classes: usize, parts: impl Iterator<Item = &'a ClassGaps>) -> ClassGaps {
        let mut all = ClassGaps::new(classes);
        for part in parts {
            all.samples += part.samples;
            all.sums.iter_mut().zip(&part.sums).for_each(|(sum, own)| *sum += own);
            let counts = all.counts.iter_mut().flatten().zip(part.counts.iter().flatten());
            counts.for_each(|(sum, own)| *sum += own);
        }
        all
    }

    /// Returns the mean over the classes of the share-weighted |accuracy − probability| of their bins. `None` if there are no samples.
    pub fn error(&self) -> Option<f64> {
        let classes = self.sums.len() / BINS;
        let sum: f64 = self.sums.iter().map(|sum| sum.abs()).sum();
        (self.samples > 0).then(|| sum / (classes * self.samples) as f64)
    }

    /// Returns that error of one class; 0 if there are no samples.
    pub fn error_of(&self, class: usize) -> f64 {
        let sum: f64 = self.sums[class * BINS..(class + 1) * BINS].iter().map(|sum| sum.abs()).sum();
        sum / self.samples.max(1) as f64
    }

    /// Returns the samples in one of the bins of a class.
    pub fn bin(&self, class: usize, bin: usize) -> ClassBin {
        let place = class * BINS + bin;
        let [samples, hits] = self.counts[place];
        ClassBin { samples, hits, probability: f64::from(hits) - self.sums[place] }
    }
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
        assert!((all.error_of(0) - 0.55).abs() < 1e-15 && (all.error_of(1) - 0.55).abs() < 1e-15);
        let found = [(0, 10), (0, 11), (1, 2), (0, 0)].map(|(class, bin)| all.bin(class, bin));
        assert_eq!(found.map(|bin| (bin.samples, bin.hits)), [(1, 1), (1, 0), (1, 1), (0, 0)]);
        assert!(found.iter().zip([0.7, 0.8, 0.2, 0.0]).all(|(bin, sum)| (bin.probability - sum).abs() < 1e-15));
    }
}
