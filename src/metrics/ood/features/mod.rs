//! Detection of foreign samples by features, which are what the classifier sees. A detector is fitted once on the features of training or
//! held-out images. Each has one file below `entries` and is registered in [`FEATURE_SCORES`].
//!
//! Members of a posterior have features of their own, so each has a detector of its own, and the score of a sample is the mean of the
//! members' scores.

mod entries;
mod fitting;
#[cfg(test)]
mod goldens;

pub use entries::{FEATURE_SCORES, ON_HELD_OUT, compare, key_of};
pub use fitting::{Classifier, Detector, Entry, Features, Sizes};
