//! Temperature scaling (Guo et al. 2017). The fit is that of [`crate::metrics::temperature`].

use crate::metrics::calibrators::fitted::{Calibrator, Fit, Size};
use crate::metrics::temperature::SUFFIX;

pub static ENTRY: Calibrator = Calibrator {
    key: "temperature",
    about: "one temperature that divides the logits of all members",
    paper: "Guo et al. 2017",
    suffix: SUFFIX,
    size: Size::Parameters(|_| 1),
    fit: Fit::Temperature,
};
