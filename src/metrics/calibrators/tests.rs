//! Every calibrator against the package that is named in `scripts/make_calibrator_goldens.py`.

use super::*;
use crate::base::golden::Golden;
use crate::metrics::{Average, PerAverage, Scores, UNSCALED, value};
use crate::predictions::{Predictions, Shape};
use crate::schema::find;

fn golden() -> Golden {
    Golden::of("calibrators")
}

fn list(golden: &Golden, path: &str) -> Vec<f64> {
    let numbers = golden.value(path).as_array().unwrap().iter();
    numbers
        .flat_map(|row| match row.as_array() {
            Some(row) => row.iter().map(|number| number.as_f64().unwrap()).collect(),
            None => vec![row.as_f64().unwrap()],
        })
        .collect()
}

/// The held-out and the test predictions of one member.
fn predictions(golden: &Golden) -> [Predictions; 2] {
    ["held_out", "test"].map(|part| {
        let logits: Vec<f32> = list(golden, &format!("{part}/logits")).into_iter().map(|logit| logit as f32).collect();
        let labels: Vec<u32> = list(golden, &format!("{part}/labels")).into_iter().map(|label| label as u32).collect();
        let shape = Shape { members: 1, samples: labels.len(), classes: logits.len() / labels.len() };
        Predictions::new(shape, logits, labels).unwrap()
    })
}

