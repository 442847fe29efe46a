//! A random choice, with which other rules are compared. All scores are 0.

use crate::base::random::{Purpose, permutation, stream};
use crate::inference::acquire::{Chosen, Entry};

pub static ENTRY: Entry = Entry {
    key: "random",
    about: "random images, to compare with",
    needs_members: false,
    needs_features: false,
    is_seeded: true,
    most: |_| None,
    choose: |pool, asked| {
        let order = permutation(&mut stream(asked.seed, Purpose::Acquisition, &[]), pool.predictions.samples());
        Ok(order.into_iter().take(asked.count).map(|sample| Chosen { sample: sample as usize, score: 0.0 }).collect())
    },
};
