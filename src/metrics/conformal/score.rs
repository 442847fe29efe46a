//! The entry of a conformity score in the registry.

/// A conformity score. One of [`SCORES`](super::SCORES).
pub struct Score {
    pub key: &'static str,
    /// The name and the source of the score.
    pub about: &'static str,
    /// The formula for the class at rank r (from 1) of an image whose falling probabilities are p_(1) ≥ p_(2) ≥ …
    pub definition: &'static str,
    /// The scores of the classes of one image, from falling probabilities `[C]` and a draw u in [0, 1].
    pub of: fn(&[f64], f64, Regularisation) -> Vec<f64>,
}

/// The penalty of `raps` on large sets: λ for each rank behind the k-th.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regularisation {
    /// λ, at least 0.
    pub penalty: f64,
    /// k, the number of ranks that are free.
    pub rank: usize,
}
