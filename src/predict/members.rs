//! The members that predict, and where their weights come from.

use std::ops::Range;

use anyhow::Result;
use tch::{Kind, Tensor};

use crate::machine::memory::Need;
use crate::model::Model;
use crate::posterior::Draws;
use crate::subspace::Subspace;

/// Rows of theta, each of which is a member: stored ones, or draws that are made when they are asked for.
pub trait Rows {
    /// m.
    fn count(&self) -> usize;

    /// Rows `members` as `[k, P]`, the same each time.
    ///
    /// # Errors
    /// A posterior that cannot be drawn from.
    fn rows(&self, members: Range<usize>) -> Result<Tensor>;

    /// Whether each row is made anew for every call, and thus takes memory of its own.
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

/// Predictions that are not the logits of any weights, such as those of a linearised model.
pub trait Linear {
    /// m.
    fn count(&self) -> usize;

    /// The memory of a prediction: for the images at once, all members together.
    fn need(&self, model: &Model) -> Need;

    /// Logits `[m, B, C]`, f64, of prepared samples `[1, B, …]`.
    ///
    /// # Errors
    /// Those of libtorch.
    fn logits(&self, model: &Model, samples: &Tensor) -> Result<Tensor>;
}

/// The members that predict.
#[derive(Clone, Copy)]
pub enum Members<'a> {
    /// The checkpoint as it is: m = 1.
    Checkpoint,
    /// Rows of theta `[m, P]`.
    Rows { subspace: &'a dyn Subspace, rows: &'a dyn Rows },
    /// Logits of a linearised model.
    Linear(&'a dyn Linear),
}

impl Members<'_> {
    /// m.
    pub fn count(&self) -> usize {
        match self {
            Members::Checkpoint => 1,
            Members::Rows { rows, .. } => rows.count(),
            Members::Linear(linear) => linear.count(),
        }
    }

    /// What the layer weights of one member take in the compute type, with its row where that is made for it.
    pub(super) fn bytes(&self, kind: Kind) -> u64 {
        let Members::Rows { subspace, rows } = self else { return 0 };
        let parameters = subspace.layout().parameters() as u64;
        let row = if rows.are_made() { Kind::Float.elt_size_in_bytes() } else { 0 };
        parameters * (kind.elt_size_in_bytes() + row) as u64
    }
}
