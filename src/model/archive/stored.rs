//! A tensor in a zip file of torch: its shape, its type and the place of its bytes, read from the pickle without libtorch.
//!
//! Flat dictionaries of tensors as `torch.save` writes them (`pytorch_model.bin`, `.pth`) are zip files of this kind. Nothing in
//! their pickle is executed; only the few functions that build tensors may occur in it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use tch::{Kind, Tensor};

use crate::base::files::open_file;
use crate::base::pickle::{self, Id, Pickle, Value};
use crate::base::tensor::first_line;
use crate::model::archive::container::Container;

/// The class of dictionaries that keep their order.
pub const DICTIONARY: &str = "collections.OrderedDict";
const PARAMETER: &str = "torch._utils._rebuild_parameter";
const TENSOR: &str = "torch._utils._rebuild_tensor_v2";

/// Returns whether a name is one of those that tensors are made of in a pickle.
pub fn is_tensor_part(name: &str) -> bool {
    [DICTIONARY, PARAMETER, TENSOR].contains(&name)
        || name.strip_prefix("torch.").is_some_and(|of| kind_of(of).is_some())
}

/// A tensor in a zip file of torch.
#[derive(Clone, Debug, PartialEq)]
pub struct Stored {
    pub name: String,
    pub shape: Vec<i64>,
    pub kind: Kind,
    /// The entry that holds its bytes.
    pub storage: String,
    pub(super) offset: i64,
    pub(super) strides: Vec<i64>,
}

fn is_call_of(pickle: &Pickle, id: Id, function: &str) -> bool {
    matches!(pickle.value(id), Value::Call { of, .. } if pickle.name(*of) == Some(function))
}

/// Checks that every tensor of a pickle lies within its storage, and every storage within its entry of the archive's
/// folder `data` or `constants`. libtorch does not look, and reads what lies behind them. Returns the entries.
///
/// # Errors
/// Fails with the first tensor or storage that is larger than what holds it.
pub fn check_bounds(container: &Container, pickle: &Pickle, folder: &str) -> Result<Vec<String>> {
    let mut entries = Vec::new();
    for id in pickle.ids() {
        match pickle.value(id) {
            Value::Outside(reference) => entries.push(check_storage(container, pickle, folder, *reference)?),
            Value::Call { of, .. } if pickle.name(*of) == Some(TENSOR) => {
                Stored::of(pickle, "a tensor", id).context("a tensor")?;
            }
            _ => {}
        }
    }
    Ok(entries)
}

/// Checks that an entry holds the elements of a storage, which `('storage', class, key, place, count)` describes. Returns the
/// entry.
fn check_storage(container: &Container, pickle: &Pickle, folder: &str, reference: Id) -> Result<String> {
    let Some([_, class, key, _, count, ..]) = pickle.parts(reference) else { bail!("a storage is not described") };
    let kind = pickle.name(*class).and_then(|name| kind_of(name.strip_prefix("torch.")?));
    let (Some(kind), Some(key), Some(count)) = (kind, pickle.text(*key), pickle.integer(*count)) else {
        bail!("a storage is not described")
    };
    let entry = format!("{folder}/{key}");
    let there = container.size(&entry)?;
    let needed = u64::try_from(count).ok().and_then(|count| count.checked_mul(kind.elt_size_in_bytes() as u64));
    ensure!(needed.is_some_and(|needed| needed <= there), "{entry} has {there} bytes, too few for {count} elements");
    Ok(entry)
}

/// Returns the number type of a storage class.
fn kind_of(storage: &str) -> Option<Kind> {
    Some(match storage {
        "FloatStorage" => Kind::Float,
        "HalfStorage" => Kind::Half,
        "BFloat16Storage" => Kind::BFloat16,
        "DoubleStorage" => Kind::Double,
        "LongStorage" => Kind::Int64,
        "IntStorage" => Kind::Int,
        "ShortStorage" => Kind::Int16,
        "CharStorage" => Kind::Int8,
        "ByteStorage" => Kind::Uint8,
        "BoolStorage" => Kind::Bool,
        _ => return None,
    })
}

