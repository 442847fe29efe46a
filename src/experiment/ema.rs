//! The settings of the exponential moving average of theta.

use crate::schema::{Reader, settings};

/// The γ and the p of the rise that timm takes.
const GAMMA: f64 = 1.0;
const POWER: f64 = 2.0 / 3.0;

settings! {
    /// The table `[train.ema]`. Its keys are those of timm's `ModelEmaV3`.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Ema {
        /// Weight of the average in each step; that of theta is one minus it.
        decay: f64, in from_below(0.0, 1.0);
        /// Steps after which averaging begins; until then the average is theta.
        update_after_step: usize = 0, in 0..=1_000_000_000;
        /// Whether the weight rises to `decay` by 1 − (1 + t / γ)^−p, t the steps since averaging began.
        use_warmup: bool = false;
        /// The γ of this rule.
        warmup_gamma: f64 = GAMMA, in above(0.0);
        /// The p of this rule.
        warmup_power: f64 = POWER, in above(0.0);
    } then check
}

impl Ema {
    fn check(&self, table: &Reader) {
        // The config that a run saves states every key, those with their default value too.
        for (key, differs) in
            [("warmup_gamma", self.warmup_gamma != GAMMA), ("warmup_power", self.warmup_power != POWER)]
        {
            if differs && !self.use_warmup {
                table.problem(key, "has no meaning without use_warmup = true");
            }
        }
    }

    /// Returns the weight of the average in step number `step`, from 1.
    pub fn decay_at(&self, step: usize) -> f64 {
        let steps = step.saturating_sub(self.update_after_step + 1);
        match (steps, self.use_warmup) {
            (0, _) => 0.0,
            (_, false) => self.decay,
            (steps, true) => {
                let risen = 1.0 - (1.0 + steps as f64 / self.warmup_gamma).powf(-self.warmup_power);
                risen.min(self.decay)
            }
        }
    }
}
