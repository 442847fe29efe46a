//! Tests that resampled numbers equal the scores of the resample itself, that intervals agree with the normal
//! approximation, and that mismatched predictions are refused.

use super::*;
use crate::metrics::value;
use crate::predictions::Shape;

const SHAPE: Shape = Shape { members: 2, samples: 400, classes: 4 };

fn labels() -> Vec<u32> {
    (0..400).map(|i| i * i / 3 % 4).collect()
}

/// Logits that favour the label by `skill`, on top of waves whose phase differs between predictors.
fn logits(skill: f64, phase: f64) -> Vec<f32> {
    let labels = labels();
    let mut logits = vec![];
    for (k, i) in (0..2).flat_map(|k| (0..400).map(move |i| (f64::from(k), i))) {
        let x = i as f64;
        let wave = |c: f64| 2.0 * (phase + 1.3 * x + 0.7 * c * (x + 1.0)).sin() + (k + x * c).sin();
        let bonus = |c: u32| if c == labels[i] { skill } else { 0.0 };
        logits.extend((0..4).map(|c| (wave(f64::from(c)) + bonus(c)) as f32));
    }
    logits
}

fn predictions(skill: f64, phase: f64) -> Predictions {
    Predictions::new(SHAPE, logits(skill, phase), labels()).unwrap()
}

fn picked(of: &Predictions, order: &[usize]) -> Scores {
    let rows = (0..of.members()).flat_map(|k| order.iter().flat_map(move |i| of.logits(k, *i).to_vec()));
    let labels = order.iter().map(|i| of.labels().unwrap()[*i]).collect();
    Scores::compute(&Predictions::new(of.shape(), rows.collect(), labels).unwrap()).unwrap()
}

#[test]
fn a_resample_equals_scoring_the_drawn_samples() {
    let (a, b) = (predictions(1.0, 0.0), predictions(1.4, 0.5));
    for average in Average::ALL {
        let parts = parts(&Scores::compute(&a).unwrap(), &Scores::compute(&b).unwrap(), average);
        for i in 0..3 {
            let order: Vec<_> = drawn(400, 7, i).collect();
            let (a, b) = (picked(&a, &order), picked(&b, &order));
            for ((metric, _), got) in parts.iter().zip(resample(&parts, 7, i)) {
                let want = value(&b, metric.key, average).zip(value(&a, metric.key, average)).map(|(b, a)| b - a);
                let same = want.map_or(got.is_nan(), |want| (got - want).abs() < 1e-12);
                assert!(same, "{}: {got}, not {want:?}", metric.key);
            }
        }
    }
}

// The difference of means has standard error sd(d) / √N. Its interval is ± 1.96 standard errors, and p is that of a
// normal variable.
#[test]
fn intervals_agree_with_the_normal_approximation() {
    let (a, b) = (predictions(1.0, 0.0), predictions(1.1, 0.5));
    let found = compare(&a, &b, &[Average::Probability], 4000, 1).unwrap();
    let (a, b) = (Scores::compute(&a).unwrap(), Scores::compute(&b).unwrap());
    let nll = |of: &Scores| of.averaged(Average::Probability).nll.clone();
    let differences: Vec<f64> = nll(&b).iter().zip(nll(&a)).map(|(b, a)| b - a).collect();
    let mean = differences.iter().sum::<f64>() / 400.0;
    let error = (differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 400.0 / 400.0).sqrt();
    let row = &found[1];
    assert_eq!(row.metric.key, "nll");
    assert!((row.difference - mean).abs() < 1e-12);
    let reach = row.interval.map(|end| (end - mean) / error);
    assert!((reach[0] + 1.96).abs() < 0.12 && (reach[1] - 1.96).abs() < 0.12, "{reach:?}");
    assert_eq!(row.p < 0.05, row.interval[0] > 0.0 || row.interval[1] < 0.0);
}

#[test]
fn a_better_predictor_is_told_from_an_equal_one() {
    let a = predictions(1.0, 0.0);
    let better = compare(&a, &predictions(4.0, 0.0), &[Average::Logit], 999, 1).unwrap();
    assert!(better[0].difference > 0.0 && better[0].interval[0] > 0.0 && better[1].interval[1] < 0.0);
    assert_eq!((better[0].p, better[1].p), (0.002, 0.002));
    for same in compare(&a, &a, &[Average::Logit], 99, 1).unwrap() {
        assert_eq!((same.difference, same.interval, same.p), (0.0, [0.0, 0.0], 1.0));
    }
}

#[test]
fn a_seed_fixes_the_numbers() {
    let (a, b) = (predictions(1.0, 0.0), predictions(1.4, 0.5));
    let run = |seed| compare(&a, &b, &[Average::Logit], 50, seed).unwrap().into_iter().map(|row| row.interval);
    assert!(run(3).eq(run(3)) && !run(3).eq(run(4)));
    let counts = drawn(400, 3, 0).fold(vec![0; 400], |mut counts, i| {
        counts[i] += 1;
        counts
    });
    // A sample is left out with probability 1/e. Five standard deviations are about 39 samples.
    let left_out = counts.iter().filter(|count| **count == 0).count();
    assert!(left_out.abs_diff(147) < 39, "{left_out}");
}

#[test]
fn quantiles_and_p_values_by_hand() {
    assert_eq!([0.0, 0.25, 0.9, 1.0].map(|share| quantile(&[1.0, 2.0, 4.0], share)), [1.0, 1.5, 3.6, 4.0]);
    assert_eq!(quantile(&[5.0], 0.975), 5.0);
    assert_eq!(p_value(&[-1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), 0.5);
    assert_eq!(p_value(&[0.0, 0.0, 0.0]), 1.0);
}

#[test]
fn other_test_sets_are_refused() {
    let a = predictions(1.0, 0.0);
    let message = |b: &Predictions| compare(&a, b, &[Average::Logit], 10, 1).err().unwrap().to_string();
    let mut other = labels();
    other[5] = (other[5] + 1) % 4;
    assert!(message(&Predictions::new(SHAPE, logits(1.0, 0.0), other).unwrap()).contains("sample 5 has label"));
    let fewer = Shape { samples: 399, ..SHAPE };
    let shorter = Predictions::new(fewer, logits(1.0, 0.0)[..3192].to_vec(), labels()[..399].to_vec()).unwrap();
    assert!(message(&shorter).contains("400 samples of 4 classes and 399 of 4"));
    assert!(message(&Predictions::unlabelled(SHAPE, logits(1.0, 0.0)).unwrap()).contains("no labels"));
    assert!(compare(&a, &a, &[Average::Logit], 0, 1).is_err());
}