impl Stored {
    /// Reads a tensor from a call `torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, …)`.
    ///
    /// # Errors
    /// Fails if the call is another one, or if its arguments are not those of a tensor.
    pub fn of(pickle: &Pickle, name: &str, id: Id) -> Result<Stored> {
        let Value::Call { of, arguments, .. } = pickle.value(id) else { bail!("it is no tensor") };
        let function = pickle.name(*of);
        if let (Some(PARAMETER), Some([data, ..])) = (function, pickle.parts(*arguments)) {
            // A parameter is a tensor with a flag. A parameter of a parameter is not made by torch.
            ensure!(!is_call_of(pickle, *data, PARAMETER), "it is built in a way that is not known");
            return Stored::of(pickle, name, *data);
        }
        ensure!(function == Some(TENSOR), "it is built in a way that is not known");
        let Some([outside, offset, shape, strides, ..]) = pickle.parts(*arguments) else { bail!("it is not whole") };
        let Value::Outside(reference) = pickle.value(*outside) else { bail!("it has no storage") };
        let Some([_, storage, key, more @ ..]) = pickle.parts(*reference) else { bail!("its storage is not whole") };
        let kind = pickle.name(*storage).and_then(|name| kind_of(name.strip_prefix("torch.")?));
        let stored = Stored {
            name: name.to_string(),
            shape: pickle.integers(*shape).context("its shape is no list of integers")?,
            kind: kind.context("its storage has a type that is not known")?,
            storage: format!("data/{}", pickle.text(*key).context("its storage has no name")?),
            offset: pickle.integer(*offset).context("its offset is no integer")?,
            strides: pickle.integers(*strides).context("its strides are no integers")?,
        };
        let fits = stored.shape.len() == stored.strides.len()
            && stored.shape.iter().chain(&stored.strides).all(|value| *value >= 0)
            && stored.offset >= 0;
        ensure!(fits, "its shape {:?} and strides {:?} do not fit", stored.shape, stored.strides);
        let needed = stored.elements().context("its shape is larger than memory")?;
        // The place of the storage comes before its number of elements.
        if let Some(there) = more.get(1).and_then(|count| pickle.integer(*count)) {
            let fits = usize::try_from(there).is_ok_and(|there| needed <= there);
            ensure!(fits, "its storage has {there} elements, but {needed} are needed");
        }
        Ok(stored)
    }

    /// Returns the number of elements of the storage up to the last one of the tensor.
    pub(super) fn elements(&self) -> Option<usize> {
        let mut last = self.offset;
        for (length, stride) in self.shape.iter().zip(&self.strides) {
            if *length == 0 {
                return Some(0);
            }
            last = last.checked_add((length - 1).checked_mul(*stride)?)?;
        }
        self.shape.iter().try_fold(1i64, |product, length| product.checked_mul(*length))?;
        usize::try_from(last.checked_add(1)?).ok()
    }

