//! The scaling of losses in f16, by the rules of torch's `torch.amp.GradScaler`: gradients are those of the loss times a factor, so that small
//! ones do not vanish, and are divided by it in f32. A step whose gradients are not finite is skipped and halves the factor; after 2000 steps
//! without one it is doubled.
//!
//! Differs: GradScaler goes on for ever with a factor that only falls. Here training ends where no factor that makes sense is left.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use tch::Kind;

use super::progress::ADVICE;
use crate::base::tensor_file::State;
use crate::methods::{Answer, Objective, Request};

const NAME: &str = "loss_scale";
const START: f64 = 65536.0;
const GROWTH: f64 = 2.0;
const BACKOFF: f64 = 0.5;
const INTERVAL: usize = 2000;

/// The factor below which gradients are not finite for another reason than their size.
const LEAST: f64 = 1.0 / 16384.0;

/// The factor of the loss, and the steps that it has known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LossScale {
    pub factor: f64,
    /// The number of finite steps since the factor was changed.
    finite: usize,
    /// The number of steps that were skipped.
    pub skipped: usize,
}

impl LossScale {
    /// Returns the start, where the compute type needs one.
    pub fn of(kind: Kind) -> Option<LossScale> {
        (kind == Kind::Half).then_some(LossScale { factor: START, finite: 0, skipped: 0 })
    }

    /// Takes note of a step whose gradients were finite.
    pub fn advance(&mut self) {
        self.finite += 1;
        if self.finite == INTERVAL {
            self.finite = 0;
            // As an f32, which is what GradScaler keeps, it stays finite.
            self.factor = if self.factor * GROWTH > f64::from(f32::MAX) { self.factor } else { self.factor * GROWTH };
        }
    }

    /// Takes note of a step that was skipped, number `step` of the training.
    ///
    /// # Errors
    /// Fails if the factor has become too small.
    pub fn skip(&mut self, step: usize) -> Result<()> {
        (self.factor, self.finite, self.skipped) = (self.factor * BACKOFF, 0, self.skipped + 1);
        ensure!(
            self.factor >= LEAST,
            "step {step}: gradients in f16 are not finite, whatever the loss is scaled by: {ADVICE}"
        );
        Ok(())
    }

    pub fn save(&self, state: &mut State) -> Result<()> {
        state.put_text(NAME, &serde_json::to_string(self).context("cannot write the scale of the loss")?);
        Ok(())
    }

    /// Continues from a resume file. One of another type of numbers has no scale.
    pub fn load(&mut self, state: &State) -> Result<()> {
        if state.has(NAME) {
            *self =
                serde_json::from_str(&state.text(NAME)?).context("the resume file's scale of the loss is damaged")?;
        }
        Ok(())
    }
}

/// An objective that ends the step of a method where gradients are not finite, before the method has moved anything.
pub(super) struct Watched<'a> {
    pub objective: &'a mut dyn Objective,
}

/// The error of gradients that are not finite.
#[derive(Debug)]
pub(super) struct NotFinite;

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("gradients in f16 are not finite")
    }
}

impl std::error::Error for NotFinite {}

impl Objective for Watched<'_> {
    /// Reads one number back from the device, as GradScaler does.
    fn evaluate(&mut self, request: &Request) -> Result<Answer> {
        let answer = self.objective.evaluate(request)?;
        let gradients = match &answer {
            Answer::Losses(found) => &found.gradients,
            Answer::Extended(found) => &found.own.gradients,
            Answer::Gradients(found) => found,
            Answer::Outputs(_) => return Ok(answer),
        };
        ensure!(gradients.isfinite().all().int64_value(&[]) == 1, NotFinite);
        Ok(answer)
    }

    fn parts(&self) -> usize {
        self.objective.parts()
    }

    fn share(&self, part: usize) -> f64 {
        self.objective.share(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // scripts/make_scaler_goldens.py, torch 2.11.0: the steps after which the factor is another one, and that factor
    const SKIPPED: [usize; 6] = [1, 2, 700, 2701, 2702, 5000];
    const CHANGES: &[(usize, f64)] = &[
        (1, 32768.0),
        (2, 16384.0),
        (700, 8192.0),
        (2700, 16384.0),
        (2701, 8192.0),
        (2702, 4096.0),
        (4702, 8192.0),
        (5000, 4096.0),
        (7000, 8192.0),
        (9000, 16384.0),
    ];

    #[test]
    fn factors_are_those_of_grad_scaler() {
        let mut scale = LossScale::of(Kind::Half).unwrap();
        let mut found = Vec::new();
        for step in 1..=9500 {
            let before = scale.factor;
            if SKIPPED.contains(&step) {
                scale.skip(step).unwrap()
            } else {
                scale.advance()
            }
            if scale.factor != before {
                found.push((step, scale.factor));
            }
        }
        assert_eq!(found, CHANGES);
        assert_eq!((scale.skipped, LossScale::of(Kind::BFloat16)), (6, None));
        let mut state = State::default();
        scale.save(&mut state).unwrap();
        let mut other = LossScale::of(Kind::Half).unwrap();
        other.load(&State::default()).unwrap();
        assert_eq!(other.factor, START);
        other.load(&state).unwrap();
        assert_eq!(other, scale);
    }

    #[test]
    fn a_factor_that_only_falls_ends_training() {
        let mut scale = LossScale::of(Kind::Half).unwrap();
        let ended = (1..).find_map(|step| scale.skip(step).err()).unwrap().to_string();
        assert!(ended.starts_with("step 31: gradients in f16 are not finite, whatever"), "{ended}");
    }
}
