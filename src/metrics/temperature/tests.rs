//! Tests of fits against scipy, of the bounds, and of scaled scores against the scores of scaled logits.

use super::*;
use crate::base::random::{Purpose, normal, stream, uniform};
use crate::metrics::value;
use crate::predictions::Shape;

const SHAPE: Shape = Shape { members: 3, samples: 40, classes: 7 };

fn seven_classes() -> Vec<f32> {
    let mut logits = vec![];
    for (k, i) in (0..3).flat_map(|k| (0..40).map(move |i| (f64::from(k), f64::from(i)))) {
        let logit = |c: f64| 3.0 * (1.7 * i + 0.9 * c * c).sin() + 2.0 * (2.1 * k + i * c).sin();
        logits.extend((0..7).map(|c| logit(f64::from(c)) as f32));
    }
    logits
}

fn labels() -> Vec<u32> {
    (0..40).map(|i: u32| i.pow(3) * 3 / 5 % 7).collect()
}

fn example() -> Predictions {
    Predictions::new(SHAPE, seven_classes(), labels()).unwrap()
}

fn near(got: f64, want: f64, tolerance: f64) {
    assert!((got - want).abs() <= tolerance * want.abs(), "{got}, not {want}");
}

// import numpy as np; from scipy.optimize import minimize_scalar
// k, i, c = np.ogrid[:3, :40, :7]; z = (3*np.sin(1.7*i + 0.9*c*c) + 2*np.sin(2.1*k + i*c)).astype("f4").astype(float)
// y = np.arange(40)**3 * 3 // 5 % 7; sm = lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True)
// for p in lambda T: sm(z.mean(0) / T), lambda T: sm(z / T).mean(0):
//     r = minimize_scalar(lambda x: -np.log(p(np.exp(x))[np.arange(40), y]).mean(), bounds=np.log([.01, 100]),
//                         method="bounded", options=dict(xatol=1e-12)); np.exp(r.x), r.fun
#[test]
fn fits_match_scipy() {
    for (average, temperature, nll) in [
        (Average::Logit, 10.17451321969489, 1.9274165498949878),
        (Average::Probability, 10.578800088953011, 1.9281322126762923),
    ] {
        let fit = fit(&example(), average).unwrap();
        near(fit.temperature, temperature, 1e-6);
        near(fit.nll, nll, 1e-13);
        assert!(!fit.at_bound);
    }
}

// As above, with means over members weighted by .2, .5 and .3.
#[test]
fn fits_of_weighted_members_match_numpy() {
    for (average, temperature, nll) in [
        (Average::Logit, 8.448387611378024, 1.9181666215518782),
        (Average::Probability, 8.702701769187563, 1.9189522532854628),
    ] {
        let fit = fit(&example().with_weights(vec![0.2, 0.5, 0.3]).unwrap(), average).unwrap();
        near(fit.temperature, temperature, 1e-6);
        near(fit.nll, nll, 1e-13);
    }
}

// With one member and logits ±a of which the share q is right, the odds at the optimum are e^(a/T) = q / (1 - q).
#[test]
fn two_classes_have_a_closed_form() {
    let shape = Shape { members: 1, samples: 10, classes: 2 };
    for (gap, right) in [(4.0f32, 8u32), (0.05, 6), (300.0, 9)] {
        let logits = [gap, 0.0].repeat(10);
        let labels = (0..10).map(|i| u32::from(i >= right)).collect();
        let predictions = Predictions::new(shape, logits, labels).unwrap();
        let odds = f64::from(right) / f64::from(10 - right);
        for average in Average::ALL {
            let temperature = fit(&predictions, average).unwrap().temperature;
            near(temperature.clamp(BOUNDS[0], BOUNDS[1]), (f64::from(gap) / odds.ln()).min(100.0), 1e-7);
        }
    }
}

#[test]
fn slopes_are_derivatives() {
    let (predictions, labels) = (example(), labels());
    for average in Average::ALL {
        for x in [-2.0, 0.0, 1.3, 4.0] {
            let nll = |x| mean_nll(&predictions, &labels, average, x).unwrap();
            near(nll(x).slope, (nll(x + 1e-5).nll - nll(x - 1e-5).nll) / 2e-5, 1e-7);
        }
    }
}

#[test]
fn there_is_no_temperature_for_all_right_or_all_wrong() {
    let shape = Shape { members: 2, samples: 2, classes: 3 };
    let logits = [3.0, 0.0, 1.0, 0.0, 2.0, 1.0].repeat(2);
    for (labels, end) in [(vec![0, 1], BOUNDS[0]), (vec![1, 0], BOUNDS[1])] {
        let predictions = Predictions::new(shape, logits.clone(), labels).unwrap();
        for average in Average::ALL {
            let fit = fit(&predictions, average).unwrap();
            assert!(fit.at_bound);
            near(fit.temperature, end, 1e-12);
        }
        let columns = Scaling::fit(&predictions).unwrap().columns(&example_of(shape)).unwrap();
        assert!(columns.len() == 2 + 2 * scaled().count() && columns.iter().all(|(_, value)| value.is_none()));
    }
}

