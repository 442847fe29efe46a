//! What publishers say of their data sets, to count files against.

use super::split::SplitName;

/// Sizes that a publisher gives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The number of classes.
    pub classes: Option<usize>,
    /// Images of each split that is published.
    pub images: Vec<(SplitName, usize)>,
}

impl Published {
    /// A set whose sizes are known.
    pub fn new(classes: usize, images: &[(SplitName, usize)]) -> Published {
        Published { classes: Some(classes), images: images.to_vec() }
    }

    /// Images of a split, where that is published.
    pub fn images_of(&self, split: SplitName) -> Option<usize> {
        self.images.iter().find(|(name, _)| *name == split).map(|(_, count)| *count)
    }
}
