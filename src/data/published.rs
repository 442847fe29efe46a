//! The sizes that publishers state for their data sets, against which files are counted.

use super::split::SplitName;

/// The published sizes of a data set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// The number of classes.
    pub classes: Option<usize>,
    /// The number of images of each published split.
    pub images: Vec<(SplitName, usize)>,
}

impl Published {
    /// Returns the sizes of a data set for which they are known.
    pub fn new(classes: usize, images: &[(SplitName, usize)]) -> Published {
        Published { classes: Some(classes), images: images.to_vec() }
    }

    /// Returns the number of images of a split. `None` if it is not published.
    pub fn images_of(&self, split: SplitName) -> Option<usize> {
        self.images.iter().find(|(name, _)| *name == split).map(|(_, count)| *count)
    }
}
