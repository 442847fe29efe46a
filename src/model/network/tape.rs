//! A record of the inputs and outputs of trained linear layers in a forward pass.

use std::cell::RefCell;
use std::rc::Rc;

use tch::Tensor;

/// One use of a trained linear layer in a forward pass.
#[derive(Debug)]
pub struct Tap {
    pub layer: String,
    /// The first of the layer's output rows that this use computes.
    pub from: i64,
    /// The input, `[p, B, T, in]`. In the last block it is the class token alone where nothing else reaches the output.
    pub input: Tensor,
    /// The output, `[p', B, T, rows]`, attached to the graph.
    pub output: Tensor,
}

/// A record of the uses of trained linear layers in a forward pass, in their order.
#[derive(Clone, Debug, Default)]
pub struct Tape(Rc<RefCell<Vec<Tap>>>);

impl Tape {
    /// Returns all taps so far and empties the tape.
    pub fn take(&self) -> Vec<Tap> {
        self.0.take()
    }

    pub(super) fn push(&self, tap: Tap) {
        self.0.borrow_mut().push(tap);
    }
}

/// The tape and the name under which the uses of a layer are recorded.
pub(super) struct Recorder {
    pub tape: Tape,
    pub layer: String,
    pub from: i64,
}

impl Recorder {
    pub fn record(&self, input: &Tensor, output: &Tensor) {
        let (input, output) = (input.shallow_clone(), output.shallow_clone());
        self.tape.push(Tap { layer: self.layer.clone(), from: self.from, input, output });
    }

    /// Returns the recorder of the rows from `start` on.
    pub fn starting_at(&self, start: i64) -> Recorder {
        Recorder { tape: self.tape.clone(), layer: self.layer.clone(), from: self.from + start }
    }
}
