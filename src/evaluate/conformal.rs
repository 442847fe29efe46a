//! The thresholds of conformal sets, and what was measured with them.

use std::cell::RefCell;

use crate::data::Fingerprint;
use crate::metrics::conformal::Calibrated;
use crate::results::store::Row;

/// Thresholds, and the rows that were measured with them.
pub struct Conformal {
    pub calibrated: Vec<Calibrated>,
    /// The fingerprint of the calibration images.
    pub images: Fingerprint,
    measured: RefCell<Vec<Row>>,
}

impl Conformal {
    pub fn new(calibrated: Vec<Calibrated>, images: Fingerprint) -> Conformal {
        Conformal { calibrated, images, measured: RefCell::default() }
    }

    /// Returns the rows that were measured so far, in order.
    pub fn measured(&self) -> Vec<Row> {
        self.measured.borrow().clone()
    }

    /// Adds rows that were measured.
    pub(super) fn add(&self, rows: Vec<Row>) {
        self.measured.borrow_mut().extend(rows);
    }
}
