//! The values that a resumed run goes on from. A method names each of them by one line, which stores the value in a resume file or restores it
//! from there.

use anyhow::{Result, ensure};
use tch::Tensor;

use super::tensor::host_f64;
use super::tensor_file::State;

/// Stores the values that it is given, or restores them.
pub struct Keeper<'a> {
    file: File<'a>,
    /// The beginning of all names.
    prefix: String,
}

enum File<'a> {
    Stored(&'a mut State),
    Restored(&'a State),
}

impl State {
    /// Stores the values that `keep` names.
    ///
    /// # Errors
    /// Fails if `keep` does.
    pub fn store(&mut self, keep: impl FnOnce(&mut Keeper) -> Result<()>) -> Result<()> {
        keep(&mut Keeper { file: File::Stored(self), prefix: String::new() })
    }

    /// Restores the values that `keep` names.
    ///
    /// # Errors
    /// Fails if one is missing, or has another shape.
    pub fn restore(&self, keep: impl FnOnce(&mut Keeper) -> Result<()>) -> Result<()> {
        keep(&mut Keeper { file: File::Restored(self), prefix: String::new() })
    }
}

impl Keeper<'_> {
    /// Returns whether values are restored.
    pub fn restores(&self) -> bool {
        matches!(self.file, File::Restored(_))
    }

    /// Keeps a tensor, whose shape a restored one must have.
    ///
    /// # Errors
    /// Fails if there is none to restore, or if it has another shape.
    pub fn tensor(&mut self, name: &str, value: &mut Tensor) -> Result<()> {
        let name = format!("{}{name}", self.prefix);
        match &mut self.file {
            File::Stored(state) => state.put(&name, value),
            File::Restored(state) => state.copy_into(&name, value)?,
        }
        Ok(())
    }

    /// Keeps a counter.
    ///
    /// # Errors
    /// Fails if there is none to restore.
    pub fn count(&mut self, name: &str, value: &mut i64) -> Result<()> {
        let name = format!("{}{name}", self.prefix);
        match &mut self.file {
            File::Stored(state) => state.put_count(&name, *value),
            File::Restored(state) => *value = state.count(&name)?,
        }
        Ok(())
    }

    /// Keeps a list of numbers, of which a restored one must have `count`.
    ///
    /// # Errors
    /// Fails if there is none to restore, or if it has another length.
    pub fn numbers(&mut self, name: &str, values: &mut Vec<f64>, count: usize) -> Result<()> {
        let name = format!("{}{name}", self.prefix);
        match &mut self.file {
            File::Stored(state) => state.put(&name, &Tensor::from_slice(values)),
            File::Restored(state) => {
                let found = host_f64(&state.get(&name)?)?;
                ensure!(
                    found.len() == count,
                    "the file's `{name}` has {} numbers, this run needs {count}",
                    found.len()
                );
                *values = found;
            }
        }
        Ok(())
    }

    /// Keeps values whose names another part may have, too: all of them get a prefix.
    ///
    /// # Errors
    /// Fails if `keep` does.
    pub fn below(&mut self, prefix: &str, keep: impl FnOnce(&mut Keeper) -> Result<()>) -> Result<()> {
        let prefix = format!("{}{prefix}", self.prefix);
        let file = match &mut self.file {
            File::Stored(state) => File::Stored(state),
            File::Restored(state) => File::Restored(state),
        };
        keep(&mut Keeper { file, prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(keeper: &mut Keeper, tensor: &mut Tensor, values: &mut Vec<f64>, count: &mut i64) -> Result<()> {
        keeper.count("count", count)?;
        keeper.below("inner.", |keeper| {
            keeper.tensor("tensor", tensor)?;
            keeper.numbers("numbers", values, 2)
        })
    }

    #[test]
    fn what_is_stored_is_restored_under_the_same_names() {
        let mut state = State::default();
        let mut stored = (Tensor::from_slice(&[1.0, 2.0]), vec![3.0, 4.0], 5);
        state.store(|keeper| keep(keeper, &mut stored.0, &mut stored.1, &mut stored.2)).unwrap();
        assert_eq!(state.names(), ["count", "inner.numbers", "inner.tensor"]);
        let mut found = (Tensor::from_slice(&[0.0, 0.0]), Vec::new(), 0);
        state.restore(|keeper| keep(keeper, &mut found.0, &mut found.1, &mut found.2)).unwrap();
        assert_eq!(found, stored);
        let other =
            |keeper: &mut Keeper| keeper.below("inner.", |keeper| keeper.numbers("numbers", &mut Vec::new(), 3));
        let error = format!("{:#}", state.restore(other).unwrap_err());
        assert!(error.contains("`inner.numbers` has 2 numbers, this run needs 3"), "{error}");
        assert!(state.restore(|keeper| keeper.count("other", &mut 0)).is_err());
    }
}
