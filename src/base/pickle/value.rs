//! What pickles are made of.

use std::borrow::Cow;

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
    /// Bytes, or text of Python 2.
    Bytes(Cow<'a, [u8]>),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A class or a function: `module.name`.
    Name(String),
    /// What calling `of` would build, with the state that would be set.
    Call {
        of: Id,
        arguments: Id,
        state: Option<Id>,
    },
    /// What lies outside of the pickle, by its own name for it.
    Outside(Id),
}
