//! Selective prediction: the errors that remain if only the most confident share of samples is answered. Samples are
//! sorted by falling confidence, and ties keep their order. The coverage i/N answers the first i samples; the risk is
//! the share of errors among them.

use super::{Average, Better, Metric, Scope, Scores, Shown, Unit};

pub static AURC: Metric = Metric {
    key: "aurc",
    short: "AURC",
    about: "area under the risk-coverage curve",
    definition: "mean over i of (errors among the i most confident) / i (torch-uncertainty: a trapezoid); ties by index",
    unit: Unit::One,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| {
        let errors = errors_by_confidence(scores, average);
        let risks = errors.iter().zip(1u32..).map(|(errors, answered)| *errors as f64 / f64::from(answered));
        super::scores::mean(risks)
    },
};

pub static AUGRC: Metric = Metric {
    key: "augrc",
    short: "AUGRC",
    about: "area under the generalised risk-coverage curve (silent errors)",
    definition: "trapezoid of (errors among the i most confident) / N over coverage i / N from 1 / N to 1, divided by \
                 1 - 1 / N; empty for one sample",
    unit: Unit::One,
    better: Better::Lower,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| {
        let errors = errors_by_confidence(scores, average);
        let twice: usize = errors.windows(2).map(|pair| pair[0] + pair[1]).sum();
        let steps = errors.len() as f64 - 1.0;
        (steps > 0.0).then(|| twice as f64 / 2.0 / errors.len() as f64 / steps)
    },
};

pub static ACCURACY_AT_80: Metric = Metric {
    key: "accuracy_at_80_coverage",
    short: "accuracy at 80 %",
    about: "accuracy on the 80 % most confident samples",
    definition: "share of correct samples among the ceil(0.8 N) most confident; ties by index",
    eval: |scores, average| accuracy_at(scores, average, 80),
    ..COVERAGE_AT_5
};

pub static ACCURACY_AT_90: Metric = Metric {
    key: "accuracy_at_90_coverage",
    short: "accuracy at 90 %",
    about: "accuracy on the 90 % most confident samples",
    definition: "share of correct samples among the ceil(0.9 N) most confident; ties by index",
    eval: |scores, average| accuracy_at(scores, average, 90),
    ..COVERAGE_AT_5
};

pub static COVERAGE_AT_5: Metric = Metric {
    key: "coverage_at_5_risk",
    short: "coverage at 5 % risk",
    about: "largest share of samples answered with at most 5 % errors",
    definition: "largest i / N with (errors among the i most confident) / i <= 0.05, or 0; ties by index",
    unit: Unit::Fraction,
    better: Better::Higher,
    scope: Scope::PerAverage,
    shown: Shown::IN_FILES,
    resampled: None,
    eval: |scores, average| {
        let errors = errors_by_confidence(scores, average);
        let within = |i: &usize| 100 * errors[i - 1] <= 5 * i;
        let answered = (1..=errors.len()).rev().find(within).unwrap_or(0);
        Some(answered as f64 / errors.len() as f64)
    },
};

/// Returns the risk-coverage curve at `points` evenly spaced coverages, each rounded up to a whole sample, as pairs of
/// coverage and risk.
pub fn risk_coverage(scores: &Scores, average: Average, points: usize) -> Vec<(f64, f64)> {
    let errors = errors_by_confidence(scores, average);
    let samples = errors.len();
    let mut answered: Vec<_> = (1..=points).map(|point| (point * samples).div_ceil(points)).collect();
    answered.dedup();
    answered.into_iter().map(|i| (i as f64 / samples as f64, errors[i - 1] as f64 / i as f64)).collect()
}

/// Returns the number of errors among the 1, 2, … N most confident samples, `[N]`.
fn errors_by_confidence(scores: &Scores, average: Average) -> Vec<usize> {
    let correct = &scores.averaged(average).correct;
    let wrong = scores.most_confident_first(average).into_iter().map(|i| usize::from(!correct[i]));
    let sums = wrong.scan(0, |errors, wrong| {
        *errors += wrong;
        Some(*errors)
    });
    sums.collect()
}

