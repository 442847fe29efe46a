//! The TorchScript source of classes, in the form that archives contain.

use tch::Kind;

/// Returns a type as TorchScript writes it: the number of libtorch's ScalarType.
pub fn number(kind: Kind) -> i32 {
    match kind {
        Kind::Half => 5,
        Kind::Double => 7,
        Kind::BFloat16 => 15,
        _ => 6,
    }
}

/// The source of a TorchScript class in the form that archives contain.
pub struct Class {
    name: String,
    parameters: Vec<String>,
    /// The lines that declare submodules.
    modules: Vec<String>,
    methods: String,
}

impl Class {
    pub fn new(name: &str) -> Class {
        Class { name: name.to_string(), parameters: Vec::new(), modules: Vec::new(), methods: String::new() }
    }

    pub fn parameters(mut self, names: &[&str]) -> Class {
        self.parameters.extend(names.iter().map(|name| name.to_string()));
        self
    }

    pub fn module(mut self, name: &str, class: &str) -> Class {
        self.modules.push(format!("  {name} : __torch__.bella.{class}\n"));
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
        let quoted: String = self.parameters.iter().map(|name| format!("\"{name}\", ")).collect();
        let declared: String = self.parameters.iter().map(|name| format!("  {name} : Tensor\n")).collect();
        format!(
            "class {}(Module):\n  __parameters__ = [{quoted}]\n  __buffers__ = []\n{declared}  training : bool\n{}{}",
            self.name,
            self.modules.concat(),
            self.methods
        )
    }
}
