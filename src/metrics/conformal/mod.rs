//! Split conformal prediction: sets of classes that hold the true one with probability at least 1 − α, for images that
//! are exchangeable with the calibration images (Vovk et al. 2005; Angelopoulos & Bates 2023).
//!
//! A score s(x, y) says how badly class y conforms to the prediction for x. The threshold q is the ⌈(n + 1)(1 − α)⌉-th
//! smallest of the scores of n calibration images with their labels, and the set of x is {y : s(x, y) ≤ q}. A new score
//! is an entry in [`SCORES`].

mod calibrate;
mod coverage;
mod measures;
mod plan;
mod rule;
mod scores;

pub use calibrate::{Calibrated, TooFew};
pub use coverage::{Coverage, Part, Stratum};
pub use measures::{measures, of_column};
pub use plan::Plan;
pub use rule::{Alpha, Draw, Rule, Thresholds};
pub use scores::{Regularisation, SCORES, Score};

#[cfg(test)]
mod tests;
