//! Published networks of texts, by their publishers' `config.json`.

use std::path::Path;

use anyhow::Result;
use serde_json::Value;

use crate::model::values::Values;

/// A published network.
#[derive(Debug)]
pub struct Published {
    pub key: &'static str,
    pub about: &'static str,
    /// Parts of the names of its folders, in lower case. Where a name has parts of several networks, the first one counts.
    pub files: &'static [&'static str],
    /// The keys of `config.json` that tell sizes, without their defaults.
    pub config: &'static str,
}

impl Published {
    /// Returns the publisher's `config.json`, without keys whose values are the defaults.
    ///
    /// # Errors
    /// Fails if the entry is no JSON.
    pub fn config(&self) -> Result<Value> {
        Ok(serde_json::from_str(self.config)?)
    }

    /// Returns the values of that config.
    ///
    /// # Errors
    /// Fails as [`config`](Self::config) does.
    pub fn values(&self) -> Result<Values> {
        Ok(Values::new(Path::new(self.key), self.config()?))
    }
}
