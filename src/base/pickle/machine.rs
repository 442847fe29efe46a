//! The values in a pickle, and the stack machine that runs its program: a stack, marks in it, and a memory of values that are used
//! again.

use std::borrow::Cow;
use std::collections::HashMap;

use anyhow::{Context, Result, bail, ensure};

/// The largest number of values in one pickle. The largest pickle of the data sets has 50,000 labels.
const MAX_VALUES: usize = 10_000_000;

struct Machine<'a> {
    bytes: &'a [u8],
    at: usize,
    values: Vec<Value<'a>>,
    stack: Vec<Id>,
    /// The heights of the stack at the marks.
    marks: Vec<usize>,
    memo: HashMap<u64, Id>,
}

/// Runs a pickle and returns all values with the number of the result.
pub fn run<'a>(bytes: &'a [u8], allowed: &dyn Fn(&str) -> bool) -> Result<(Vec<Value<'a>>, Id)> {
    let (values, stack, marks) = (Vec::new(), Vec::new(), Vec::new());
    let mut machine = Machine { bytes, at: 0, values, stack, marks, memo: HashMap::new() };
    loop {
        let at = machine.at;
        let [code] = machine.array()?;
        if code == b'.' {
            let root = machine.pop()?;
            return Ok((machine.values, root));
        }
        machine.step(code, allowed).with_context(|| format!("at byte {at}"))?;
        ensure!(machine.values.len() <= MAX_VALUES, "it has more than {MAX_VALUES} values");
    }
}

impl<'a> Machine<'a> {
    fn step(&mut self, code: u8, allowed: &dyn Fn(&str) -> bool) -> Result<()> {
        match code {
            // The protocol and the frame are only hints for the reader.
            0x80 => self.take(1).map(drop),
            0x95 => self.take(8).map(drop),
            b'(' | b'0' | b'1' | b'2' | b'q' | b'r' | 0x94 | b'h' | b'j' => self.stack_step(code),
            b'}' | b']' | b')' | b't' | b'l' | b'd' | 0x85..=0x87 | 0x8f | 0x90 | 0x91 => self.container(code),
            b'a' | b'e' | b's' | b'u' => self.extend(code),
            b'c' | 0x93 | b'R' | 0x81 | 0x92 | b'b' | b'Q' => self.object(code, allowed),
            _ => {
                let value = self.scalar(code)?;
                self.push(value);
                Ok(())
            }
        }
    }

