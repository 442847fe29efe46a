//! The tree of modules in an archive (classes with their parameters and submodules, in the order of their declaration) and the
//! TorchScript source of classes, in the form that archives contain.

use anyhow::Result;
use tch::Kind;

/// Returns a type as TorchScript writes it: the number of libtorch's ScalarType.
pub fn number(kind: Kind) -> i32 {
    match kind {
        Kind::Int64 => 4,
        Kind::Half => 5,
        Kind::Double => 7,
        Kind::Bool => 11,
        Kind::BFloat16 => 15,
        _ => 6,
    }
}

/// The source of a TorchScript class in the form that archives contain.
pub struct Class {
    name: String,
    parameters: Vec<String>,
    /// The tensors that are no parameters, such as whole numbers.
    buffers: Vec<String>,
    /// The lines that declare submodules.
    modules: Vec<String>,
    methods: String,
}

impl Class {
    pub fn new(name: &str) -> Class {
        let (parameters, buffers) = (Vec::new(), Vec::new());
        Class { name: name.to_string(), parameters, buffers, modules: Vec::new(), methods: String::new() }
    }

    pub fn parameters(mut self, names: &[&str]) -> Class {
        self.parameters.extend(names.iter().map(|name| name.to_string()));
        self
    }

    pub fn module(mut self, name: &str, class: &str) -> Class {
        self.modules.push(format!("  {name} : __torch__.bella.{class}\n"));
        self
    }

    /// Adds tensors that are no parameters.
    pub fn buffers(mut self, names: &[&str]) -> Class {
        self.buffers.extend(names.iter().map(|name| name.to_string()));
        self
    }

    /// Adds a submodule whose name is a number, as in a list of modules.
    pub fn numbered(mut self, number: usize, class: &str) -> Class {
        self.modules.push(format!("  __annotations__[\"{number}\"] = __torch__.bella.{class}\n"));
        self
    }

    pub fn method(mut self, name: &str, arguments: &str, result: &str, body: &[String]) -> Class {
        let class = &self.name;
        self.methods += &format!("  def {name}(self: __torch__.bella.{class}, {arguments}) -> {result}:\n");
        body.iter().for_each(|line| self.methods += &format!("    {line}\n"));
        self
    }

    pub fn code(&self) -> String {
        let quoted = |names: &[String]| names.iter().map(|name| format!("\"{name}\", ")).collect::<String>();
        let (parameters, buffers) = (quoted(&self.parameters), quoted(&self.buffers));
        let all = self.parameters.iter().chain(&self.buffers);
        let declared: String = all.map(|name| format!("  {name} : Tensor\n")).collect();
        format!(
            "class {}(Module):\n  __parameters__ = [{parameters}]\n  __buffers__ = [{buffers}]\n{declared}  \
             training : bool\n{}{}",
            self.name,
            self.modules.concat(),
            self.methods
        )
    }
}

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
