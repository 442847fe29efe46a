//! The parameters of an archive, read from its pickle without libtorch.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

use super::container::{Code, Container};
use super::stored::{Stored, check_bounds, is_tensor_part};
use crate::base::pickle::{self, Id, Pickle, Value};

/// The largest depth of modules inside each other; the deepest known models have ten.
const MAX_DEPTH: usize = 64;

/// The largest number of attributes of all modules, those of a module in several places counted in each.
const MAX_ATTRIBUTES: usize = 2_000_000;

/// The largest depth of values inside each other: a module takes two levels.
const MAX_NESTED: usize = 4 * MAX_DEPTH;

/// The function that gives a list or a dictionary its type.
const TYPE_TAG: &str = "torch.jit._pickle.restore_type_tag";

/// What the pickle of an archive tells.
pub struct Listed {
    pub parameters: Vec<Stored>,
    /// The tensors that are no parameters: buffers, attributes, and those in lists.
    pub others: Vec<Stored>,
    /// The names of the parameters that tables of embeddings own (`torch.nn.Embedding`).
    pub tables: BTreeSet<String>,
    /// The full name of the module's class.
    pub class: Option<String>,
    /// The entries of the archive's folder that hold the bytes of tensors.
    pub storages: BTreeSet<String>,
}

/// Returns the parameters of the module in `data.pkl`. The files of `code` say which tensors are parameters.
///
/// # Errors
/// Fails if the pickle is damaged, or if it names anything besides classes of the archive and the parts of tensors.
pub fn listed(container: &Container, code: &[Code]) -> Result<Listed> {
    let shown = container.path.display();
    let mut storages = BTreeSet::new();
    let bytes = container.text("data.pkl")?;
    let read = pickle::read(&bytes, &is_allowed).and_then(|read| {
        check(container, &read, "data", &mut storages)?;
        Ok(read)
    });
    let read = read.with_context(|| format!("{shown}: data.pkl"))?;
    if container.has("constants.pkl") {
        let bytes = container.text("constants.pkl")?;
        let read = pickle::read(&bytes, &is_allowed);
        let checked = read.and_then(|read| check(container, &read, "constants", &mut storages));
        checked.with_context(|| format!("{shown}: constants.pkl"))?;
    }
    let (declared, tables) = (declared(code), BTreeSet::new());
    let (found, named, others) = (Vec::new(), BTreeSet::new(), Vec::new());
    let mut listing = Listing { pickle: &read, declared, attributes: 0, found, named, others, tables };
    listing.module(read.root(), "", 0).with_context(|| format!("{shown}: data.pkl"))?;
    listing.unnamed();
    let class = match read.value(read.root()) {
        Value::Call { of, .. } => read.name(*of).map(str::to_string),
        _ => None,
    };
    Ok(Listed { parameters: listing.found, others: listing.others, tables: listing.tables, class, storages })
}

/// Checks that libtorch can build what a pickle describes, and collects the entries of its tensors.
fn check(container: &Container, pickle: &Pickle, folder: &str, storages: &mut BTreeSet<String>) -> Result<()> {
    ensure!(pickle.is_at_most(MAX_NESTED), "its values lie in themselves, or more than {MAX_NESTED} levels deep");
    for id in pickle.ids() {
        let Value::Call { of, arguments, .. } = pickle.value(id) else { continue };
        let texts = pickle.parts(*arguments).unwrap_or_default().iter().filter_map(|part| pickle.text(*part));
        if pickle.name(*of) == Some(TYPE_TAG) && texts.clone().any(|text| text.matches('[').count() > MAX_DEPTH) {
            bail!("the type of a value has more than {MAX_DEPTH} types in each other");
        }
    }
    storages.extend(check_bounds(container, pickle, folder)?);
    Ok(())
}

/// Returns whether a name may occur in the pickle: a class of the archive's own code, which is checked, or a function
/// that builds tensors and lists.
fn is_allowed(name: &str) -> bool {
    let own = name.starts_with("__torch__.") && !name.starts_with("__torch__.torch.classes.");
    let typed = name.strip_prefix("torch.jit._pickle.");
    own || is_tensor_part(name)
        || name == "torch.device"
        || typed.is_some_and(|rest| rest.starts_with("build_"))
        || name == TYPE_TAG
}

/// Returns the names in `__parameters__` of every class, by the class's full name.
fn declared(code: &[Code]) -> BTreeMap<String, BTreeSet<String>> {
    let mut found = BTreeMap::new();
    for file in code {
        let (module, mut class) = (file.module(), None);
        for line in file.text.lines() {
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
    attributes: usize,
    found: Vec<Stored>,
    /// The values of the pickle that are in `found` or `others`.
    named: BTreeSet<Id>,
    others: Vec<Stored>,
    tables: BTreeSet<String>,
}

impl Listing<'_> {
    fn module(&mut self, id: Id, prefix: &str, depth: usize) -> Result<()> {
        ensure!(depth < MAX_DEPTH, "more than {MAX_DEPTH} modules lie in each other");
        let Value::Call { of, state: Some(state), .. } = self.pickle.value(id) else { return Ok(()) };
        // The state of a class with its own `__getstate__` is not a list of attributes.
        let (Some(class), Some(pairs)) = (self.pickle.name(*of), self.pickle.pairs(*state)) else { return Ok(()) };
        self.attributes += 1 + pairs.len();
        ensure!(self.attributes <= MAX_ATTRIBUTES, "its modules have more than {MAX_ATTRIBUTES} attributes");
        let own = self.declared.get(class).cloned().unwrap_or_default();
        for (key, value) in pairs {
            let key = self.pickle.text(*key).context("an attribute has no name")?;
            let name = format!("{prefix}{key}");
            match self.pickle.value(*value) {
                Value::Call { of, .. } if self.pickle.name(*of).is_some_and(|of| of.starts_with("__torch__.")) => {
                    self.module(*value, &format!("{name}."), depth + 1)?;
                }
                Value::Call { .. } if own.contains(key) => {
                    let tensor = Stored::of(self.pickle, &name, *value).with_context(|| format!("parameter {name}"))?;
                    self.found.push(tensor);
                    self.named.extend(made_of(self.pickle, *value));
                    if class.ends_with(".Embedding") {
                        self.tables.insert(name);
                    }
                }
                _ => self.other(*value, &name),
            }
        }
        Ok(())
    }

    /// Takes a tensor that is no parameter; other values are passed over.
    fn other(&mut self, id: Id, name: &str) {
        if let Ok(tensor) = Stored::of(self.pickle, name, id) {
            self.named.extend(made_of(self.pickle, id));
            self.others.push(tensor);
        }
    }

    /// Takes the tensors that are no attributes of modules.
    fn unnamed(&mut self) {
        for id in self.pickle.ids() {
            if !self.named.contains(&id) {
                self.other(id, "a tensor of a list");
            }
        }
    }
}

/// Returns the values that are one tensor: the call that builds it, and the tensor within the call that makes it a parameter.
fn made_of(pickle: &Pickle, id: Id) -> impl Iterator<Item = Id> {
    let inner = match pickle.value(id) {
        Value::Call { arguments, .. } => pickle.parts(*arguments).and_then(|parts| parts.first().copied()),
        _ => None,
    };
    [Some(id), inner].into_iter().flatten()
}
