//! Values that members need in a pass, such as their layer weights: those of all members are kept where they fit in memory, otherwise
//! only the latest.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use anyhow::Result;

/// Values of ranges of members, which are made when they are asked for.
pub struct Kept<T> {
    made: RefCell<Vec<(Range<usize>, Rc<T>)>>,
    keeps_all: Cell<bool>,
}

impl<T> Default for Kept<T> {
    fn default() -> Kept<T> {
        Kept { made: RefCell::default(), keeps_all: Cell::new(false) }
    }
}

impl<T> Kept<T> {
    /// Returns whether the values of all members are kept, and not only the latest.
    pub fn keeps_all(&self) -> bool {
        self.keeps_all.get()
    }

    /// Decides whether the values of all members are kept from now on.
    pub fn keep_all(&self, all: bool) {
        self.keeps_all.set(all);
    }

    /// Forgets all values.
    pub fn clear(&self) {
        self.made.borrow_mut().clear();
    }

    /// Returns the values of each of several ranges of members, which are kept together.
    ///
    /// # Errors
    /// Fails if `make` fails.
    pub fn each(&self, all: &[Range<usize>], make: impl Fn(&Range<usize>) -> Result<T>) -> Result<Vec<Rc<T>>> {
        let known = |members: &Range<usize>| self.made.borrow().iter().any(|(made, _)| made == members);
        if !self.keeps_all() && !all.iter().all(known) {
            self.clear();
        }
        all.iter().map(|members| self.made_or_known(members, &make)).collect()
    }

    fn made_or_known(&self, members: &Range<usize>, make: impl Fn(&Range<usize>) -> Result<T>) -> Result<Rc<T>> {
        if let Some((_, value)) = self.made.borrow().iter().find(|(made, _)| made == members) {
            return Ok(value.clone());
        }
        let value = Rc::new(make(members)?);
        let mut made = self.made.borrow_mut();
        // When members are divided further than before, the value of the larger range is no longer needed.
        made.retain(|(before, _)| before.end <= members.start || members.end <= before.start);
        made.push((members.clone(), value.clone()));
        Ok(value)
    }
}
