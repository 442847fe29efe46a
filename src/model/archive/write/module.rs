//! The tree of modules in an archive: classes, their parameters and submodules, in the order in which both are declared.

use anyhow::Result;
use tch::Kind;

/// A parameter before its values are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub shape: Vec<i64>,
    /// The type in which it is stored.
    pub kind: Kind,
}

/// An object of a TorchScript class.
#[derive(Clone, Debug)]
pub struct Module {
    /// The class in the archive's code, without `__torch__.bella.` before it.
    pub class: String,
    pub parameters: Vec<(String, Parameter)>,
    pub modules: Vec<(String, Module)>,
}

impl Module {
    /// A module without parameters and submodules.
    pub fn new(class: impl Into<String>) -> Module {
        Module { class: class.into(), parameters: Vec::new(), modules: Vec::new() }
    }

    /// The module with one more parameter.
    pub fn parameter(mut self, name: &str, shape: &[i64], kind: Kind) -> Module {
        self.parameters.push((name.to_string(), Parameter { shape: shape.to_vec(), kind }));
        self
    }

    /// The module with one more submodule.
    pub fn module(mut self, name: &str, module: Module) -> Module {
        self.modules.push((name.to_string(), module));
        self
    }

    /// Calls `visitor` with the full name of every parameter: a module's own first, then those of its submodules.
    ///
    /// # Errors
    /// The first error of `visitor`.
    pub fn visit(&self, prefix: &str, visitor: &mut impl FnMut(&str, &Parameter) -> Result<()>) -> Result<()> {
        for (name, parameter) in &self.parameters {
            visitor(&format!("{prefix}{name}"), parameter)?;
        }
        self.modules.iter().try_for_each(|(name, module)| module.visit(&format!("{prefix}{name}."), visitor))
    }

    /// Bytes of all parameters.
    pub fn bytes(&self) -> u64 {
        let own: i64 = self
            .parameters
            .iter()
            .map(|(_, parameter)| parameter.shape.iter().product::<i64>() * parameter.kind.elt_size_in_bytes() as i64)
            .sum();
        own as u64 + self.modules.iter().map(|(_, module)| module.bytes()).sum::<u64>()
    }
}
