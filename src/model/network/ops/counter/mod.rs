//! Operations that are counted: the floating-point operations of matrix products, and the values that a backward pass keeps.
//!
//! A product of `[M, K]` and `[K, N]` takes 2·M·K·N operations. Only what a step must compute counts: causal attention reads no later
//! tokens, no gradient is needed below the first trained layer, frozen layers need that of their input alone, and frozen
//! products run once where all particles see the same input. Norms, activations and embeddings do not count.
//!
//! A backward pass keeps what libtorch's gradients read. A norm keeps its input, and one with weights per particle the normalised
//! values twice; attention keeps queries, keys, values and its result; an activation keeps its input, and QuickGELU by
//! libtorch's operations the sigmoid too; a product of two values keeps each where the other has a gradient; a trained linear layer keeps its input. A
//! view keeps the whole value behind it, and a value that is kept twice counts once.

mod run;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tch::Kind;

use crate::model::network::Parameters;

/// The operations of one pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    pub forward: f64,
    /// The operations for the gradients of the trained columns.
    pub backward: f64,
}

impl Work {
    pub fn total(self) -> f64 {
        self.forward + self.backward
    }
}

/// The way in which particles adapt a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adaptation {
    /// Each has weights of its own.
    Whole,
    /// Each has a low-rank update.
    LowRank { rank: i64 },
    /// Each multiplies its inputs and outputs by factors of its own.
    Scaled,
}

/// The pass that is counted.
#[derive(Clone, Copy)]
pub struct Counted<'a> {
    pub base: &'a Parameters,
    /// Returns the way in which a layer is adapted, by its name.
    pub adapted: &'a dyn Fn(&str) -> Option<Adaptation>,
    pub kind: Kind,
    pub particles: i64,
    /// The number of samples of each particle.
    pub samples: i64,
    /// Whether a graph is kept.
    pub graph: bool,
    /// Whether the passes of [`fused`](crate::machine::fused) serve: the gradient of QuickGELU reads its input alone, and not the sigmoid, and
    /// an adapted layer behind an activation keeps the input of that.
    pub fuses: bool,
}

/// The properties that a value has from what it is made of.
#[derive(Clone, Copy, Debug)]
pub struct Flags {
    /// Whether it differs between particles, so that there is one for each.
    pub apart: bool,
    /// Whether gradients flow through it.
    pub live: bool,
}

/// A value `[1, 1, …]` of one particle and one sample.
#[derive(Clone, Debug)]
pub struct Count {
    shape: Vec<i64>,
    /// Whether it differs between particles, so that there is one for each.
    apart: bool,
    /// Whether gradients flow through it.
    live: bool,
    storage: Rc<Storage>,
}

/// The memory of a value and of its views.
#[derive(Debug)]
struct Storage {
    numbers: u64,
    is_kept: Cell<bool>,
}

impl Count {
    /// Returns a value of a shape after the axes of particles and samples.
    pub fn new(shape: &[i64], flags: Flags) -> Count {
        let Flags { apart, live } = flags;
        let numbers = shape.iter().product::<i64>() as u64;
        let shape = [&[1, 1], shape].concat();
        Count { shape, apart, live, storage: Rc::new(Storage { numbers, is_kept: Cell::new(false) }) }
    }

    /// Returns the number of its entries.
    pub fn numbers(&self) -> u64 {
        self.shape.iter().product::<i64>() as u64
    }

    /// Returns a view of it.
    fn viewed(&self, shape: Vec<i64>) -> Count {
        Count { shape, storage: Rc::clone(&self.storage), ..*self }
    }

    /// Returns a new value of which it is the source, with the flags of others.
    fn made(&self, shape: &[i64], others: &[&Count]) -> Count {
        let apart = self.apart || others.iter().any(|other| other.apart);
        let live = self.live || others.iter().any(|other| other.live);
        Count::new(&shape[2..], Flags { apart, live })
    }
}

/// Counts a pass.
pub struct Counter<'a> {
    counted: Counted<'a>,
    part: &'static str,
    state: Rc<RefCell<State>>,
}

#[derive(Default)]
struct State {
    work: Work,
    kept: u64,
    widest: u64,
}

impl<'a> Counter<'a> {
    pub fn new(counted: Counted<'a>) -> Counter<'a> {
        Counter { counted, part: "", state: Rc::default() }
    }

    pub fn work(&self) -> Work {
        self.state.borrow().work
    }

    /// Returns the number of entries that have been kept since this was asked last.
    pub fn take_kept(&self) -> u64 {
        std::mem::take(&mut self.state.borrow_mut().kept)
    }

    /// Returns the largest number of entries that one operation uses at once, with the gradients of its inputs where there is a
    /// graph.
    pub fn widest(&self) -> u64 {
        self.state.borrow().widest
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.part)
    }

