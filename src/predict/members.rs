//! The members that predict: the checkpoint, rows of theta, or the logits of a linearised model.

use std::ops::Range;

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::data::Fields;
use crate::machine::memory::MemoryEstimate;
use crate::model::Model;
use crate::posterior::{Draws, Posterior};
use crate::subspace::Subspace;

/// The type in which rows of theta are stored.
const ROW_KIND: Kind = Kind::Float;

/// Rows of theta, one per member. They are stored, or drawn when they are asked for.
pub trait Rows {
    /// Returns the number of members m.
    fn count(&self) -> usize;

    /// Returns the rows `members` as `[k, P]`, the same on each call.
    ///
    /// # Errors
    /// Fails if the posterior cannot be drawn from.
    fn rows(&self, members: Range<usize>) -> Result<Tensor>;

    /// Returns the weights of the members in every average; `None` if all weigh the same.
    fn weights(&self) -> Option<&[f64]> {
        None
    }

    /// Returns whether each call computes the rows again, so that they take memory of their own.
    fn are_made(&self) -> bool;
}

impl Rows for Draws<'_> {
    fn count(&self) -> usize {
        Draws::count(self)
    }

    fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        Draws::rows(self, members)
    }

    fn are_made(&self) -> bool {
        true
    }
}

impl Rows for Tensor {
    fn count(&self) -> usize {
        self.size()[0] as usize
    }

    fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        Ok(self.narrow(0, members.start as i64, members.len() as i64))
    }

    fn are_made(&self) -> bool {
        false
    }
}

/// The rows that represent the components of a posterior, with their weights.
impl Rows for &Posterior {
    fn count(&self) -> usize {
        self.particles() as usize
    }

    fn rows(&self, members: Range<usize>) -> Result<Tensor> {
        Rows::rows(self.theta(), members)
    }

    fn weights(&self) -> Option<&[f64]> {
        Posterior::weights(self)
    }

    fn are_made(&self) -> bool {
        false
    }
}

/// Predictions that are not the logits of one set of weights, such as those of a linearised model.
pub trait Linear {
    /// Returns the number of members m.
    fn count(&self) -> usize;

    /// Returns the memory of a prediction, for all members together and the images that are predicted at once.
    fn need(&self, model: &Model) -> MemoryEstimate;

    /// Returns the most images that it sends through the network at once, however many it is given.
    fn images_at_once(&self, model: &Model) -> usize;

    /// Returns the most members that go through the network at once; 1 where a pass serves all of them.
    fn members_at_once(&self) -> usize {
        1
    }

    /// Returns the number of outputs of each member, C.
    fn outputs(&self, model: &Model) -> usize {
        model.head.classes() as usize
    }

    /// Returns the logits `[m, B, C]` in f64 for prepared samples `[1, B, …]`, with `at_once` members in one pass.
    ///
    /// # Errors
    /// Fails if libtorch fails.
    fn logits(&self, model: &Model, samples: &Fields, at_once: usize) -> Result<Tensor>;
}

/// The members that predict.
#[derive(Clone, Copy)]
pub enum Members<'a> {
    /// The checkpoint without training: m = 1.
    Checkpoint,
    /// Rows of theta `[m, P]`.
    Rows { subspace: &'a dyn Subspace, rows: &'a dyn Rows },
    /// Logits of a linearised model.
    Linear(&'a dyn Linear),
}

impl<'a> Members<'a> {
    /// Returns the weights of the members in every average; `None` if all weigh the same.
    pub fn averaging_weights(&self) -> Option<&'a [f64]> {
        match self {
            Members::Rows { rows, .. } => rows.weights(),
            Members::Checkpoint | Members::Linear(_) => None,
        }
    }

    /// Returns the number of members m.
    pub fn count(&self) -> usize {
        match self {
            Members::Checkpoint => 1,
            Members::Rows { rows, .. } => rows.count(),
            Members::Linear(linear) => linear.count(),
        }
    }

    /// Returns the bytes that one member takes besides stored rows: its row if that is computed, and its layer weights if
    /// they are no views of it.
    pub(super) fn bytes(&self, kind: Kind) -> u64 {
        let Members::Rows { subspace, rows } = self else { return 0 };
        let parameters = subspace.layout().parameters() as u64;
        let row = if rows.are_made() { ROW_KIND.elt_size_in_bytes() } else { 0 };
        let weights = if kind != ROW_KIND || subspace.forms_weights() { kind.elt_size_in_bytes() } else { 0 };
        parameters * (row + weights) as u64
    }

    /// Returns the bytes that computing rows takes besides them: the noise of one row.
    pub(super) fn making(&self) -> u64 {
        match self {
            Members::Rows { subspace, rows } if rows.are_made() => {
                subspace.layout().parameters() as u64 * ROW_KIND.elt_size_in_bytes() as u64
            }
            _ => 0,
        }
    }
}
