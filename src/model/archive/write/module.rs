//! The tree of modules in an archive: classes with their parameters and submodules, in the order of their declaration.

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
    /// The name of the class in the archive's code, without the prefix `__torch__.bella.`.
    pub class: String,
    pub parameters: Vec<(String, Parameter)>,
    pub modules: Vec<(String, Module)>,
}

impl Module {
    /// Creates a module without parameters and submodules.
    pub fn new(class: impl Into<String>) -> Module {
        Module { class: class.into(), parameters: Vec::new(), modules: Vec::new() }
    }

    /// Returns the module with one more parameter.
    pub fn parameter(mut self, name: &str, shape: &[i64], kind: Kind) -> Module {
        self.parameters.push((name.to_string(), Parameter { shape: shape.to_vec(), kind }));
        self
    }

    /// Returns the module with one more submodule.
    pub fn module(mut self, name: &str, module: Module) -> Module {
        self.modules.push((name.to_string(), module));
        self
    }

    /// Calls `visitor` with the full name of every parameter: a module's own first, then those of its submodules.
    ///
    /// # Errors
    /// Fails at the first error of `visitor`.
    pub fn visit(&self, prefix: &str, visitor: &mut impl FnMut(&str, &Parameter) -> Result<()>) -> Result<()> {
        for (name, parameter) in &self.parameters {
            visitor(&format!("{prefix}{name}"), parameter)?;
        }
        self.modules.iter().try_for_each(|(name, module)| module.visit(&format!("{prefix}{name}."), visitor))
    }

    /// Returns the number of bytes of all parameters.
    pub fn bytes(&self) -> u64 {
        let own: i64 = self
            .parameters
            .iter()
            .map(|(_, parameter)| parameter.shape.iter().product::<i64>() * parameter.kind.elt_size_in_bytes() as i64)
            .sum();
        own as u64 + self.modules.iter().map(|(_, module)| module.bytes()).sum::<u64>()
    }
}
