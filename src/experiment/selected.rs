//! The choice tables `[head.*]`, `[data.*]`, `[subspace.*]`, `[method.*]` and `[optimizer.*]`. Each selects one entry
//! of its registry.

use crate::schema::Reader;

/// The selected entry of a registry.
pub struct Selected<T: ?Sized> {
    pub key: String,
    pub spec: Box<T>,
}

/// Reads one of the choice tables with the entries of its registry.
pub fn choose<F: Copy, T: ?Sized>(
    root: &Reader,
    key: &str,
    entries: impl Iterator<Item = (&'static str, F)>,
    read: impl Fn(F, &Reader) -> Box<T>,
) -> Option<Selected<T>> {
    let entries: Vec<(&'static str, F)> = entries.collect();
    let known: Vec<&str> = entries.iter().map(|(key, _)| *key).collect();
    let (key, reader) = root.one_of(key, &known)?;
    let (_, entry) = entries.into_iter().find(|(known, _)| *known == key)?;
    let spec = read(entry, &reader);
    reader.finish();
    Some(Selected { key, spec })
}
