//! The TorchScript source of classes, in the form that archives contain.

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
