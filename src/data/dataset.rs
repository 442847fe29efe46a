//! What a data set is to the rest of the program.

use anyhow::{Result, bail};

use super::decode::Resize;
use super::published::Published;
use super::request::Request;
use super::split::{Split, SplitName};
use super::versions::Version;
use crate::schema::Reader;

/// A line of the registry: how one kind of data set is named and made from its config table.
pub struct Entry {
    /// The name in `[data.<key>]` and in results.
    pub key: &'static str,
    /// One line for `bella list`.
    pub about: &'static str,
    /// Where the files come from, and where below `root` they have to lie.
    pub fetch: &'static str,
    /// Reads the table; mistakes are recorded in the reader, and no file is opened.
    pub read: fn(&mut Reader) -> Box<dyn Dataset>,
}

/// A configured data set. Files are touched only by [`Dataset::classes`] and [`Dataset::load`].
pub trait Dataset: Send + Sync {
    /// The registry key.
    fn key(&self) -> &'static str;

    /// Class names; the position is the label.
    ///
    /// # Errors
    /// Where the names come from files or folders that cannot be read.
    fn classes(&self) -> Result<Vec<String>>;

    /// Name of the set in results, unless the config gives one.
    fn label(&self) -> String {
        self.key().to_string()
    }

    /// Reads one official split; files of other splits need not exist.
    ///
    /// # Errors
    /// A split that the set does not have, missing or malformed files, a label out of range.
    fn load(&self, split: SplitName, request: &Request) -> Result<Split>;

    /// The splits that the set has.
    ///
    /// # Errors
    /// Where that is up to files which cannot be read.
    fn splits(&self) -> Result<Vec<SplitName>> {
        Ok(vec![SplitName::Train, SplitName::Test])
    }

    /// What the publisher says of the set; nothing for a user's own images.
    fn published(&self) -> Published {
        Published::default()
    }

    /// How its image files get the network's size; `None` for a set that is stored as pixels.
    fn resize(&self) -> Option<Resize> {
        None
    }

    /// Where the config names several test sets, which are evaluated one by one: the name of each, which is put behind the
    /// set's label, and the set with it alone. Else empty.
    fn test_sets(&self) -> Vec<(String, Box<dyn Dataset>)> {
        Vec::new()
    }

    /// The published corrupted versions that the config asks for, each a test set of its own; empty for a set with plain
    /// splits. A set has either versions or splits.
    ///
    /// # Errors
    /// All missing files or folders, in one message.
    fn versions(&self) -> Result<Vec<Version>> {
        Ok(Vec::new())
    }

    /// Reads one of [`Dataset::versions`].
    ///
    /// # Errors
    /// A version that the set does not have, missing or malformed files, a label out of range.
    fn load_version(&self, version: &Version, _request: &Request) -> Result<Split> {
        bail!("{} has no corrupted versions, so no `{version}`; bella makes its own with --corrupt", self.key())
    }

    /// The config with its defaults filled in, as stored with the results. `root` is its only path.
    fn resolved(&self) -> toml::Table;
}
