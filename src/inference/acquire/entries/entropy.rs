//! The images with the highest entropy of the averaged prediction, H[p̄] (Settles 2009, section 3.1).

use crate::inference::acquire::{Entry, highest};
use crate::metrics::Uncertainty;

pub static ENTRY: Entry = Entry {
    key: "entropy",
    about: "highest entropy of the averaged prediction",
    needs_members: false,
    needs_features: false,
    is_seeded: false,
    most: |_| None,
    choose: |pool, asked| Ok(highest(&Uncertainty::compute(&pool.predictions)?.predictive_entropy, asked.count)),
};
