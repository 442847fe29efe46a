//! Tensors that follow from a network's shape, such as the angles of positions.

use std::cell::RefCell;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

/// A tensor that a network computes from a few numbers. The latest one is kept, and all blocks share it.
#[derive(Clone, Debug)]
pub struct Constant {
    /// The name under which a graph holds the tensor.
    pub name: &'static str,
    latest: Rc<RefCell<Option<Made>>>,
}

#[derive(Debug)]
struct Made {
    of: Vec<i64>,
    options: (Kind, Device),
    tensor: Tensor,
}

impl Constant {
    pub fn new(name: &'static str) -> Constant {
        Constant { name, latest: Rc::default() }
    }

    /// Returns the tensor that follows from `of`, which is made only if the latest one was made of other numbers or for other options.
    pub fn get(&self, of: &[i64], options: (Kind, Device), make: impl Fn((Kind, Device)) -> Tensor) -> Tensor {
        let mut latest = self.latest.borrow_mut();
        let known = latest.take().filter(|made| made.of == of && made.options == options);
        let made = known.unwrap_or_else(|| Made { of: of.to_vec(), options, tensor: make(options) });
        latest.insert(made).tensor.shallow_clone()
    }
}
