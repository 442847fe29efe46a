//! The least ambiguous set-valued classifier (Sadinle, Lei & Wasserman 2019): the smallest sets on average.

use super::score::Score;

pub static LAC: Score = Score {
    key: "lac",
    about: "least ambiguous set-valued classifier (Sadinle et al. 2019); sets may be empty",
    definition: "1 - p_(r)",
    of: |falling, _, _| falling.iter().map(|p| 1.0 - p).collect(),
};
