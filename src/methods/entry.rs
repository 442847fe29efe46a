//! The facts about a registered method that the rest of the program knows.

use super::spec::{MethodContext, MethodSpec};
use crate::schema::Reader;

/// The rule that turns gradients into steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// The optimizer of the config.
    Optimizer,
    /// The method's own rule; the config then has `[optimizer.none]`.
    Own,
}

/// The meaning of a row of theta during training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowsAre {
    /// A point that follows gradients. Equal points that see the same images stay equal.
    Points,
    /// The mean of a Gaussian; gradients are taken at draws from it.
    Gaussians,
    /// A state or a point that moves with noise of its own.
    Samples,
}

/// The number of rows that a method moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Particles {
    One,
    /// The number in the setting `particles`.
    Any,
}

/// A method with some settings, as `bella bench` measures it.
#[derive(Debug, PartialEq, Eq)]
pub struct Variant {
    /// The word for it on the command line.
    pub key: &'static str,
    /// The overrides of a config below the method's own table; `particles` comes from the command line.
    pub sets: &'static [&'static str],
    /// Whether the step asks the objective for mixed gradients or for logits, so that it cannot be timed with given
    /// gradients.
    pub asks_for_mixing: bool,
}

/// A registered method, with everything the rest of the program knows about it.
pub struct Entry {
    pub key: &'static str,
    pub about: &'static str,
    pub paper: &'static str,
    pub update: Update,
    pub rows: RowsAre,
    pub particles: Particles,
    pub bench: &'static [Variant],
    /// Pairs (subspace, name of the method there in legends); in other subspaces the name is `<subspace> × <key>`.
    pub names: &'static [(&'static str, &'static str)],
    /// The same for n > 1 particles, in subspaces where the method has another name then, such as MultiSWAG.
    pub names_of_many: &'static [(&'static str, &'static str)],
    pub read: fn(&Reader, &MethodContext) -> Box<dyn MethodSpec>,
}
