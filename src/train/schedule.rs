//! The learning rate over time: a linear warm-up, then a cosine or a line to 0, or a constant.

use crate::experiment::Schedule;

/// Returns the share of the base learning rate in step `step` (from 0) of `total`.
pub fn factor(schedule: Schedule, step: usize, warmup_steps: usize, total: usize) -> f64 {
    if step < warmup_steps {
        return (step + 1) as f64 / warmup_steps as f64;
    }
    match schedule {
        Schedule::Constant => 1.0,
        Schedule::Cosine => 0.5 * (1.0 + (std::f64::consts::PI * done(step, warmup_steps, total)).cos()),
        Schedule::Linear => 1.0 - done(step, warmup_steps, total),
    }
}

/// Returns the share of the steps after the warm-up that are done.
fn done(step: usize, warmup_steps: usize, total: usize) -> f64 {
    let length = total.saturating_sub(warmup_steps).max(1) as f64;
    ((step - warmup_steps) as f64 / length).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warms_up_then_falls() {
        let at = |step| factor(Schedule::Cosine, step, 4, 12);
        assert_eq!([at(0), at(3), at(4)], [0.25, 1.0, 1.0]);
        assert!((at(8) - 0.5).abs() < 1e-12);
        assert!(at(11) > 0.0 && at(11) < 0.04);
        assert_eq!(factor(Schedule::Constant, 11, 4, 12), 1.0);
        assert_eq!([4, 6, 8, 11].map(|step| factor(Schedule::Linear, step, 4, 12)), [1.0, 0.75, 0.5, 0.125]);
    }
}
