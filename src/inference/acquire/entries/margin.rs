//! The images whose two most probable classes are the closest, by the averaged probabilities (Scheffer et al. 2001). The score is one
//! less the margin.

use crate::inference::acquire::{Entry, highest};

pub static ENTRY: Entry = Entry {
    key: "margin",
    about: "smallest difference of the two highest averaged probabilities",
    needs_members: false,
    needs_features: false,
    choose: |pool, asked| {
        let margin = |sample: usize| {
            let mut falling = pool.mean(sample);
            falling.sort_by(|a, b| b.total_cmp(a));
            1.0 - (falling[0] - falling.get(1).copied().unwrap_or(0.0))
        };
        let margins: Vec<f64> = (0..pool.predictions.samples()).map(margin).collect();
        Ok(highest(&margins, asked.count))
    },
};
