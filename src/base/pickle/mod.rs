//! Reads pickles of protocols 2 to 5 as data. Nothing in them is called, and deep nesting needs no more of the stack.
//!
//! Values are kept in one list and refer to each other by number, so a list that contains itself, or 200,000 lists
//! nested in each other, need no special care. An object that a pickle would build by a call becomes a [`Value::Call`].
//! The caller says which class and function names are allowed; reading fails at any other name.

mod machine;

use anyhow::{Context, Result, ensure};

pub use machine::{Id, Value};

/// A pickle that was read.
pub struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: Id,
}

/// Reads a pickle; `allowed` says whether a class or function `module.name` may occur in it.
///
/// # Errors
/// Fails if the pickle contains a name that is not allowed, is cut off, has another protocol, or has too many values.
pub fn read<'a>(bytes: &'a [u8], allowed: &dyn Fn(&str) -> bool) -> Result<Pickle<'a>> {
    let (values, root) = machine::run(bytes, allowed)?;
    Ok(Pickle { values, root })
}

impl<'a> Pickle<'a> {
    pub fn root(&self) -> Id {
        self.root
    }

    /// Returns the numbers of all values.
    pub fn ids(&self) -> std::ops::Range<Id> {
        0..self.values.len()
    }

    pub fn value(&self, id: Id) -> &Value<'a> {
        &self.values[id]
    }

    /// Returns the value as text, if it is text or bytes that are valid text.
    pub fn text(&self, id: Id) -> Option<&str> {
        match self.value(id) {
            Value::Text(text) => Some(text),
            Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    pub fn integer(&self, id: Id) -> Option<i64> {
        if let Value::Int(value) = self.value(id) { Some(*value) } else { None }
    }

    /// Returns the parts of a tuple or a list; `None` for any other value.
    pub fn parts(&self, id: Id) -> Option<&[Id]> {
        match self.value(id) {
            Value::Tuple(parts) | Value::List(parts) => Some(parts),
            _ => None,
        }
    }

    /// Returns the numbers of a tuple or list of integers; `None` for any other value.
    pub fn integers(&self, id: Id) -> Option<Vec<i64>> {
        self.parts(id)?.iter().map(|part| self.integer(*part)).collect()
    }

    /// Returns the name of a class or function; `None` for any other value.
    pub fn name(&self, id: Id) -> Option<&str> {
        if let Value::Name(name) = self.value(id) { Some(name) } else { None }
    }

    /// Returns whether values lie at most `limit` levels deep in each other, and none in itself.
    pub fn is_at_most(&self, limit: usize) -> bool {
        // The depth of each value: 0 while it is not known. A value that is reached again while it is open lies in itself.
        let (mut depth, mut is_open) = (vec![0usize; self.values.len()], vec![false; self.values.len()]);
        let mut open: Vec<(Id, Vec<Id>)> = Vec::new();
        for root in self.ids() {
            if depth[root] == 0 {
                is_open[root] = true;
                open.push((root, self.inside(root)));
            }
            while let Some((id, inside)) = open.last_mut() {
                match inside.pop() {
                    Some(next) if is_open[next] => return false,
                    Some(next) if depth[next] == 0 => {
                        is_open[next] = true;
                        open.push((next, self.inside(next)));
                    }
                    Some(_) => {}
                    None => {
                        let id = *id;
                        depth[id] = 1 + self.inside(id).into_iter().map(|of| depth[of]).max().unwrap_or(0);
                        is_open[id] = false;
                        open.pop();
                        if depth[id] > limit {
                            return false;
                        }
                    }
                }
                if open.len() > limit {
                    return false;
                }
            }
        }
        true
    }

    /// Returns the values that a value is made of.
    fn inside(&self, id: Id) -> Vec<Id> {
        match self.value(id) {
            Value::Tuple(parts) | Value::List(parts) => parts.clone(),
            Value::Dict(pairs) => pairs.iter().flat_map(|(key, value)| [*key, *value]).collect(),
            Value::Call { of, arguments, state } => [*of, *arguments].into_iter().chain(*state).collect(),
            Value::Outside(reference) => vec![*reference],
            Value::None
            | Value::Bool(_)
            | Value::Int(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Bytes(_)
            | Value::Name(_) => Vec::new(),
        }
    }

    /// Returns the pairs of a dictionary; `None` for any other value.
    pub fn pairs(&self, id: Id) -> Option<&[(Id, Id)]> {
        if let Value::Dict(pairs) = self.value(id) { Some(pairs) } else { None }
    }

    /// Returns the value under a key of a dictionary.
    ///
    /// # Errors
    /// Fails if the value is not a dictionary, or has no such key.
    pub fn entry(&self, dict: Id, key: &str) -> Result<Id> {
        let pairs = self.pairs(dict);
        ensure!(pairs.is_some(), "no dictionary");
        let found = pairs.unwrap_or_default().iter().rev().find(|(known, _)| self.text(*known) == Some(key));
        Ok(found.with_context(|| format!("no entry `{key}`"))?.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(bytes: &[u8]) -> String {
        format!("{:#}", read(bytes, &|name| name == "a.b").err().expect("must be refused"))
    }

    #[test]
    fn nested_lists_need_no_stack() {
        let deep = [&b"\x80\x02"[..], &b"]".repeat(200_000), &b"a".repeat(199_999), b"."].concat();
        let pickle = read(&deep, &|_| false).unwrap();
        let (mut at, mut depth) = (pickle.root(), 1);
        while let Some([inner]) = pickle.parts(at) {
            (at, depth) = (*inner, depth + 1);
        }
        assert_eq!(depth, 200_000);
        assert!(pickle.is_at_most(200_000) && !pickle.is_at_most(199_999));
        // A list that contains itself.
        let own = read(b"\x80\x02]q\x00h\x00a.", &|_| false).unwrap();
        assert!(!own.is_at_most(200_000));
        assert_eq!(own.parts(own.root()), Some(&[own.root()][..]));
    }

    #[test]
    fn only_allowed_names_may_stand_in_it_and_nothing_is_called() {
        assert!(refused(b"\x80\x02cos\nsystem\nX\x05\x00\x00\x00touch\x85R.").contains("names `os.system`"));
        assert!(refused(b"\x80\x04\x8c\x02os\x8c\x06system\x93.").contains("names `os.system`"));
        let pickle = read(b"\x80\x02ca\nb\nK\x07\x85RN\x85b.", &|name| name == "a.b").unwrap();
        let Value::Call { of, arguments, state: Some(state) } = *pickle.value(pickle.root()) else { panic!() };
        assert_eq!((pickle.name(of), pickle.integers(arguments)), (Some("a.b"), Some(vec![7])));
        assert!(matches!(pickle.value(pickle.parts(state).unwrap()[0]), Value::None));
    }

    #[test]
    fn values_are_as_python_reads_them() {
        // pickle.dumps({"a": [1, -2, 300, 70000, 2**40, True, None, 1.5], b"b": (1, 2)}, protocol=4)
        let bytes = b"\x80\x04\x95A\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x01a\x94]\x94(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x88NG?\xf8\x00\x00\x00\x00\x00\x00eC\x01b\x94K\x01K\x02\x86\x94u.";
        let pickle = read(bytes, &|_| false).unwrap();
        let list = pickle.parts(pickle.entry(pickle.root(), "a").unwrap()).unwrap();
        let numbers: Vec<_> = list[..5].iter().map(|id| pickle.integer(*id).unwrap()).collect();
        assert_eq!(numbers, [1, -2, 300, 70000, 1 << 40]);
        assert!(matches!(pickle.value(list[5]), Value::Bool(true)));
        assert!(matches!(pickle.value(list[7]), Value::Float(1.5)));
        assert_eq!(pickle.integers(pickle.entry(pickle.root(), "b").unwrap()), Some(vec![1, 2]));
        assert!(pickle.entry(pickle.root(), "c").unwrap_err().to_string().contains("no entry `c`"));
    }

    #[test]
    fn whatever_is_cut_off_or_changed_ends_in_a_message() {
        let whole = b"\x80\x02}q\x00(X\x01\x00\x00\x00aK\x01X\x01\x00\x00\x00b]q\x01(K\x02K\x03eX\x01\x00\x00\x00cca\nb\nK\x01\x85RQu.";
        read(whole, &|name| name == "a.b").unwrap();
        for length in 0..whole.len() {
            assert!(!refused(&whole[..length]).is_empty());
        }
        for at in 0..whole.len() {
            for byte in 0..=255 {
                let mut changed = whole.to_vec();
                changed[at] = byte;
                let _ = read(&changed, &|_| true); // must end
            }
        }
    }
}