fn example_of(shape: Shape) -> Predictions {
    let count = shape.members * shape.samples * shape.classes;
    Predictions::new(shape, seven_classes()[..count].to_vec(), vec![0; shape.samples]).unwrap()
}

// T = 4 is exact in f32, so the scaled scores must equal the scores of scaled logits.
#[test]
fn scaled_scores_are_scores_of_scaled_logits() {
    let divided = seven_classes().into_iter().map(|logit| logit / 4.0).collect();
    let divided = Scores::compute(&Predictions::new(SHAPE, divided, labels()).unwrap()).unwrap();
    let scaled = Scores::compute_scaled(&example(), PerAverage { logit: 4.0, probability: 4.0 }).unwrap();
    assert_eq!(scaled, divided);
    let mixed = Scores::compute_scaled(&example(), PerAverage { logit: 1.0, probability: 4.0 }).unwrap();
    assert_eq!(mixed.outcomes.probability, divided.outcomes.probability);
    assert_eq!(mixed.outcomes.logit, Scores::compute(&example()).unwrap().outcomes.logit);
    for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(Scores::compute_scaled(&example(), PerAverage { logit: wrong, probability: 1.0 }).is_err());
    }
}

#[test]
fn columns_hold_the_fit_and_the_scaled_numbers() {
    let columns = Scaling::fit(&example()).unwrap().columns(&example()).unwrap();
    let of = |name: &str| columns.iter().find(|(column, _)| column == name).unwrap().1.unwrap();
    let names: Vec<_> = columns.iter().map(|(column, _)| column.as_str()).collect();
    assert_eq!(names[..4], ["temperature_lm", "temperature_pm", "nll_ts_lm", "nll_ts_pm"]);
    assert_eq!(names[4..8], ["brier_ts_lm", "brier_ts_pm", "ece_ts_lm", "ece_ts_pm"]);
    for error in ["rmsce_debiased", "classwise_ece", "smooth_ece"] {
        assert!(Average::ALL.iter().all(|average| names.contains(&&*format!("{error}_ts_{}", average.suffix()))));
    }
    assert!(names.iter().all(|column| crate::metrics::of_column(column).is_some()));
    assert!(of_column("temperature").is_none() && of_column("mi_ts_lm").is_none());
    let raw = Scores::compute(&example()).unwrap();
    for average in Average::ALL {
        let fit = fit(&example(), average).unwrap();
        near(of(&format!("temperature_{}", average.suffix())), fit.temperature, 1e-15);
        near(of(&format!("nll_ts_{}", average.suffix())), fit.nll, 1e-12);
        assert!(fit.nll < value(&raw, "nll", average).unwrap());
    }
}

#[test]
fn predictions_without_labels_are_refused() {
    let unlabelled = Predictions::unlabelled(SHAPE, seven_classes()).unwrap();
    let message = Scaling::fit(&unlabelled).err().unwrap().to_string();
    assert!(message.contains("no labels"), "{message}");
}

#[test]
fn no_temperature_of_a_dense_grid_is_better() {
    let shape = Shape { members: 3, samples: 6, classes: 3 };
    let mut inside = 0;
    for case in 0..60u64 {
        let mut rng = stream(case, Purpose::Check, &[]);
        let scale = 10f64.powf(3.0 * uniform(&mut rng) - 1.0);
        let logits = (0..54).map(|_| (scale * normal(&mut rng)) as f32).collect();
        let labels: Vec<u32> = (0..6).map(|_| (3.0 * uniform(&mut rng)) as u32).collect();
        let predictions = Predictions::new(shape, logits, labels.clone()).unwrap();
        for average in Average::ALL {
            let fit = fit(&predictions, average).unwrap();
            inside += usize::from(!fit.at_bound);
            for i in 0..=400 {
                let x = BOUNDS[0].ln() + f64::from(i) / 400.0 * (BOUNDS[1] / BOUNDS[0]).ln();
                let nll = mean_nll(&predictions, &labels, average, x).unwrap().nll;
                assert!(
                    fit.nll <= nll + 1e-12,
                    "case {case}: {} at {}, {nll} at {}",
                    fit.nll,
                    fit.temperature,
                    x.exp()
                );
            }
        }
    }
    assert!(inside > 20, "{inside}");
}
