//! The registry of conformity scores. A new score is one file and its lines here.

use super::score::Score;
use super::{aps, lac, raps};

/// All scores, in the order of the rows.
pub static SCORES: &[&Score] = &[&lac::LAC, &aps::APS, &raps::RAPS];
