//! The values in a pickle.

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
