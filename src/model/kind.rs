//! The entry of a kind of checkpoint, which is written in the file of that kind.

use anyhow::Result;

use crate::model::outline::Outline;
use crate::model::preparation::Normalize;
use crate::model::values::Values;

/// The facts about a kind of checkpoint, but for the way in which it is read.
pub struct KindEntry {
    /// The word of `checkpoint.kind`.
    pub word: &'static str,
    /// Returns whether a `config.json` of this model type is that of such a network.
    pub reads: fn(&str) -> bool,
    /// Whether packages load the folder of the checkpoint's file rather than the file.
    pub is_folder: bool,
    /// Returns the network that a config describes; a reason why its operations are not estimated where no config does.
    pub outline: Result<Described, &'static str>,
    /// A reason why nothing can stand in for such a checkpoint.
    pub no_stand_in: Option<&'static str>,
    /// The overrides of a config by which a published network of this kind is benched: what it reads, and its head.
    pub bench: &'static [&'static str],
}

/// Makes the network of a config for texts of at most so many tokens, and images with a normalisation.
pub type Described = fn(&Values, Option<i64>, Normalize) -> Result<Box<dyn Outline>>;
