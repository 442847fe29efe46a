//! The settings of a Laplace approximation: what is fitted after training, and how it predicts.

use serde::Serialize;

use crate::posterior::Output;
use crate::schema::{Reader, words};

words! {
    /// The parameters that get a Gaussian.
    pub enum Parameters {
        /// All of theta.
        All = "all",
        /// A trained head; the other parameters stay at the mode.
        LastLayer = "last-layer",
    }
}

words! {
    /// The entries of the curvature that are kept.
    pub enum Structure { Kron = "kron", Diag = "diag", Full = "full" }
}

words! {
    /// The unit that counts as one sample of a Kronecker factor.
    pub enum Tokens {
        /// Each token.
        Expand = "expand",
        /// Each image.
        Reduce = "reduce",
    }
}

/// The form in which the curvature is kept.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Shape {
    pub structure: Structure,
    pub tokens: Tokens,
    /// The side from which Kronecker factors are kept at low rank.
    pub wide: i64,
    /// The rank of the factors that are kept at low rank.
    pub kept: i64,
}

impl Shape {
    /// The defaults of `wide` and `kept`.
    const WIDE: usize = 512;
    const KEPT: usize = 10;

    /// Reads the keys of `[method.laplace]` that say how the curvature is kept.
    pub fn read(reader: &Reader) -> Shape {
        Shape {
            structure: reader
                .choice("structure")
                .about("Form of the curvature: Kronecker factors, diagonal, or the whole matrix.")
                .or(Structure::Kron),
            tokens: reader
                .choice("tokens")
                .about("Whether Kronecker factors count each token or each image as one sample.")
                .or(Tokens::Expand),
            wide: reader
                .count("wide", 1..=1_000_000)
                .about("Side of a Kronecker factor from which it is kept at low rank.")
                .or(Self::WIDE) as i64,
            kept: reader
                .count("kept", 1..=10_000)
                .about("Rank of the factors that are kept at low rank.")
                .or(Self::KEPT) as i64,
        }
    }

    /// Returns whether everything that is said of Kronecker factors has its default.
    pub fn has_default_factors(&self) -> bool {
        (self.tokens, self.wide, self.kept) == (Tokens::Expand, Self::WIDE as i64, Self::KEPT as i64)
    }
}

words! {
    /// The way in which the prior precision is chosen.
    pub enum Tuning {
        /// The prior precision with the largest evidence.
        Evidence = "evidence",
        /// The prior precision with the lowest NLL of the predictive on held-out training images, over a grid.
        Validation = "validation",
        /// The value of `prior_precision`.
        Fixed = "fixed",
    }
}

/// The settings of the fit after training and of its predictions.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub parameters: Parameters,
    pub shape: Shape,
    pub tuning: Tuning,
    /// The prior precision τ, if it is fixed.
    pub prior_precision: f64,
    pub output: Output,
    /// The number of draws per particle.
    pub samples: usize,
    /// The largest number of bytes that the fit may hold.
    pub memory_bytes: u64,
}
