//! The images whose two most probable classes are the closest, by the averaged probabilities (Scheffer et al. 2001). The score is one
//! less the margin.

use anyhow::Result;

use crate::inference::acquire::{Entry, highest};
use crate::metrics::Average;
use crate::metrics::scores::distribution;

pub static ENTRY: Entry = Entry {
    key: "margin",
    about: "smallest difference of the two highest averaged probabilities",
    needs_members: false,
    needs_features: false,
    is_seeded: false,
    most: |_| None,
    choose: |pool, asked| {
        let margin = |sample: usize| {
            let mut falling = distribution(&pool.predictions, sample, Average::Probability)?;
            falling.sort_by(|a, b| b.total_cmp(a));
            Ok(1.0 - (falling[0] - falling.get(1).copied().unwrap_or(0.0)))
        };
        let margins: Vec<f64> = (0..pool.predictions.samples()).map(margin).collect::<Result<_>>()?;
        Ok(highest(&margins, asked.count))
    },
};
