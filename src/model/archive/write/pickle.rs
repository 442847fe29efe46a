//! The pickles of an archive (protocol 2): `data.pkl`, the tree of modules with references to the entries of tensors,
//! and `constants.pkl`. No memo is written, since libtorch's reader does not need one.

use anyhow::{Result, bail};
use tch::Kind;

use super::class::{Module, Parameter};

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
