//! Flat dictionaries of tensors as `torch.save` writes them (`pytorch_model.bin`, `.pth`): a zip file with a pickle and the
//! bytes of the tensors. Nothing in the pickle is executed; only the few functions that build tensors may occur in it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tch::Tensor;

use super::container::Container;
use super::stored::{Stored, is_tensor_part};
use crate::base::files::open_file;
use crate::base::pickle::{self, Id, Pickle, Value};

/// The first bytes of files that torch wrote before version 1.6, which are no zip files.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// The entries of a training script's dictionary in which the weights may lie.
const NESTED: [&str; 3] = ["state_dict", "model", "module"];

/// The prefix that parallel training puts before all names.
const PARALLEL: &str = "module.";

/// The largest ratio of the tensors' bytes to those of the file. Tensors that share their bytes are rare among weights.
const MAX_SHARED: u64 = 4;

/// The number of bytes that the tensors of a small file may have in any case.
const ALWAYS: u64 = 16 << 20;

/// The way out of every refusal.
const ADVICE: &str =
    "nothing of it was executed; save the weights alone in Python: torch.save(model.state_dict(), \"weights.pth\")";

/// Returns whether a file is a dictionary of tensors rather than a TorchScript archive.
///
/// # Errors
/// Fails if the file is one that torch wrote before version 1.6.
pub fn is_state_dict(path: &Path) -> Result<bool> {
    let mut start = [0; LEGACY.len()];
    let read = open_file(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    ensure!(
        read.is_err() || start != LEGACY,
        "{}: was written by torch before version 1.6, in a form that bella does not read: write it anew in Python with \
         torch.save(torch.load(file, weights_only=True), file)",
        path.display()
    );
    Ok(start.starts_with(b"PK")
        && Container::open(path).is_ok_and(|container| !container.has_code() && container.has("data.pkl")))
}

/// Returns the names and tensors of a dictionary in their stored type, on the CPU.
///
/// # Errors
/// Fails if the file is damaged, if its pickle names anything but the parts of tensors, if it is no flat dictionary, or if
/// its tensors are far larger than the file.
pub fn read(path: &Path) -> Result<Vec<(String, Tensor)>> {
    let shown = path.display();
    let container = Container::open(path)?;
    if container.has("byteorder") {
        ensure!(container.text("byteorder")?[..] == *b"little", "{shown}: its bytes are not in little-endian order");
    }
    let bytes = container.text("data.pkl")?;
    let pickle =
        pickle::read(&bytes, &is_tensor_part).map_err(|why| anyhow!("{shown}: data.pkl: {why:#}: {ADVICE}"))?;
    let entries = entries(&pickle).with_context(|| shown.to_string())?;
    let stored = entries.into_iter().map(|(name, id)| {
        Stored::of(&pickle, &name, id).map_err(|why| anyhow!("{shown}: `{name}`: {why:#}: {ADVICE}"))
    });
    let stored = stored.collect::<Result<Vec<Stored>>>()?;
    let needed = stored.iter().map(|tensor| tensor.count() as u64 * tensor.kind.elt_size_in_bytes() as u64);
    let (needed, there) = (needed.fold(0, u64::saturating_add), path.metadata().map_or(0, |file| file.len()));
    ensure!(
        needed <= ALWAYS.max(there.saturating_mul(MAX_SHARED)),
        "{shown}: its tensors have {needed} bytes in a file of {there}: it is not loaded"
    );
    values(&container, stored)
}

/// Returns the tensors, each entry of the zip file read once.
fn values(container: &Container, stored: Vec<Stored>) -> Result<Vec<(String, Tensor)>> {
    let mut of_entry: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, tensor) in stored.iter().enumerate() {
        of_entry.entry(&tensor.storage).or_default().push(at);
    }
    let mut found: Vec<Option<Tensor>> = stored.iter().map(|_| None).collect();
    for (entry, tensors) in of_entry {
        let bytes = container.data(entry)?;
        for at in tensors {
            found[at] = Some(stored[at].values(container, &bytes)?);
        }
    }
    Ok(stored.iter().zip(found).filter_map(|(stored, tensor)| Some((stored.name.clone(), tensor?))).collect())
}

/// Says how to save the weights alone that lie among other things, under a key that bella does not know.
fn alone(pickle: &Pickle, pairs: &[(Id, Id)]) -> String {
    let is_table = |id: &Id| pickle.pairs(*id).is_some_and(|inner| !inner.is_empty());
    let tables: Vec<&str> =
        pairs.iter().filter(|(_, of)| is_table(of)).filter_map(|(key, _)| pickle.text(*key)).collect();
    match tables[..] {
        [] => "save the weights alone, torch.save(model.state_dict(), \"weights.pth\")".into(),
        [first, ..] => format!(
            "its entries with tables are {}; save the one with the weights alone, such as \
             torch.save(torch.load(file, weights_only=True)[\"{first}\"], \"weights.pth\")",
            tables.join(", ")
        ),
    }
}

/// Returns the names of all tensors with the values that build them.
fn entries(pickle: &Pickle) -> Result<Vec<(String, Id)>> {
    let mut root = pickle.root();
    if let Some(inner) =
        NESTED.iter().find_map(|key| pickle.entry(root, key).ok()).filter(|id| pickle.pairs(*id).is_some())
    {
        root = inner;
    }
    let pairs = pickle.pairs(root).context("is no dictionary of tensors: save model.state_dict()")?;
    ensure!(!pairs.is_empty(), "is an empty dictionary");
    let mut found: BTreeMap<String, Id> = BTreeMap::new();
    for (key, value) in pairs {
        let name = pickle.text(*key).context("a key of its dictionary is no text")?;
        if !matches!(pickle.value(*value), Value::Call { .. }) {
            bail!("`{name}` is no tensor: {}", alone(pickle, pairs));
        }
        // As in Python, the last value of a key counts.
        found.insert(name.to_string(), *value);
    }
    let parallel = found.keys().all(|name| name.starts_with(PARALLEL));
    let plain = |name: String| if parallel { name[PARALLEL.len()..].to_string() } else { name };
    Ok(found.into_iter().map(|(name, id)| (plain(name), id)).collect())
}
