//! Sensitivities of training images and the leave-one-out loss, end to end on digits with some labels replaced.

use crate::common::{Place, assert_has, error_line, messages, printed};
use bella::results::store::read;

const IVON: [&str; 3] = [
    "method.ivon={lr=0.1,ess=32,hess_init=0.1,beta2=0.99,samples=3,particles=2}",
    "optimizer.none={}",
    "data.digits.label_noise=0.1",
];

#[test]
fn sensitivities_of_a_run() {
    let place = Place::with_tiny();
    let output =
        place.train(&[&IVON[..], &["train.loo_samples=30", "train.select=last-epoch"]].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(&messages(&output), &["4 of 40 labels replaced"]);
    let history = read(&place.run().join("train.csv")).unwrap();
    let of_training: f64 = history.get(1, "loo_loss").unwrap().parse().unwrap();

    let output = place.command("sensitivity", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", messages(&output));
    assert_has(
        &printed(&output),
        &["30 training images", "leave-one-out loss", "most sensitive images have a replaced label"],
    );
    let table = read(&place.run().join("sensitivity.csv")).unwrap();
    assert_eq!(table.rows.len(), 30);
    let number = |row: usize, column: &str| table.get(row, column).unwrap().parse::<f64>().unwrap();
    let mut previous = f64::INFINITY;
    for row in 0..30 {
        let (sensitivity, variance, error) =
            (number(row, "sensitivity"), number(row, "variance"), number(row, "error"));
        assert!(sensitivity <= previous, "sorted");
        // ‖V e‖ ≤ ‖V‖ ‖e‖ ≤ trace(V) ‖e‖, and leaving an image out cannot make it easier: eᵀ V e ≥ 0.
        assert!(sensitivity <= variance * error * (1.0 + 1e-9));
        assert!(number(row, "loo_loss") >= number(row, "loss") - 1e-9);
        previous = sensitivity;
    }
    let mean = (0..30).map(|row| number(row, "loo_loss")).sum::<f64>() / 30.0;
    assert!((of_training / mean - 1.0).abs() < 1e-4, "{of_training} while training, {mean} afterwards");
    assert!(place.run().join("sensitivity.png").is_file());
    let replaced = (0..30).filter(|row| table.get(*row, "label_replaced") == Some("true")).count();
    assert!((2..=4).contains(&replaced), "{replaced} of the 4 are trained on");
}

#[test]
fn points_have_no_sensitivities() {
    let place = Place::with_tiny();
    assert_eq!(place.train(&[]).output().unwrap().status.code(), Some(0));
    assert_has(&error_line(place.command("sensitivity", &[]), 1), &["Gaussian posterior", "[method.ivon]"]);
    let line = error_line(place.train(&["train.loo_samples=5"]), 2);
    assert_has(&line, &["loo_samples", "[method.ivon] in [subspace.low-rank]"]);
}

/// Leave-one-out losses need Gaussians with independent columns, which these settings do not have.
#[test]
fn leave_one_out_losses_are_refused_before_training_where_columns_depend_on_each_other() {
    let place = Place::with_tiny();
    for method in [
        "method.scalabl={cycle=9}",
        "method.vbll={ess=32,rank=2}",
        "method.vbll={ess=32,covariance=\"dense\"}",
        "method.ibdr={particles=2,std=0}",
    ] {
        let line = error_line(place.train(&[method, "train.loo_samples=5"]), 2);
        assert_has(&line, &["loo_samples: needs a Gaussian posterior with independent columns"]);
    }
    for method in ["method.vbll={ess=32}", "method.ibdr={particles=2,std=0.01}", "method.blob={kl_lr=0}"] {
        let sets = [method, "head.linear={}", "train.loo_samples=5", "train.epochs=1"];
        let output = place.train(&sets).arg("--no-eval").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{method}: {}", messages(&output));
    }
}
