//! Vector scaling (Guo et al. 2017): softmax(w ⊙ z + b), with a factor and an intercept for each class.
//!
//! Differs: torch-uncertainty's `VectorScaler` has no intercepts.

use crate::metrics::calibrators::fitted::{Calibrator, Fit, Size};
use crate::metrics::calibrators::linear::{NO_PENALTY, Problem, Weight};

pub static ENTRY: Calibrator = Calibrator {
    key: "vector",
    about: "a factor and an intercept of each class's logit",
    paper: "Guo et al. 2017",
    suffix: "vs",
    size: Size::Parameters(|classes| 2 * classes),
    fit: Fit::Map(|samples, labels| {
        let problem = Problem { samples, labels, weight: Weight::Diagonal, penalty: NO_PENALTY };
        Ok(Box::new(problem.solve("vector")))
    }),
};
