//! What follows a run while it trains: `bella watch`, the hook of an epoch, and TensorBoard's event files.

mod common;

use common::{Place, assert_has, bella, messages, printed};

fn watch(place: &Place, arguments: &[&str]) -> std::process::Output {
    let out = place.path("results").display().to_string();
    bella(&[&["watch", "--out", &out], arguments].concat()).env("COLUMNS", "60").output().unwrap()
}

#[test]
fn the_curves_of_runs_are_drawn() {
    let place = Place::with_tiny();
    let empty = watch(&place, &[]);
    assert_eq!(empty.status.code(), Some(1));
    assert_has(&messages(&empty), &["no run below", "is training or has trained"]);
    place.train(&[]).arg("--no-eval").assert().success();
    place.train(&["seed=4"]).arg("--no-eval").assert().success();
    let one = printed(&watch(&place, &["low-rank-svgd-s3"]));
    assert_has(&one, &["low-rank-svgd-s3-", "trained, 2 of 2 epochs\n", "training loss: ", "validation accuracy (%): "]);
    let two = printed(&watch(&place, &["low-rank-svgd-s3", "low-rank-svgd-s4", "--columns", "bandwidth"]));
    assert_has(&two, &["a low-rank-svgd-s3-", "b low-rank-svgd-s4-", "bandwidth\n"]);
    assert!(!two.contains("training loss"), "{two}");
    for text in [one, two] {
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 60), "{text}");
    }
    let unknown = watch(&place, &["--columns", "train_los"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert_has(&messages(&unknown), &["train.csv has no column `train_los`", "train_loss"]);
}
