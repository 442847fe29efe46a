//! The settings of a Laplace approximation: what is fitted after training, and how it predicts.

use super::labels::Labels;
use crate::posterior::Output;
use crate::schema::{settings, words};

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

settings! {
    /// The form in which the curvature is kept.
    #[derive(Clone, Copy, Debug)]
    pub struct Shape {
        /// Form of the curvature: Kronecker factors, diagonal, or the whole matrix.
        pub structure: Structure = Structure::Kron;
        /// Whether Kronecker factors count each token or each image as one sample.
        pub tokens: Tokens = Tokens::Expand;
        /// Side of a Kronecker factor from which it is kept at low rank.
        pub wide: i64 = Self::WIDE, in 1..=1_000_000;
        /// Rank of the factors that are kept at low rank.
        pub kept: i64 = Self::KEPT, in 1..=10_000;
    }
}

impl Shape {
    /// The defaults of `wide` and `kept`.
    const WIDE: i64 = 512;
    const KEPT: i64 = 10;

    /// Returns whether everything that is said of Kronecker factors has its default.
    pub fn has_default_factors(&self) -> bool {
        (self.tokens, self.wide, self.kept) == (Tokens::Expand, Self::WIDE, Self::KEPT)
    }
}

words! {
    /// The labels over which the curvature is an expectation.
    pub enum Fisher {
        /// All of them, with a backward pass a class.
        Exact = "exact",
        /// Some that are drawn from the predictions, with a backward pass a draw.
        Mc = "mc",
    }
}

settings! {
    /// The expectation over labels in the curvature.
    #[derive(Clone, Copy, Debug)]
    pub struct Expectation {
        /// Labels over which the curvature is an expectation: all, with a backward pass a class, or some that are drawn from the
        /// predictions, with a backward pass a draw.
        pub fisher: Fisher = Fisher::Exact, omit Fisher::Exact;
        /// Labels drawn for each image with `fisher = "mc"`; 1 where it is not given.
        pub fisher_draws: Option<i64>, in 1..=10_000;
    }
}

impl Expectation {
    /// Returns the labels of the particle `particle`, which `seed` draws.
    pub fn labels(&self, seed: u64, particle: i64) -> Labels {
        match self.fisher {
            Fisher::Exact => Labels::All,
            Fisher::Mc => Labels::Drawn { draws: self.fisher_draws.unwrap_or(1), seed, particle },
        }
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
    pub expectation: Expectation,
    pub tuning: Tuning,
    /// The prior precision τ, if it is fixed.
    pub prior_precision: f64,
    pub output: Output,
    /// The number of draws per particle.
    pub samples: usize,
    /// The largest number of bytes that the fit may hold.
    pub memory_bytes: u64,
}