fn largest_difference(found: &[Vec<f64>], expected: &[f64]) -> f64 {
    let found = found.concat();
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn calibrators_are_those_of_their_packages() {
    let golden = golden();
    let [held_out, test] = predictions(&golden);
    for (key, bound) in [("vector", 1e-6), ("matrix", 1e-6), ("isotonic", 1e-6), ("histogram", 1e-6)] {
        let fitted = find(CALIBRATORS, key).unwrap().fit(&held_out, Average::Logit).unwrap();
        let difference = largest_difference(&fitted.probabilities(&test).unwrap(), &list(&golden, key));
        assert!(difference < bound, "{key}: {difference:e}");
    }
}

/// Probabilities closer than 1e-15 are one place in scikit-learn, and so here: where they are not, the mean difference is 0.05. Near 1, where
/// curves are steep, the last bit of a softmax moves single ones.
#[test]
fn isotonic_curves_of_saturated_predictions_are_those_of_scikit_learn() {
    let golden = golden();
    let factor = golden.number("saturated/factor") as f32;
    let [held_out, test] = predictions(&golden).map(|of| {
        let logits = of.all_logits().iter().map(|logit| factor * logit).collect();
        Predictions::new(of.shape(), logits, of.labels().unwrap().to_vec()).unwrap()
    });
    for average in Average::ALL {
        let fitted = find(CALIBRATORS, "isotonic").unwrap().fit(&held_out, average).unwrap();
        let found = fitted.probabilities(&test).unwrap();
        let expected = list(&golden, "saturated/isotonic");
        let differences = found.concat().into_iter().zip(&expected).map(|(a, b)| (a - b).abs());
        let mean = differences.sum::<f64>() / expected.len() as f64;
        assert!(mean < 0.004, "{average:?}: {mean:e}");
    }
}

/// By hand: of 5 held-out images with one prediction 3 are of the first class, and of 7 with another one 4. The shares 3/5 and 4/7 lie in one
/// bin, which is closed above at 3/5, and the gaps of tested images there, 5 - 3 and 0 - 4, add up. A share that is rounded upwards has a bin
/// of its own, and the error is 6/12.
#[test]
fn a_share_at_the_edge_of_a_bin_lies_below_it() {
    let logits: Vec<f32> = (0..12).flat_map(|i| [if i < 5 { 1.0 } else { 0.5 }, 0.0]).collect();
    let of = |labels: [u32; 12]| {
        Predictions::new(Shape { members: 1, samples: 12, classes: 2 }, logits.clone(), labels.to_vec()).unwrap()
    };
    let fitted =
        Calibration::fit(&[find(CALIBRATORS, "isotonic").unwrap()], &of([0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1])).unwrap();
    let columns = fitted.columns(&of([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1])).unwrap();
    for column in ["ece_iso_lm", "ece_iso_pm"] {
        let found = columns.iter().find(|(name, _)| name == column).unwrap().1.unwrap();
        assert!((found - 2.0 / 12.0).abs() < 1e-12, "{column}: {found}");
    }
}

/// Where a class has no held-out image, or all images of one are told apart, some parameter grows for ever and the gradient vanishes on
/// the way: no minimum, which users are warned of.
#[test]
fn a_search_that_only_runs_out_of_gradient_has_no_minimum() {
    let [held_out, _] = predictions(&golden());
    let (samples, labels) = (Averaged::of(&held_out, Average::Logit).unwrap(), held_out.labels().unwrap());
    let lacking: Vec<u32> = labels.iter().map(|label| if *label == 2 { 3 } else { *label }).collect();
    let logits: Vec<f64> = samples
        .rows()
        .zip(labels)
        .flat_map(|(row, label)| row.iter().enumerate().map(|(c, z)| z + if c as u32 == *label { 30.0 } else { 0.0 }))
        .collect();
    let apart = Averaged { classes: samples.classes, logits };
    for weight in [linear::Weight::Diagonal, linear::Weight::Full] {
        let search = |samples, labels| {
            linear::Problem { samples, labels, weight, penalty: linear::NO_PENALTY }.search().is_reached()
        };
        assert!(search(&samples, labels), "{weight:?}");
        assert!(!search(&samples, &lacking) && !search(&apart, labels), "{weight:?}");
    }
}

#[test]
fn penalties_are_those_of_dirichletcal() {
    let golden = golden();
    let [held_out, test] = predictions(&golden);
    let samples = Averaged::of(&held_out, Average::Logit).unwrap().normalised();
    let penalty = linear::Penalty { off_diagonal: 0.1, intercept: 0.1 };
    let labels = held_out.labels().unwrap();
    let problem = linear::Problem { samples: &samples, labels, weight: linear::Weight::Full, penalty };
    let map = problem.solve("dirichlet").of_log_probabilities();
    let averaged = Averaged::of(&test, Average::Logit).unwrap();
    let found: Vec<Vec<f64>> = averaged.rows().map(|row| map.probabilities(row)).collect();
    let difference = largest_difference(&found, &list(&golden, "dirichlet"));
    assert!(difference < 1e-5, "{difference:e}");
}

#[test]
fn metrics_are_those_of_their_packages() {
    let golden = golden();
    let [_, test] = predictions(&golden);
    let scores = Scores::compute_scaled(&test, UNSCALED).unwrap();
    for (key, bound) in [("classwise_ece", 1e-7), ("rmsce_debiased", 1e-7)] {
        let found = value(&scores, key, Average::Logit).unwrap();
        let expected = golden.number(&format!("metrics/{key}"));
        assert!((found - expected).abs() < bound, "{key}: {found}, not {expected}");
    }
}

/// Where the error is large, relplot cuts the kernel off: 0.2728 against 0.2716 of these predictions as they are.
#[test]
fn smooth_error_is_that_of_relplot() {
    let golden = golden();
    let [_, test] = predictions(&golden);
    let temperature = golden.number("smooth/temperature");
    let scores = Scores::compute_scaled(&test, PerAverage { logit: temperature, probability: temperature }).unwrap();
    let (found, expected) = (value(&scores, "smooth_ece", Average::Logit).unwrap(), golden.number("smooth/smooth_ece"));
    assert!((found - expected).abs() < 3e-4, "{found}, not {expected}");
}

#[test]
fn a_calibrator_with_more_parameters_than_images_is_refused() {
    let shape = Shape { members: 1, samples: 8, classes: 3 };
    let few =
        Predictions::new(shape, (0..24).map(|i| (i * 7 % 5) as f32).collect(), vec![0, 1, 2, 0, 1, 2, 0, 1]).unwrap();
    for key in ["matrix", "histogram"] {
        let error = find(CALIBRATORS, key).unwrap().fit(&few, Average::Logit).err().unwrap().to_string();
        assert!(error.contains("parameters for 3 classes, but 8 held-out images"), "{error}");
    }
    assert!(find(CALIBRATORS, "vector").unwrap().fit(&few, Average::Logit).is_ok());
    // The penalty chooses among maps, so that fewer images are possible.
    assert!(find(CALIBRATORS, "dirichlet").unwrap().fit(&few, Average::Probability).is_ok());
    assert!(find(CALIBRATORS, "platt").err().unwrap().contains("known: temperature, vector, matrix"));
}

/// A row says by its columns which calibrator a number comes from.
#[test]
fn columns_name_their_calibrator() {
    let [held_out, test] = predictions(&golden());
    let found = Calibration::fit(CALIBRATORS, &held_out).unwrap().columns(&test).unwrap();
    for calibrator in CALIBRATORS {
        let name = format!("nll_{}_pm", calibrator.suffix);
        let (_, value) = found.iter().find(|(column, _)| *column == name).unwrap_or_else(|| panic!("no {name}"));
        assert!(value.unwrap() > 0.0 && is_column(&name) && of_column(&name).is_some());
    }
    assert!(!is_column("nll_pm") && word("nll_ts_pm") == Some("scaled") && word("accuracy_vs_lm") == Some("vector"));
}

#[test]
fn another_predictor_is_refused() {
    let [held_out, test] = predictions(&golden());
    let one = Predictions::new(held_out.shape(), held_out.all_logits().to_vec(), held_out.labels().unwrap().to_vec());
    let shape = Shape { members: 2, samples: 50, ..test.shape() };
    let two = Predictions::new(shape, test.all_logits()[..400].to_vec(), vec![0; 50]).unwrap();
    let error = Calibration::fit(&[DEFAULT], &two).unwrap().columns(&one.unwrap()).unwrap_err().to_string();
    assert!(error.contains("2 members and 4 classes, those to scale 1 and 4"), "{error}");
}

/// By averages, probabilities of one member are the same.
#[test]
fn averages_of_one_member_agree() {
    let [held_out, _] = predictions(&golden());
    let [lm, pm] = Average::ALL.map(|average| Averaged::of(&held_out, average).unwrap().normalised());
    let pairs = lm.rows().flatten().zip(pm.rows().flatten());
    assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-12));
}
