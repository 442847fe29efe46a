//! Dirichlet calibration (Kull et al. 2019, "Beyond temperature scaling"): softmax(W log p + b), with the penalties of section 4 (ODIR)
//! λ / (C (C − 1)) Σ_{i ≠ j} w_ij² + λ / C Σ_j b_j². The factor λ is the one of a grid with the least cross-entropy in three-fold cross-
//! validation on the held-out images, whose fold is their index modulo 3.
//!
//! Differs: the paper searches two factors, of the off-diagonal entries and of the intercepts; here they are one.

use anyhow::Result;

use crate::metrics::calibrators::fitted::{Averaged, Calibrator, Fit, Map, Size};
use crate::metrics::calibrators::linear::{Penalty, Problem, Weight};

/// The factors that are tried.
const FACTORS: [f64; 5] = [1e-3, 1e-2, 1e-1, 1.0, 10.0];

const FOLDS: usize = 3;

pub static ENTRY: Calibrator = Calibrator {
    key: "dirichlet",
    about: "a matrix and intercepts for log-probabilities, with penalties off the diagonal",
    paper: "Kull et al. 2019",
    suffix: "dir",
    size: Size::Advised(|classes| classes * (classes + 1)),
    fit: Fit::Map(fit),
};

fn fit(samples: &Averaged, labels: &[u32]) -> Result<Box<dyn Map>> {
    let samples = &samples.normalised();
    let errors = FACTORS.map(|factor| if labels.len() < FOLDS { 0.0 } else { validated(samples, labels, factor) });
    let best = (1..FACTORS.len()).fold(0, |best, i| if errors[i] < errors[best] { i } else { best });
    Ok(Box::new(problem(samples, labels, FACTORS[best]).solve("dirichlet").of_log_probabilities()))
}

pub(super) fn problem<'a>(samples: &'a Averaged, labels: &'a [u32], factor: f64) -> Problem<'a> {
    let penalty = Penalty { off_diagonal: factor, intercept: factor };
    Problem { samples, labels, weight: Weight::Full, penalty }
}

/// Returns the mean cross-entropy of the folds, each by the map of the others.
fn validated(samples: &Averaged, labels: &[u32], factor: f64) -> f64 {
    let fold = |fold: usize| {
        let (own, others): (Vec<usize>, Vec<usize>) = (0..labels.len()).partition(|i| i % FOLDS == fold);
        let of = |some: &[usize]| some.iter().map(|i| labels[*i]).collect::<Vec<u32>>();
        let map = problem(&samples.select(&others), &of(&others), factor).search();
        map.nll(&samples.select(&own), &of(&own)) * own.len() as f64
    };
    (0..FOLDS).map(fold).sum::<f64>() / labels.len() as f64
}