    fn adapted(&self, layer: &str) -> Option<Adaptation> {
        (self.counted.adapted)(&self.name(layer))
    }

    fn size(&self, name: &str) -> Vec<i64> {
        let name = self.name(name);
        self.counted.base.get(&name).unwrap_or_else(|| panic!("the base lacks {name}")).size()
    }

    fn keep_numbers(&self, numbers: u64) {
        if self.counted.graph {
            self.state.borrow_mut().kept += numbers;
        }
    }

    fn keep(&self, x: &Count) {
        if self.counted.graph && !x.storage.is_kept.replace(true) {
            self.keep_numbers(x.storage.numbers);
        }
    }

    /// Returns a value like another whose axis is as long as this.
    pub fn longer(&self, x: &Count, axis: usize, length: i64) -> Count {
        let mut shape = x.shape.clone();
        shape[axis] = length;
        x.made(&shape, &[])
    }

    /// Notes that an operation uses so many entries, and as many again for gradients.
    fn uses(&self, forward: u64, gradients: u64) {
        let mut state = self.state.borrow_mut();
        state.widest = state.widest.max(forward + if self.counted.graph { gradients } else { 0 });
    }

    /// Returns the rows of so many tokens: those of all particles, and those of a value.
    fn rows(&self, x: &Count, tokens: i64) -> [f64; 2] {
        let Counted { particles, samples, .. } = self.counted;
        let all = (particles * samples * tokens) as f64;
        [all, if x.apart { all } else { (samples * tokens) as f64 }]
    }

    /// Maps `[1, 1, T, in]` to so many outputs by the linear layer `name`, whose weight need not be there.
    pub fn product(&self, name: &str, x: &Count, outputs: i64) -> Count {
        let (tokens, inputs) = (x.shape[2], x.shape[3]);
        let [all, rows] = self.rows(x, tokens);
        let dense = 2.0 * (inputs * outputs) as f64;
        let (flows, adapted) = (if x.live { 1.0 } else { 0.0 }, self.adapted(name));
        let added = match adapted {
            None => Work { forward: rows * dense, backward: flows * rows * dense },
            Some(Adaptation::Whole) => Work { forward: all * dense, backward: all * dense * (1.0 + flows) },
            // The gradient of the product's input is that of the factors, too.
            Some(Adaptation::Scaled) => Work { forward: all * dense, backward: all * dense },
            Some(Adaptation::LowRank { rank }) => {
                let (by_a, by_b) = (2.0 * (rank * inputs) as f64, 2.0 * (rank * outputs) as f64);
                // The gradients of A, of B, of the value between them, and of the input.
                let backward = all * (by_a + 2.0 * by_b) + flows * (rows * dense + all * by_a);
                Work { forward: rows * dense + all * (by_a + by_b), backward }
            }
        };
        let mut state = self.state.borrow_mut();
        state.work.forward += added.forward;
        state.work.backward += added.backward;
        drop(state);
        let is_trained = adapted.is_some();
        if is_trained {
            self.keep(x);
        }
        let y = Count::new(&[tokens, outputs], Flags { apart: x.apart || is_trained, live: x.live || is_trained });
        if adapted == Some(Adaptation::Scaled) {
            // The product before its outputs are multiplied.
            self.keep_numbers(y.numbers());
        }
        self.uses(x.numbers() + y.numbers(), 0);
        y
    }

    /// Returns a parameter-like value with the flags of a name.
    fn named(&self, layer: &str, shape: &[i64]) -> Count {
        let is_trained = self.adapted(layer).is_some();
        Count::new(shape, Flags { apart: is_trained, live: is_trained })
    }

    fn normed(&self, layer: &str, x: &Count, inputs: u64, outputs: u64) -> Count {
        let is_trained = self.adapted(layer).is_some();
        if x.live || is_trained {
            match inputs == x.numbers() {
                true => self.keep(x),
                false => self.keep_numbers(inputs),
            }
        }
        if is_trained {
            self.keep_numbers(outputs);
        }
        self.uses(2 * x.numbers(), 0);
        Count::new(&x.shape[2..], Flags { apart: x.apart || is_trained, live: x.live || is_trained })
    }
}
