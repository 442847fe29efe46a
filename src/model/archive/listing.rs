//! The parameters of an archive, read from its pickle without libtorch: names, shapes, types, and the places of their
//! bytes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tch::{Kind, Tensor};

use super::container::Container;
use crate::base::pickle::{self, Id, Pickle, Value};
use crate::base::tensor::first_line;

/// The largest depth of modules inside each other; the deepest known models have ten.
const MAX_DEPTH: usize = 64;

const MAX_MODULES: usize = 100_000;

/// A parameter of an archive.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub shape: Vec<i64>,
    pub kind: Kind,
    /// The entry that holds its bytes.
    storage: String,
    offset: i64,
    strides: Vec<i64>,
}

/// Returns the parameters of the module in `data.pkl`. The files of `code` say which tensors are parameters.
///
/// # Errors
/// Fails if the pickle is damaged, or if it names anything besides classes of the archive and the parts of tensors.
pub fn parameters(container: &Container, code: &[(String, String)]) -> Result<Vec<Parameter>> {
    let shown = container.path.display();
    let bytes = container.text("data.pkl")?;
    let read = pickle::read(&bytes, &is_allowed).with_context(|| format!("{shown}: data.pkl"))?;
    let constants = container.has("constants.pkl").then(|| container.text("constants.pkl")).transpose()?;
    if let Some(bytes) = constants {
        pickle::read(&bytes, &is_allowed).with_context(|| format!("{shown}: constants.pkl"))?;
    }
    let mut listing = Listing { pickle: &read, declared: declared(code), modules: 0, found: Vec::new() };
    listing.module(read.root(), "", 0).with_context(|| format!("{shown}: data.pkl"))?;
    Ok(listing.found)
}

/// Returns whether a name may occur in the pickle: a class of the archive's own code, which is checked, or a function
/// that builds tensors and lists.
fn is_allowed(name: &str) -> bool {
    let rebuilding = ["torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter", "collections.OrderedDict"];
    let own = name.starts_with("__torch__.") && !name.starts_with("__torch__.torch.classes.");
    let typed = name.strip_prefix("torch.jit._pickle.");
    own || rebuilding.contains(&name)
        || name.strip_prefix("torch.").is_some_and(|rest| kind_of(rest).is_some() || rest == "device")
        || typed.is_some_and(|rest| rest.starts_with("build_") || rest == "restore_type_tag")
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

/// Returns the names in `__parameters__` of every class, by the class's full name.
fn declared(code: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for (path, text) in code {
        let module = path.trim_end_matches(".py").replace('/', ".");
        let mut class = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("class ") {
                class = rest.split(['(', ':']).next().map(|name| format!("{module}.{name}"));
            } else if let (Some(class), Some(list)) = (&class, line.strip_prefix("  __parameters__ = [")) {
                let names = list.split(']').next().unwrap_or_default().split(',').map(|n| n.trim().trim_matches('"'));
                found.insert(class.clone(), names.filter(|name| !name.is_empty()).map(String::from).collect());
            }
        }
    }
    found
}

struct Listing<'a> {
    pickle: &'a Pickle<'a>,
    declared: BTreeMap<String, BTreeSet<String>>,
    modules: usize,
    found: Vec<Parameter>,
}

impl Listing<'_> {
    fn module(&mut self, id: Id, prefix: &str, depth: usize) -> Result<()> {
        ensure!(depth < MAX_DEPTH, "more than {MAX_DEPTH} modules lie in each other");
        // A module that occurs in several places is counted in each.
        self.modules += 1;
        ensure!(self.modules <= MAX_MODULES, "it has more than {MAX_MODULES} modules");
        let Value::Call { of, state: Some(state), .. } = self.pickle.value(id) else { return Ok(()) };
        // The state of a class with its own `__getstate__` is not a list of attributes.
        let (Some(class), Some(pairs)) = (self.pickle.name(*of), self.pickle.pairs(*state)) else { return Ok(()) };
        let own = self.declared.get(class).cloned().unwrap_or_default();
        for (key, value) in pairs {
            let key = self.pickle.text(*key).context("an attribute has no name")?;
            let name = format!("{prefix}{key}");
            match self.pickle.value(*value) {
                Value::Call { of, .. } if self.pickle.name(*of).is_some_and(|of| of.starts_with("__torch__.")) => {
                    self.module(*value, &format!("{name}."), depth + 1)?;
                }
                Value::Call { .. } if own.contains(key) => {
                    let tensor = self.tensor(&name, *value).with_context(|| format!("parameter {name}"))?;
                    self.found.push(tensor);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads a parameter from a call `torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, …)`.
    fn tensor(&self, name: &str, id: Id) -> Result<Parameter> {
        let pickle = self.pickle;
        let Value::Call { of, arguments, .. } = pickle.value(id) else { bail!("it is no tensor") };
        ensure!(pickle.name(*of) == Some("torch._utils._rebuild_tensor_v2"), "it is built in a way that is not known");
        let Some([outside, offset, shape, strides, ..]) = pickle.parts(*arguments) else { bail!("it is not whole") };
        let Value::Outside(reference) = pickle.value(*outside) else { bail!("it has no storage") };
        let Some([_, storage, key, ..]) = pickle.parts(*reference) else { bail!("its storage is not whole") };
        let kind = pickle.name(*storage).and_then(|name| kind_of(name.strip_prefix("torch.")?));
        let parameter = Parameter {
            name: name.to_string(),
            shape: pickle.integers(*shape).context("its shape is no list of integers")?,
            kind: kind.context("its storage has a type that is not known")?,
            storage: format!("data/{}", pickle.text(*key).context("its storage has no name")?),
            offset: pickle.integer(*offset).context("its offset is no integer")?,
            strides: pickle.integers(*strides).context("its strides are no integers")?,
        };
        let fits = parameter.shape.len() == parameter.strides.len()
            && parameter.shape.iter().chain(&parameter.strides).all(|value| *value >= 0)
            && parameter.offset >= 0;
        ensure!(fits, "its shape {:?} and strides {:?} do not fit", parameter.shape, parameter.strides);
        parameter.elements().context("its shape is larger than memory")?;
        Ok(parameter)
    }
}

impl Parameter {
    /// Returns the number of elements of the storage up to the last one of the tensor.
    fn elements(&self) -> Option<usize> {
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

    /// Returns the number of elements of the parameter.
    pub fn count(&self) -> i64 {
        self.shape.iter().product()
    }

    /// Returns the values of the parameter in their stored type.
    ///
    /// # Errors
    /// Fails if the entry is missing, damaged or too short.
    pub fn read(&self, container: &Container) -> Result<Tensor> {
        let bytes = container.data(&self.storage)?;
        let (stored, needed) = (bytes.len() / self.kind.elt_size_in_bytes(), self.elements().unwrap_or(usize::MAX));
        ensure!(
            needed <= stored,
            "{}: {}: {} has {stored} elements, but {needed} are needed",
            container.path.display(),
            self.name,
            self.storage
        );
        let failed = |e: tch::TchError| anyhow!("{}: {}: {}", container.path.display(), self.name, first_line(&e));
        let all = Tensor::f_from_data_size(&bytes, &[stored as i64], self.kind).map_err(failed)?;
        let tensor = all.f_as_strided(&self.shape, &self.strides, self.offset).map_err(failed)?;
        Ok(if tensor.numel() == stored { tensor } else { tensor.copy() })
    }
}