fn accuracy_at(scores: &Scores, average: Average, percent: usize) -> Option<f64> {
    let errors = errors_by_confidence(scores, average);
    let answered = (percent * errors.len()).div_ceil(100);
    Some(1.0 - errors[answered.checked_sub(1)?] as f64 / answered as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::predictions::{Predictions, Shape};

    /// Scores of one member with two classes, where the true class is 0. `logits` belong to class 0, so |logit| orders
    /// the samples by confidence.
    fn scores(logits: &[f32]) -> Scores {
        let shape = Shape { members: 1, samples: logits.len(), classes: 2 };
        let rows = logits.iter().flat_map(|logit| [*logit, 0.0]).collect();
        Scores::compute(&Predictions::new(shape, rows, vec![0; logits.len()]).unwrap()).unwrap()
    }

    // Worked by hand. By confidence the samples are right, right, wrong, right, wrong, so the errors are 0, 0, 1, 1, 2.
    #[test]
    fn five_samples_by_hand() {
        let scores = scores(&[-1.0, 5.0, -3.0, 2.0, 4.0]);
        let value = |metric: &Metric| (metric.eval)(&scores, Average::Logit).unwrap();
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-15, "{got}, not {want}");
        close(value(&AURC), (1.0 / 3.0 + 1.0 / 4.0 + 2.0 / 5.0) / 5.0);
        close(value(&AUGRC), (0.5 + 1.0 + 1.5) / 5.0 / 4.0);
        close(value(&ACCURACY_AT_80), 0.75);
        close(value(&ACCURACY_AT_90), 0.6);
        close(value(&COVERAGE_AT_5), 0.4);
        let curve = risk_coverage(&scores, Average::Logit, 5);
        assert_eq!(curve, [(0.2, 0.0), (0.4, 0.0), (0.6, 1.0 / 3.0), (0.8, 0.25), (1.0, 0.4)]);
        assert_eq!(risk_coverage(&scores, Average::Logit, 2), [(0.6, 1.0 / 3.0), (1.0, 0.4)]);
        assert_eq!(risk_coverage(&scores, Average::Logit, 1000), curve);
    }

    // torch-uncertainty 0.13.0 on the same five samples: AURC().compute() is 0.1958333278695742 and AUGRC().compute() is
    // 0.1499999975164731. Its AURC is the trapezoid over coverages from 1 / N on, divided by 1 - 1 / N; here it is the mean of the
    // risks, as its own formula and the papers have it. The two differ by half of the first and the last risk.
    #[test]
    fn areas_beside_torch_uncertainty() {
        let scores = scores(&[-1.0, 5.0, -3.0, 2.0, 4.0]);
        let value = |metric: &Metric| (metric.eval)(&scores, Average::Logit).unwrap();
        let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-7, "{got}, not {want}");
        close((value(&AURC) * 5.0 - (0.0 + 0.4) / 2.0) / 4.0, 0.1958333278695742);
        close(value(&AUGRC), 0.1499999975164731);
    }

    // The risk may fall below the limit again later: with errors 1, 1, 1, … it reaches 1/20 at the 20th sample.
    #[test]
    fn coverage_at_risk_is_the_largest() {
        let mut logits = vec![-9.0];
        logits.extend((0..19).map(|i| 8.0 - i as f32 / 4.0));
        assert_eq!((COVERAGE_AT_5.eval)(&scores(&logits), Average::Logit), Some(1.0));
        assert_eq!((COVERAGE_AT_5.eval)(&scores(&logits[..19]), Average::Logit), Some(0.0));
    }

    #[test]
    fn ties_keep_the_order_of_the_samples() {
        let risks = |logits: &[f32]| (AURC.eval)(&scores(logits), Average::Logit).unwrap();
        assert_eq!((risks(&[1.0, -1.0]), risks(&[-1.0, 1.0])), (0.25, 0.75));
        assert_eq!((AUGRC.eval)(&scores(&[1.0]), Average::Logit), None);
    }
}
