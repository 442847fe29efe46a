//! Networks that a config alone describes: their weights have sizes and no values.

use std::path::Path;

use anyhow::Result;

use crate::model::network::{Network, Rows};
use crate::model::preparation::Preparation;

/// A network of texts, of which the sizes are known.
pub trait Outline: Network {
    /// Returns the names and shapes of all weights, in the order of the forward pass.
    fn sizes(&self) -> Vec<(String, Vec<i64>)>;

    /// Returns the names and shapes of the tensors in a publisher's folder.
    fn published_sizes(&self) -> Vec<(String, Vec<i64>)>;

    /// Returns a weight that is another one, by the names of both.
    fn tie(&self) -> Option<[String; 2]> {
        None
    }

    /// Returns the most tokens of a text.
    fn most_tokens(&self) -> i64;

    /// Returns the number of pixels per side of an image; `None` for a network that sees none.
    fn image_side(&self) -> Option<i64> {
        None
    }

    /// Returns the tokens of an image; `None` for a network that sees none.
    fn patches(&self) -> Option<i64> {
        None
    }

    /// Opens the tokenizer of the network in a folder.
    ///
    /// # Errors
    /// Fails if the folder has none, or one that does not belong to the network.
    fn tokenizer(&self, folder: &Path) -> Result<Box<dyn Preparation>>;

    /// Returns the network whose features are those of some tokens, where it has those of all.
    fn reading(self: Box<Self>, rows: Rows) -> Box<dyn Network>;
}
