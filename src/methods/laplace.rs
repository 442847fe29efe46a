//! What a Laplace approximation is fitted to after training, and how it predicts.

use serde::Serialize;

use crate::posterior::Output;
use crate::schema::words;

words! {
    /// Which parameters are random.
    pub enum Parameters {
        /// All of theta.
        All = "all",
        /// A trained head; the rest stays at the mode.
        LastLayer = "last-layer",
    }
}

words! {
    /// Which entries of the curvature are kept.
    pub enum Structure { Kron = "kron", Diag = "diag", Full = "full" }
}

words! {
    /// What one datum of a Kronecker factor is.
    pub enum Tokens {
        /// A token.
        Expand = "expand",
        /// An image.
        Reduce = "reduce",
    }
}

/// How the curvature is kept.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shape {
    pub structure: Structure,
    pub tokens: Tokens,
    /// Sides of Kronecker factors from which they are kept at low rank.
    pub wide: i64,
    /// The rank of those.
    pub kept: i64,
}

words! {
    /// Where the prior precision comes from.
    pub enum Tuning {
        /// The largest evidence.
        Evidence = "evidence",
        /// The lowest NLL of the predictive on held-out training images, over a grid.
        Validation = "validation",
        /// `prior_precision`.
        Fixed = "fixed",
    }
}

/// What is fitted after training, and how it predicts.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub parameters: Parameters,
    pub shape: Shape,
    pub tuning: Tuning,
    /// τ where it is fixed.
    pub prior_precision: f64,
    pub output: Output,
    /// Draws a particle.
    pub samples: usize,
    /// Bound on what the fit may hold.
    pub memory_bytes: u64,
}
