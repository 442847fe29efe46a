//! The learning rate over time: a linear warm-up, then a cosine or a line to 0, or a constant.

use crate::experiment::Schedule;

/// The learning rate over a training, as shares of the base learning rate.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    pub schedule: Schedule,
    pub warmup_steps: usize,
    /// The number of steps of the whole training.
    pub steps: usize,
}

impl Rates {
    /// Returns the share in the step after `done` steps.
    pub fn factor(&self, done: usize) -> f64 {
        if done < self.warmup_steps {
            return (done + 1) as f64 / self.warmup_steps as f64;
        }
        match self.schedule {
            Schedule::Constant => 1.0,
            Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * self.share(done)).cos()),
            Schedule::Linear => 1.0 - self.share(done),
        }
    }

    /// Returns the share of the steps after the warm-up that are done.
    fn share(&self, done: usize) -> f64 {
        let length = self.steps.saturating_sub(self.warmup_steps).max(1) as f64;
        ((done - self.warmup_steps) as f64 / length).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warms_up_then_falls() {
        let of = |schedule| Rates { schedule, warmup_steps: 4, steps: 12 };
        let at = |done| of(Schedule::Cosine).factor(done);
        assert_eq!([at(0), at(3), at(4)], [0.25, 1.0, 1.0]);
        assert!((at(8) - 0.5).abs() < 1e-12);
        assert!(at(11) > 0.0 && at(11) < 0.04);
        assert_eq!(of(Schedule::Constant).factor(11), 1.0);
        assert_eq!([4, 6, 8, 11].map(|done| of(Schedule::Linear).factor(done)), [1.0, 0.75, 0.5, 0.125]);
    }
}