    fn scalar(&mut self, code: u8) -> Result<Value<'a>> {
        Ok(match code {
            b'N' => Value::None,
            0x88 => Value::Bool(true),
            0x89 => Value::Bool(false),
            b'K' => Value::Int(u8::from_le_bytes(self.array()?).into()),
            b'M' => Value::Int(u16::from_le_bytes(self.array()?).into()),
            b'J' => Value::Int(i32::from_le_bytes(self.array()?).into()),
            0x8a => self.long()?,
            b'G' => Value::Float(f64::from_be_bytes(self.array()?)),
            b'U' | b'C' => Value::Bytes(Cow::Borrowed(self.counted(1)?)),
            b'T' | b'B' => Value::Bytes(Cow::Borrowed(self.counted(4)?)),
            0x8e | 0x96 => Value::Bytes(Cow::Borrowed(self.counted(8)?)),
            0x8c => self.text(1)?,
            b'X' => self.text(4)?,
            0x8d => self.text(8)?,
            _ => bail!("the instruction {code:#04x} is not one of protocols 2 to 5 that stand for data"),
        })
    }

    fn stack_step(&mut self, code: u8) -> Result<()> {
        match code {
            b'(' => self.marks.push(self.stack.len()),
            b'0' => drop(self.pop()?),
            b'1' => drop(self.since_mark()?),
            b'2' => self.stack.push(self.top()?),
            b'q' => {
                let number = self.array::<1>()?[0].into();
                self.memo.insert(number, self.top()?);
            }
            b'r' => {
                let number = u32::from_le_bytes(self.array()?).into();
                self.memo.insert(number, self.top()?);
            }
            0x94 => drop(self.memo.insert(self.memo.len() as u64, self.top()?)),
            _ => {
                let number =
                    if code == b'h' { self.array::<1>()?[0].into() } else { u32::from_le_bytes(self.array()?).into() };
                let known = self.memo.get(&number);
                self.stack.push(*known.with_context(|| format!("it names a value {number} that it has not stored"))?);
            }
        }
        Ok(())
    }

    fn container(&mut self, code: u8) -> Result<()> {
        let value = match code {
            b'}' => Value::Dict(Vec::new()),
            b']' | 0x8f => Value::List(Vec::new()),
            b')' => Value::Tuple(Vec::new()),
            b't' => Value::Tuple(self.since_mark()?),
            b'l' | 0x91 => Value::List(self.since_mark()?),
            b'd' => Value::Dict(pairs(&self.since_mark()?)?),
            // Items of a set.
            0x90 => return self.extend(b'e'),
            _ => {
                let count = usize::from(code - 0x84);
                let from = self.stack.len().checked_sub(count).context("it takes more than there is")?;
                Value::Tuple(self.stack.split_off(from))
            }
        };
        self.push(value);
        Ok(())
    }

    /// Adds items to a container below them.
    fn extend(&mut self, code: u8) -> Result<()> {
        let items = match code {
            b'a' => vec![self.pop()?],
            b's' => {
                let value = self.pop()?;
                vec![self.pop()?, value]
            }
            _ => self.since_mark()?,
        };
        let target = self.top()?;
        match (&mut self.values[target], code) {
            (Value::List(list), b'a' | b'e') => list.extend(items),
            (Value::Dict(dict), b's' | b'u') => dict.extend(pairs(&items)?),
            _ => bail!("it adds items to what is no list and no dictionary"),
        }
        Ok(())
    }

    fn object(&mut self, code: u8, allowed: &dyn Fn(&str) -> bool) -> Result<()> {
        let value = match code {
            b'c' => named(&format!("{}.{}", self.line()?, self.line()?), allowed)?,
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (Value::Text(name), Value::Text(module)) = (&self.values[name], &self.values[module]) else {
                    bail!("a class or function is not named by text")
                };
                named(&format!("{module}.{name}"), allowed)?
            }
            b'b' => {
                let state = self.pop()?;
                let target = self.top()?;
                match &mut self.values[target] {
                    Value::Call { state: place, .. } => *place = Some(state),
                    // Attributes of an ordered dictionary, such as the versions in a state dict of torch.
                    Value::Dict(_) => {}
                    _ => bail!("it sets the state of what is no object"),
                }
                return Ok(());
            }
            b'Q' => Value::Outside(self.pop()?),
            _ => {
                // No pickle here has a class that takes named arguments.
                ensure!(code != 0x92, "an object is built with named arguments");
                let arguments = self.pop()?;
                let of = self.pop()?;
                self.built(of, arguments)
            }
        };
        self.push(value);
        Ok(())
    }

    /// Returns the object that a call would build. Ordered dictionaries and encoded text become plain data.
    fn built(&self, of: Id, arguments: Id) -> Value<'a> {
        let (Value::Name(name), Value::Tuple(parts)) = (&self.values[of], &self.values[arguments]) else {
            return Value::Call { of, arguments, state: None };
        };
        match (name.as_str(), parts.as_slice()) {
            ("collections.OrderedDict", []) => Value::Dict(Vec::new()),
            // Python 3 writes bytes like this in protocol 2.
            ("_codecs.encode", [text, _]) if matches!(self.values[*text], Value::Text(_)) => {
                let Value::Text(text) = &self.values[*text] else { return Value::None };
                Value::Bytes(text.chars().map(|letter| letter as u32 as u8).collect::<Vec<u8>>().into())
            }
            _ => Value::Call { of, arguments, state: None },
        }
    }

    fn push(&mut self, value: Value<'a>) {
        self.stack.push(self.values.len());
        self.values.push(value);
    }

    fn pop(&mut self) -> Result<Id> {
        let floor = self.marks.last().copied().unwrap_or(0);
        ensure!(self.stack.len() > floor, "it takes more than there is");
        self.stack.pop().context("it takes more than there is")
    }

    fn top(&self) -> Result<Id> {
        self.stack.last().copied().context("it takes more than there is")
    }

    /// Pops and returns the values that were pushed since the last mark.
    fn since_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.marks.pop().context("it goes back to a mark that it has not made")?;
        ensure!(mark <= self.stack.len(), "it takes more than there is");
        Ok(self.stack.split_off(mark))
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len()).context("it is cut off")?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into()?)
    }

    /// Reads bytes that follow their number, which is stored in `width` bytes.
    fn counted(&mut self, width: usize) -> Result<&'a [u8]> {
        let mut count = [0; 8];
        count[..width].copy_from_slice(self.take(width)?);
        self.take(usize::try_from(u64::from_le_bytes(count))?)
    }

    fn text(&mut self, width: usize) -> Result<Value<'a>> {
        let text = std::str::from_utf8(self.counted(width)?).context("text is not UTF-8")?;
        Ok(Value::Text(Cow::Borrowed(text)))
    }

    fn line(&mut self) -> Result<&'a str> {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|byte| *byte == b'\n').context("it is cut off")?;
        self.at += length + 1;
        std::str::from_utf8(&rest[..length]).context("text is not UTF-8")
    }

    /// Reads a little-endian integer of up to 8 bytes.
    fn long(&mut self) -> Result<Value<'a>> {
        let bytes = self.counted(1)?;
        ensure!(bytes.len() <= 8, "an integer of {} bytes", bytes.len());
        let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { 0xff } else { 0 };
        let mut all = [sign; 8];
        all[..bytes.len()].copy_from_slice(bytes);
        Ok(Value::Int(i64::from_le_bytes(all)))
    }
}

fn named<'a>(name: &str, allowed: &dyn Fn(&str) -> bool) -> Result<Value<'a>> {
    ensure!(allowed(name), "it names `{name}`, which is not of the few classes and functions that data are made of");
    Ok(Value::Name(name.to_string()))
}

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>> {
    ensure!(items.len().is_multiple_of(2), "a key has no value");
    Ok(items.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// The number of a value.
pub type Id = usize;

/// A value of a pickle.
#[derive(Debug)]
pub enum Value<'a> {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Cow<'a, str>),
    /// Bytes, or a text written by Python 2.
    Bytes(Cow<'a, [u8]>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A class or a function: `module.name`.
    Name(String),
    /// The object that a call of `of` would build, with the state that would be set on it.
    Call {
        of: Id,
        arguments: Id,
        state: Option<Id>,
    },
    /// An object outside the pickle, given by its persistent id, such as a tensor's storage.
    Outside(Id),
}