    /// Returns the number of elements of the tensor.
    pub fn count(&self) -> i64 {
        // Without elements, the other lengths may have any product.
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Returns the values of the tensor in their stored type.
    ///
    /// # Errors
    /// Fails if the entry is missing, damaged or too short.
    pub fn read(&self, container: &Container) -> Result<Tensor> {
        self.values(container, &container.data(&self.storage)?)
    }

    /// Returns the values of the tensor from the bytes of its entry.
    ///
    /// # Errors
    /// Fails if the entry is too short.
    pub fn values(&self, container: &Container, bytes: &[u8]) -> Result<Tensor> {
        let (stored, needed) = (bytes.len() / self.kind.elt_size_in_bytes(), self.elements().unwrap_or(usize::MAX));
        ensure!(
            needed <= stored,
            "{}: {}: {} has {stored} elements, but {needed} are needed",
            container.path.display(),
            self.name,
            self.storage
        );
        let failed = |e: tch::TchError| anyhow!("{}: {}: {}", container.path.display(), self.name, first_line(&e));
        let all = Tensor::f_from_data_size(bytes, &[stored as i64], self.kind).map_err(failed)?;
        let tensor = all.f_as_strided(&self.shape, &self.strides, self.offset).map_err(failed)?;
        Ok(if tensor.numel() == stored { tensor } else { tensor.copy() })
    }
}

/// The first bytes of files that torch wrote before version 1.6, which are no zip files.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";

/// The entries of a training script's dictionary in which the weights may lie.
const NESTED: [&str; 3] = ["state_dict", "model", "module"];

/// The entries in which means of the weights over the steps of a training may lie beside them, in the order in which timm takes them.
const MEANS: [&str; 2] = ["state_dict_ema", "model_ema"];

/// A part of the name of a parameter in timm's networks, by which its checkpoints are known.
const OF_TIMM: &str = "patch_embed.proj.weight";

/// The prefixes that parallel training and `torch.compile` put before all names.
const WRAPPERS: [&str; 2] = ["module.", "_orig_mod."];

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
        ensure!(
            container.text("byteorder")?[..] == *b"little",
            "{shown}: its bytes are not in little-endian order: save it on a machine of that order"
        );
    }
    let bytes = container.text("data.pkl")?;
    let pickle =
        pickle::read(&bytes, &is_tensor_part).map_err(|why| anyhow!("{shown}: data.pkl: {why:#}: {ADVICE}"))?;
    let entries = entries(&pickle, path).with_context(|| shown.to_string())?;
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

/// Returns the dictionary of tensors within that of a training script, or the whole where there is none.
fn nested(pickle: &Pickle, path: &Path) -> Result<Id> {
    let root = pickle.root();
    let table = |key: &str| pickle.entry(root, key).ok().filter(|id| pickle.pairs(*id).is_some());
    let of = |keys: &[&'static str]| keys.iter().find_map(|key| Some((*key, table(key)?)));
    let Some((key, mean)) = of(&MEANS) else { return Ok(of(&NESTED).map_or(root, |(_, weights)| weights)) };
    let mut names = pickle.pairs(mean).into_iter().flatten().filter_map(|(name, _)| pickle.text(*name));
    let is_of_timm = names.any(|name| name.ends_with(OF_TIMM));
    match of(&NESTED) {
        Some((other, _)) if is_of_timm => {
            tracing::info!(
                "{}: of its weights, those of `{key}` are read, as by timm, and not `{other}`",
                path.display()
            )
        }
        Some((other, _)) => bail!(
            "has two sets of weights, `{other}` and their mean over the training, `{key}`: save the one that you mean, such as \
             torch.save(torch.load(file, weights_only=True)[\"{key}\"], \"weights.pth\")"
        ),
        None => {}
    }
    Ok(mean)
}

/// Returns the names of all tensors with the values that build them.
fn entries(pickle: &Pickle, path: &Path) -> Result<Vec<(String, Id)>> {
    let root = nested(pickle, path)?;
    let pairs = pickle.pairs(root).context("is no dictionary of tensors: save model.state_dict()")?;
    ensure!(!pairs.is_empty(), "is an empty dictionary");
    let mut found: BTreeMap<String, Id> = BTreeMap::new();
    for (key, value) in pairs {
        let name = pickle.text(*key).context("a key of its dictionary is no text: save model.state_dict()")?;
        if !matches!(pickle.value(*value), Value::Call { .. }) {
            bail!("`{name}` is no tensor: {}", alone(pickle, pairs));
        }
        // As in Python, the last value of a key counts.
        found.insert(name.to_string(), *value);
    }
    let mut start = 0;
    let all_start = |with: &str, at: usize| found.keys().all(|name| name[at..].starts_with(with));
    while let Some(wrapper) = WRAPPERS.iter().find(|wrapper| all_start(wrapper, start)) {
        start += wrapper.len();
    }
    Ok(found.into_iter().map(|(name, id)| (name[start..].to_string(), id)).collect())
}
