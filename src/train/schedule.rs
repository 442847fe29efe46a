//! The learning rate over time, a linear warm-up, then a cosine or a line to 0, or a constant; and its factors by column.

use anyhow::{Result, ensure};
use tch::Tensor;

use crate::experiment::{Schedule, TrainSpec};
use crate::model::network::{HEAD, Network, block_of};
use crate::subspace::{Layout, Shape};

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

/// Returns the factors of the learning rates of the columns, `[P]`; `None` if all are 1.
///
/// # Errors
/// Fails if a factor is asked for of columns that are not trained.
pub fn rate_factors(spec: &TrainSpec, network: &dyn Network, layout: &Layout) -> Result<Option<Tensor>> {
    if spec.changed_rate().is_none() {
        return Ok(None);
    }
    let is_head = |name: &str| name.starts_with(HEAD);
    let trains = |of: &dyn Fn(&str) -> bool| layout.columns.iter().any(|column| of(&column.name));
    let asked = |factor: f64, trained: bool, key: &str, what: &str| {
        ensure!(factor == 1.0 || trained, "train.{key} = {factor}: no {what} is trained: leave it out");
        Ok(())
    };
    asked(spec.head_rate, trains(&is_head), "head_rate", "head")?;
    asked(spec.layer_decay, trains(&|name| block_of(name).is_some()), "layer_decay", "numbered block")?;
    let is_low_rank = layout.blocks.iter().any(|block| block.shape != Shape::Dense);
    asked(spec.b_rate, is_low_rank, "b_rate", "low-rank update")?;
    let (blocks, stages) = (network.blocks(), network.stages());
    // The distance from the head, by layers as timm counts them.
    let below_head = |name: &str| match block_of(name) {
        _ if is_head(name) => 0,
        Some(block) => blocks.saturating_sub(block),
        None if network.stage_of(name) == stages => 1,
        None => blocks + 1,
    };
    let mut factors = vec![0f64; layout.parameters() as usize];
    for column in &layout.columns {
        let name = column.name.as_str();
        let mut factor = spec.layer_decay.powi(below_head(name) as i32);
        if is_head(name) {
            factor *= spec.head_rate;
        }
        if name.ends_with(".B") {
            factor *= spec.b_rate;
        }
        factors[column.start as usize..][..column.count() as usize].fill(factor);
    }
    Ok(Some(Tensor::from_slice(&factors)))
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
