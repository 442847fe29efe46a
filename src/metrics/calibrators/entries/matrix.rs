//! Matrix scaling (Guo et al. 2017): softmax(W z + b), a multinomial logistic regression on the averaged logits.

use crate::metrics::calibrators::fitted::{Calibrator, Fit, Size};
use crate::metrics::calibrators::linear::{NO_PENALTY, Problem, Weight};

pub static ENTRY: Calibrator = Calibrator {
    key: "matrix",
    about: "a matrix and intercepts for the logits",
    paper: "Guo et al. 2017",
    suffix: "ms",
    size: Size::Parameters(|classes| classes * (classes + 1)),
    fit: Fit::Map(|samples, labels| {
        let problem = Problem { samples, labels, weight: Weight::Full, penalty: NO_PENALTY };
        Ok(Box::new(problem.solve("matrix")))
    }),
};
