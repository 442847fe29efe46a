//! The pickles of an archive (protocol 2): `data.pkl`, the tree of modules with references to the entries of tensors,
//! and `constants.pkl`. No memo is written, since libtorch's reader does not need one.
//!
//! The tree of modules in an archive holds classes with their parameters and submodules, in the order of their declaration, and the
//! TorchScript source of classes, in the form that archives contain.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use tch::Kind;

const PROTOCOL: [u8; 2] = [0x80, 2];
const GLOBAL: u8 = b'c';
const EMPTY_TUPLE: u8 = b')';
const EMPTY_DICT: u8 = b'}';
const MARK: u8 = b'(';
const TUPLE: u8 = b't';
const SET_ITEMS: u8 = b'u';
const NEW_OBJECT: u8 = 0x81;
const BUILD: u8 = b'b';
const REDUCE: u8 = b'R';
const PERSISTENT_ID: u8 = b'Q';
const TEXT: u8 = b'X';
const INT: u8 = b'J';
const LONG: u8 = 0x8a;
const TRUE: u8 = 0x88;
const FALSE: u8 = 0x89;
const STOP: u8 = b'.';

/// Returns the `data.pkl` of a module. Its tensors are the entries `data/0`, `data/1`, … in the order of
/// [`Module::visit`].
///
/// # Errors
/// Fails if a parameter has a type that cannot be stored in an archive.
pub fn module(root: &Module) -> Result<Vec<u8>> {
    let mut pickle = Pickle { bytes: PROTOCOL.to_vec(), tensors: 0 };
    pickle.object(root)?;
    pickle.bytes.push(STOP);
    Ok(pickle.bytes)
}

/// Returns the `constants.pkl` of code without constant tensors.
pub fn no_constants() -> Vec<u8> {
    [&PROTOCOL[..], &[EMPTY_TUPLE, STOP]].concat()
}

struct Pickle {
    bytes: Vec<u8>,
    /// The number of tensors so far.
    tensors: usize,
}

impl Pickle {
    fn object(&mut self, module: &Module) -> Result<()> {
        self.global("__torch__.bella", &module.class);
        self.bytes.extend([EMPTY_TUPLE, NEW_OBJECT, EMPTY_DICT, MARK]);
        for (name, parameter) in &module.parameters {
            self.text(name);
            self.tensor(parameter)?;
        }
        self.text("training");
        self.bytes.push(FALSE);
        for (name, inner) in &module.modules {
            self.text(name);
            self.object(inner)?;
        }
        self.bytes.extend([SET_ITEMS, BUILD]);
        Ok(())
    }

    /// Writes a call `torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, requires_grad, hooks)`.
    fn tensor(&mut self, parameter: &Parameter) -> Result<()> {
        let storage = match parameter.kind {
            Kind::Float => "FloatStorage",
            Kind::Half => "HalfStorage",
            Kind::BFloat16 => "BFloat16Storage",
            Kind::Double => "DoubleStorage",
            Kind::Int64 => "LongStorage",
            other => bail!("archives are not written with tensors of type {other:?}"),
        };
        self.global("torch._utils", "_rebuild_tensor_v2");
        self.bytes.extend([MARK, MARK]);
        self.text("storage");
        self.global("torch", storage);
        self.text(&self.tensors.to_string());
        self.text("cpu");
        self.integer(parameter.shape.iter().product());
        self.bytes.extend([TUPLE, PERSISTENT_ID]);
        self.integer(0);
        self.integers(&parameter.shape);
        self.integers(&strides(&parameter.shape));
        // Whole numbers have no gradients.
        self.bytes.push(if parameter.kind == Kind::Int64 { FALSE } else { TRUE });
        self.global("collections", "OrderedDict");
        self.bytes.extend([EMPTY_TUPLE, REDUCE, TUPLE, REDUCE]);
        self.tensors += 1;
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) {
        self.bytes.push(GLOBAL);
        self.bytes.extend(format!("{module}\n{name}\n").into_bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes.push(TEXT);
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
    }

    fn integers(&mut self, all: &[i64]) {
        self.bytes.push(MARK);
        all.iter().for_each(|value| self.integer(*value));
        self.bytes.push(TUPLE);
    }

    fn integer(&mut self, value: i64) {
        match i32::try_from(value) {
            Ok(small) => {
                self.bytes.push(INT);
                self.bytes.extend(small.to_le_bytes());
            }
            Err(_) => {
                self.bytes.extend([LONG, 8]);
                self.bytes.extend(value.to_le_bytes());
            }
        }
    }
}

/// Returns the strides of a contiguous tensor.
fn strides(shape: &[i64]) -> Vec<i64> {
    (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect()
}

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
    /// Returns the class of a module, without methods.
    pub fn of(module: &Module) -> Class {
        let is_whole = |(_, tensor): &&(String, Parameter)| tensor.kind == Kind::Int64;
        let (buffers, parameters): (Vec<_>, Vec<_>) = module.parameters.iter().partition(is_whole);
        let names = |all: Vec<&(String, Parameter)>| all.into_iter().map(|(name, _)| name.clone()).collect();
        let declared = |(name, inner): &(String, Module)| match name.parse::<usize>() {
            Ok(number) => format!("  __annotations__[\"{number}\"] = __torch__.bella.{}\n", inner.class),
            Err(_) => format!("  {name} : __torch__.bella.{}\n", inner.class),
        };
        Class {
            name: module.class.clone(),
            parameters: names(parameters),
            buffers: names(buffers),
            modules: module.modules.iter().map(declared).collect(),
            methods: String::new(),
        }
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

    /// Adds a parameter by its full name, with the submodules on the way to it. Their classes have the names of their paths, and
    /// those of numbered submodules are one.
    pub fn insert(&mut self, name: &str, parameter: Parameter) {
        let Some((first, rest)) = name.split_once('.') else {
            self.parameters.push((name.to_string(), parameter));
            return;
        };
        let at = self.modules.iter().position(|(known, _)| known == first).unwrap_or_else(|| {
            let own = if first.bytes().all(|byte| byte.is_ascii_digit()) { "each" } else { first };
            self.modules.push((first.to_string(), Module::new(format!("{}_{own}", self.class))));
            self.modules.len() - 1
        });
        self.modules[at].1.insert(rest, parameter);
    }

    /// Returns the classes of all modules inside this one.
    pub fn inner_classes(&self) -> String {
        let mut known = BTreeSet::new();
        self.declare_inner(&mut known)
    }

    fn declare_inner(&self, known: &mut BTreeSet<String>) -> String {
        let mut code = String::new();
        for (_, inner) in &self.modules {
            if known.insert(inner.class.clone()) {
                code += &inner.declare_inner(known);
                code += &Class::of(inner).code();
            }
        }
        code
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
