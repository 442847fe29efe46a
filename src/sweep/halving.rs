//! Successive halving (Jamieson & Talwalkar 2016): all trials train for a few epochs, the best of them for longer, and
//! only the last ones to the end. The schedule of the learning rate is that of the whole training from the start, so
//! that a trial which stays is the very run that would have been trained alone.

/// The rungs of a search: all but every `factor`-th trial leave after each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halving {
    /// One in this many trials goes on; 1 trains all trials to the end.
    pub factor: usize,
    /// The number of rungs, at least 1.
    pub rungs: usize,
}

impl Halving {
    /// Returns as many rungs as leave one epoch for the first and one trial for the last.
    pub fn new(factor: usize, epochs: usize, trials: usize) -> Halving {
        let mut rungs = 1;
        let (mut epochs, mut trials) = (epochs, trials);
        while factor > 1 && epochs / factor >= 1 && trials > 1 {
            (epochs, trials) = (epochs / factor, trials.div_ceil(factor));
            rungs += 1;
        }
        Halving { factor, rungs }
    }

    /// Returns the number of epochs after which a trial is judged on a rung (from 0), of `epochs` in all.
    pub fn epochs(&self, rung: usize, epochs: usize) -> usize {
        let left = (self.rungs - 1 - rung) as u32;
        epochs.div_ceil(self.factor.saturating_pow(left))
    }

    /// Returns the number of trials that go on from a rung.
    pub fn kept(&self, trials: usize) -> usize {
        trials.div_ceil(self.factor)
    }
}

/// Returns the `count` trials with the lowest scores, best first; of equal ones the earlier. Trials without a score are
/// never among them.
pub fn best(scores: &[(usize, Option<f64>)], count: usize) -> Vec<usize> {
    let mut scored: Vec<(usize, f64)> = scores.iter().filter_map(|(trial, score)| Some((*trial, (*score)?))).collect();
    scored.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    scored.into_iter().take(count).map(|(trial, _)| trial).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_by_hand() {
        let of = |factor, epochs, trials| {
            let halving = Halving::new(factor, epochs, trials);
            (0..halving.rungs).map(|rung| halving.epochs(rung, epochs)).collect::<Vec<_>>()
        };
        assert_eq!(of(3, 9, 9), [1, 3, 9]);
        assert_eq!(of(3, 27, 9), [3, 9, 27]);
        assert_eq!(of(3, 10, 100), [2, 4, 10]);
        assert_eq!(of(2, 5, 4), [2, 3, 5]);
        assert_eq!(of(3, 2, 9), [2]);
        assert_eq!(of(1, 9, 9), [9]);
        assert_eq!(of(3, 9, 1), [9]);
        assert_eq!(Halving::new(3, 9, 9).kept(9), 3);
        assert_eq!(Halving::new(3, 9, 10).kept(4), 2);
    }

    #[test]
    fn the_best_are_those_with_the_lowest_scores() {
        let scores = [(4, Some(0.5)), (7, None), (8, Some(0.2)), (9, Some(0.5)), (10, Some(0.9))];
        assert_eq!(best(&scores, 3), [8, 4, 9]);
        assert_eq!(best(&scores, 9), [8, 4, 9, 10]);
        assert!(best(&[(0, None)], 1).is_empty());
    }
}
