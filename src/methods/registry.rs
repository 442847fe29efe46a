//! The methods that a config can name: those in [`METHODS`], and those that a program built on this library adds.

use std::sync::{PoisonError, RwLock};

use super::{Entry, METHODS};

static ADDED: RwLock<Vec<&'static Entry>> = RwLock::new(Vec::new());

/// Adds a method. From then on it is available in configs, `bella list`, legends and the bench.
pub fn register(entry: &'static Entry) {
    ADDED.write().unwrap_or_else(PoisonError::into_inner).push(entry);
}

/// Returns every known method, in the order of legends.
pub fn registered() -> Vec<&'static Entry> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    METHODS.iter().chain(added.iter()).copied().collect()
}
